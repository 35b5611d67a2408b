// SPDX-License-Identifier: Apache-2.0

// `ckptree copy` and `ckptree backup`: steps of a store, saved into another.

#include "ckptree/copy.h"

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "ckptree/local_path.h"
#include "tools/line/command.h"
#include "tools/line/step_range.h"
#include "tools/line/table_flags.h"
#include "tools/output/failure.h"
#include "tools/output/interrupt.h"
#include "tools/output/progress_line.h"
#include "tools/output/quantity.h"

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

StoreOptions DestinationOptions(Session& session) {
  StoreOptions options;
  options.create_if_missing = true;
  options.log = [&session](LogSeverity severity, std::string_view,
                           std::string_view text) {
    if (severity != LogSeverity::kInfo) session.Note(text);
  };
  return options;
}

absl::StatusOr<std::optional<Store>> OpenDestination(Session& session,
                                                     const std::string& to,
                                                     bool dry_run) {
  const absl::StatusOr<std::string> path = LocalPath(to);
  if (!path.ok()) return path.status();
  if (dry_run && !IsStore(*path)) {
    std::error_code error;
    if (fs::exists(*path, error) && !fs::is_empty(*path, error)) {
      return WithHint(absl::InvalidArgumentError(absl::StrFormat(
                          "%s is there and is no store", Escape(to))),
                      "name a store, or a folder that is not there yet");
    }
    return std::optional<Store>();
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
  if (!store.ok()) return store.status();
  return std::optional<Store>(*std::move(store));
}

// In an object store: where no directory of this machine is meant, and
// something else is.
bool IsFar(const std::string& to) {
  return !LocalPath(to).ok() &&
         (to.starts_with("s3://") || to.starts_with("gs://") ||
          to.starts_with("rados://") || to.starts_with("file:///"));
}

// Through a folder of this machine, which ships to `to`, and goes when all is
// there. One that a copy left which was ended is gone on with.
class FarDestination {
 public:
  FarDestination(Session& session, std::string to)
      : session_(session), to_(std::move(to)) {}

  absl::StatusOr<std::optional<Store>> Open(bool dry_run) {
    if (dry_run) {
      StoreOptions options = DestinationOptions(session_);
      options.read_only = true;
      options.create_if_missing = false;
      absl::StatusOr<Store> store = Store::Open(to_, std::move(options));
      if (absl::IsNotFound(store.status())) return std::optional<Store>();
      if (!store.ok()) return store.status();
      return std::optional<Store>(*std::move(store));
    }
    if (absl::Status found = FindFolder(); !found.ok()) return found;
    StoreOptions options = DestinationOptions(session_);
    options.remote = to_;
    options.remote_timeout = kTimeOfClose;
    options.take_over = session_.arguments().Has("take-over");
    std::error_code error;
    const bool left = fs::exists(folder_, error);
    absl::StatusOr<Store> store = Store::Open(folder_, options);
    if (left && absl::IsFailedPrecondition(store.status())) {
      // Another one has written there since: nothing in it is the only one.
      fs::remove_all(folder_, error);
      store = Store::Open(folder_, options);
    }
    if (absl::IsFailedPrecondition(store.status()) && !options.take_over &&
        absl::StrContains(store.status().message(), "may still be training")) {
      return WithHint(store.status(),
                      "where nothing runs there any more: --take-over");
    }
    if (!store.ok()) return store.status();
    return std::optional<Store>(*std::move(store));
  }

  // Until all of it is there, or Ctrl-C.
  static absl::Status Await(Store& store) {
    while (true) {
      const absl::Status there = store.WaitReplicated(kLook);
      if (!absl::IsDeadlineExceeded(there)) return there;
      if (Interrupted()) return absl::CancelledError("interrupted");
    }
  }

  void Remove() const {
    std::error_code error;
    fs::remove_all(folder_, error);
    if (error) session_.Note(folder_ + " stays: " + error.message());
  }

 private:
  static constexpr absl::Duration kLook = absl::Milliseconds(200);
  static constexpr absl::Duration kTimeOfClose = absl::Seconds(10);

  absl::Status FindFolder() {
    const char* const named = std::getenv("XDG_CACHE_HOME");
    const char* const home = std::getenv("HOME");
    fs::path root;
    if (named != nullptr && *named == '/') {
      root = named;
    } else if (home != nullptr && *home == '/') {
      root = fs::path(home) / ".cache";
    } else {
      return WithHint(
          absl::FailedPreconditionError(
              "a copy to an object store needs a folder on its way there"),
          "set XDG_CACHE_HOME");
    }
    root /= "ckptree";
    std::error_code error;
    fs::create_directories(root, error);
    if (error) {
      return WithHint(
          absl::FailedPreconditionError(
              absl::StrFormat("%s, where a copy to an object store lies on its "
                              "way, cannot be made: %s",
                              root.string(), error.message())),
          "set XDG_CACHE_HOME to a folder that this user may write to");
    }
    folder_ =
        root / absl::StrFormat("copy-%016x", std::hash<std::string>()(to_));
    return absl::OkStatus();
  }

  Session& session_;
  const std::string to_;
  std::string folder_;
};

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
  table.extra = {{"ok", report.complete()},
                 {"problems", report.problems},
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
         step.why.empty() ? NoCell() : TextCell(step.why),
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
        {Result::kDamaged, "are DAMAGED and were left out"}}) {
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

absl::StatusOr<int> CopyTo(Session& session, const std::string& to,
                           const std::vector<std::string>& revs, bool overwrite,
                           bool backup) {
  const absl::StatusOr<TableOptions> table_options =
      ParseTableOptions(session.arguments());
  if (!table_options.ok()) return table_options.status();
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
  absl::StatusOr<std::optional<Store>> store =
      is_far ? far.Open(options.dry_run)
             : OpenDestination(session, to, options.dry_run);
  if (!store.ok()) return store.status();
  const bool ships = is_far && *store && !options.dry_run;

  absl::StatusOr<CopyReport> report;
  std::uint64_t copied = 0;
  {
    ProgressLine progress("copy", session.error_terminal().is_terminal &&
                                      !session.arguments().Has("quiet"));
    Interruptible interruptible;
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
  absl::Status closed;
  if (*store) closed = (**store).Close();
  if (ships && report.ok() && closed.ok()) far.Remove();
  if (absl::IsCancelled(report.status())) {
    session.Note(absl::StrFormat(
        "interrupted: %s copied, none in part; the same command goes on",
        CountText(copied, "step was", "steps were")));
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
  if (!report.ok()) return report.status();
  if (!closed.ok()) return closed;
  for (const std::string& problem : report->problems) session.Note(problem);
  for (const Finding& finding : report->verified.findings) {
    session.Note(
        absl::StrFormat("%s: %s", Name(finding.severity), finding.what));
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
