// SPDX-License-Identifier: Apache-2.0

#include "tools/output/row_threads.h"

#include <algorithm>
#include <exception>
#include <thread>
#include <vector>

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
  // What a thread throws is thrown here, once all have ended.
  std::vector<std::exception_ptr> failures(count);
  const auto guarded = [&](std::size_t i) {
    try {
      work(i);
    } catch (...) {
      failures[i] = std::current_exception();
    }
  };
  std::vector<std::thread> threads;
  threads.reserve(count);
  std::size_t begun = 1;
  try {
    for (; begun < count; ++begun) {
      threads.emplace_back([&guarded, begun] { guarded(begun); });
    }
  } catch (const std::exception&) {
    // No more threads are to be had: the rest is done here.
  }
  guarded(0);
  for (std::size_t i = begun; i < count; ++i) guarded(i);
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
}

}  // namespace ckptree::tools
