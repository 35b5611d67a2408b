// SPDX-License-Identifier: Apache-2.0
// Hot path: per element.

#include "tools/output/bins.h"

#include <cmath>
#include <cstddef>

namespace ckptree::tools {

Bins::Bins(double low, double high, std::size_t count)
    : edges_(count + 1, high),
      scale_(high > low ? static_cast<double>(count) / (high - low) : 0) {
  const auto bins = static_cast<double>(count);
  const double step = (high - low) / bins;
  for (std::size_t i = 0; i < count; ++i) {
    const auto at = static_cast<double>(i);
    edges_[i] =
        std::isfinite(step) ? low + step * at : std::lerp(low, high, at / bins);
  }
}

std::size_t Bins::Of(double value) const {
  const std::size_t last = count() - 1;
  if (edges_.front() == edges_.back()) return 0;
  // A guess, as the difference is rounded: beside 1e17 all small numbers are
  // one. What counts are the edges.
  const double at = (value - edges_.front()) * scale_;
  std::size_t bin = 0;
  if (at > 0) {
    bin = at < static_cast<double>(last) ? static_cast<std::size_t>(at) : last;
  }
  while (bin > 0 && value < edges_[bin]) --bin;
  while (bin < last && value >= edges_[bin + 1]) ++bin;
  return bin;
}

}  // namespace ckptree::tools
