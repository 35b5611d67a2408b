// SPDX-License-Identifier: Apache-2.0

// What is shown of a leaf in tables of every kind.

#ifndef CKPTREE_TOOLS_OUTPUT_LEAF_CELLS_H_
#define CKPTREE_TOOLS_OUTPUT_LEAF_CELLS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ckptree/step.h"
#include "tools/output/table.h"

namespace ckptree::tools {

// "[3,4]"
std::string ShapeText(const Shape& shape);

// An int of Python's with more than 64 bits, as generators of random numbers
// have (python/src/state_writer.cc): its bytes are an array. Not of very many.
bool IsLargeInt(const LeafInfo& leaf);
// Whether it is an array, and not the bytes of such an int.
bool HoldsArray(const LeafInfo& leaf);
// As it was saved: such an int is an int.
EntryKind KindOf(const LeafInfo& leaf);

// "float32[3,4]", or the kind of what is no array.
Cell TypeCell(const LeafInfo& leaf);

// How many numbers a leaf has: two for each element of a complex array, as its
// statistics count.
std::uint64_t NumberCount(const LeafInfo& leaf);

// A statistic by the name of its column, which are those of StatisticsCells;
// null where there are no finite elements that it could be of.
Json StatisticOf(const Statistics& statistics, std::string_view name);

// Statistics by the names of their columns: l2, mean, std, min, max, nan, inf,
// zeros. Empty where there are none, red where they are not finite.
class StatisticsCells {
 public:
  explicit StatisticsCells(std::optional<Statistics> statistics)
      : statistics_(statistics) {}
  // None of a large int: those of its bytes say nothing of it.
  StatisticsCells(const LeafInfo& leaf, std::optional<Statistics> statistics)
      : statistics_(IsLargeInt(leaf) ? std::nullopt : statistics) {}

  // In the order of `names`.
  std::vector<Cell> Take(const std::vector<std::string_view>& names) const;
  Cell Of(std::string_view name) const;

 private:
  std::optional<Statistics> statistics_;
};

}  // namespace ckptree::tools

#endif  // CKPTREE_TOOLS_OUTPUT_LEAF_CELLS_H_
