// SPDX-License-Identifier: Apache-2.0

#include "tools/output/row_threads.h"

#include <algorithm>
#include <system_error>
#include <thread>

namespace ckptree::tools {
namespace {

// To begin a thread takes as long as some hundred rows.
constexpr std::size_t kRowsOfThread = 2048;
constexpr std::size_t kMostThreads = 4;

}  // namespace

std::vector<RowRange> RangesOfRows(std::size_t rows) {
  const std::size_t most = std::min(rows / kRowsOfThread, kMostThreads);
  if (most < 2) return {{0, rows}};  // How many processors is a system call.
  const std::size_t count =
      std::clamp<std::size_t>(std::thread::hardware_concurrency(), 1, most);
  std::vector<RowRange> ranges;
  for (std::size_t i = 0; i < count; ++i) {
    ranges.push_back({rows * i / count, rows * (i + 1) / count});
  }
  return ranges;
}

void OnRowThreads(std::size_t count,
                  const std::function<void(std::size_t i)>& work) {
  std::vector<std::thread> threads;
  std::size_t begun = 1;
  try {
    for (; begun < count; ++begun) {
      threads.emplace_back([&work, begun] { work(begun); });
    }
  } catch (const std::system_error&) {
    // No more threads are to be had: the rest is done here.
  }
  work(0);
  for (std::size_t i = begun; i < count; ++i) work(i);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace ckptree::tools
