// SPDX-License-Identifier: Apache-2.0

#include "core/save/nearly_sorted.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace ckptree::internal {
namespace {

// It can be moved only, and knows where it was.
struct Item {
  std::uint64_t key = 0;
  std::unique_ptr<std::size_t> place = {};
};
using Keys = std::vector<std::uint64_t>;

void ExpectSorted(const Keys& keys) {
  std::vector<Item> items;
  std::vector<std::pair<std::uint64_t, std::size_t>> expected;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    items.push_back({keys[i], std::make_unique<std::size_t>(i)});
    expected.emplace_back(keys[i], i);
  }
  // Equal ones stay in their order: by the place.
  std::sort(expected.begin(), expected.end());
  SortNearlySorted(&items,
                   [](const Item& a, const Item& b) { return a.key < b.key; });
  ASSERT_EQ(items.size(), expected.size());
  for (std::size_t i = 0; i < items.size(); ++i) {
    ASSERT_NE(items[i].place, nullptr) << i;
    ASSERT_EQ(std::pair(items[i].key, *items[i].place), expected[i]) << i;
  }
}

TEST(NearlySortedTest, AnyOrderOfAnyLength) {
  std::mt19937_64 random(7);
  for (const std::size_t count :
       {0u, 1u, 2u, 1023u, 1024u, 1025u, 2048u, 2049u, 5000u, 20'000u}) {
    for (const std::uint64_t different : {1u, 3u, 1000u, 1'000'000u}) {
      Keys keys(count);
      for (std::uint64_t& key : keys) key = random() % different;
      ExpectSorted(keys);
      std::sort(keys.begin(), keys.end());
      ExpectSorted(keys);
      std::reverse(keys.begin(), keys.end());
      ExpectSorted(keys);
    }
  }
}

// Containers in an order of their own, and so are their leaves.
TEST(NearlySortedTest, RunsInAnyOrder) {
  std::mt19937_64 random(8);
  for (const std::size_t length : {1u, 7u, 100u, 1000u, 1024u, 3000u}) {
    Keys runs(30'000 / length + 1);
    for (std::size_t i = 0; i < runs.size(); ++i) runs[i] = i;
    std::shuffle(runs.begin(), runs.end(), random);
    Keys keys;
    for (const std::uint64_t run : runs) {
      for (std::size_t i = 0; i < length; ++i) {
        keys.push_back(run * 1'000'000 + random() % length);
      }
    }
    ExpectSorted(keys);
  }
}

}  // namespace
}  // namespace ckptree::internal
