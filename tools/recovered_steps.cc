#include "tools/recovered_steps.h"

#include <utility>

#include "absl/strings/str_format.h"
#include "tools/terminal.h"

namespace ckptree::tools {

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
  };
  for (const RecoveredStep& step : steps) {
    Json lost = Json::array();
    for (const LostLeaf& leaf : step.lost) {
      lost.push_back({{"leaf", leaf.name}, {"why", leaf.why}});
    }
    const bool whole = step.saved && step.lost.empty();
    table.rows.push_back({StepCell(step.step),
                          TextCell(whole        ? "whole"
                                   : step.saved ? "partial"
                                                : "lost",
                                   whole ? Tone::kGood : Tone::kBad),
                          CountCell(step.leaves_saved),
                          CountCell(step.leaves_lost),
                          BytesCell(step.bytes, exact_bytes),
                          TextCell(step.why), Cell{std::move(lost), ""}});
  }
  return table;
}

std::string LossText(const std::vector<RecoveredStep>& steps,
                     const std::vector<std::string>& losses) {
  std::string text;
  for (const RecoveredStep& step : steps) {
    for (const LostLeaf& leaf : step.lost) {
      absl::StrAppendFormat(&text, "lost: step %d: %s: %s\n", step.step,
                            Escape(leaf.name), EscapeLines(leaf.why));
    }
  }
  for (const std::string& loss : losses) {
    absl::StrAppendFormat(&text, "lost: %s\n", EscapeLines(loss));
  }
  return text;
}

}  // namespace ckptree::tools
