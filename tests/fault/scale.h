// SPDX-License-Identifier: Apache-2.0

// How much of the trials runs.

#ifndef CKPTREE_TESTS_FAULT_SCALE_H_
#define CKPTREE_TESTS_FAULT_SCALE_H_

#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace ckptree::testing {

// 1, or 10 where $CKPTREE_TEST_SCALE is 0.1: only every tenth fault is tried.
// What a whole trial must have met is then not asked for.
inline int TrialStride() {
  const char* const wanted = std::getenv("CKPTREE_TEST_SCALE");
  const double scale = wanted == nullptr ? 1 : std::atof(wanted);
  return static_cast<int>(std::lround(1 / std::clamp(scale, 0.001, 1.0)));
}

// The same where each call of the file system fails in turn; of these only
// every second is tried where $CKPTREE_TEST_EVERY is 2. The trial still counts
// as whole: it must meet what one of all calls meets.
inline int CallStride() {
  const char* const wanted = std::getenv("CKPTREE_TEST_EVERY");
  return TrialStride() * std::max(1, wanted == nullptr ? 1 : std::atoi(wanted));
}

inline bool WholeTrial() { return TrialStride() == 1; }

// Of `all`, as many as the scale says, and at least one.
inline int Scaled(int all) { return std::max(1, all / TrialStride()); }

// The same of trials with the servers of object stores, each of which takes
// longer than one of the file system: where $CKPTREE_TEST_EVERY is 2, every
// fourth.
inline int ScaledWithServers(int all) {
  const int more = CallStride() > TrialStride() ? 2 : 1;
  return std::max(1, all / (CallStride() * more));
}

}  // namespace ckptree::testing

#endif  // CKPTREE_TESTS_FAULT_SCALE_H_
