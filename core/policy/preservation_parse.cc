// SPDX-License-Identifier: Apache-2.0

// Reads the text form of a policy; the grammar is in schema/FORMAT.md.

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "ckptree/preservation.h"
#include "core/policy/preservation_text.h"
#include "schema/utf8.h"

namespace ckptree {
namespace {

using internal::IsPolicyWordByte;

std::string Escaped(std::string_view text) {
  const std::string bytes(text);
  return schema::IsUtf8(text) ? absl::Utf8SafeCHexEscape(bytes)
                              : absl::CHexEscape(bytes);
}

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  absl::StatusOr<Preservation> Whole() {
    CKPTREE_ASSIGN_OR_RETURN(Preservation policy, Any(0));
    if (!AtEnd()) return Wrong("'|' or '&' is missing before it");
    return policy;
  }

 private:
  struct Argument {
    std::string key;  // Empty: none.
    std::string value;
    bool call = false;  // NAME()
  };

  void SkipBlanks() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t' ||
                                  text_[at_] == '\n' || text_[at_] == '\r')) {
      ++at_;
    }
  }
  bool AtEnd() {
    SkipBlanks();
    return at_ == text_.size();
  }
  bool Take(char c) {
    SkipBlanks();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  absl::Status Wrong(std::string_view why) const {
    const std::string rest =
        at_ >= text_.size()
            ? "at its end"
            : absl::StrFormat("at '%s'", Escaped(text_.substr(at_, 24)));
    return absl::InvalidArgumentError(
        absl::StrFormat("the policy makes no sense %s: %s", rest, why));
  }

  absl::StatusOr<Preservation> Any(int depth) {
    CKPTREE_ASSIGN_OR_RETURN(Preservation policy, All(depth));
    AnyOf any;
    any.of.push_back(std::move(policy));
    while (Take('|')) {
      CKPTREE_ASSIGN_OR_RETURN(Preservation next, All(depth));
      any.of.push_back(std::move(next));
    }
    if (any.of.size() == 1) return std::move(any.of.front());
    return Preservation(std::move(any));
  }

  absl::StatusOr<Preservation> All(int depth) {
    CKPTREE_ASSIGN_OR_RETURN(Preservation policy, One(depth));
    AllOf all;
    all.of.push_back(std::move(policy));
    while (Take('&')) {
      CKPTREE_ASSIGN_OR_RETURN(Preservation next, One(depth));
      all.of.push_back(std::move(next));
    }
    if (all.of.size() == 1) return std::move(all.of.front());
    return Preservation(std::move(all));
  }

  absl::StatusOr<Preservation> One(int depth) {
    if (depth >= internal::kMaxPolicyDepth)
      return Wrong("it is nested too deeply");
    if (Take('(')) {
      CKPTREE_ASSIGN_OR_RETURN(Preservation policy, Any(depth + 1));
      if (!Take(')')) return Wrong("')' is missing");
      return policy;
    }
    SkipBlanks();
    const std::size_t begin = at_;
    const std::string name = Word();
    if (name.empty()) return Wrong("a rule is missing, such as latest(3)");
    std::vector<Argument> arguments;
    if (Take('(') && !Take(')')) {
      do {
        CKPTREE_ASSIGN_OR_RETURN(Argument argument, NextArgument());
        arguments.push_back(std::move(argument));
      } while (Take(','));
      if (!Take(')')) return Wrong("',' or ')' is missing");
    }
    absl::StatusOr<Preservation> rule = Rule(name, std::move(arguments));
    if (rule.ok()) return rule;
    return absl::Status(
        rule.status().code(),
        absl::StrFormat("the policy has '%s': %s",
                        Escaped(text_.substr(
                            begin, std::min<std::size_t>(at_ - begin, 80))),
                        rule.status().message()));
  }

  std::string Word() {
    SkipBlanks();
    const std::size_t begin = at_;
    while (at_ < text_.size() && IsPolicyWordByte(text_[at_])) ++at_;
    return std::string(text_.substr(begin, at_ - begin));
  }

  absl::StatusOr<std::string> Quoted() {
    const std::size_t begin = ++at_;
    while (at_ < text_.size() && text_[at_] != '"') {
      at_ += text_[at_] == '\\' ? 2 : 1;
    }
    if (at_ >= text_.size()) return Wrong("a quoted string has no end");
    std::string value;
    if (!absl::CUnescape(std::string(text_.substr(begin, at_ - begin)),
                         &value)) {
      return Wrong("before it is a quoted string with a wrong escape");
    }
    ++at_;
    return value;
  }

  absl::StatusOr<Argument> NextArgument() {
    SkipBlanks();
    Argument argument;
    if (at_ < text_.size() && text_[at_] == '"') {
      CKPTREE_ASSIGN_OR_RETURN(argument.value, Quoted());
    } else {
      argument.value = Word();
      if (argument.value.empty()) return Wrong("an argument is missing");
      if (Take('=')) {
        argument.key = std::exchange(argument.value, Word());
        if (argument.value.empty()) return Wrong("a value is missing");
        return argument;
      }
    }
    if (Take('(')) {
      if (!Take(')')) return Wrong("')' is missing");
      argument.call = true;
    }
    return argument;
  }

  // ---- what the words mean ----

  static absl::Status Bad(const std::string& what) {
    return absl::InvalidArgumentError(what);
  }

  static absl::StatusOr<std::int64_t> Number(const Argument& argument) {
    std::int64_t number = 0;
    if (!absl::SimpleAtoi(argument.value, &number) || argument.call ||
        !argument.key.empty()) {
      return Bad(
          absl::StrFormat("'%s' is no whole number", Escaped(argument.value)));
    }
    return number;
  }

  static absl::StatusOr<absl::Duration> Duration(const Argument& argument) {
    std::string text = argument.value;
    absl::Duration days = absl::ZeroDuration();
    if (const std::size_t d = text.find('d'); d != text.npos) {
      std::int64_t count = 0;
      // A century of days, beyond which hours overflow nothing either.
      if (!absl::SimpleAtoi(text.substr(0, d), &count) || count < 0 ||
          count > 36'525) {
        return Bad(absl::StrFormat("'%s' is no time", text));
      }
      days = absl::Hours(24) * count;
      text.erase(0, d + 1);
      if (text.empty()) return days;
    }
    absl::Duration duration;
    if (!absl::ParseDuration(text, &duration) || argument.call) {
      return Bad(absl::StrFormat("'%s' is no time, such as 90s, 10m, 2h or 7d",
                                 Escaped(argument.value)));
    }
    return days + duration;
  }

  static absl::StatusOr<std::uint64_t> BytesOf(const Argument& argument) {
    const std::string& text = argument.value;
    const std::size_t digits =
        std::min(text.find_first_not_of("0123456789"), text.size());
    std::uint64_t number = 0;
    if (digits == 0 || argument.call ||
        !absl::SimpleAtoi(text.substr(0, digits), &number)) {
      return Bad(absl::StrFormat("'%s' is no number of bytes, such as 20GB",
                                 Escaped(text)));
    }
    constexpr std::array<std::pair<std::string_view, std::uint64_t>, 11>
        kUnits = {{{"", 1},
                   {"B", 1},
                   {"kB", 1'000},
                   {"KB", 1'000},
                   {"MB", 1'000'000},
                   {"GB", 1'000'000'000},
                   {"TB", 1'000'000'000'000},
                   {"KiB", std::uint64_t{1} << 10},
                   {"MiB", std::uint64_t{1} << 20},
                   {"GiB", std::uint64_t{1} << 30},
                   {"TiB", std::uint64_t{1} << 40}}};
    for (const auto& [name, unit] : kUnits) {
      if (text.substr(digits) != name) continue;
      if (number > std::numeric_limits<std::uint64_t>::max() / unit) break;
      return number * unit;
    }
    return Bad(absl::StrFormat("'%s' is no number of bytes, such as 20GB",
                               Escaped(text)));
  }

  // Takes "last=M" from the arguments.
  static absl::StatusOr<std::optional<std::int64_t>> TakeLast(
      std::vector<Argument>* arguments) {
    std::optional<std::int64_t> last;
    for (auto it = arguments->begin(); it != arguments->end(); ++it) {
      if (it->key != "last") continue;
      CKPTREE_ASSIGN_OR_RETURN(last, Number({"", it->value}));
      arguments->erase(it);
      break;
    }
    return last;
  }

  static absl::Status Count(const std::vector<Argument>& arguments,
                            std::size_t least, std::size_t most) {
    for (const Argument& argument : arguments) {
      if (argument.key.empty()) continue;
      return Bad(absl::StrFormat("'%s=' is not known here", argument.key));
    }
    if (arguments.size() >= least && arguments.size() <= most) {
      return absl::OkStatus();
    }
    return Bad(absl::StrFormat("%d arguments, where %d%s belong",
                               arguments.size(), least,
                               most > least ? " or more" : ""));
  }

  static absl::StatusOr<Preservation> Rule(const std::string& name,
                                           std::vector<Argument> arguments) {
    if (name == "all") {
      CKPTREE_RETURN_IF_ERROR(Count(arguments, 0, 0));
      return Preservation(PreserveAll{});
    }
    if (name == "latest") {
      CKPTREE_RETURN_IF_ERROR(Count(arguments, 1, 1));
      CKPTREE_ASSIGN_OR_RETURN(const std::int64_t n, Number(arguments[0]));
      return Preservation(LatestN{n});
    }
    if (name == "every") return Every(std::move(arguments));
    if (name == "closest") {
      EveryNStepsClosest rule;
      CKPTREE_ASSIGN_OR_RETURN(rule.max_to_keep, TakeLast(&arguments));
      CKPTREE_RETURN_IF_ERROR(Count(arguments, 1, 1));
      CKPTREE_ASSIGN_OR_RETURN(rule.interval, Number(arguments[0]));
      return Preservation(rule);
    }
    if (name == "within") {
      CKPTREE_RETURN_IF_ERROR(Count(arguments, 1, 1));
      CKPTREE_ASSIGN_OR_RETURN(const absl::Duration d, Duration(arguments[0]));
      return Preservation(LatestDuration{d});
    }
    if (name == "steps") {
      CKPTREE_RETURN_IF_ERROR(Count(arguments, 0, arguments.size()));
      CustomSteps rule;
      for (const Argument& argument : arguments) {
        CKPTREE_ASSIGN_OR_RETURN(const std::int64_t step, Number(argument));
        rule.steps.push_back(step);
      }
      return Preservation(std::move(rule));
    }
    if (name == "best") return Best(std::move(arguments));
    if (name == "healthy") {
      CKPTREE_RETURN_IF_ERROR(Count(arguments, 0, 1));
      Healthy rule;
      if (!arguments.empty()) {
        CKPTREE_ASSIGN_OR_RETURN(rule.n, Number(arguments[0]));
      }
      return Preservation(rule);
    }
    if (name == "log") {
      CKPTREE_RETURN_IF_ERROR(Count(arguments, 1, 1));
      CKPTREE_ASSIGN_OR_RETURN(const std::int64_t n, Number(arguments[0]));
      return Preservation(Logarithmic{n});
    }
    if (name == "budget") {
      CKPTREE_RETURN_IF_ERROR(Count(arguments, 1, 1));
      CKPTREE_ASSIGN_OR_RETURN(const std::uint64_t bytes,
                               BytesOf(arguments[0]));
      return Preservation(Budget{bytes});
    }
    if (name == "keep_if" || name == "custom") {
      CKPTREE_RETURN_IF_ERROR(Count(arguments, 1, 1));
      if (name == "custom") {
        return Preservation(CustomPreservation{arguments[0].value, {}});
      }
      return Preservation(KeepIf{arguments[0].value, {}});
    }
    return Bad(absl::StrFormat(
        "'%s' is no rule that this engine knows; there are all, latest, every, "
        "closest, within, steps, best, healthy, log, budget",
        Escaped(name)));
  }

  static absl::StatusOr<Preservation> Every(std::vector<Argument> arguments) {
    EveryNSteps rule;
    CKPTREE_ASSIGN_OR_RETURN(rule.max_to_keep, TakeLast(&arguments));
    CKPTREE_RETURN_IF_ERROR(Count(arguments, 1, 2));
    const absl::StatusOr<std::int64_t> number = Number(arguments[0]);
    if (!number.ok()) {
      if (arguments.size() > 1 || rule.max_to_keep.has_value()) {
        return number.status();
      }
      CKPTREE_ASSIGN_OR_RETURN(const absl::Duration d, Duration(arguments[0]));
      return Preservation(EveryNSeconds{d});
    }
    rule.interval = *number;
    if (arguments.size() == 2) {
      if (arguments[1].value != "spaced") {
        return Bad(absl::StrFormat("'%s' instead of 'spaced'",
                                   Escaped(arguments[1].value)));
      }
      rule.exact = false;
    }
    return Preservation(rule);
  }

  static absl::StatusOr<Preservation> Best(std::vector<Argument> arguments) {
    BestN rule;
    for (auto it = arguments.begin(); it != arguments.end(); ++it) {
      if (it->key != "unmeasured") continue;
      if (it->value != "keep" && it->value != "drop") {
        return Bad("unmeasured=keep or unmeasured=drop");
      }
      rule.keep_without_metrics = it->value == "keep";
      arguments.erase(it);
      break;
    }
    CKPTREE_RETURN_IF_ERROR(Count(arguments, 2, 3));
    rule.metric = arguments[0].value;
    rule.computed = arguments[0].call;
    const std::string& mode = arguments[1].value;
    if (mode != "min" && mode != "max") {
      return Bad(absl::StrFormat(
          "'%s': is the lowest value the best ('min') or the highest ('max')?",
          Escaped(mode)));
    }
    rule.mode = mode == "min" ? BestMode::kMin : BestMode::kMax;
    rule.n = 1;
    if (arguments.size() == 3) {
      if (arguments[2].value == "all") {
        rule.n.reset();
      } else {
        CKPTREE_ASSIGN_OR_RETURN(rule.n, Number(arguments[2]));
      }
    }
    return Preservation(std::move(rule));
  }

  const std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace

absl::StatusOr<Preservation> ParsePreservation(std::string_view text) {
  CKPTREE_ASSIGN_OR_RETURN(Preservation policy, Parser(text).Whole());
  CKPTREE_RETURN_IF_ERROR(Check(policy));
  return policy;
}

}  // namespace ckptree
