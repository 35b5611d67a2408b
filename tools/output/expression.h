// SPDX-License-Identifier: Apache-2.0

// The conditions of --where and `find`: "loss<2.5 and not (nan>0 or frozen)".

#ifndef CKPTREE_TOOLS_OUTPUT_EXPRESSION_H_
#define CKPTREE_TOOLS_OUTPUT_EXPRESSION_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace ckptree::tools {

// One of `names` that begins with `name` and goes on as an expression could:
// `val/loss` of a metric is read as a quotient of `val`. Null: there is none.
const std::string* NameThatGoesOn(std::string_view name,
                                  const std::vector<std::string>& names);

// Before a name: its value in the step before, which `find` alone knows.
inline constexpr std::string_view kBefore = "prev.";

struct ExpressionNode;

// A condition over named values.
//
//   condition: comparisons joined by `and` (&&), `or` (||), `not` (!), and
//     parentheses; `not` binds closest, `or` least.
//   comparison: VALUE OP VALUE, OP one of < <= > >= == = != ~ !~; or the name
//     of a value that is true or false.
//   value: a name, with [N] a member of a list; a number, also with a unit
//     (4KiB, 1.5GB); a text in quotes; true, false; + - * / of numbers.
//
// A name is letters, digits, `_` and dots; any other stands in backquotes:
// `val/loss`. On the right of a comparison, nan, inf and a name that is none
// of the table's stand for the number and the text that they are.
//
// ~ matches a text with a pattern, as MatchesGlob() does. A value that is not
// there makes a comparison false, but for != and !~. NaN equals NaN. A list is
// equal to each of its members. Times are compared as such, with texts that
// ParseTime() takes; ~ and !~ see their text.
//
// Copies share what was parsed. Thread-compatible.
class Expression {
 public:
  // kInvalidArgument, with the place marked by a caret, for anything that the
  // grammar above does not have, and for one that is nested too deeply.
  static absl::StatusOr<Expression> Parse(std::string_view text);

  // Both must hold.
  static Expression And(Expression a, Expression b);

  // Tells which names there are. kInvalidArgument, with a caret: one that is
  // not, with the name that `shown` gives for it, the title of a column, or the
  // nearest. The values of `times` are texts of times: likewise, what is no
  // time and compared with them. To be called before Holds().
  absl::Status Bind(const std::vector<std::string>& names,
                    const std::map<std::string, std::string>& shown = {},
                    const std::vector<std::string>& times = {});

  // The names of values, as they may stand in a table. Before Bind() also texts
  // that look like one.
  std::vector<std::string> Names() const;

  // `field` returns the value of a name, null where there is none.
  // kInvalidArgument, with a caret: a text is compared with a number, or a
  // number is taken for a condition. REQUIRES: Bind() returned OK.
  using Field =
      std::function<const nlohmann::ordered_json&(std::string_view name)>;
  absl::StatusOr<bool> Holds(const Field& field) const;

  // True where it is false whatever the values are that `known` gives null for;
  // what it may not be asked is not said here. REQUIRES: Bind() returned OK.
  using Known =
      std::function<const nlohmann::ordered_json*(std::string_view name)>;
  bool CannotHold(const Known& known) const;

 private:
  explicit Expression(std::shared_ptr<ExpressionNode> root)
      : root_(std::move(root)) {}
  std::shared_ptr<ExpressionNode> root_;
};

}  // namespace ckptree::tools

#endif  // CKPTREE_TOOLS_OUTPUT_EXPRESSION_H_
