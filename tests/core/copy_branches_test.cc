// SPDX-License-Identifier: Apache-2.0

// What branches go on from in a copy of their store: the step that they were
// forked from, or none; never another that has its number.

#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ckptree/copy.h"
#include "ckptree/manager.h"
#include "tests/core/fixture.h"

namespace ckptree::testing {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class CopyBranchesTest : public CoreTest {
 protected:
  void SetUp() override {
    CoreTest::SetUp();
    absl::StatusOr<Store> other = Store::Open(dir_ / "copy", Options());
    ASSERT_OK(other);
    other_.emplace(*std::move(other));
  }

  // A step of one byte, which says which save it was.
  static absl::Status Put(Store& store, std::int64_t step, int value,
                          const std::string& branch = "",
                          bool overwrite = false) {
    const Bytes bytes = {static_cast<std::byte>(value)};
    StepBuilder builder =
        store.Begin(step, {.overwrite = overwrite, .branch = branch});
    builder.Put("w", Uint8s(bytes));
    return std::move(builder).Commit().WaitCommitted(kLong);
  }

  static int ValueOf(const Step& step) {
    return static_cast<int>(step.Value("w").value().bytes.at(0));
  }

  // What a training on the branch goes on from; nothing: it is refused.
  static std::optional<int> GoesOnFrom(const Store& store,
                                       const std::string& branch) {
    ManagerOptions options;
    options.branch = branch;
    options.store.read_only = true;
    absl::StatusOr<CheckpointManager> manager =
        CheckpointManager::Over(store, std::move(options));
    EXPECT_OK(manager);
    const absl::StatusOr<Step> step = manager->OpenStep(Latest());
    if (step.ok()) return ValueOf(*step);
    EXPECT_EQ(step.status().code(), absl::StatusCode::kNotFound)
        << step.status();
    return std::nullopt;
  }
  std::optional<int> Here(const std::string& branch) {
    return GoesOnFrom(*store_, branch);
  }
  std::optional<int> There(const std::string& branch) {
    return GoesOnFrom(*other_, branch);
  }

  CopyReport CopyAll(bool overwrite = false) {
    CopyOptions options;
    options.overwrite = overwrite;
    absl::StatusOr<CopyReport> report = Copy(*store_, &*other_, options);
    EXPECT_OK(report);
    return report.ok() ? *std::move(report) : CopyReport();
  }

  static BranchInfo Find(const Store& store, std::string_view name) {
    const std::vector<BranchInfo> branches = store.Branches().value();
    for (const BranchInfo& branch : branches) {
      if (branch.name == name) return branch;
    }
    ADD_FAILURE() << name << " is not there";
    return {};
  }

  std::optional<Store> other_;
};

TEST_F(CopyBranchesTest, AnOriginThatWasSavedAnewIsNone) {
  ASSERT_OK(Put(*store_, 1, 1));
  ASSERT_OK(store_->Fork(1, "e"));
  ASSERT_OK(Put(*store_, 1, 99, "", /*overwrite=*/true));
  ASSERT_EQ(Here("e"), std::nullopt);
  EXPECT_TRUE(CopyAll().complete());
  EXPECT_EQ(There("e"), std::nullopt);
  // Nor does the next save become it, there and once it is opened anew.
  ASSERT_OK(Put(*other_, 1, 7, "", /*overwrite=*/true));
  EXPECT_EQ(There("e"), std::nullopt);
  other_.reset();
  other_.emplace(Store::Open(dir_ / "copy", Options()).value());
  ASSERT_OK(Put(*other_, 1, 8, "", /*overwrite=*/true));
  EXPECT_EQ(There("e"), std::nullopt);
  EXPECT_EQ(Find(*other_, "e").origin_step, 1);
}

TEST_F(CopyBranchesTest, NorOneThatWasDeletedAndSavedAgain) {
  ASSERT_OK(Put(*store_, 1, 1));
  ASSERT_OK(store_->Fork(1, "e"));
  ASSERT_OK(store_->Delete({AtStep(1)}));
  ASSERT_OK(Put(*store_, 1, 55));
  EXPECT_TRUE(CopyAll().complete());
  EXPECT_EQ(There("e"), std::nullopt);
}

TEST_F(CopyBranchesTest, OfADroppedBranchStaysSo) {
  ASSERT_OK(Put(*store_, 2, 2));
  ASSERT_OK(store_->Fork(2, "a"));
  ASSERT_OK(Put(*store_, 2, 222, "a"));
  ASSERT_OK(store_->Fork(AtStep(2, "a"), "e"));
  ASSERT_OK(store_->DropBranch("a"));
  ASSERT_EQ(Find(*store_, "e").origin_branch, "?");
  EXPECT_TRUE(CopyAll().complete());
  EXPECT_EQ(There("e"), std::nullopt);
  EXPECT_EQ(Find(*other_, "e").origin_branch, "?");
  EXPECT_EQ(Find(*other_, "e").origin_step, 2);
  // No branch gets that number, also where it is opened anew.
  for (int i = 0; i < 2; ++i) {
    ASSERT_OK(other_->Fork(2, "new" + std::to_string(i)));
    EXPECT_EQ(Find(*other_, "e").origin_branch, "?");
    other_.reset();
    other_.emplace(Store::Open(dir_ / "copy", Options()).value());
  }
  EXPECT_TRUE(CopyAll().complete());
}

TEST_F(CopyBranchesTest, NorAnotherStepThatTheCopyHas) {
  ASSERT_OK(Put(*store_, 2, 2));
  ASSERT_OK(store_->Fork(2, "e"));
  ASSERT_OK(Put(*other_, 2, 100));
  ASSERT_OK(other_->Pin(AtStep(2)));
  EXPECT_FALSE(CopyAll(/*overwrite=*/true).complete());
  EXPECT_EQ(There("e"), std::nullopt);
  // Once it is there, the branch goes on from it.
  ASSERT_OK(other_->Unpin(AtStep(2)));
  EXPECT_TRUE(CopyAll(/*overwrite=*/true).complete());
  EXPECT_EQ(There("e"), 2);
}

TEST_F(CopyBranchesTest, ABranchThatWasMadeAnewIsTheNewOne) {
  ASSERT_OK(Put(*store_, 1, 1));
  ASSERT_OK(Put(*store_, 2, 2));
  ASSERT_OK(store_->Fork(1, "e"));
  EXPECT_TRUE(CopyAll().complete());
  EXPECT_EQ(There("e"), 1);
  ASSERT_OK(store_->DropBranch("e"));
  ASSERT_OK(store_->Fork(2, "e"));
  // Without `overwrite` what is there stays, and somebody hears of it.
  const CopyReport refused = CopyAll();
  EXPECT_FALSE(refused.complete());
  EXPECT_THAT(refused.problems,
              ElementsAre(HasSubstr("branch e is another one there: it goes on "
                                    "from step 1, and here from step 2")));
  EXPECT_EQ(There("e"), 1);
  EXPECT_TRUE(CopyAll(/*overwrite=*/true).complete());
  EXPECT_EQ(There("e"), 2);
  ASSERT_OK(Put(*other_, 3, 3, "e"));
  EXPECT_EQ(There("e"), 3);
}

TEST_F(CopyBranchesTest, OneWithStepsOfItsOwnIsNotJoined) {
  ASSERT_OK(Put(*store_, 1, 1));
  ASSERT_OK(Put(*store_, 2, 2));
  ASSERT_OK(store_->Fork(1, "b"));
  ASSERT_OK(Put(*store_, 5, 5, "b"));
  EXPECT_TRUE(CopyAll(/*overwrite=*/true).complete());
  ASSERT_OK(store_->DropBranch("b"));
  ASSERT_OK(store_->Fork(2, "b"));
  ASSERT_OK(Put(*store_, 6, 6, "b"));
  const CopyReport report = CopyAll(/*overwrite=*/true);
  EXPECT_FALSE(report.complete());
  EXPECT_THAT(report.problems,
              ElementsAre(HasSubstr("branch b is another one there")));
  EXPECT_EQ(Find(*other_, "b").origin_step, 1);
}

TEST_F(CopyBranchesTest, StepsThatThePolicyTookInTheEndAreRefused) {
  for (int step = 1; step <= 8; ++step) ASSERT_OK(Put(*store_, step, step));
  ASSERT_OK(store_->Tag("first", AtStep(1)));
  ASSERT_OK(other_->SetPolicy(LatestN{2}));
  std::map<std::int64_t, CopiedStep::Result> told;
  CopyOptions options;
  options.on_step = [&told](const CopiedStep& step) {
    told[step.step] = step.result;
  };
  const CopyReport report = Copy(*store_, &*other_, options).value();
  std::set<std::int64_t> there;
  const std::vector<StepInfo> steps = other_->Steps().value();
  for (const StepInfo& info : steps) there.insert(info.step);
  EXPECT_LT(there.size(), 8u);
  EXPECT_FALSE(report.complete());
  for (const CopiedStep& step : report.steps) {
    const auto result = there.contains(step.step)
                            ? CopiedStep::Result::kCopied
                            : CopiedStep::Result::kRefused;
    EXPECT_EQ(step.result, result) << step.step;
    EXPECT_EQ(told[step.step], result) << step.step;
  }
}

TEST_F(CopyBranchesTest, ATagOfAStepThatStaysBehindIsTold) {
  ASSERT_OK(Put(*store_, 3, 3));
  ASSERT_OK(store_->Tag("only", AtStep(3)));
  ASSERT_OK(Put(*other_, 3, 4));
  ASSERT_OK(other_->Pin(AtStep(3)));
  EXPECT_THAT(CopyAll(/*overwrite=*/true).problems,
              Contains(HasSubstr("tag only of step 3: it was not copied")));
}

// Against a model: of each fork the value that it was made of, and whether that
// save is still there.
class CopiedHistoryTest : public CopyBranchesTest,
                          public ::testing::WithParamInterface<unsigned> {
 protected:
  struct Branch {
    int origin = 0;  // The value.
    std::map<std::int64_t, int> steps;
  };

  void Act() {
    const auto step = static_cast<std::int64_t>(1 + random_() % 3);
    auto it = branches_.begin();
    std::advance(it, random_() % branches_.size());
    const std::string name = it->first;
    auto& steps = it->second.steps;
    switch (random_() % 6) {
      case 0:
      case 1:
        ASSERT_OK(Put(*store_, step, ++value_, name, /*overwrite=*/true));
        steps[step] = value_;
        break;
      case 2:
        if (steps.contains(step)) {
          ASSERT_OK(store_->Delete({AtStep(step, name)}));
          steps.erase(step);
        }
        break;
      case 3:
        if (!name.empty()) {
          ASSERT_OK(store_->DropBranch(name));
          branches_.erase(name);
        }
        break;
      default: {
        const std::string made(1, static_cast<char>('a' + random_() % 4));
        if (branches_.contains(made) || !steps.contains(step)) break;
        ASSERT_OK(store_->Fork(AtStep(step, name), made));
        branches_[made] = {steps[step], {}};
      }
    }
  }

  void Compare() {
    const std::vector<BranchInfo> ours = store_->Branches().value();
    for (const BranchInfo& branch : ours) {
      const Branch& model = branches_.at(branch.name);
      const BranchInfo copy = Find(*other_, branch.name);
      EXPECT_EQ(copy.origin_step, branch.origin_step) << branch.name;
      EXPECT_EQ(copy.origin_branch, branch.origin_branch) << branch.name;
      for (const auto& [step, value] : model.steps) {
        const absl::StatusOr<Step> there =
            other_->OpenStep(AtStep(step, branch.name));
        ASSERT_OK(there);
        EXPECT_EQ(ValueOf(*there), value) << branch.name << "/" << step;
      }
      if (branch.name.empty() || copy.steps > 0) continue;
      const std::optional<int> here = Here(branch.name);
      const std::optional<int> there = There(branch.name);
      went_on_ += here.has_value();
      refused_ += !there.has_value();
      if (here.has_value()) {
        EXPECT_EQ(*here, model.origin) << branch.name;
        EXPECT_EQ(there, here) << branch.name;
      } else if (there.has_value()) {
        EXPECT_EQ(*there, model.origin) << branch.name;  // Kept there alone.
      }
    }
  }

  std::mt19937 random_{GetParam()};
  std::map<std::string, Branch> branches_ = {{"", {}}};
  int value_ = 0;
  int went_on_ = 0, refused_ = 0;
};

INSTANTIATE_TEST_SUITE_P(Seeds, CopiedHistoryTest, ::testing::Range(1u, 7u));

TEST_P(CopiedHistoryTest, EveryForkGoesOnFromWhatItWasMadeOf) {
  int complete = 0;
  for (int round = 0; round < 60; ++round) {
    for (int i = 0; i < 4; ++i) ASSERT_NO_FATAL_FAILURE(Act());
    const CopyReport report = CopyAll(/*overwrite=*/true);
    if (report.complete()) {
      ++complete;
      ASSERT_NO_FATAL_FAILURE(Compare()) << round;
      ASSERT_FALSE(HasFailure()) << "round " << round;
      continue;
    }
    // A branch with steps that was dropped here and made anew: who takes the
    // copy for a backup drops it there, too.
    for (const std::string& problem : report.problems) {
      ASSERT_THAT(problem, HasSubstr("is another one there"));
      ASSERT_OK(other_->DropBranch(problem.substr(7, 1)));
    }
  }
  EXPECT_GT(complete, 20);
  EXPECT_GT(went_on_, 5);
  EXPECT_GT(refused_, 0);
}

}  // namespace
}  // namespace ckptree::testing
