// SPDX-License-Identifier: Apache-2.0

// The statistics of leaves over steps, for a report.

#ifndef CKPTREE_TOOLS_REPORT_LEAF_GRID_H_
#define CKPTREE_TOOLS_REPORT_LEAF_GRID_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "ckptree/step.h"
#include "tools/output/table.h"
#include "tools/report/number_pack.h"

namespace ckptree::tools {

// A row for each leaf, a column for each step. Confined to one thread.
class LeafGrid {
 public:
  // Leaves of these names; all where `keys` is empty.
  explicit LeafGrid(std::vector<std::string> keys) : keys_(std::move(keys)) {}

  // Adds the leaves of `step`, the `place`-th of those in the report. Errors
  // are those of the store; then nothing is added.
  absl::Status Add(const Step& step, std::size_t place);

  // The grid as the page reads it.
  Json Take(NumberPack* pack);

 private:
  static constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

  // One leaf in one step. `value` counts the values that the leaf had, from 1,
  // in the order of the steps; equal numbers are equal values. 0: not there.
  struct Cell {
    std::int64_t value = 0;
    std::int64_t type = 0;
    std::int64_t nan = 0, inf = 0, zero = 0;
    double l2 = kUnknown, mean = kUnknown, deviation = kUnknown;
    double min = kUnknown, max = kUnknown;
  };
  struct Leaf {
    std::string name;
    std::map<std::string, std::int64_t> values;  // By digest and type.
    // In the newest step that has it.
    std::int64_t bytes = 0, stored = 0, since = 0, chunks = 0;
  };

  Cell CellOf(const LeafInfo& info, const LeafDetail& detail, Leaf* leaf);
  std::int64_t TypeOf(const LeafInfo& leaf);

  std::vector<std::string> keys_;
  std::vector<std::int64_t> places_;
  std::vector<Leaf> leaves_;
  std::map<std::string, std::size_t> leaf_places_;
  std::vector<std::size_t> newest_;  // Of the newest step, in tree order.
  std::vector<std::vector<Cell>> columns_;
  std::vector<std::pair<std::string, std::int64_t>> types_;  // With elements.
  std::map<std::string, std::int64_t> type_places_;
};

}  // namespace ckptree::tools

#endif  // CKPTREE_TOOLS_REPORT_LEAF_GRID_H_
