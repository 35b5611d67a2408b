// SPDX-License-Identifier: Apache-2.0

// `ckptree recover`: saves what can be read of a damaged store into a new one.

#include "ckptree/recover.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "core/remote/remote_address.h"
#include "tools/line/command.h"
#include "tools/line/table_flags.h"
#include "tools/output/failure.h"
#include "tools/output/interrupt.h"
#include "tools/output/progress_line.h"
#include "tools/output/quantity.h"
#include "tools/verbs/recovered_steps.h"

namespace ckptree::tools {
namespace {

Table StepTable(const RecoverReport& report, bool exact_bytes) {
  Table table = RecoveredTable("ckptree.recover/1", report.steps, exact_bytes);
  table.extra = {{"ok", report.complete()},
                 {"made", report.made},
                 {"steps_saved", report.steps_saved()},
                 {"losses", report.losses},
                 {"notes", report.notes}};
  return table;
}

std::string OutcomeText(const RecoverReport& report, const std::string& to,
                        bool exact_bytes) {
  std::uint64_t saved = 0, lost = 0, bytes = 0;
  for (const RecoveredStep& step : report.steps) {
    saved += step.leaves_saved;
    lost += step.leaves_lost;
    bytes += step.bytes;
  }
  if (!report.made) {
    return absl::StrFormat("NOTHING COULD BE RECOVERED: %s was not made\n",
                           Escape(to));
  }
  return absl::StrFormat(
      "%s, %s, %s saved in %s: %s\n",
      CountText(report.steps_saved(), "step", "steps"),
      CountText(saved, "leaf", "leaves"), SizeText(bytes, exact_bytes),
      Escape(to),
      report.complete()
          ? std::string("nothing is lost")
          : absl::StrFormat("%s LOST, and what else is named above",
                            CountText(lost, "LEAF", "LEAVES")));
}

}  // namespace

absl::StatusOr<int> RunRecover(Session& session) {
  const absl::StatusOr<TableOptions> table_options =
      ParseTableOptions(session.arguments());
  if (!table_options.ok()) return table_options.status();
  const std::string& from = session.words()[0];
  const std::string& to = session.words()[1];
  absl::StatusOr<RecoverReport> report;
  {
    ProgressLine progress("recover", session.error_terminal().is_terminal &&
                                         !session.arguments().Has("quiet"));
    Interruptible interruptible;
    RecoverOptions options;
    options.cancelled = Interrupted;
    options.on_progress = [&](std::uint64_t done, std::uint64_t total) {
      progress.Update(done, total);
    };
    report = Recover(from, to, options);
  }
  if (absl::IsCancelled(report.status())) {
    session.Note("interrupted: nothing was made, nothing was changed");
  }
  if (absl::IsNotFound(report.status())) {
    return WithHint(report.status(), "`ckptree recover STORE NEW_STORE`");
  }
  if (absl::IsDataLoss(report.status())) {
    return WithHint(report.status(),
                    "too little is left of the store to recover anything");
  }
  if (absl::IsInvalidArgument(report.status()) &&
      internal::IsRemoteAddress(from)) {
    return WithHint(report.status(),
                    absl::StrFormat("`ckptree copy %s %s` saves its steps",
                                    Escape(from), Escape(to)));
  }
  if (!report.ok()) {
    return WithHint(report.status(),
                    "`ckptree help recover` says what it needs; nothing was "
                    "made, nothing was changed");
  }
  for (const std::string& note : report->notes) session.Note(note);
  const bool people = table_options->format == Format::kTable;
  if (absl::Status status = session.Print(
          StepTable(*report, table_options->exact_bytes), *table_options);
      !status.ok()) {
    return status;
  }
  if (people) {
    session.out().Write(LossText(report->steps, report->losses));
    session.out().Write(OutcomeText(*report, to, table_options->exact_bytes));
  }
  return report->complete() ? kExitOk : kExitNegative;
}

}  // namespace ckptree::tools
