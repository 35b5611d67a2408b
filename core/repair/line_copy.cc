#include "core/repair/line_copy.h"

#include <cstdint>
#include <map>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"

namespace ckptree::internal {

std::vector<std::string> LineCopier::NameLines() {
  std::vector<std::string> losses;
  Catalog& catalog = from_.catalog();
  for (const StepRecordPtr& step : catalog.AllSteps()) {
    const std::map<std::uint32_t, schema::LineRecord> lines = catalog.Lines();
    if (step->line == kMainLine || lines.contains(step->line)) continue;
    schema::LineRecord line;
    line.name = absl::StrFormat("line-%d", step->line);
    while (catalog.FindLine(line.name).ok()) line.name += "x";
    // Of where it came from nothing is known: from its own first step.
    line.origin_line = step->line;
    line.origin_step = step->step;
    line.origin_version = step->version;
    line.created_ns = step->begun_ns;
    losses.push_back(
        absl::StrFormat("the name of line %d, whose steps are those of line %s "
                        "now, and where it came from",
                        step->line, line.name));
    catalog.PutLine(step->line, std::move(line));
  }
  // Steps of the main line are there without its row.
  if (!catalog.Lines().contains(kMainLine)) catalog.PutLine(kMainLine, {});
  return losses;
}

absl::Status LineCopier::Copy(std::string_view name) {
  if (name.empty() || !begun_.emplace(name).second) return absl::OkStatus();
  const Catalog& catalog = from_.catalog();
  const std::map<std::uint32_t, schema::LineRecord> lines = catalog.Lines();
  CKPTREE_ASSIGN_OR_RETURN(const std::uint32_t number, catalog.FindLine(name));
  schema::LineRecord line = lines.at(number);
  line.tip = 0;
  // The line it comes from may be dropped, and its number in use again here.
  const auto before = lines.find(line.origin_line);
  line.origin_line = kMainLine;
  if (before != lines.end()) {
    CKPTREE_RETURN_IF_ERROR(Copy(before->second.name));
    const StepRecordPtr origin = catalog.Find(before->first, line.origin_step);
    const auto made = to_.catalog().FindLine(before->second.name);
    if (made.ok()) line.origin_line = *made;
    // What has that number now may be another step than the origin.
    if (made.ok() && origin != nullptr &&
        origin->version == line.origin_version) {
      const StepRecordPtr saved = to_.catalog().Find(*made, line.origin_step);
      if (saved != nullptr) line.tip = line.origin_version = saved->version;
    }
  }
  return to_.AdoptLine(std::move(line));
}

absl::Status LineCopier::CopySettings(std::string_view name) {
  CKPTREE_ASSIGN_OR_RETURN(const std::uint32_t number,
                           from_.catalog().FindLine(name));
  const auto settings = from_.catalog().Settings(number);
  if (settings == nullptr) return absl::OkStatus();
  return to_.AdoptSettings(name, *settings);
}

}  // namespace ckptree::internal
