// SPDX-License-Identifier: Apache-2.0

#include "tools/verbs/recovered_steps.h"

#include <cstddef>
#include <utility>

#include "absl/strings/str_format.h"
#include "ckptree/selector.h"
#include "tools/output/terminal.h"

namespace ckptree::tools {
namespace {

// What a person may still read.
constexpr std::size_t kShownLosses = 100;

}  // namespace

Table RecoveredTable(std::string_view schema,
                     const std::vector<RecoveredStep>& steps,
                     bool exact_bytes) {
  Table table;
  table.schema = schema;
  table.rows_name = "steps";
  table.columns = {
      {.name = "step", .title = "STEP", .right = true},
      {.name = "result", .title = "RESULT"},
      {.name = "saved", .title = "SAVED", .right = true},
      {.name = "lost", .title = "LOST", .right = true},
      {.name = "bytes", .title = "BYTES", .right = true},
      {.name = "why", .title = "WHY"},
      {.name = "lost_leaves", .flat = false},
      {.name = "branch"},
  };
  for (const RecoveredStep& step : steps) {
    Json lost = Json::array();
    for (const LostLeaf& leaf : step.lost) {
      lost.push_back({{"leaf", leaf.name}, {"why", leaf.why}});
    }
    const bool whole = step.saved && step.lost.empty();
    Cell number = StepCell(step.step);
    number.text = StepText(step.branch, step.step);
    table.rows.push_back(
        {std::move(number),
         TextCell(whole        ? "whole"
                  : step.saved ? "partial"
                               : "lost",
                  whole ? Tone::kGood : Tone::kBad),
         CountCell(step.leaves_saved), CountCell(step.leaves_lost),
         BytesCell(step.bytes, exact_bytes), TextCell(step.why),
         Cell{std::move(lost), ""}, TextCell(step.branch)});
  }
  return table;
}

std::string LossText(const std::vector<RecoveredStep>& steps,
                     const std::vector<std::string>& losses) {
  std::string text;
  std::size_t lines = 0;
  const auto add = [&](const std::string& line) {
    if (lines++ < kShownLosses)
      absl::StrAppendFormat(&text, "lost: %s\n", line);
  };
  for (const std::string& loss : losses) add(EscapeLines(loss));
  for (const RecoveredStep& step : steps) {
    for (const LostLeaf& leaf : step.lost) {
      add(absl::StrFormat("step %s: %s: %s", StepText(step.branch, step.step),
                          Escape(leaf.name), EscapeLines(leaf.why)));
    }
  }
  if (lines > kShownLosses) {
    absl::StrAppendFormat(&text, "lost: %d more; --json has all of them\n",
                          lines - kShownLosses);
  }
  return text;
}

}  // namespace ckptree::tools
