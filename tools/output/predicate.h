// SPDX-License-Identifier: Apache-2.0

// The conditions of --where: "loss<2.5 && nan>0".

#ifndef CKPTREE_TOOLS_OUTPUT_PREDICATE_H_
#define CKPTREE_TOOLS_OUTPUT_PREDICATE_H_

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace ckptree::tools {

// Comparisons that must all hold. Value type.
class Predicate {
 public:
  // NAME OP VALUE, joined by &&; OP is < <= > >= == = or !=. A value is a
  // number (also nan, inf, 4KiB, 1.5GiB), true, false, or text, with or without
  // quotes.
  static absl::StatusOr<Predicate> Parse(std::string_view text);

  std::vector<std::string> Names() const;

  // `field` returns the value of a name, null where there is none; a comparison
  // with null holds for != only. A list is equal to each of its members.
  bool Holds(
      const std::function<const nlohmann::ordered_json&(std::string_view name)>&
          field) const;

 private:
  enum class Op {
    kLess,
    kLessEqual,
    kGreater,
    kGreaterEqual,
    kEqual,
    kUnequal
  };
  struct Comparison {
    std::string name;
    Op op = Op::kEqual;
    nlohmann::ordered_json value;
  };
  static bool Compare(const nlohmann::ordered_json& left, Op op,
                      const nlohmann::ordered_json& right);
  std::vector<Comparison> comparisons_;
};

}  // namespace ckptree::tools

#endif  // CKPTREE_TOOLS_OUTPUT_PREDICATE_H_
