// SPDX-License-Identifier: Apache-2.0

// Which steps are healthy.

#ifndef CKPTREE_CORE_VERSION_STEP_HEALTH_H_
#define CKPTREE_CORE_VERSION_STEP_HEALTH_H_

#include <cmath>
#include <cstdint>

namespace ckptree::internal {

// No array has a NaN or an Inf, and no metric is one: a run whose loss is
// infinite has diverged whatever its arrays hold. `metrics` are pairs of name
// and value.
template <typename Metrics>
bool IsHealthy(std::uint64_t nonfinite_leaves, const Metrics& metrics) {
  if (nonfinite_leaves != 0) return false;
  for (const auto& [name, value] : metrics) {
    if (!std::isfinite(value)) return false;
  }
  return true;
}

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_VERSION_STEP_HEALTH_H_
