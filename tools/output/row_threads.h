// SPDX-License-Identifier: Apache-2.0

// Work on the rows of a long table, by more than one thread.

#ifndef CKPTREE_TOOLS_OUTPUT_ROW_THREADS_H_
#define CKPTREE_TOOLS_OUTPUT_ROW_THREADS_H_

#include <cstddef>
#include <functional>
#include <vector>

namespace ckptree::tools {

struct RowRange {
  std::size_t begin = 0;
  std::size_t end = 0;
};

// `rows` cut into a range for each thread that is worth beginning: one of a
// short table. None is empty but for the only one.
std::vector<RowRange> RangesOfRows(std::size_t rows);

// Calls work(i) for each i below `count`, on as many threads, of which this one
// is the first.
void OnRowThreads(std::size_t count,
                  const std::function<void(std::size_t i)>& work);

}  // namespace ckptree::tools

#endif  // CKPTREE_TOOLS_OUTPUT_ROW_THREADS_H_
