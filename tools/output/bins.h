// SPDX-License-Identifier: Apache-2.0

// The bins of a histogram.

#ifndef CKPTREE_TOOLS_OUTPUT_BINS_H_
#define CKPTREE_TOOLS_OUTPUT_BINS_H_

#include <cstddef>
#include <vector>

namespace ckptree::tools {

// Bins of one width between two numbers. As of numpy.histogram, each has its
// lower edge and not its upper one, but the last has both. Thread-compatible.
class Bins {
 public:
  // REQUIRES: finite low <= high, count > 0.
  Bins(double low, double high, std::size_t count);

  std::size_t count() const { return edges_.size() - 1; }

  // Edge(i) is the lower one of bin i, Edge(count()) is `high`.
  double Edge(std::size_t i) const { return edges_[i]; }

  // The bin between whose edges `value` is; the first or last of a value
  // outside, and the first where all edges are one. REQUIRES: it is finite.
  std::size_t Of(double value) const;

 private:
  std::vector<double> edges_;
  double scale_;  // Bins to the unit; 0 where the extent is no double.
};

}  // namespace ckptree::tools

#endif  // CKPTREE_TOOLS_OUTPUT_BINS_H_
