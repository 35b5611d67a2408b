// SPDX-License-Identifier: Apache-2.0

// What the late rows of a long table are made of, a piece at a time.

#ifndef CKPTREE_TOOLS_OUTPUT_KEPT_ROWS_H_
#define CKPTREE_TOOLS_OUTPUT_KEPT_ROWS_H_

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>
#include <vector>

namespace ckptree::tools {

// Values by the numbers of their rows, of which those that were written go: the
// memory of one piece is that of the next. Thread-compatible.
template <typename T>
class KeptRows {
 public:
  // One more than the last number.
  std::size_t end() const { return begin_ + kept_.size(); }

  // REQUIRES: it was not dropped, and is below end().
  const T& operator[](std::size_t row) const { return kept_[row - begin_]; }

  // Puts `next` behind those that there are; `most` are expected in all.
  void Add(std::vector<T> next, std::size_t most) {
    if (kept_.empty()) {
      kept_ = std::move(next);
      return;
    }
    const std::size_t size = kept_.size() + next.size();
    if (size > kept_.capacity()) kept_.reserve(std::max(most, size));
    std::move(next.begin(), next.end(), std::back_inserter(kept_));
  }

  // Rows below `row` are not asked for any more.
  void Drop(std::size_t row) {
    if (row <= begin_) return;
    const std::size_t count = std::min(row - begin_, kept_.size());
    kept_.erase(kept_.begin(),
                kept_.begin() + static_cast<std::ptrdiff_t>(count));
    begin_ += count;
  }

 private:
  std::size_t begin_ = 0;
  std::vector<T> kept_;
};

}  // namespace ckptree::tools

#endif  // CKPTREE_TOOLS_OUTPUT_KEPT_ROWS_H_
