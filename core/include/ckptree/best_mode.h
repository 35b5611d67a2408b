// SPDX-License-Identifier: Apache-2.0

// Which value of a metric is the best one.

#ifndef CKPTREE_BEST_MODE_H_
#define CKPTREE_BEST_MODE_H_

namespace ckptree {

// Nothing in this library assumes a mode: of a loss the smallest value is the
// best, of an accuracy the largest, and a wrong guess deletes the best step.
// Whoever names a metric says the mode beside it.
enum class BestMode {
  kMin,  // The smallest value is the best.
  kMax,  // The largest value is the best.
};

}  // namespace ckptree

#endif  // CKPTREE_BEST_MODE_H_
