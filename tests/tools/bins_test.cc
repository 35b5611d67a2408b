// SPDX-License-Identifier: Apache-2.0

#include "tools/output/bins.h"

#include <cmath>
#include <cstddef>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ckptree::tools {
namespace {

using ::testing::ElementsAre;

// Which is looked for without a guess.
std::size_t ByTheEdges(const Bins& bins, double value) {
  std::size_t found = 0;
  for (std::size_t i = 0; i < bins.count(); ++i) {
    if (value >= bins.Edge(i)) found = i;
  }
  return found;
}

std::vector<int> Counts(const Bins& bins, const std::vector<double>& values) {
  std::vector<int> counts(bins.count());
  for (const double value : values) ++counts[bins.Of(value)];
  return counts;
}

TEST(BinsTest, SmallNumbersBesideLargeOnesHaveASign) {
  const Bins wide(-1e17, 1e17, 4);
  EXPECT_THAT(Counts(wide, {-1e17, -1.5, -0.25, -1e-300, 0, 0.25, 1e17}),
              ElementsAre(1, 3, 2, 1));
  const Bins whole(-0x1p63, 0x1p63, 4);
  EXPECT_THAT(Counts(whole, {-0x1p63, 10, -10, 0x1p63}),
              ElementsAre(1, 1, 1, 1));
}

TEST(BinsTest, AnEdgeBelongsToTheBinAboveItAndTheLastToTheLast) {
  const Bins bins(0, 4, 4);
  EXPECT_THAT(Counts(bins, {0, 1, 1, 2, 3, 4}), ElementsAre(1, 2, 1, 2));
  EXPECT_EQ(bins.Of(-5), 0u);
  EXPECT_EQ(bins.Of(5), 3u);
}

TEST(BinsTest, WhateverTheExtentIsTheEdgesDecide) {
  constexpr double kMax = std::numeric_limits<double>::max();
  constexpr double kLeast = std::numeric_limits<double>::denorm_min();
  std::mt19937_64 random(11);
  for (const auto& extent :
       std::vector<std::pair<double, double>>{{0, 1},
                                              {-1e17, 1e17},
                                              {-1, 3e300},
                                              {1e17, 1e17 + 64},
                                              {0, 100 * kLeast},
                                              {-kMax, kMax},
                                              {0.1, 0.7}}) {
    const double low = extent.first, high = extent.second;
    for (const std::size_t count : {1u, 3u, 20u, 64u, 200u}) {
      const Bins bins(low, high, count);
      EXPECT_EQ(bins.Edge(0), low);
      EXPECT_EQ(bins.Edge(count), high);
      const auto check = [&](double value) {
        if (value < low || value > high) return;
        ASSERT_EQ(bins.Of(value), ByTheEdges(bins, value))
            << value << " of " << low << " to " << high << " by " << count;
      };
      for (std::size_t i = 0; i <= count; ++i) {
        check(bins.Edge(i));
        check(std::nextafter(bins.Edge(i), -kMax));
        check(std::nextafter(bins.Edge(i), kMax));
      }
      for (int i = 0; i < 200; ++i) {
        const double share = static_cast<double>(random() >> 11) * 0x1p-53;
        check(std::lerp(low, high, share));
        check(share);
        check(-share);
      }
    }
  }
}

TEST(BinsTest, OneValueIsInTheFirst) {
  EXPECT_EQ(Bins(2.5, 2.5, 1).Of(2.5), 0u);
  EXPECT_EQ(Bins(2.5, 2.5, 64).Of(2.5), 0u);
}

}  // namespace
}  // namespace ckptree::tools
