// SPDX-License-Identifier: Apache-2.0

#include "ckptree/selector.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "absl/strings/str_format.h"

namespace ckptree {
namespace {

template <typename Int>
bool ParseInt(std::string_view text, Int* value) {
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc() && end == text.data() + text.size() &&
         *value >= 0;
}

}  // namespace

bool IsBranchName(std::string_view name) {
  const auto letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  };
  if (name.empty() || name.size() > 128 || !letter(name.front())) return false;
  if (name == "main" || name == "latest" || name == "best" ||
      name == "healthy") {
    return false;
  }
  return std::all_of(name.begin(), name.end(), [&letter](char c) {
    return letter(c) || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
           c == '.';
  });
}

StepSelector AtStep(std::int64_t step, std::string_view branch) {
  StepSelector selector;
  selector.kind = StepSelector::Kind::kStep;
  selector.step = step;
  selector.branch = std::string(branch);
  return selector;
}

StepSelector Latest(std::string_view branch) {
  StepSelector selector;
  selector.branch = std::string(branch);
  return selector;
}

StepSelector Best(std::string_view metric, BestMode mode,
                  std::string_view branch) {
  StepSelector selector = Latest(branch);
  selector.kind = StepSelector::Kind::kBest;
  selector.name = std::string(metric);
  selector.mode = mode;
  return selector;
}

StepSelector BestByPolicy() {
  StepSelector selector;
  selector.kind = StepSelector::Kind::kBest;
  return selector;
}

StepSelector Tagged(std::string_view tag) {
  StepSelector selector;
  selector.kind = StepSelector::Kind::kTag;
  selector.name = std::string(tag);
  return selector;
}

StepSelector LatestHealthy(std::string_view branch) {
  StepSelector selector = Latest(branch);
  selector.kind = StepSelector::Kind::kHealthy;
  return selector;
}

absl::StatusOr<StepSelector> ParseSelector(std::string_view text) {
  const auto bad = [text](const char* why) {
    return absl::InvalidArgumentError(
        absl::StrFormat("'%s' names no step: %s (a number, latest, latest~2, "
                        "best:METRIC:min, best:METRIC:max, healthy or @TAG)",
                        text, why));
  };
  StepSelector selector;
  std::string_view name = text;
  // Metrics and tags may have a slash in their names.
  const auto slash = text.find_first_of("/:@");
  if (slash != std::string_view::npos && text[slash] == '/') {
    if (!IsBranchName(text.substr(0, slash))) {
      return bad("before '/' stands the name of a branch");
    }
    selector.branch = std::string(text.substr(0, slash));
    text.remove_prefix(slash + 1);
    name = text;
  }
  if (const auto tilde = text.rfind('~'); tilde != std::string_view::npos) {
    if (!ParseInt(text.substr(tilde + 1), &selector.back)) {
      return bad("after '~' stands a number of saves");
    }
    name = text.substr(0, tilde);
  }
  if (name == "latest") return selector;
  if (name == "healthy") {
    selector.kind = StepSelector::Kind::kHealthy;
    return selector;
  }
  if (name.starts_with("@")) {
    if (name.size() == 1) return bad("the tag is empty");
    if (!selector.branch.empty()) return bad("a tag knows its branch");
    selector.kind = StepSelector::Kind::kTag;
    selector.name = std::string(name.substr(1));
    return selector;
  }
  if (name.starts_with("best:")) {
    name.remove_prefix(5);
    selector.kind = StepSelector::Kind::kBest;
    if (name.ends_with(":max")) {
      selector.mode = BestMode::kMax;
    } else if (!name.ends_with(":min")) {
      return bad(
          "it says not whether the smallest or the largest value is best; add "
          ":min or :max");
    }
    name.remove_suffix(4);
    if (name.empty()) return bad("the metric is empty");
    selector.name = std::string(name);
    return selector;
  }
  selector.kind = StepSelector::Kind::kStep;
  if (!ParseInt(name, &selector.step)) return bad("it is no number");
  return selector;
}

std::string StepText(std::string_view branch, std::int64_t step) {
  return branch.empty() ? absl::StrFormat("%d", step)
                        : absl::StrFormat("%s/%d", branch, step);
}

std::string Text(const StepSelector& selector) {
  std::string text;
  if (!selector.branch.empty()) text = selector.branch + "/";
  switch (selector.kind) {
    case StepSelector::Kind::kStep:
      absl::StrAppendFormat(&text, "%d", selector.step);
      break;
    case StepSelector::Kind::kLatest:
      text += "latest";
      break;
    case StepSelector::Kind::kBest:
      text += "best:" + selector.name;
      text += selector.mode == BestMode::kMax ? ":max" : ":min";
      break;
    case StepSelector::Kind::kTag:
      text += "@" + selector.name;
      break;
    case StepSelector::Kind::kHealthy:
      text += "healthy";
      break;
  }
  if (selector.back > 0 || text.find('~') != text.npos) {
    absl::StrAppendFormat(&text, "~%d", selector.back);
  }
  return text;
}

}  // namespace ckptree
