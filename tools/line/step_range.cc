// SPDX-License-Identifier: Apache-2.0

#include "tools/line/step_range.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "tools/output/failure.h"
#include "tools/output/terminal.h"

namespace ckptree::tools {
namespace {

struct End {
  std::optional<std::string> branch;  // Nothing: that of the other end.
  std::int64_t step = 0;
};

absl::StatusOr<End> FindEnd(Session& session, StepSelector selector,
                            std::string_view branch) {
  End end;
  const bool number =
      selector.kind == StepSelector::Kind::kStep && selector.back == 0;
  if (number) {
    if (!selector.branch.empty()) end.branch = selector.branch;
    end.step = selector.step;
    return end;
  }
  if (selector.branch.empty() && selector.kind != StepSelector::Kind::kTag) {
    selector.branch = std::string(branch);
  }
  const absl::StatusOr<StepInfo> info = session.Resolve(selector);
  if (!info.ok()) return info.status();
  end.branch = info->branch;
  end.step = info->step;
  return end;
}

absl::StatusOr<std::vector<StepInfo>> WithHintOfBranches(
    absl::StatusOr<std::vector<StepInfo>> steps) {
  if (steps.ok()) return steps;
  return WithHint(steps.status(), "`ckptree fork` lists the branches");
}

}  // namespace

absl::StatusOr<std::vector<StepInfo>> StepsOfBranch(Session& session,
                                                    std::string_view branch) {
  const absl::StatusOr<Store*> store = session.OpenStore();
  if (!store.ok()) return store.status();
  return WithHintOfBranches((*store)->Steps(branch));
}

absl::StatusOr<std::vector<StepInfo>> NewestOfBranch(Session& session,
                                                     std::string_view branch,
                                                     std::size_t count) {
  const absl::StatusOr<Store*> store = session.OpenStore();
  if (!store.ok()) return store.status();
  return WithHintOfBranches((*store)->NewestSteps(count, branch));
}

absl::StatusOr<std::string> PlainEnd(Session& session, std::string_view end,
                                     std::string_view branch) {
  const EndOfRange counted = FromTheEnd(end);
  if (counted.back == 0) return std::string(end);
  const std::string_view of =
      counted.branch.empty() ? branch : std::string_view(counted.branch);
  const auto count = static_cast<std::size_t>(counted.back);
  const absl::StatusOr<std::vector<StepInfo>> steps =
      NewestOfBranch(session, of, count);
  if (!steps.ok()) return steps.status();
  if (steps->size() < count) {
    return WithHint(
        absl::NotFoundError(absl::StrFormat("`%s` is no step: there are %d",
                                            Escape(end), steps->size())),
        "counted from the end: -1 is the latest");
  }
  // The branch stays with the end that named it: the other takes it from there.
  return absl::StrFormat("%s%d",
                         counted.branch.empty() ? "" : counted.branch + "/",
                         steps->front().step);
}

absl::StatusOr<std::vector<StepInfo>> FindSteps(Session& session,
                                                std::string_view word,
                                                std::string_view branch) {
  std::string plain(word);
  if (const std::size_t dots = word.find("..");
      dots != word.npos && word.find("...") == word.npos) {
    const std::string_view from = word.substr(0, dots);
    const std::string of = FromTheEnd(from).branch;
    const absl::StatusOr<std::string> first = PlainEnd(session, from, branch);
    if (!first.ok()) return first.status();
    const absl::StatusOr<std::string> last =
        PlainEnd(session, word.substr(dots + 2), of.empty() ? branch : of);
    if (!last.ok()) return last.status();
    plain = absl::StrFormat("%s..%s", *first, *last);
  }
  absl::StatusOr<StepRange> range = ParseRange(plain);
  if (!range.ok()) return range.status();
  if (!branch.empty() && !range->branch.empty() && range->branch != branch) {
    return WithHint(
        absl::InvalidArgumentError(absl::StrFormat(
            "`%s` is not of branch `%s`", Escape(word), Escape(branch))),
        "leave out one of the two branches");
  }
  const bool one = word.find("..") == std::string_view::npos;
  if (one && range->first) {
    StepSelector& selector = *range->first;
    if (selector.branch.empty() && selector.kind != StepSelector::Kind::kTag) {
      selector.branch = std::string(branch);
    }
    absl::StatusOr<StepInfo> info = session.Resolve(selector);
    if (!info.ok()) return info.status();
    return std::vector<StepInfo>{*std::move(info)};
  }
  std::optional<std::string> of;
  if (!range->branch.empty()) of = range->branch;
  if (!branch.empty()) of = std::string(branch);
  std::optional<std::int64_t> first, last;
  for (const bool is_first : {true, false}) {
    const auto& selector = is_first ? range->first : range->last;
    if (!selector) continue;
    const absl::StatusOr<End> end = FindEnd(session, *selector, branch);
    if (!end.ok()) return end.status();
    if (end->branch && of && *end->branch != *of) {
      return WithHint(
          absl::InvalidArgumentError(absl::StrFormat(
              "the ends of `%s` are of two branches", Escape(word))),
          "a range is of one line: LINE/10..20");
    }
    if (end->branch) of = end->branch;
    (is_first ? first : last) = end->step;
  }
  absl::StatusOr<std::vector<StepInfo>> steps =
      StepsOfBranch(session, of.value_or(""));
  if (!steps.ok()) return steps.status();
  if (first && last && *first > *last) {
    return WithHint(absl::InvalidArgumentError(absl::StrFormat(
                        "`%s` goes backwards: from step %d to step %d",
                        Escape(word), *first, *last)),
                    absl::StrFormat("the smaller number comes first: %d..%d",
                                    *last, *first));
  }
  const std::string known =
      steps->empty() ? std::string("there are none")
                     : absl::StrFormat("there are %d to %d",
                                       steps->front().step, steps->back().step);
  std::erase_if(*steps, [&](const StepInfo& info) {
    return (first && info.step < *first) || (last && info.step > *last);
  });
  if (steps->empty() && (first || last)) {
    session.Note(absl::StrFormat("no step is in %s; %s", Escape(word), known));
  }
  return steps;
}

absl::StatusOr<std::optional<StepInfo>> BaseOf(Session& session,
                                               const StepInfo& step) {
  CKPTREE_ASSIGN_OR_RETURN(Store* const store, session.OpenStore());
  CKPTREE_ASSIGN_OR_RETURN(const std::vector<BranchInfo> branches,
                           store->Branches());
  const auto find =
      [&](std::uint64_t version) -> absl::StatusOr<std::optional<StepInfo>> {
    for (const BranchInfo& branch : branches) {
      CKPTREE_ASSIGN_OR_RETURN(const std::vector<StepInfo> steps,
                               store->Steps(branch.name));
      for (const StepInfo& info : steps) {
        if (info.version == version) return std::optional<StepInfo>(info);
      }
    }
    return std::optional<StepInfo>();
  };
  CKPTREE_ASSIGN_OR_RETURN(std::optional<StepInfo> base, find(step.base));
  if (!base || base->branch != step.branch || base->step < step.step) {
    return base;
  }
  // It was written over: its base is what was newest then, and comes later.
  for (const BranchInfo& branch : branches) {
    if (branch.name == step.branch) return find(branch.origin_version);
  }
  return std::optional<StepInfo>();
}

absl::StatusOr<std::vector<StepInfo>> FindAllSteps(
    Session& session, const std::vector<std::string>& words) {
  std::map<std::pair<std::string, std::int64_t>, StepInfo> named;
  for (const std::string& word : words) {
    const absl::StatusOr<std::vector<StepInfo>> steps =
        FindSteps(session, word);
    if (!steps.ok()) return steps.status();
    for (const StepInfo& info : *steps) {
      named.emplace(std::pair(info.branch, info.step), info);
    }
  }
  std::vector<StepInfo> steps;
  for (auto& [name, info] : named) steps.push_back(std::move(info));
  return steps;
}

}  // namespace ckptree::tools
