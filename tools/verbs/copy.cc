// SPDX-License-Identifier: Apache-2.0

// `ckptree copy` and `ckptree backup`: steps of a store, saved into another.

#include "ckptree/copy.h"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "ckptree/local_path.h"
#include "tools/line/command.h"
#include "tools/line/step_range.h"
#include "tools/line/table_flags.h"
#include "tools/output/failure.h"
#include "tools/output/interrupt.h"
#include "tools/output/printed_table.h"
#include "tools/output/progress_line.h"
#include "tools/output/quantity.h"
#include "tools/verbs/far_destination.h"

namespace ckptree::tools {
namespace {

namespace fs = std::filesystem;

// A store is not copied into itself, nor into one of its own folders.
absl::Status CheckApart(const std::string& from, const std::string& to) {
  std::error_code error;
  const fs::path source = fs::weakly_canonical(from, error);
  fs::path folder = fs::weakly_canonical(fs::absolute(to, error), error);
  while (!error && !folder.empty()) {
    if (folder == source) {
      return WithHint(absl::InvalidArgumentError(absl::StrFormat(
                          "%s lies in %s, which is the store to copy",
                          Escape(to), Escape(from))),
                      "name another folder for the copy");
    }
    if (folder == folder.root_path()) break;
    folder = folder.parent_path();
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<Store>> OpenDestination(Session& session,
                                                     const std::string& to,
                                                     bool dry_run) {
  const absl::StatusOr<std::string> path = LocalPath(to);
  if (!path.ok()) return path.status();
  if (!IsStore(*path)) {
    std::error_code error;
    // A store that was begun has the lock.
    if (fs::exists(*path, error) && !fs::is_empty(*path, error) &&
        !fs::exists(fs::path(*path) / "LOCK", error)) {
      return WithHint(absl::InvalidArgumentError(absl::StrFormat(
                          "%s is there and is no store", Escape(to))),
                      "name a store, or a folder that is not there yet");
    }
    if (dry_run) return std::optional<Store>();
  }
  StoreOptions options = DestinationOptions(session);
  options.read_only = dry_run;
  options.create_if_missing = !dry_run;
  const auto wait = session.arguments().Number("wait");
  if (!wait.ok()) return wait.status();
  options.lock_wait = absl::Seconds(wait->value_or(0));
  absl::StatusOr<Store> store = Store::Open(to, std::move(options));
  if (absl::IsNotFound(store.status())) {
    return WithHint(absl::InvalidArgumentError(store.status().message()),
                    "make the folder that the copy is to stand in");
  }
  if (absl::IsUnavailable(store.status())) {
    return WithExitCode(store.status(), kExitBusy);
  }
  if (!store.ok()) return store.status();
  return std::optional<Store>(*std::move(store));
}

Table CopyTable(const CopyReport& report, const TableOptions& options) {
  Table table;
  table.schema = "ckptree.copy/1";
  table.rows_name = "steps";
  table.columns = {{.name = "step", .title = "STEP", .right = true},
                   {.name = "result", .title = "RESULT"},
                   {.name = "leaves", .title = "LEAVES", .right = true},
                   {.name = "bytes", .title = "SIZE", .right = true},
                   {.name = "new_bytes", .title = "NEW", .right = true},
                   {.name = "why", .title = "WHY"},
                   {.name = "branch"}};
  Json findings = Json::array();
  for (const Finding& finding : report.verified.findings) {
    findings.push_back(
        {{"severity", Name(finding.severity)}, {"what", finding.what}});
  }
  Json problems = Json::array();
  for (const std::string& why : report.problems) {
    problems.push_back(ForACopy(why));
  }
  table.extra = {{"ok", report.complete()},
                 {"problems", std::move(problems)},
                 {"verified_bytes", report.verified.bytes},
                 {"findings", std::move(findings)}};
  for (const CopiedStep& step : report.steps) {
    // Of a store that is copied again and again most are there.
    if (options.format == Format::kTable &&
        step.result == CopiedStep::Result::kThere) {
      continue;
    }
    Cell name = StepCell(step.step);
    name.text = StepText(step.branch, step.step);
    const bool good = step.result == CopiedStep::Result::kCopied ||
                      step.result == CopiedStep::Result::kPlanned;
    table.rows.push_back(
        {std::move(name),
         TextCell(Name(step.result), good ? Tone::kPlain : Tone::kWarning),
         CountCell(step.leaves), BytesCell(step.bytes, options.exact_bytes),
         step.result == CopiedStep::Result::kCopied
             ? BytesCell(step.new_bytes, options.exact_bytes)
             : NoCell(),
         step.why.empty() ? NoCell() : TextCell(ForACopy(step.why)),
         TextCell(step.branch)});
  }
  return table;
}

std::string SummaryText(const CopyReport& report, bool dry_run,
                        bool exact_bytes) {
  using Result = CopiedStep::Result;
  std::uint64_t bytes = 0, written = 0;
  for (const CopiedStep& step : report.steps) {
    if (step.result != Result::kCopied && step.result != Result::kPlanned) {
      continue;
    }
    bytes += step.bytes;
    written += step.new_bytes;
  }
  std::string text = absl::StrFormat(
      "%s %s of %s",
      CountText(report.CountOf(dry_run ? Result::kPlanned : Result::kCopied),
                "step", "steps"),
      dry_run ? "would be copied," : "copied,", SizeText(bytes, exact_bytes));
  if (!dry_run) {
    absl::StrAppendFormat(&text, ", %s of them new",
                          SizeText(written, exact_bytes));
  }
  for (const auto& [result, what] :
       {std::pair(Result::kThere, "were there"),
        {Result::kGone, "were removed since it began"},
        {Result::kRefused, "were REFUSED"},
        {Result::kDamaged, "are DAMAGED and were left out"},
        {Result::kUnreachable, "CANNOT BE REACHED and were left out"}}) {
    const std::uint64_t count = report.CountOf(result);
    if (count > 0) absl::StrAppendFormat(&text, "; %d %s", count, what);
  }
  if (report.verified.steps > 0) {
    absl::StrAppendFormat(
        &text, "; %s read back: %s",
        SizeText(report.verified.bytes, exact_bytes),
        report.verified.findings.empty() ? "no damage" : "see above");
  }
  return text + "\n";
}

// Exit code of what is left out.
int CodeOf(const CopyReport& report) {
  bool damaged = report.CountOf(CopiedStep::Result::kDamaged) > 0;
  for (const Finding& finding : report.verified.findings) {
    if (finding.severity != Finding::Severity::kWarning) damaged = true;
  }
  if (damaged) return kExitDamaged;
  if (report.CountOf(CopiedStep::Result::kUnreachable) > 0) {
    return kExitFailure;
  }
  return report.complete() ? kExitOk : kExitNegative;
}

absl::StatusOr<std::vector<StepSelector>> WantedSteps(
    Session& session, const std::vector<std::string>& revs) {
  std::vector<StepSelector> steps;
  for (const std::string& rev : revs) {
    const absl::StatusOr<std::vector<StepInfo>> found = FindSteps(session, rev);
    if (!found.ok()) return found.status();
    if (found->empty()) {
      return WithHint(absl::NotFoundError(absl::StrFormat(
                          "there is no step in `%s`", Escape(rev))),
                      "`ckptree log` lists the steps");
    }
    for (const StepInfo& info : *found) {
      steps.push_back(AtStep(info.step, info.branch));
    }
  }
  return steps;
}

void NoteInterrupted(Session& session, std::uint64_t copied) {
  session.Note(absl::StrFormat(
      "interrupted: %s copied, none in part; the same command goes on",
      CountText(copied, "step was", "steps were")));
}

absl::StatusOr<int> CopyTo(Session& session, const std::string& to,
                           const std::vector<std::string>& revs, bool overwrite,
                           bool backup) {
  const absl::StatusOr<TableOptions> table_options =
      ParseTableOptions(session.arguments());
  if (!table_options.ok()) return table_options.status();
  // Columns that are not there are said before anything is copied.
  if (absl::Status status =
          CheckColumns(CopyTable({}, *table_options), *table_options);
      !status.ok()) {
    return status;
  }
  const absl::StatusOr<Store*> from = session.OpenStore();
  if (!from.ok()) return from.status();
  const bool is_far = IsFar(to);
  if (!is_far && session.arguments().Has("take-over")) {
    return WithHint(
        absl::InvalidArgumentError(absl::StrFormat(
            "--take-over is of an address, and %s is a directory", Escape(to))),
        "--wait waits for a program that writes there");
  }
  if (absl::Status status =
          is_far ? absl::OkStatus() : CheckApart(session.directory(), to);
      !status.ok()) {
    return status;
  }
  CopyOptions options;
  options.overwrite = overwrite || backup;
  options.of_same_store = backup;
  options.dry_run = session.arguments().Has("dry-run");
  options.verify_all = session.arguments().Has("verify-all");
  if (!revs.empty()) {
    absl::StatusOr<std::vector<StepSelector>> steps =
        WantedSteps(session, revs);
    if (!steps.ok()) return steps.status();
    options.steps = *std::move(steps);
  }
  FarDestination far(session, to);
  // What is on its way to an object store is left so that the same command goes
  // on, also while it is opened and closed.
  std::optional<Interruptible> interruptible;
  if (is_far) interruptible.emplace();
  absl::StatusOr<std::optional<Store>> store =
      is_far ? far.Open(options.dry_run)
             : OpenDestination(session, to, options.dry_run);
  if (!store.ok()) {
    if (Interrupted()) NoteInterrupted(session, 0);
    return store.status();
  }
  const bool ships = is_far && *store && !options.dry_run;

  absl::StatusOr<CopyReport> report;
  std::uint64_t copied = 0;
  {
    ProgressLine progress("copy", session.error_terminal().is_terminal &&
                                      !session.arguments().Has("quiet"));
    if (!is_far) interruptible.emplace();
    options.cancelled = Interrupted;
    options.on_progress = [&](std::uint64_t done, std::uint64_t total) {
      progress.Update(done, total);
    };
    options.on_step = [&](const CopiedStep& step) {
      copied += step.result == CopiedStep::Result::kCopied ? 1 : 0;
    };
    report = Copy(**from, *store ? &**store : nullptr, options);
    if (ships && report.ok()) {
      const absl::Status there = FarDestination::Await(**store);
      if (!there.ok()) report = there;
    }
  }
  if (!is_far) interruptible.reset();
  absl::Status closed;
  if (*store) {
    const std::uint64_t there =
        report.ok() ? report->CountOf(CopiedStep::Result::kCopied) : copied;
    closed = NotClosed(
        (**store).Close(),
        there == 0 ? ""
                   : absl::StrFormat("%s %s copied to %s",
                                     CountText(there, "step", "steps"),
                                     there == 1 ? "is" : "are", Escape(to)));
  }
  if (ships && report.ok() && closed.ok()) far.Remove();
  if (absl::IsCancelled(report.status())) {
    NoteInterrupted(session, copied);
    return report.status();
  }
  if (absl::IsAlreadyExists(report.status())) {
    return WithHint(
        absl::FailedPreconditionError(absl::StrFormat(
            "%s%s: %s", Escape(to), backup ? " is no backup of this store" : "",
            std::string(report.status().message()))),
        backup ? "name another place; or `ckptree copy SRC DST --overwrite`, "
                 "which replaces the steps there"
               : "--overwrite replaces it; `ckptree -C DST show` and "
                 "`ckptree -C SRC show` say what each is");
  }
  if (!report.ok()) return ships ? AtAddress(report.status()) : report.status();
  if (!closed.ok()) return ships ? AtAddress(closed) : closed;
  for (const std::string& problem : report->problems)
    session.Note(ForACopy(problem));
  for (const Finding& finding : report->verified.findings) {
    session.Note(
        absl::StrFormat("%s: %s", Name(finding.severity), finding.what));
  }
  if (!report->silent_remote.empty()) {
    session.Note(absl::StrFormat(
        "%s does not answer, and has what %s lack here; once it does the same "
        "command copies them",
        report->silent_remote,
        CountText(report->CountOf(CopiedStep::Result::kUnreachable), "step",
                  "steps")));
  }
  const bool people = table_options->format == Format::kTable;
  Table table = CopyTable(*report, *table_options);
  if (!people || !table.rows.empty()) {
    if (absl::Status status = session.Print(std::move(table), *table_options);
        !status.ok()) {
      return status;
    }
  }
  if (people) {
    session.out().Write(
        SummaryText(*report, options.dry_run, table_options->exact_bytes));
  }
  return CodeOf(*report);
}

}  // namespace

absl::StatusOr<int> RunCopy(Session& session) {
  const std::vector<std::string>& words = session.words();
  if (session.arguments().Has("store")) {
    return WithHint(
        absl::InvalidArgumentError("-C names no store of `copy`: SRC does"),
        "`ckptree copy SRC DST`, or `ckptree -C SRC backup DST`");
  }
  if (words[0].empty() || words[1].empty()) {
    return WithHint(absl::InvalidArgumentError("the name of a store is empty"),
                    "`ckptree copy SRC DST`");
  }
  session.UseStore(words[0]);
  return CopyTo(session, words[1], {words.begin() + 2, words.end()},
                session.arguments().Has("overwrite"), /*backup=*/false);
}

absl::StatusOr<int> RunBackup(Session& session) {
  if (session.words()[0].empty()) {
    return WithHint(absl::InvalidArgumentError("the name of a store is empty"),
                    "`ckptree backup DST`");
  }
  return CopyTo(session, session.words()[0], {}, /*overwrite=*/false,
                /*backup=*/true);
}

}  // namespace ckptree::tools
