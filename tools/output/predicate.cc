// SPDX-License-Identifier: Apache-2.0

#include "tools/output/predicate.h"

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "tools/output/trim.h"

namespace ckptree::tools {
namespace {

using Json = nlohmann::ordered_json;

Json ParseValue(std::string_view text) {
  const bool quoted = text.size() >= 2 && text.front() == text.back() &&
                      (text.front() == '"' || text.front() == '\'');
  if (quoted) return std::string(text.substr(1, text.size() - 2));
  if (text == "true") return true;
  if (text == "false") return false;
  std::int64_t whole = 0;
  if (absl::SimpleAtoi(std::string(text), &whole)) return whole;
  double factor = 1;
  std::string_view number = text;
  constexpr std::array<std::pair<std::string_view, double>, 5> kUnits = {
      {{"KiB", 1024.0},
       {"MiB", 1048576.0},
       {"GiB", 1073741824.0},
       {"TiB", 1099511627776.0},
       {"B", 1.0}}};
  for (const auto& [unit, bytes] : kUnits) {
    if (number.ends_with(unit)) {
      number = Trim(number.substr(0, number.size() - unit.size()));
      factor = bytes;
      break;
    }
  }
  double value = 0;
  if (absl::SimpleAtod(std::string(number), &value)) return value * factor;
  return std::string(text);
}

}  // namespace

absl::StatusOr<Predicate> Predicate::Parse(std::string_view text) {
  Predicate predicate;
  std::size_t at = 0;
  while (true) {
    const std::size_t next = text.find("&&", at);
    const std::string_view part = Trim(text.substr(at, next - at));
    const std::size_t op_at = part.find_first_of("<>=!");
    Comparison comparison;
    comparison.name = std::string(Trim(part.substr(0, op_at)));
    std::size_t op_size = 1;
    if (op_at != std::string_view::npos) {
      const bool equals = op_at + 1 < part.size() && part[op_at + 1] == '=';
      if (equals) op_size = 2;
      switch (part[op_at]) {
        case '<':
          comparison.op = equals ? Op::kLessEqual : Op::kLess;
          break;
        case '>':
          comparison.op = equals ? Op::kGreaterEqual : Op::kGreater;
          break;
        case '=':
          comparison.op = Op::kEqual;
          break;
        default:
          if (!equals) op_size = 0;
          comparison.op = Op::kUnequal;
      }
    }
    const std::string_view value = op_at == std::string_view::npos
                                       ? std::string_view()
                                       : Trim(part.substr(op_at + op_size));
    if (comparison.name.empty() || value.empty() || op_size == 0) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "'%s' is no condition: write NAME OP VALUE with OP one of < <= > >= "
          "== !=, joined by &&",
          part));
    }
    const bool quoted = value.front() == '"' || value.front() == '\'';
    if (!quoted && value.find_first_of("<>=!|&") != std::string_view::npos) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "'%s' compares with '%s': conditions are joined by && alone, and a "
          "text with such characters is written in quotes",
          part, value));
    }
    comparison.value = ParseValue(value);
    predicate.comparisons_.push_back(std::move(comparison));
    if (next == std::string_view::npos) return predicate;
    at = next + 2;
  }
}

std::vector<std::string> Predicate::Names() const {
  std::vector<std::string> names;
  for (const Comparison& comparison : comparisons_) {
    names.push_back(comparison.name);
  }
  return names;
}

bool Predicate::Compare(const Json& left, Op op, const Json& right) {
  if (left.is_array()) {
    bool any = false;
    for (const Json& member : left) any |= Compare(member, Op::kEqual, right);
    return op == Op::kEqual ? any : op == Op::kUnequal && !any;
  }
  if (left.is_null()) return op == Op::kUnequal;
  const auto decide = [op](const auto& a, const auto& b) {
    switch (op) {
      case Op::kLess:
        return a < b;
      case Op::kLessEqual:
        return a <= b;
      case Op::kGreater:
        return a > b;
      case Op::kGreaterEqual:
        return a >= b;
      case Op::kEqual:
        return a == b;
      case Op::kUnequal:
        return !(a == b);
    }
    return false;
  };
  if (left.is_number() && right.is_number()) {
    if (left.is_number_integer() && right.is_number_integer()) {
      return decide(left, right);
    }
    const double a = left.get<double>();
    const double b = right.get<double>();
    // "loss==nan" is asked for, whatever IEEE says.
    if (std::isnan(b) && op == Op::kEqual) return std::isnan(a);
    if (std::isnan(b) && op == Op::kUnequal) return !std::isnan(a);
    return decide(a, b);
  }
  if (left.is_boolean() && right.is_boolean()) {
    return decide(left.get<bool>(), right.get<bool>());
  }
  if (left.is_string() && right.is_string()) {
    return decide(left.get_ref<const std::string&>(),
                  right.get_ref<const std::string&>());
  }
  return op == Op::kUnequal;
}

bool Predicate::Holds(
    const std::function<const Json&(std::string_view name)>& field) const {
  for (const Comparison& comparison : comparisons_) {
    if (!Compare(field(comparison.name), comparison.op, comparison.value)) {
      return false;
    }
  }
  return true;
}

}  // namespace ckptree::tools
