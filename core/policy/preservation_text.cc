// SPDX-License-Identifier: Apache-2.0

// Policies as text: what is stored, shown and typed. The grammar is in
// schema/FORMAT.md.

#include "core/policy/preservation_text.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_format.h"
#include "ckptree/preservation.h"

namespace ckptree {
namespace {

// A name that cannot be taken for a number or a word of the grammar.
bool IsPlainName(std::string_view name) {
  const auto letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  };
  return !name.empty() && letter(name.front()) &&
         std::all_of(name.begin(), name.end(), internal::IsPolicyWordByte);
}

std::string Name(std::string_view name) {
  if (IsPlainName(name)) return std::string(name);
  return absl::StrFormat("\"%s\"", absl::Utf8SafeCEscape(std::string(name)));
}

std::string Bytes(std::uint64_t bytes) {
  constexpr std::array<std::pair<std::uint64_t, const char*>, 4> kUnits = {
      {{1'000'000'000'000, "TB"},
       {1'000'000'000, "GB"},
       {1'000'000, "MB"},
       {1'000, "kB"}}};
  for (const auto& [unit, name] : kUnits) {
    if (bytes % unit == 0) return absl::StrFormat("%d%s", bytes / unit, name);
  }
  return absl::StrFormat("%dB", bytes);
}

struct Writer {
  bool in_all_of = false;

  std::string operator()(const PreserveAll&) const { return "all"; }
  std::string operator()(const LatestN& r) const {
    return r.n.has_value() ? absl::StrFormat("latest(%d)", *r.n) : "all";
  }
  std::string operator()(const EveryNSteps& r) const {
    return absl::StrFormat("every(%d%s%s)", r.interval,
                           r.exact ? "" : ", spaced", Last(r.max_to_keep));
  }
  std::string operator()(const EveryNStepsClosest& r) const {
    return absl::StrFormat("closest(%d%s)", r.interval, Last(r.max_to_keep));
  }
  std::string operator()(const EveryNSeconds& r) const {
    return absl::StrFormat("every(%s)", Duration(r.interval));
  }
  std::string operator()(const LatestDuration& r) const {
    return absl::StrFormat("within(%s)", Duration(r.duration));
  }
  std::string operator()(const CustomSteps& r) const {
    std::string text = "steps(";
    for (std::size_t i = 0; i < r.steps.size(); ++i) {
      absl::StrAppendFormat(&text, "%s%d", i == 0 ? "" : ", ", r.steps[i]);
    }
    return text + ")";
  }
  std::string operator()(const BestN& r) const {
    return absl::StrFormat(
        "best(%s%s, %s, %s%s)", Name(r.metric), r.computed ? "()" : "",
        !r.mode.has_value()         ? "no mode"
        : *r.mode == BestMode::kMin ? "min"
                                    : "max",
        r.n.has_value() ? absl::StrFormat("%d", *r.n) : "all",
        r.keep_without_metrics ? "" : ", unmeasured=drop");
  }
  std::string operator()(const Healthy& r) const {
    if (in_all_of && !r.n.has_value()) return "healthy";
    return absl::StrFormat("healthy(%d)", r.n.value_or(1));
  }
  std::string operator()(const Logarithmic& r) const {
    return absl::StrFormat("log(%d)", r.n);
  }
  std::string operator()(const Budget& r) const {
    return absl::StrFormat("budget(%s)", Bytes(r.bytes));
  }
  std::string operator()(const AnyOf& r) const {
    const std::string text = Joined(r.of, " | ", false);
    return in_all_of ? "(" + text + ")" : text;
  }
  std::string operator()(const AllOf& r) const {
    // Of one: still an all-of, in which healthy means every such step.
    return (r.of.size() == 1 ? "all & " : "") + Joined(r.of, " & ", true);
  }
  std::string operator()(const KeepIf& r) const {
    return absl::StrFormat("keep_if(%s)", Name(r.name));
  }
  std::string operator()(const CustomPreservation& r) const {
    return absl::StrFormat("custom(%s)", Name(r.name));
  }

  static std::string Last(std::optional<std::int64_t> n) {
    return n.has_value() ? absl::StrFormat(", last=%d", *n) : "";
  }
  // With a unit always: a bare number is one of steps.
  static std::string Duration(absl::Duration duration) {
    const std::string text = absl::FormatDuration(duration);
    return text == "0" ? "0s" : text;
  }
  static std::string Joined(const std::vector<Preservation>& of,
                            std::string_view with, bool all) {
    std::string text;
    for (const Preservation& part : of) {
      if (!text.empty()) text += with;
      text += std::visit(Writer{.in_all_of = all}, part.rule());
    }
    return text;
  }
};

}  // namespace

std::string Text(const Preservation& policy) {
  return std::visit(Writer{}, policy.rule());
}

}  // namespace ckptree
