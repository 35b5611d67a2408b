// SPDX-License-Identifier: Apache-2.0

// After a write that failed in the middle of a commit rank 0 commits nothing
// more: all ranks are told so, and what to do.

#include <cerrno>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "ckptree/ranks.h"
#include "core/ranks/group.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fault/fs.h"
#include "tests/ranks/fixture.h"

namespace ckptree::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kWorld = 3;

using RanksDeadHandleTest = RanksTest;

TEST_F(RanksDeadHandleTest, AllHearWhatToDo) {
  FaultCounts counts;
  const auto disk = std::make_shared<FaultFs>("", &counts);
  OnAll(kWorld, [&](int rank) {
    absl::StatusOr<RankGroup> group = internal::RankGroupPeer::Open(
        path(), Options(rank, kWorld), rank == 0 ? disk : nullptr);
    ASSERT_OK(group);
    ASSERT_OK(SaveAll(*group, 1));
    if (rank == 0) {
      disk->Arm(
          {{.kinds = Bit(CallKind::kSync),
            .classes = Bit(FileClass::kJournal) | Bit(FileClass::kJournalCopy),
            .error = EIO}});
    }
    EXPECT_THAT(SaveAll(*group, 2),
                StatusIs(absl::StatusCode::kUnknown,
                         AllOf(HasSubstr("step 2"), HasSubstr("may or may not"),
                               HasSubstr("open it to learn which"))))
        << rank;
    // One failed write, and the disk is well again: the handle is not.
    for (const std::int64_t step : {3, 4}) {
      EXPECT_THAT(
          SaveAll(*group, step),
          StatusIs(absl::StatusCode::kFailedPrecondition,
                   AllOf(HasSubstr(absl::StrCat("step ", step, " was not")),
                         HasSubstr("rank 0: a write failed before"),
                         HasSubstr("commits nothing"),
                         HasSubstr("every rank has to open its group again"))))
          << rank;
    }
    group->Close().IgnoreError();
    // What they are told to do.
    group = Open(rank, kWorld);
    ASSERT_OK(group) << rank;
    EXPECT_OK(SaveAll(*group, 5)) << rank;
    EXPECT_OK(group->Close());
  });
  EXPECT_EQ(counts.fired, 1U);
  absl::StatusOr<Store> store = Store::Open(path(), ToRead(QuietOptions()));
  ASSERT_OK(store);
  ExpectStep(*store, 1, kWorld);
  ExpectStep(*store, 5, kWorld);
  EXPECT_FALSE(store->Resolve(AtStep(3)).ok());
}

}  // namespace
}  // namespace ckptree::testing
