#include "tools/line/step_range.h"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "tools/output/failure.h"
#include "tools/output/terminal.h"

namespace ckptree::tools {
namespace {

struct End {
  std::optional<std::string> line;  // Nothing: that of the other end.
  std::int64_t step = 0;
};

absl::StatusOr<End> FindEnd(Session& session, StepSelector selector,
                            std::string_view line) {
  End end;
  const bool number =
      selector.kind == StepSelector::Kind::kStep && selector.back == 0;
  if (number) {
    if (!selector.line.empty()) end.line = selector.line;
    end.step = selector.step;
    return end;
  }
  if (selector.line.empty() && selector.kind != StepSelector::Kind::kTag) {
    selector.line = std::string(line);
  }
  const absl::StatusOr<StepInfo> info = session.Resolve(selector);
  if (!info.ok()) return info.status();
  end.line = info->line;
  end.step = info->step;
  return end;
}

}  // namespace

absl::StatusOr<std::vector<StepInfo>> StepsOfLine(Session& session,
                                                  std::string_view line) {
  const absl::StatusOr<Store*> store = session.OpenStore();
  if (!store.ok()) return store.status();
  absl::StatusOr<std::vector<StepInfo>> steps = (*store)->Steps(line);
  if (!steps.ok()) {
    return WithHint(steps.status(), "`ckptree fork` lists the lines");
  }
  return steps;
}

absl::StatusOr<std::vector<StepInfo>> FindSteps(Session& session,
                                                std::string_view word,
                                                std::string_view line) {
  absl::StatusOr<StepRange> range = ParseRange(word);
  if (!range.ok()) return range.status();
  if (!line.empty() && !range->line.empty() && range->line != line) {
    return WithHint(
        absl::InvalidArgumentError(absl::StrFormat("`%s` is not of line `%s`",
                                                   Escape(word), Escape(line))),
        "leave out one of the two lines");
  }
  const bool one = word.find("..") == std::string_view::npos;
  if (one && range->first) {
    StepSelector& selector = *range->first;
    if (selector.line.empty() && selector.kind != StepSelector::Kind::kTag) {
      selector.line = std::string(line);
    }
    absl::StatusOr<StepInfo> info = session.Resolve(selector);
    if (!info.ok()) return info.status();
    return std::vector<StepInfo>{*std::move(info)};
  }
  std::optional<std::string> of;
  if (!range->line.empty()) of = range->line;
  if (!line.empty()) of = std::string(line);
  std::optional<std::int64_t> first, last;
  for (const bool is_first : {true, false}) {
    const auto& selector = is_first ? range->first : range->last;
    if (!selector) continue;
    const absl::StatusOr<End> end = FindEnd(session, *selector, line);
    if (!end.ok()) return end.status();
    if (end->line && of && *end->line != *of) {
      return WithHint(absl::InvalidArgumentError(absl::StrFormat(
                          "the ends of `%s` are of two lines", Escape(word))),
                      "a range is of one line: LINE/10..20");
    }
    if (end->line) of = end->line;
    (is_first ? first : last) = end->step;
  }
  absl::StatusOr<std::vector<StepInfo>> steps =
      StepsOfLine(session, of.value_or(""));
  if (!steps.ok()) return steps.status();
  std::erase_if(*steps, [&](const StepInfo& info) {
    return (first && info.step < *first) || (last && info.step > *last);
  });
  return steps;
}

}  // namespace ckptree::tools
