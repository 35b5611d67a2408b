// SPDX-License-Identifier: Apache-2.0

// `ckptree verify`: is every byte what was saved?

#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "tools/line/command.h"
#include "tools/line/step_range.h"
#include "tools/line/table_flags.h"
#include "tools/output/failure.h"
#include "tools/output/interrupt.h"
#include "tools/output/printed_table.h"
#include "tools/output/progress_line.h"
#include "tools/output/quantity.h"
#include "tools/output/terminal.h"

namespace ckptree::tools {
namespace {

// "1000, 2000 and 17 more".
std::string StepsText(const std::vector<std::string>& steps, bool all) {
  constexpr std::size_t kShown = 6;
  std::string text;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    if (!all && i == kShown && steps.size() > kShown + 1) {
      return text + absl::StrFormat(" and %d more", steps.size() - kShown);
    }
    absl::StrAppendFormat(&text, "%s%s", i == 0 ? "" : ", ", steps[i]);
  }
  return text;
}

Table FindingTable(const VerifyReport& report, bool all_steps) {
  Table table;
  table.schema = "ckptree.verify/1";
  table.rows_name = "findings";
  table.columns = {{.name = "severity", .title = "SEVERITY"},
                   {.name = "steps", .title = "STEPS"},
                   {.name = "leaf", .title = "LEAF", .elide = true},
                   {.name = "what", .title = "WHAT"},
                   {.name = "step_names", .flat = false}};
  for (const Finding& finding : report.findings) {
    const Tone tone = finding.severity == Finding::Severity::kWarning
                          ? Tone::kWarning
                          : Tone::kBad;
    table.rows.push_back(
        {TextCell(Name(finding.severity), tone),
         Cell{Json(finding.steps), StepsText(finding.selectors, all_steps)},
         TextCell(finding.leaf), TextCell(finding.what),
         Cell{Json(finding.selectors), StepsText(finding.selectors, true)}});
  }
  return table;
}

absl::StatusOr<VerifyReport> Check(Session& session, VerifyOptions options) {
  for (const std::string& word : session.words()) {
    if (word.find("..") == word.npos) {
      const absl::StatusOr<Address> address = ParseAddress(word);
      if (!address.ok()) return address.status();
      if (!address->key.empty()) {
        return absl::InvalidArgumentError(
            "`ckptree verify` checks whole steps: leave the key out");
      }
    }
    const absl::StatusOr<std::vector<StepInfo>> steps =
        FindSteps(session, word);
    if (!steps.ok()) return steps.status();
    for (const StepInfo& info : *steps) {
      options.steps.push_back(AtStep(info.step, info.branch));
    }
  }
  // No step of it is not every step.
  if (!session.words().empty() && options.steps.empty()) return VerifyReport();
  const absl::StatusOr<Store*> store = session.OpenStore();
  if (!store.ok()) return store.status();
  ProgressLine progress("verify", session.error_terminal().is_terminal &&
                                      !session.arguments().Has("quiet"));
  Interruptible interruptible;
  options.cancelled = Interrupted;
  options.on_progress = [&](std::uint64_t done, std::uint64_t total) {
    progress.Update(done, total);
  };
  return (*store)->Verify(options);
}

// What to go back to: the newest step of the main branch that no finding names.
// Nothing where the store does not open.
std::optional<std::int64_t> NewestUnharmed(Session& session,
                                           const std::set<std::string>& hurt) {
  const absl::StatusOr<Store*> store = session.OpenStore();
  if (!store.ok()) return std::nullopt;
  const absl::StatusOr<std::vector<StepInfo>> steps = (*store)->Steps();
  if (!steps.ok()) return std::nullopt;
  for (auto step = steps->rbegin(); step != steps->rend(); ++step) {
    if (!hurt.contains(StepText("", step->step))) return step->step;
  }
  return std::nullopt;
}

}  // namespace

absl::StatusOr<int> RunVerify(Session& session) {
  const absl::StatusOr<TableOptions> table_options =
      ParseTableOptions(session.arguments());
  if (!table_options.ok()) return table_options.status();
  VerifyOptions options;
  const bool quick = session.arguments().Has("quick");
  const bool deep = session.arguments().Has("deep");
  if (quick && deep) {
    return absl::InvalidArgumentError("--quick and --deep: choose one");
  }
  if (quick) options.level = VerifyOptions::Level::kQuick;
  if (deep) options.level = VerifyOptions::Level::kDeep;
  // Columns that are not there are said before all is read, and also where no
  // finding is printed.
  if (absl::Status status =
          CheckColumns(FindingTable({}, true), *table_options);
      !status.ok()) {
    return status;
  }

  absl::StatusOr<VerifyReport> report = Check(session, std::move(options));
  bool opens = true;
  if (absl::IsDataLoss(report.status())) {
    // So damaged that it cannot be opened: that is the finding.
    opens = false;
    Finding finding;
    finding.what = std::string(report.status().message());
    report.emplace();
    report->findings.push_back(std::move(finding));
  }
  if (!report.ok()) return report.status();

  bool damaged = false;
  std::set<std::int64_t> numbers;
  std::set<std::string> hurt;  // Names.
  for (const Finding& finding : report->findings) {
    if (finding.severity == Finding::Severity::kWarning) continue;
    damaged = true;
    numbers.insert(finding.steps.begin(), finding.steps.end());
    hurt.insert(finding.selectors.begin(), finding.selectors.end());
  }
  // Said only of all steps: of others nothing was learned.
  std::optional<std::int64_t> unharmed;
  if (damaged && session.words().empty()) {
    unharmed = NewestUnharmed(session, hurt);
  }
  const bool people = table_options->format == Format::kTable;
  Table table = FindingTable(*report, !people);
  table.extra = {{"ok", !damaged},
                 {"level", quick  ? "quick"
                           : deep ? "deep"
                                  : "full"},
                 {"steps", report->steps},
                 {"leaves", report->leaves},
                 {"chunks", report->chunks},
                 {"bytes", report->bytes},
                 {"damaged_steps", numbers},
                 {"damaged_step_names", hurt},
                 {"newest_unharmed_step",
                  unharmed.has_value() ? Json(*unharmed) : Json()}};
  const bool print = !people || !report->findings.empty();
  if (print) {
    if (absl::Status status = session.Print(std::move(table), *table_options);
        !status.ok()) {
      return status;
    }
  }
  if (people) {
    const std::string outcome =
        damaged ? absl::StrFormat(
                      "DAMAGED: %s %s",
                      CountText(report->findings.size(), "finding", "findings"),
                      !opens ? "that the store does not open with"
                      : hurt.empty()
                          ? "that no step is hurt by"
                          : "in " + CountText(hurt.size(), "step", "steps"))
        : report->findings.empty()
            ? std::string("no damage")
            : absl::StrFormat(
                  "no damage, %s",
                  CountText(report->findings.size(), "warning", "warnings"));
    session.out().Write(
        absl::StrFormat("%s, %s, %s, %s checked: %s\n",
                        CountText(report->steps, "step", "steps"),
                        CountText(report->leaves, "leaf", "leaves"),
                        CountText(report->chunks, "chunk", "chunks"),
                        SizeText(report->bytes, table_options->exact_bytes),
                        Paint(outcome, damaged ? Tone::kBad : Tone::kGood,
                              session.terminal().color)));
    if (unharmed.has_value()) {
      session.out().Write(
          absl::StrFormat("the newest unharmed step is %d\n", *unharmed));
    }
    if (damaged) {
      session.out().Write(
          absl::StrContains(session.directory(), "://")
              ? "put back from a copy what is damaged there; `ckptree repair` "
                "takes the directory of the run, or one that its remote was "
                "fetched into\n"
              : absl::StrFormat("`ckptree repair %s` says what can be mended\n",
                                Escape(session.directory())));
      const absl::StatusOr<Store*> store = session.OpenStore();
      const std::string shipped_to =
          store.ok() ? (*store)->Info().shipped_to : "";
      if (!shipped_to.empty()) {
        session.out().Write(absl::StrFormat(
            "%s, where it ships to, may have that whole: open it with this "
            "remote first\n",
            Escape(shipped_to)));
      }
    }
  }
  if (!damaged && !report->not_looked_at.empty()) {
    return WithHint(absl::FailedPreconditionError(
                        "nothing that was looked at is damaged, and not "
                        "all was: " +
                        report->not_looked_at),
                    "`verify` again where the object store answers");
  }
  return damaged ? kExitNegative : kExitOk;
}

}  // namespace ckptree::tools
