// SPDX-License-Identifier: Apache-2.0

// Clocks that are set, and machines that sleep, while segments leave a disk:
// only the time since the look at the chain counts, and that goes on while a
// machine sleeps.

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "ckptree/ckptree.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/fixture.h"
#include "tests/fault/scale.h"
#include "tests/objects/counting_store.h"
#include "tests/remote/fixture.h"
#include "tests/remote/local_keep_fixture.h"
#include "tests/testutil/shifted_clock.h"

namespace ckptree::testing {
namespace {

using ::testing::IsEmpty;

constexpr std::int64_t kDay = 86400;

class LocalKeepClockTest : public LocalKeepTest {
 protected:
  void TearDown() override { boot_offset_seconds = clock_offset_seconds = 0; }
  void OpenAndClose(std::optional<Preservation> keep = LatestN{1}) {
    Store store = Store::Open(Directory(), Remote(std::move(keep))).value();
    const absl::Status closed = store.Close();
    ASSERT_TRUE(closed.ok()) << closed;
  }
};

bool IsComparison(const std::string& what) {
  return absl::StartsWith(what, "get ") && absl::StrContains(what, "/segment/");
}

// More than half of the grace time has passed: what was looked at may have been
// deleted by who took over since.
TEST_F(LocalKeepClockTest, WhoSleptBehindItsLookDropsNothing) {
  Save(1, 3, std::nullopt);
  const std::uint64_t all = BytesHere();
  const int rounds = Scaled(50);
  int fired = 0;
  {
    RequestCount requests;
    int slept = 0;
    requests.SetAnsweredHook([&](const std::string& what) {
      if (!IsComparison(what)) return;
      boot_offset_seconds += 1801;  // Of an hour of grace.
      ++slept;
    });
    for (int i = 0; i < rounds; ++i) {
      slept = 0;
      OpenAndClose();
      fired += slept > 0;
      EXPECT_EQ(BytesHere(), all);
      // The rows are there, and the files count.
      EXPECT_FALSE(FarRows().empty());
      Hide();
      {
        Store reader = Store::Open(Directory(), ReadOnly()).value();
        ExpectSteps(reader, 1, 3);
      }
      Show();
    }
  }
  EXPECT_EQ(fired, rounds);
  absl::PrintF(
      "trial remote, file, local_keep, slept behind the look: %d trials, %d "
      "fired, 0 lost\n",
      rounds, fired);
  // One that does not sleep.
  OpenAndClose();
  EXPECT_LT(BytesHere(), all / 2);
  Store reader = Store::Open(Directory(), ReadOnly()).value();
  ExpectSteps(reader, 1, 3);
  ExpectWhole(reader);
}

TEST_F(LocalKeepClockTest, AClockThatIsSetChangesNothing) {
  Save(1, 3, std::nullopt);
  const std::uint64_t all = BytesHere();
  const int rounds = Scaled(50);
  int fired = 0;
  for (int i = 0; i < rounds; ++i) {
    {
      RequestCount requests;
      int set = 0;
      requests.SetHook([&](const std::string& what) {
        if (IsComparison(what)) {
          clock_offset_seconds = i % 2 == 0 ? -kDay : kDay;
          ++set;
        }
        return absl::OkStatus();
      });
      OpenAndClose();
      clock_offset_seconds = 0;
      fired += set > 0;
    }
    EXPECT_LT(BytesHere(), all / 2);
    {
      Store reader = Store::Open(Directory(), ReadOnly()).value();
      ExpectSteps(reader, 1, 3);
    }
    OpenAndClose(PreserveAll{});
    EXPECT_THAT(FarRows(), IsEmpty());
    EXPECT_GE(BytesHere(), all * 9 / 10);
  }
  EXPECT_EQ(fired, rounds);
  absl::PrintF(
      "trial remote, file, local_keep, a clock that is set a day off: %d "
      "trials, %d fired, 0 lost\n",
      rounds, fired);
}

}  // namespace
}  // namespace ckptree::testing
