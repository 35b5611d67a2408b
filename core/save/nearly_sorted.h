// SPDX-License-Identifier: Apache-2.0

// Sorts what comes in long runs that are nearly in order.

#ifndef CKPTREE_CORE_SAVE_NEARLY_SORTED_H_
#define CKPTREE_CORE_SAVE_NEARLY_SORTED_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

namespace ckptree::internal {

// Merges the sorted runs [begin, middle) and [middle, end) of `order`, those of
// the first before their equals of the second. Looks at few of them where long
// runs of one side follow each other.
template <typename Less>
void MergeRuns(std::vector<std::uint32_t>* order, std::size_t begin,
               std::size_t middle, std::size_t end, const Less& less,
               std::vector<std::uint32_t>* merged) {
  // The first of [from, to) for which `holds` does not hold any more.
  const auto gallop = [order](std::size_t from, std::size_t to,
                              const auto& holds) {
    std::size_t step = 1;
    while (step < to - from && holds((*order)[from + step - 1])) step *= 2;
    const auto first = order->begin() + static_cast<std::ptrdiff_t>(from);
    const auto found = std::partition_point(
        first + static_cast<std::ptrdiff_t>(step / 2),
        first + static_cast<std::ptrdiff_t>(std::min(step, to - from)), holds);
    return static_cast<std::size_t>(found - order->begin());
  };
  merged->clear();
  const auto take = [order, merged](std::size_t from, std::size_t to) {
    merged->insert(merged->end(),
                   order->begin() + static_cast<std::ptrdiff_t>(from),
                   order->begin() + static_cast<std::ptrdiff_t>(to));
    return to;
  };
  std::size_t a = begin;
  std::size_t b = middle;
  while (a < middle && b < end) {
    a = take(a, gallop(a, middle, [&](std::uint32_t item) {
               return !less((*order)[b], item);
             }));
    if (a == middle) break;
    b = take(b, gallop(b, end, [&](std::uint32_t item) {
               return less(item, (*order)[a]);
             }));
  }
  take(a, middle);
  // What is left of the second run is where it belongs.
  std::copy(merged->begin(), merged->end(),
            order->begin() + static_cast<std::ptrdiff_t>(begin));
}

// As std::stable_sort() of `items`, at most 2^32 of them, which are large, far
// apart in memory, or slow to compare. Leaves of a state are an example: those
// of one container follow each other, so they are sorted while they are in the
// cache of a processor, and containers are put together by few comparisons.
// Each item is moved once.
template <typename Items, typename Less>  // A vector, by any allocator.
void SortNearlySorted(Items* items, const Less& less) {
  constexpr std::size_t kRun = 1024;
  const std::size_t count = items->size();
  std::vector<std::uint32_t> order(count);
  std::iota(order.begin(), order.end(), 0u);
  const auto before = [items, &less](std::uint32_t a, std::uint32_t b) {
    return less((*items)[a], (*items)[b]);
  };
  for (std::size_t begin = 0; begin < count; begin += kRun) {
    const auto first = order.begin() + static_cast<std::ptrdiff_t>(begin);
    std::stable_sort(
        first,
        first + static_cast<std::ptrdiff_t>(std::min(kRun, count - begin)),
        before);
  }
  std::vector<std::uint32_t> merged;
  for (std::size_t width = kRun; width < count; width *= 2) {
    for (std::size_t begin = 0; begin + width < count; begin += 2 * width) {
      const std::size_t middle = begin + width;
      if (!before(order[middle], order[middle - 1])) continue;
      MergeRuns(&order, begin, middle, std::min(middle + width, count), before,
                &merged);
    }
  }
  // Each cycle of places in turn: `order` says what comes where.
  for (std::uint32_t start = 0; start < count; ++start) {
    if (order[start] == start) continue;
    auto first = std::move((*items)[start]);
    std::uint32_t at = start;
    while (order[at] != start) {
      const std::uint32_t from = order[at];
      (*items)[at] = std::move((*items)[from]);
      order[at] = at;
      at = from;
    }
    (*items)[at] = std::move(first);
    order[at] = at;
  }
}

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_SAVE_NEARLY_SORTED_H_
