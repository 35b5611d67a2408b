// SPDX-License-Identifier: Apache-2.0

// `ckptree repair`: says what is wrong with a store, and mends it in its place.

#include "ckptree/repair.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "ckptree/selector.h"
#include "core/process/out_of_reach.h"
#include "tools/line/command.h"
#include "tools/line/table_flags.h"
#include "tools/output/failure.h"
#include "tools/output/interrupt.h"
#include "tools/output/progress_line.h"
#include "tools/output/quantity.h"
#include "tools/verbs/recovered_steps.h"

namespace ckptree::tools {
namespace {

using Action = RepairReport::Action;

constexpr std::size_t kShownProblems = 20;
constexpr std::size_t kShownSteps = 8;

std::string_view ActionName(Action action) {
  switch (action) {
    case Action::kNothing:
      return "nothing";
    case Action::kMend:
      return "mend";
    case Action::kRebuild:
      return "rebuild";
    case Action::kFinish:
      return "finish";
  }
  return "?";
}

bool IsWhole(const RecoveredStep& step) {
  return step.saved && step.lost.empty();
}

// All was looked at, and nothing is wrong.
bool IsWell(const RepairReport& report) {
  return report.action == Action::kNothing && report.not_looked_at.empty();
}

Table ReportTable(const RepairReport& report, bool exact_bytes) {
  Table table = RecoveredTable("ckptree.repair/1", report.steps, exact_bytes);
  const auto newest = report.newest_whole_step();
  table.extra = {{"ok", IsWell(report)},
                 {"action", ActionName(report.action)},
                 {"done", report.done},
                 {"complete", report.complete()},
                 {"problems", report.problems},
                 {"losses", report.losses},
                 {"notes", report.notes},
                 {"newest_whole_step", newest ? Json(*newest) : Json()},
                 {"damaged_store", report.damaged},
                 {"id", report.id}};
  return table;
}

std::string ProblemText(const RepairReport& report) {
  std::string text;
  std::size_t shown = 0;
  for (const std::string& problem : report.problems) {
    if (shown++ == kShownProblems) {
      absl::StrAppendFormat(&text, "and %d more; --json has all of them\n",
                            report.problems.size() - kShownProblems);
      break;
    }
    absl::StrAppendFormat(&text, "wrong: %s\n", EscapeLines(problem));
  }
  return text;
}

// "whole: 4 steps: 10, 20, 30, 40".
std::string WholeText(const RepairReport& report) {
  std::vector<std::string> whole;
  for (const RecoveredStep& step : report.steps) {
    if (IsWhole(step)) whole.push_back(StepText(step.branch, step.step));
  }
  if (whole.empty()) {
    return report.steps.empty() ? "" : "whole: not a single step\n";
  }
  std::string text =
      absl::StrFormat("whole: %s:", CountText(whole.size(), "step", "steps"));
  // People mostly ask for the newest.
  const std::size_t first =
      whole.size() > kShownSteps ? whole.size() - kShownSteps : 0;
  if (first > 0) absl::StrAppendFormat(&text, " %d older ones and", first);
  for (std::size_t i = first; i < whole.size(); ++i) {
    absl::StrAppendFormat(&text, "%s%s", i == first ? " " : ", ", whole[i]);
  }
  text += "\n";
  const auto newest = report.newest_whole_step();
  if (whole.size() < report.steps.size() && newest) {
    absl::StrAppendFormat(&text, "the newest whole step is %d\n", *newest);
  }
  return text;
}

std::string NameOfDamaged(const std::string& store) {
  std::error_code error;
  const std::filesystem::path real = std::filesystem::canonical(store, error);
  const std::string name = (error ? store : real.string()) + ".damaged";
  return Escape(name) + (std::filesystem::exists(name, error)
                             ? ".N, as there is one of that name"
                             : "");
}

std::string PlanText(const RepairReport& report, const std::string& store) {
  switch (report.action) {
    case Action::kNothing:
      return "";
    case Action::kMend:
      return "repair: what is damaged is made anew from its other copy; "
             "nothing "
             "is lost\n";
    case Action::kRebuild:
      return absl::StrFormat(
          "repair: what can be read is saved into a new store, which takes the "
          "place of %s; the damaged one is kept as %s\n",
          Escape(store), NameOfDamaged(store));
    case Action::kFinish:
      return absl::StrFormat(
          "repair: the interrupted one is ended: the repaired store is %s, "
          "the damaged one is kept as %s\n",
          Escape(store), NameOfDamaged(store));
  }
  return "";
}

// All there is to know before anything is changed.
absl::Status PrintPlan(Session& session, const TableOptions& table_options,
                       const RepairReport& report, const std::string& store) {
  session.out().Write(ProblemText(report));
  session.out().Write(WholeText(report));
  RepairReport harmed = report;
  std::erase_if(harmed.steps, IsWhole);
  if (!harmed.steps.empty()) {
    if (absl::Status status = session.Print(
            ReportTable(harmed, table_options.exact_bytes), table_options);
        !status.ok()) {
      return status;
    }
  }
  session.out().Write(LossText(report.steps, report.losses));
  session.out().Write(PlanText(report, store));
  return absl::OkStatus();
}

std::string OutcomeText(const RepairReport& report, const std::string& store) {
  if (report.action == Action::kNothing && !IsWell(report)) {
    return absl::StrFormat(
        "nothing that was looked at of %s is wrong, and not all was\n",
        Escape(store));
  }
  if (report.action == Action::kNothing) {
    return absl::StrFormat("nothing is wrong with %s: there is nothing to do\n",
                           Escape(store));
  }
  if (!report.done) {
    if (report.steps_kept() == 0 && !report.complete()) {
      return "NOTHING COULD BE KEPT: it will not be repaired\n";
    }
    if (!report.hindrance.empty()) {
      return absl::StrFormat("nothing was changed, and nothing can be: %s\n",
                             report.hindrance);
    }
    return absl::StrFormat(
        "nothing was changed; `ckptree repair %s --yes` does it\n",
        Escape(store));
  }
  std::string text = report.complete()
                         ? "repaired"
                         : "repaired, but for what is named above as lost";
  if (!report.damaged.empty()) {
    absl::StrAppendFormat(
        &text, "; the damaged store is %s: remove it when you need it no more",
        Escape(report.damaged));
  }
  return text + "\n";
}

absl::Status Explained(const absl::Status& status) {
  if (absl::IsCancelled(status) || absl::IsPermissionDenied(status) ||
      absl::IsResourceExhausted(status)) {
    return status;
  }
  if (absl::IsNotFound(status)) {
    return WithHint(status, "`ckptree repair STORE`");
  }
  if (absl::IsDataLoss(status)) {
    return WithHint(status,
                    "too little is left of the store to repair it; nothing "
                    "was changed");
  }
  if (internal::OutOfReach(status).has_value()) return status;
  if (absl::IsUnavailable(status)) {
    return WithHint(status,
                    "end the process that writes to the store first, or use "
                    "--wait SECONDS; nothing was changed");
  }
  if (absl::IsAborted(status)) {
    return WithHint(status, "look at it again: `ckptree repair STORE`");
  }
  return WithHint(status, "`ckptree help repair` says what it needs");
}

}  // namespace

absl::StatusOr<int> RunRepair(Session& session) {
  const absl::StatusOr<TableOptions> table_options =
      ParseTableOptions(session.arguments());
  if (!table_options.ok()) return table_options.status();
  const auto wait = session.arguments().Number("wait");
  if (!wait.ok()) return wait.status();
  const std::string& store = session.words()[0];
  const bool people = table_options->format == Format::kTable;
  bool stated = false;
  absl::Status printed;
  absl::StatusOr<RepairReport> report;
  {
    ProgressLine progress("repair", session.error_terminal().is_terminal &&
                                        !session.arguments().Has("quiet"));
    Interruptible interruptible;
    RepairOptions options;
    options.execute =
        session.arguments().Has("yes") && !session.arguments().Has("dry-run");
    options.lock_wait = absl::Seconds(wait->value_or(0));
    options.cancelled = Interrupted;
    options.on_progress = [&](std::uint64_t done, std::uint64_t total) {
      progress.Update(done, total);
    };
    options.confirm = [&](const RepairReport& plan) {
      // What is lost is said before anything is changed.
      for (const std::string& note : plan.notes) session.Note(note);
      stated = true;
      if (people) printed = PrintPlan(session, *table_options, plan, store);
      if (printed.ok()) printed = session.out().Flush();
      return printed.ok() && !Interrupted();
    };
    report = Repair(store, options);
  }
  if (!printed.ok()) return printed;
  if (absl::IsCancelled(report.status()) ||
      (report.ok() && Interrupted() && !report->done)) {
    session.Note("interrupted: nothing was changed");
    return absl::CancelledError("interrupted");
  }
  if (!report.ok()) return Explained(report.status());
  if (!stated) {
    for (const std::string& note : report->notes) session.Note(note);
    if (people && report->action != Action::kNothing) {
      printed = PrintPlan(session, *table_options, *report, store);
    }
  }
  if (!people) {
    printed = session.Print(ReportTable(*report, table_options->exact_bytes),
                            *table_options);
  }
  if (!printed.ok()) return printed;
  if (people) session.out().Write(OutcomeText(*report, store));
  if (report->action == Action::kNothing) {
    return IsWell(*report) ? kExitOk : kExitFailure;
  }
  return report->done && report->complete() ? kExitOk : kExitNegative;
}

}  // namespace ckptree::tools
