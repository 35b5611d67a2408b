// SPDX-License-Identifier: Apache-2.0

#include "tools/line/address.h"

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "tools/output/failure.h"
#include "tools/output/terminal.h"

namespace ckptree::tools {
namespace {

constexpr std::string_view kRevHint =
    "a step is 1200, latest, latest~2, best:loss:min, best:acc:max, healthy or "
    "@tag; on a fork BRANCH/1200";

// Where REV ends and ":KEY" begins; npos: there is no key.
std::size_t EndOfRev(std::string_view text) {
  if (const std::size_t slash = text.find_first_of("/:@");
      slash != std::string_view::npos && text[slash] == '/') {
    const std::size_t end = EndOfRev(text.substr(slash + 1));
    return end == std::string_view::npos ? end : end + slash + 1;
  }
  if (!text.starts_with("best:")) return text.find(':');
  const std::size_t end = text.find_first_of(":~", 5);
  if (end == std::string_view::npos || text[end] == '~') {
    return text.find(':', 5);
  }
  for (std::string_view mode : {":min", ":max"}) {
    if (!text.substr(end).starts_with(mode)) continue;
    const std::string_view rest = text.substr(end + mode.size());
    if (rest.empty() || rest[0] == ':' || rest[0] == '~') {
      return text.find(':', end + mode.size());
    }
  }
  return end;
}

absl::StatusOr<StepSelector> ParseRev(std::string_view text) {
  if (text.empty()) return Latest();
  if (text[0] == '-' && text.find("..") == text.npos) {
    return WithHint(absl::InvalidArgumentError(
                        absl::StrFormat("`%s` is no step", Escape(text))),
                    "the latest is `latest`, the one before `latest~1`; the "
                    "ends of a range count from the end as -1 and -2: "
                    "`diff -2..-1`");
  }
  absl::StatusOr<StepSelector> selector = ParseSelector(text);
  if (!selector.ok() && text.find("..") != text.npos) {
    return WithHint(
        absl::InvalidArgumentError(absl::StrFormat(
            "`%s` is a range of steps, and one step is needed here",
            Escape(text))),
        "log, find, history, hist, verify, du --free, pin, rm and copy take "
        "ranges; so does diff, of one word: `diff 100..200`, and with a key "
        "`diff 100:KEY 200`");
  }
  if (!selector.ok() && text.starts_with("best:") && text.size() > 5 &&
      !text.ends_with(":min") && !text.ends_with(":max")) {
    return WithHint(
        absl::InvalidArgumentError(absl::StrFormat(
            "`%s` does not say which is best: min or max stands behind the "
            "metric",
            Escape(text))),
        absl::StrFormat("`%s:min` is the step with the lowest, `%s:max` that "
                        "with the highest",
                        Escape(text), Escape(text)));
  }
  if (!selector.ok() && IsBranchName(text)) {
    return WithHint(
        absl::InvalidArgumentError(
            absl::StrFormat("`%s` is no step", Escape(text))),
        absl::StrFormat("a key is written `latest:%s`, a tag `@%s`, the newest "
                        "step of a branch `%s/latest`; else %s",
                        text, text, text, kRevHint));
  }
  if (!selector.ok()) {
    return WithHint(absl::InvalidArgumentError(
                        absl::StrFormat("`%s` is no step", Escape(text))),
                    kRevHint);
  }
  return selector;
}

}  // namespace

EndOfRange FromTheEnd(std::string_view end) {
  EndOfRange found;
  std::string_view number = end;
  if (const std::size_t slash = end.find('/');
      slash != end.npos && IsBranchName(end.substr(0, slash))) {
    found.branch = std::string(end.substr(0, slash));
    number.remove_prefix(slash + 1);
  }
  int back = 0;
  if (number.size() >= 2 && number[0] == '-' &&
      number.find_first_not_of("0123456789", 1) == number.npos &&
      absl::SimpleAtoi(std::string(number.substr(1)), &back) && back > 0) {
    found.back = back;
  }
  return found;
}

absl::StatusOr<Address> ParseAddress(std::string_view text) {
  const std::size_t end = EndOfRev(text);
  absl::StatusOr<StepSelector> selector = ParseRev(text.substr(0, end));
  if (!selector.ok()) {
    if (end == std::string_view::npos && text.find('/') != text.npos) {
      return WithHint(absl::InvalidArgumentError(
                          absl::StrFormat("`%s` is no step", Escape(text))),
                      absl::StrFormat("a key stands behind a step: `latest:%s`",
                                      Escape(text)));
    }
    return selector.status();
  }
  Address address;
  address.step = *std::move(selector);
  if (end != std::string_view::npos) {
    address.key = std::string(text.substr(end + 1));
  }
  return address;
}

absl::StatusOr<StepRange> ParseRange(std::string_view text) {
  StepRange range;
  const std::size_t dots = text.find("..");
  if (text.find("...") != text.npos) {
    return WithHint(absl::InvalidArgumentError(absl::StrFormat(
                        "`%s` has one dot too many", Escape(text))),
                    "a range is 1000..2000, both included");
  }
  std::string_view first = text.substr(0, dots);
  const std::string_view last =
      dots == std::string_view::npos ? first : text.substr(dots + 2);
  if (dots != std::string_view::npos && first.ends_with('/') &&
      IsBranchName(first.substr(0, first.size() - 1))) {
    range.branch = std::string(first.substr(0, first.size() - 1));
    first = {};
  }
  if (!first.empty()) {
    absl::StatusOr<StepSelector> selector = ParseRev(first);
    if (!selector.ok()) return selector.status();
    if (!selector->branch.empty()) range.branch = selector->branch;
    range.first = *std::move(selector);
  }
  if (!last.empty()) {
    absl::StatusOr<StepSelector> selector = ParseRev(last);
    if (!selector.ok()) return selector.status();
    if (selector->branch.empty()) {
      if (selector->kind != StepSelector::Kind::kTag) {
        selector->branch = range.branch;
      }
    } else if (range.first || !range.branch.empty()) {
      if (selector->branch != range.branch) {
        return WithHint(
            absl::InvalidArgumentError(absl::StrFormat(
                "the ends of `%s` are of two branches", Escape(text))),
            "a range is of one line: LINE/10..20");
      }
    } else {
      range.branch = selector->branch;
    }
    range.last = *std::move(selector);
  }
  return range;
}

}  // namespace ckptree::tools
