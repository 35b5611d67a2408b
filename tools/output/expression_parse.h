// SPDX-License-Identifier: Apache-2.0

// What an expression is made of.

#ifndef CKPTREE_TOOLS_OUTPUT_EXPRESSION_PARSE_H_
#define CKPTREE_TOOLS_OUTPUT_EXPRESSION_PARSE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace ckptree::tools {

// A part of an expression, and where it stands in its text.
struct ExpressionNode {
  enum class Kind {
    kLiteral,
    kName,
    kMember,  // The member `index` of operands[0].
    kNegate,
    kAdd,
    kSubtract,
    kMultiply,
    kDivide,
    kLess,
    kLessEqual,
    kGreater,
    kGreaterEqual,
    kEqual,
    kUnequal,
    kMatches,
    kMatchesNot,
    kNot,
    kAnd,
    kOr,
  };
  Kind kind = Kind::kLiteral;
  std::shared_ptr<const std::string> text = {};  // Of the whole expression.
  std::size_t at = 0;                            // Offset in it.
  nlohmann::ordered_json literal = {};
  std::string name = {};
  bool quoted = false;  // The name stood in backquotes.
  bool right = false;   // Alone on the right of a comparison.
  bool times = false;   // A comparison of times.
  bool before = false;  // A text that begins as a name that only `find` has.
  std::int64_t index = 0;
  std::vector<std::shared_ptr<ExpressionNode>> operands = {};
};

// kInvalidArgument: `what`, the text, and a caret under the byte `at`.
absl::Status ErrorAt(std::string_view text, std::size_t at,
                     std::string_view what);

// See Expression::Parse().
absl::StatusOr<std::shared_ptr<ExpressionNode>> ParseExpression(
    std::string_view text);

}  // namespace ckptree::tools

#endif  // CKPTREE_TOOLS_OUTPUT_EXPRESSION_PARSE_H_
