// SPDX-License-Identifier: Apache-2.0

// A branch goes with its steps, beside the collector too; not with a tag.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tests/core/fixture.h"

namespace ckptree::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

using DropBranchTest = CoreTest;

// The collector changes the row of a branch while it is dropped.
TEST_F(DropBranchTest, BesideTheCollector) {
  StoreOptions options = Options();
  options.collect = true;
  Open(options);
  ASSERT_OK(Save(1, RandomBytes(20000, 1)));
  for (std::uint64_t i = 0; i < 300; ++i) {
    const std::string branch = "b" + std::to_string(i);
    ASSERT_OK(store_->Fork(1, branch));
    for (std::uint64_t step = 2; step <= 5; ++step) {
      ASSERT_OK(Save(static_cast<std::int64_t>(step),
                     RandomBytes(20000, 10 * i + step), {.branch = branch}));
    }
    ASSERT_OK(store_->Delete(
        {AtStep(2, branch), AtStep(3, branch), AtStep(5, branch)}));
    ASSERT_OK(store_->DropBranch(branch)) << i;
  }
  EXPECT_THAT(*store_->Branches(), SizeIs(1));
}

// Each of its saves that did not end is told, and nothing is called damaged.
TEST_F(DropBranchTest, BesideSavesToIt) {
  int refused = 0;
  for (int i = 0; i < 20; ++i) {
    if (i == 0) {
      ASSERT_OK(Save(1, RandomBytes(100, 1)));
    }
    const std::string branch = "b" + std::to_string(i);
    ASSERT_OK(store_->Fork(1, branch));
    std::vector<SaveHandle> saves;
    for (const std::int64_t step : {2, 3, 4}) {
      const Bytes bytes =
          RandomBytes(2 << 20, static_cast<std::uint64_t>(10 * i + step));
      StepBuilder builder = store_->Begin(step, {.branch = branch});
      builder.Put("w", Uint8s(bytes), Ownership::kCopy);
      saves.push_back(std::move(builder).Commit());
    }
    ASSERT_OK(store_->DropBranch(branch));
    for (SaveHandle& save : saves) {
      const absl::Status saved = save.WaitCommitted(kLong);
      if (saved.ok()) continue;
      ++refused;
      EXPECT_THAT(saved, StatusIs(absl::StatusCode::kNotFound,
                                  HasSubstr("its branch was dropped")));
    }
  }
  EXPECT_GT(refused, 20);
}

TEST_F(DropBranchTest, ATaggedStepKeepsItsBranch) {
  ASSERT_OK(Save(1, RandomBytes(100, 1)));
  ASSERT_OK(store_->Fork(1, "trial"));
  ASSERT_OK(Save(2, RandomBytes(100, 2), {.branch = "trial"}));
  ASSERT_OK(store_->Tag("best", AtStep(2, "trial")));
  EXPECT_THAT(store_->DropBranch("trial"),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("trial/2 is tagged 'best'")));
  EXPECT_EQ(Read(AtStep(2, "trial")), RandomBytes(100, 2));
  ASSERT_OK(store_->DropBranch("trial", {.tagged = true}));
  EXPECT_THAT(*store_->Tags(), IsEmpty());
  EXPECT_THAT(*store_->Branches(), SizeIs(1));
}

}  // namespace
}  // namespace ckptree::testing
