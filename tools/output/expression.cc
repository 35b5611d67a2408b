// SPDX-License-Identifier: Apache-2.0

#include "tools/output/expression.h"

#include <algorithm>
#include <cmath>
#include <compare>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"
#include "ckptree/path.h"
#include "tools/output/expression_parse.h"
#include "tools/output/nearest.h"
#include "tools/output/terminal.h"
#include "tools/output/time_value.h"

namespace ckptree::tools {
namespace {

using ConditionKind = ExpressionNode::Kind;

absl::Status ErrorAtNode(const ExpressionNode& node, std::string_view what) {
  return ErrorAt(*node.text, node.at, what);
}

template <typename Fn>
void ForEachNode(ExpressionNode* node, const Fn& fn) {
  fn(node);
  for (const auto& operand : node->operands) ForEachNode(operand.get(), fn);
}

// What a name means on the right of a comparison where no value has it.
nlohmann::ordered_json MeaningOf(const std::string& name) {
  if (name == "nan") return std::numeric_limits<double>::quiet_NaN();
  if (name == "inf") return std::numeric_limits<double>::infinity();
  return name;
}

bool IsNumberName(const ExpressionNode& node) {
  return node.right && !node.quoted &&
         (node.name == "nan" || node.name == "inf");
}

bool IsComparison(ConditionKind kind) {
  return kind == ConditionKind::kLess || kind == ConditionKind::kLessEqual ||
         kind == ConditionKind::kGreater ||
         kind == ConditionKind::kGreaterEqual ||
         kind == ConditionKind::kEqual || kind == ConditionKind::kUnequal;
}

absl::Status NoTime(const ExpressionNode& node) {
  return ErrorAtNode(
      node, absl::StrFormat("this is no time, and is compared with one: %s",
                            kTimeForms));
}

absl::Status OnlyOfFind(const ExpressionNode& node) {
  return ErrorAtNode(
      node, absl::StrFormat("no `%s` here: `prev.`, which is the step before, "
                            "belongs to `ckptree find`",
                            Escape(node.name)));
}

// Marks a comparison of one of `times`, and looks at what it is compared with.
absl::Status BindTimes(ExpressionNode* node,
                       const std::vector<std::string>& times) {
  if (!IsComparison(node->kind)) return absl::OkStatus();
  const auto is_time = [&](const auto& operand) {
    return operand->kind == ConditionKind::kName &&
           std::ranges::find(times, operand->name) != times.end();
  };
  if (std::ranges::none_of(node->operands, is_time)) return absl::OkStatus();
  node->times = true;
  for (const auto& operand : node->operands) {
    if (operand->kind == ConditionKind::kName) continue;
    if (operand->kind != ConditionKind::kLiteral ||
        !operand->literal.is_string() ||
        !ParseTime(operand->literal.get_ref<const std::string&>())) {
      return NoTime(*operand);
    }
  }
  return absl::OkStatus();
}

std::string_view NameOf(const nlohmann::ordered_json& value) {
  if (value.is_string()) return "a text";
  if (value.is_boolean()) return "true or false";
  if (value.is_array()) return "a list";
  if (value.is_number()) return "a number";
  return "an object";
}

// Whole numbers that the arithmetic of doubles would round.
std::optional<nlohmann::ordered_json> Exact(ConditionKind kind,
                                            const nlohmann::ordered_json& a,
                                            const nlohmann::ordered_json& b) {
  constexpr auto fits = [](const nlohmann::ordered_json& value) {
    return value.is_number_integer() &&
           (!value.is_number_unsigned() ||
            value.get<std::uint64_t>() <=
                std::uint64_t{std::numeric_limits<std::int64_t>::max()});
  };
  if (!fits(a) || !fits(b)) return std::nullopt;
  const auto x = a.get<std::int64_t>();
  const auto y = b.get<std::int64_t>();
  std::int64_t result = 0;
  const bool over =
      kind == ConditionKind::kAdd        ? __builtin_add_overflow(x, y, &result)
      : kind == ConditionKind::kSubtract ? __builtin_sub_overflow(x, y, &result)
      : kind == ConditionKind::kMultiply ? __builtin_mul_overflow(x, y, &result)
                                         : true;
  if (over) return std::nullopt;
  return nlohmann::ordered_json(result);
}

bool Decide(ConditionKind kind, std::partial_ordering order) {
  switch (kind) {
    case ConditionKind::kLess:
      return order < 0;
    case ConditionKind::kLessEqual:
      return order <= 0;
    case ConditionKind::kGreater:
      return order > 0;
    case ConditionKind::kGreaterEqual:
      return order >= 0;
    case ConditionKind::kEqual:
      return order == 0;
    default:
      return order != 0;
  }
}

std::partial_ordering OrderOfWhole(const nlohmann::ordered_json& a,
                                   const nlohmann::ordered_json& b) {
  // One of the two is negative, or fits.
  if (a.is_number_unsigned() != b.is_number_unsigned()) {
    const nlohmann::ordered_json& other = a.is_number_unsigned() ? b : a;
    if (other.get<std::int64_t>() < 0) {
      return a.is_number_unsigned() ? std::partial_ordering::greater
                                    : std::partial_ordering::less;
    }
    return a.get<std::uint64_t>() <=> b.get<std::uint64_t>();
  }
  return a.is_number_unsigned()
             ? a.get<std::uint64_t>() <=> b.get<std::uint64_t>()
             : a.get<std::int64_t>() <=> b.get<std::int64_t>();
}

// Neither is rounded for the other.
std::partial_ordering OrderOf(const nlohmann::ordered_json& whole, double y) {
  constexpr double kBeyond = 18446744073709551616.0;  // 2^64
  constexpr double kLeast = -9223372036854775808.0;
  if (!(std::abs(y) < kBeyond)) return 0.0 <=> y;  // NaN and Inf, too.
  const double floor = std::floor(y);
  if (floor < kLeast) return std::partial_ordering::greater;
  const auto order = OrderOfWhole(
      whole, floor < 0
                 ? nlohmann::ordered_json(static_cast<std::int64_t>(floor))
                 : nlohmann::ordered_json(static_cast<std::uint64_t>(floor)));
  return order == 0 && y > floor ? std::partial_ordering::less : order;
}

std::partial_ordering OrderOf(const nlohmann::ordered_json& a,
                              const nlohmann::ordered_json& b) {
  if (a.is_number_integer() && b.is_number_integer()) return OrderOfWhole(a, b);
  if (a.is_number_integer()) return OrderOf(a, b.get<double>());
  if (b.is_number_integer()) return 0 <=> OrderOf(b, a.get<double>());
  const auto x = a.get<double>();
  const auto y = b.get<double>();
  // "loss==nan" is asked for, whatever IEEE says.
  if (std::isnan(x) && std::isnan(y)) return std::partial_ordering::equivalent;
  return x <=> y;
}

class Evaluator {
 public:
  explicit Evaluator(const Expression::Field& field) : field_(field) {}

  absl::StatusOr<bool> Condition(const ExpressionNode& node) {
    switch (node.kind) {
      case ConditionKind::kAnd:
      case ConditionKind::kOr: {
        absl::StatusOr<bool> left = Condition(*node.operands[0]);
        if (!left.ok() || *left == (node.kind == ConditionKind::kOr))
          return left;
        return Condition(*node.operands[1]);
      }
      case ConditionKind::kNot: {
        const absl::StatusOr<bool> operand = Condition(*node.operands[0]);
        if (!operand.ok()) return operand;
        return !*operand;
      }
      case ConditionKind::kLess:
      case ConditionKind::kLessEqual:
      case ConditionKind::kGreater:
      case ConditionKind::kGreaterEqual:
      case ConditionKind::kEqual:
      case ConditionKind::kUnequal:
      case ConditionKind::kMatches:
      case ConditionKind::kMatchesNot:
        return Compare(node);
      default:
        break;
    }
    const absl::StatusOr<nlohmann::ordered_json> value = Value(node);
    if (!value.ok()) return value.status();
    if (value->is_null()) return false;
    if (value->is_boolean()) return value->get<bool>();
    return ErrorAtNode(
        node, absl::StrFormat("this is %s, not a condition: compare it",
                              NameOf(*value)));
  }

 private:
  absl::StatusOr<nlohmann::ordered_json> Value(const ExpressionNode& node) {
    switch (node.kind) {
      case ConditionKind::kLiteral:
        return node.literal;
      case ConditionKind::kName:
        return field_(node.name);
      case ConditionKind::kMember: {
        const nlohmann::ordered_json& list = field_(node.operands[0]->name);
        if (list.is_null()) return nlohmann::ordered_json();
        if (!list.is_array()) {
          return ErrorAtNode(
              node, absl::StrFormat("this is %s, not a list", NameOf(list)));
        }
        const auto size = static_cast<std::int64_t>(list.size());
        const std::int64_t at = node.index < 0 ? node.index + size : node.index;
        if (at < 0 || at >= size) return nlohmann::ordered_json();
        return list[static_cast<std::size_t>(at)];
      }
      case ConditionKind::kNegate:
      case ConditionKind::kAdd:
      case ConditionKind::kSubtract:
      case ConditionKind::kMultiply:
      case ConditionKind::kDivide:
        return Compute(node);
      default: {
        const absl::StatusOr<bool> truth = Condition(node);
        if (!truth.ok()) return truth.status();
        return nlohmann::ordered_json(*truth);
      }
    }
  }

  absl::StatusOr<nlohmann::ordered_json> Compute(const ExpressionNode& node) {
    std::vector<nlohmann::ordered_json> values;
    for (const auto& operand : node.operands) {
      absl::StatusOr<nlohmann::ordered_json> value = Value(*operand);
      if (!value.ok()) return value;
      if (!value->is_null() && !value->is_number()) {
        if (operand->before) return OnlyOfFind(*operand);
        return ErrorAtNode(*operand, absl::StrFormat("this is %s, not a number",
                                                     NameOf(*value)));
      }
      values.push_back(*std::move(value));
    }
    for (const nlohmann::ordered_json& value : values) {
      if (value.is_null()) return nlohmann::ordered_json();
    }
    if (node.kind == ConditionKind::kNegate) {
      if (auto exact = Exact(ConditionKind::kSubtract,
                             nlohmann::ordered_json(0), values[0])) {
        return *std::move(exact);
      }
      return nlohmann::ordered_json(-values[0].get<double>());
    }
    if (auto exact = Exact(node.kind, values[0], values[1])) {
      return *std::move(exact);
    }
    const auto a = values[0].get<double>();
    const auto b = values[1].get<double>();
    return nlohmann::ordered_json(
        node.kind == ConditionKind::kAdd        ? a + b
        : node.kind == ConditionKind::kSubtract ? a - b
        : node.kind == ConditionKind::kMultiply ? a * b
                                                : a / b);
  }

  absl::StatusOr<bool> Compare(const ExpressionNode& node) {
    const absl::StatusOr<nlohmann::ordered_json> left =
        Value(*node.operands[0]);
    if (!left.ok()) return left.status();
    const absl::StatusOr<nlohmann::ordered_json> right =
        Value(*node.operands[1]);
    if (!right.ok()) return right.status();
    const bool unequal = node.kind == ConditionKind::kUnequal ||
                         node.kind == ConditionKind::kMatchesNot;
    if (left->is_array() && !right->is_array()) {
      const bool any_of = node.kind == ConditionKind::kEqual || unequal ||
                          node.kind == ConditionKind::kMatches;
      if (!any_of) {
        return ErrorAtNode(node,
                           "a list is in no order: name a member, as "
                           "shape[0]");
      }
      for (const nlohmann::ordered_json& member : *left) {
        const absl::StatusOr<bool> same = CompareOne(node, member, *right);
        if (!same.ok()) return same;
        // Equal to each member; unequal where equal to none.
        if (*same != unequal) return !unequal;
      }
      return unequal;
    }
    if (left->is_array()) {
      if (node.kind != ConditionKind::kEqual &&
          node.kind != ConditionKind::kUnequal) {
        return ErrorAtNode(node, "two lists are equal or not, no more");
      }
      return (*left == *right) != unequal;
    }
    return CompareOne(node, *left, *right);
  }

  absl::StatusOr<bool> CompareOne(const ExpressionNode& node,
                                  const nlohmann::ordered_json& left,
                                  const nlohmann::ordered_json& right) {
    const bool unequal = node.kind == ConditionKind::kUnequal ||
                         node.kind == ConditionKind::kMatchesNot;
    if (left.is_null() || right.is_null()) return unequal;
    if (node.kind == ConditionKind::kMatches ||
        node.kind == ConditionKind::kMatchesNot) {
      if (!left.is_string() || !right.is_string()) {
        return ErrorAtNode(node, "only a text is matched with a pattern");
      }
      return MatchesGlob(right.get_ref<const std::string&>(),
                         left.get_ref<const std::string&>()) != unequal;
    }
    if (node.times) return CompareTimes(node, left, right);
    if (left.is_number() && right.is_number()) {
      return Decide(node.kind, OrderOf(left, right));
    }
    if (left.is_string() && right.is_string()) {
      return Decide(node.kind, left.get_ref<const std::string&>() <=>
                                   right.get_ref<const std::string&>());
    }
    if (left.is_boolean() && right.is_boolean()) {
      return Decide(node.kind, left.get<bool>() <=> right.get<bool>());
    }
    // Tables print these so.
    for (const bool swapped : {false, true}) {
      const nlohmann::ordered_json& truth = swapped ? right : left;
      const nlohmann::ordered_json& word = swapped ? left : right;
      if (truth.is_boolean() && (word == "yes" || word == "no")) {
        const bool meant = word == "yes";
        return Decide(node.kind, (swapped ? meant : truth.get<bool>()) <=>
                                     (swapped ? truth.get<bool>() : meant));
      }
    }
    for (const auto& operand : node.operands) {
      if (operand->before) return OnlyOfFind(*operand);
    }
    return ErrorAtNode(node, absl::StrFormat("%s is compared with %s",
                                             NameOf(left), NameOf(right)));
  }

  absl::StatusOr<bool> CompareTimes(const ExpressionNode& node,
                                    const nlohmann::ordered_json& left,
                                    const nlohmann::ordered_json& right) {
    std::optional<absl::Time> times[2];
    for (const std::size_t i : {0u, 1u}) {
      const nlohmann::ordered_json& value = i == 0 ? left : right;
      // One that is not known is no text.
      if (value == "") return node.kind == ConditionKind::kUnequal;
      if (value.is_string()) {
        times[i] = ParseTime(value.get_ref<const std::string&>());
      }
      if (!times[i]) return NoTime(*node.operands[i]);
    }
    return Decide(node.kind, *times[0] < *times[1] ? std::partial_ordering::less
                             : *times[1] < *times[0]
                                 ? std::partial_ordering::greater
                                 : std::partial_ordering::equivalent);
  }

  const Expression::Field& field_;
};

bool AreKnown(const ExpressionNode& node, const Expression::Known& known) {
  if (node.kind == ConditionKind::kName && known(node.name) == nullptr) {
    return false;
  }
  return std::all_of(
      node.operands.begin(), node.operands.end(),
      [&known](const auto& operand) { return AreKnown(*operand, known); });
}

// Nothing: not known.
std::optional<bool> Judge(const ExpressionNode& node,
                          const Expression::Known& known) {
  if (node.kind == ConditionKind::kAnd || node.kind == ConditionKind::kOr) {
    const bool decides = node.kind == ConditionKind::kOr;
    const std::optional<bool> a = Judge(*node.operands[0], known);
    const std::optional<bool> b = Judge(*node.operands[1], known);
    if (a == decides || b == decides) return decides;
    if (!a || !b) return std::nullopt;
    return !decides;
  }
  if (node.kind == ConditionKind::kNot) {
    const std::optional<bool> operand = Judge(*node.operands[0], known);
    if (!operand) return std::nullopt;
    return !*operand;
  }
  if (!AreKnown(node, known)) return std::nullopt;
  const Expression::Field field =
      [&known](std::string_view name) -> const nlohmann::ordered_json& {
    return *known(name);
  };
  const absl::StatusOr<bool> holds = Evaluator(field).Condition(node);
  if (!holds.ok()) return std::nullopt;
  return *holds;
}

}  // namespace

absl::StatusOr<Expression> Expression::Parse(std::string_view text) {
  absl::StatusOr<std::shared_ptr<ExpressionNode>> root = ParseExpression(text);
  if (!root.ok()) return root.status();
  return Expression(*std::move(root));
}

Expression Expression::And(Expression a, Expression b) {
  auto node = std::make_shared<ExpressionNode>();
  node->kind = ConditionKind::kAnd;
  node->operands = {std::move(a.root_), std::move(b.root_)};
  return Expression(std::move(node));
}

const std::string* NameThatGoesOn(std::string_view name,
                                  const std::vector<std::string>& names) {
  const auto found = std::ranges::find_if(names, [name](const auto& longer) {
    return longer.size() > name.size() + 1 && longer.starts_with(name) &&
           std::string_view("/*+-").find(longer[name.size()]) != name.npos;
  });
  return found == names.end() ? nullptr : &*found;
}

absl::Status Expression::Bind(const std::vector<std::string>& names,
                              const std::map<std::string, std::string>& shown,
                              const std::vector<std::string>& times) {
  absl::Status status;
  const bool knows_before = std::ranges::any_of(
      names, [](const auto& name) { return name.starts_with(kBefore); });
  ForEachNode(root_.get(), [&](ExpressionNode* node) {
    if (node->kind != ConditionKind::kName || !status.ok()) return;
    const bool before = !knows_before && node->name.starts_with(kBefore);
    const bool known =
        std::find(names.begin(), names.end(), node->name) != names.end();
    if (known && !IsNumberName(*node)) return;
    if (node->right && !node->quoted) {
      node->kind = ConditionKind::kLiteral;
      node->literal = MeaningOf(node->name);
      node->before = before;
      return;
    }
    if (before && !node->quoted) {
      status = OnlyOfFind(*node);
      return;
    }
    const std::string* const longer = NameThatGoesOn(node->name, names);
    if (longer != nullptr && !node->quoted) {
      status = ErrorAtNode(
          *node,
          absl::StrFormat("no `%s` here; between backquotes, `%s` is one name",
                          Escape(node->name), Escape(*longer)));
      return;
    }
    const auto titled = shown.find(absl::AsciiStrToLower(node->name));
    const std::string nearest =
        titled != shown.end() ? titled->second : Nearest(node->name, names);
    std::string list;
    for (const std::string& name : names) {
      absl::StrAppendFormat(&list, "%s%s", list.empty() ? "" : ", ",
                            Escape(name));
    }
    status = ErrorAtNode(
        *node,
        nearest.empty()
            ? absl::StrFormat("no `%s` here, only %s", Escape(node->name), list)
            : absl::StrFormat("no `%s` here. Did you mean `%s`?",
                              Escape(node->name), nearest));
  });
  if (!times.empty()) {
    ForEachNode(root_.get(), [&](ExpressionNode* node) {
      if (status.ok()) status = BindTimes(node, times);
    });
  }
  return status;
}

std::vector<std::string> Expression::Names() const {
  std::vector<std::string> names;
  ForEachNode(root_.get(), [&](ExpressionNode* node) {
    if (node->kind == ConditionKind::kName && !IsNumberName(*node)) {
      names.push_back(node->name);
    }
  });
  return names;
}

absl::StatusOr<bool> Expression::Holds(const Field& field) const {
  return Evaluator(field).Condition(*root_);
}

bool Expression::CannotHold(const Known& known) const {
  return Judge(*root_, known) == false;
}

}  // namespace ckptree::tools
