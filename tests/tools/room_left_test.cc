// SPDX-License-Identifier: Apache-2.0

// For how long the free space of a disk lasts.

#include "tools/verbs/room_left.h"

#include <cstdint>
#include <vector>

#include "absl/time/time.h"
#include "ckptree/store.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ckptree::tools {
namespace {

using ::testing::HasSubstr;

constexpr std::uint64_t kMiB = 1 << 20;

// A save of a MiB each `apart`.
std::vector<StepInfo> Saves(std::size_t count, absl::Duration apart) {
  std::vector<StepInfo> steps(count);
  for (std::size_t i = 0; i < count; ++i) {
    steps[i].step = static_cast<std::int64_t>(i);
    steps[i].new_bytes = kMiB;
    steps[i].committed =
        absl::FromUnixSeconds(1'700'000'000) + static_cast<double>(i) * apart;
  }
  return steps;
}

TEST(RoomLeftTest, AllStays) {
  const Lasting lasting = WhereAllStays(Saves(100, absl::Hours(1)), 48 * kMiB);
  ASSERT_TRUE(lasting.days.has_value());
  EXPECT_NEAR(*lasting.days, 2, 1e-6);
  EXPECT_THAT(lasting.text, HasSubstr("2.0 days of saves as the last 50"));
  EXPECT_FALSE(lasting.days_at_least.has_value());
}

TEST(RoomLeftTest, AFewSecondsSayNothing) {
  EXPECT_EQ(WhereAllStays({}, kMiB).text, "");
  EXPECT_EQ(WhereAllStays(Saves(1, absl::Hours(1)), kMiB).text, "");
  const Lasting lasting = WhereAllStays(Saves(3, absl::Seconds(1)), kMiB);
  EXPECT_FALSE(lasting.days.has_value());
  EXPECT_THAT(lasting.text, HasSubstr("too short a time"));
}

// Fifty of a second each are of too short a time: more are looked at.
TEST(RoomLeftTest, ManyQuickSavesCount) {
  const Lasting lasting =
      WhereAllStays(Saves(2000, absl::Seconds(1)), 86400 * kMiB);
  ASSERT_TRUE(lasting.days.has_value());
  EXPECT_NEAR(*lasting.days, 1, 1e-6);
}

TEST(RoomLeftTest, SomeStays) {
  const std::vector<StepInfo> steps = Saves(49, absl::Hours(1));
  const absl::Time created = steps.front().committed;
  const Lasting lasting =
      WhereSomeStays("x", 10 * kMiB, created, steps, 50 * kMiB);
  ASSERT_TRUE(lasting.days_at_least.has_value());
  EXPECT_NEAR(*lasting.days_at_least, 10, 1e-6);
  EXPECT_FALSE(lasting.days.has_value());
  EXPECT_THAT(lasting.text, HasSubstr("at least 10.0 days"));
  // Less than a day may be of what goes again.
  const Lasting little = WhereSomeStays("x", 10 * kMiB, created, steps, kMiB);
  EXPECT_FALSE(little.days_at_least.has_value());
  EXPECT_THAT(little.text, HasSubstr("cannot be said"));
  const Lasting young = WhereSomeStays("x", kMiB, created,
                                       Saves(2, absl::Seconds(1)), 1000 * kMiB);
  EXPECT_FALSE(young.days_at_least.has_value());
  // Of a copy the steps are older than the store.
  EXPECT_FALSE(
      WhereSomeStays("x", kMiB, created + absl::Hours(1000), steps, 1000 * kMiB)
          .days_at_least.has_value());
}

}  // namespace
}  // namespace ckptree::tools
