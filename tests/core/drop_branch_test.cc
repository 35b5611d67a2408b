// SPDX-License-Identifier: Apache-2.0

// A branch goes with its steps, beside the collector too; not with a tag.

#include <cstdint>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "ckptree/ranks.h"
#include "core/engine/engine.h"
#include "core/engine/store_engine.h"
#include "tests/core/fixture.h"
#include "tests/core/waiting_tensor.h"

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
                                  HasSubstr("its branch '" + branch +
                                            "' was dropped")));
    }
  }
  EXPECT_GT(refused, 20);
}

// A save to a branch that was dropped is no save to the one that has its number
// since, whatever it was doing when the branch went.
class AnotherBranchTest : public DropBranchTest {
 protected:
  void SetUp() override {
    DropBranchTest::SetUp();
    ASSERT_OK(Save(1, RandomBytes(100, 1)));
    ASSERT_OK(Save(2, RandomBytes(100, 2)));
    ASSERT_OK(store_->Fork(1, "a"));
    number_ = Number("a");
  }

  std::uint32_t Number(std::string_view branch) const {
    return internal::StoreEngine::Of(*store_)
        .catalog()
        .FindBranch(branch)
        .value();
  }
  void TakeItsNumber(std::int64_t from) {
    ASSERT_OK(store_->DropBranch("a"));
    ASSERT_OK(store_->Fork(from, "b"));
    ASSERT_EQ(Number("b"), number_);
  }
  void ExpectDropped(const absl::Status& saved) {
    EXPECT_THAT(saved, StatusIs(absl::StatusCode::kNotFound,
                                HasSubstr("its branch 'a' was dropped")));
    EXPECT_THAT(*store_->Steps("b"), IsEmpty());
    ASSERT_OK(Save(3, RandomBytes(100, 3), {.branch = "b"}));
    EXPECT_EQ(Read(AtStep(3, "b")), RandomBytes(100, 3));
    ExpectClean();
  }

  std::uint32_t number_ = 0;
};

TEST_F(AnotherBranchTest, ABuilderOfTheDroppedOne) {
  StepBuilder builder = store_->Begin(100, {.branch = "a"});
  TakeItsNumber(2);
  const Bytes bytes = RandomBytes(100, 100);
  builder.Put("w", Uint8s(bytes));
  ExpectDropped(Commit(std::move(builder)));
}

TEST_F(AnotherBranchTest, ASaveThatWaitsForItsTurn) {
  // The save before it waits for this.
  absl::Notification go;
  StepBuilder first = store_->Begin(4);
  first.Put("w", WaitingFor(go));
  SaveHandle runs = std::move(first).Submit();
  const Bytes bytes = RandomBytes(100, 100);
  StepBuilder second = store_->Begin(100, {.branch = "a"});
  second.Put("w", Uint8s(bytes), Ownership::kCopy);
  SaveHandle waits = std::move(second).Submit();
  TakeItsNumber(2);
  ASSERT_FALSE(waits.Done());
  go.Notify();
  ASSERT_OK(runs.WaitCommitted(kLong));
  ExpectDropped(waits.WaitCommitted(kLong));
}

// Both go on from one step: by the tip alone they cannot be told apart.
TEST_F(AnotherBranchTest, ASaveThatRuns) {
  absl::Notification go;
  StepBuilder builder = store_->Begin(100, {.branch = "a"});
  builder.Put("w", WaitingFor(go));
  SaveHandle save = std::move(builder).Submit();
  // It has read what it goes on from.
  while (save.Progress().phase != Progress::Phase::kWriting) {
    std::this_thread::yield();
  }
  TakeItsNumber(1);
  ASSERT_FALSE(save.Done());
  go.Notify();
  ExpectDropped(save.WaitCommitted(kLong));
}

TEST_F(AnotherBranchTest, PartsOfRanks) {
  const auto build = [this](const RankedSave& of,
                            int rank) -> absl::StatusOr<std::string> {
    StepBuilder part = BeginPart(*store_, of.plan(), rank);
    part.PutInt("epoch", 1);
    return FinishPart(std::move(part));
  };
  absl::StatusOr<RankedSave> save =
      RankedSave::Begin(store_->Begin(100, {.branch = "a"}), {.world = 2});
  ASSERT_OK(save);
  std::vector<std::string> parts;
  for (const int rank : {0, 1}) {
    const absl::StatusOr<std::string> part = build(*save, rank);
    ASSERT_OK(part);
    parts.push_back(*part);
  }
  TakeItsNumber(1);
  EXPECT_THAT(build(*save, 0).status(),
              StatusIs(absl::StatusCode::kNotFound,
                       HasSubstr("its branch was dropped, or")));
  ExpectDropped(save->Commit(std::move(parts)).WaitCommitted(kLong));
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
