// SPDX-License-Identifier: Apache-2.0

// Which step a selector means.

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/fixture.h"

namespace ckptree::testing {
namespace {

using ::testing::ElementsAre;

class StepChoiceTest : public CoreTest {
 protected:
  void SaveNoted(std::int64_t step, const std::string& note) {
    StepBuilder builder = store_->Begin(step);
    builder.PutInt("n", step);
    if (!note.empty()) builder.SetNote(note);
    ASSERT_OK(Commit(std::move(builder)));
  }
};

TEST_F(StepChoiceTest, ANoteOfTheUserIsNoWordOfARecovery) {
  SaveNoted(1, "");
  SaveNoted(2, "[recovered: crash of node 7] resumed");
  EXPECT_EQ(store_->Resolve(LatestHealthy())->step, 2);
  SaveNoted(3, "[recovered: 1 of 12 leaves lost] resumed");
  EXPECT_EQ(store_->Resolve(LatestHealthy())->step, 2);
  SaveNoted(4, "[recovered: 0 of 12 leaves lost] resumed");
  EXPECT_EQ(store_->Resolve(LatestHealthy())->step, 4);
}

// Whatever chooses the step: else a deletion could take another save.
TEST_F(StepChoiceTest, AVersionSaysWhichSaveIsMeant) {
  for (std::int64_t step = 1; step <= 3; ++step) SaveNoted(step, "");
  ASSERT_OK(store_->Tag("t", 2));
  ASSERT_OK(store_->Close());
  store_.reset();
  // Also one that reads rows of steps where it needs them alone.
  for (const bool reads : {true, false}) {
    Open(reads ? ReadOnly() : Options());
    StepSelector back = Latest();
    back.back = 1;
    for (StepSelector selector :
         {Latest(), LatestHealthy(), Tagged("t"), AtStep(2), back}) {
      const StepInfo meant = store_->Resolve(selector).value();
      selector.version = meant.version;
      EXPECT_EQ(store_->Resolve(selector)->step, meant.step);
      selector.version = 999;
      EXPECT_TRUE(
          absl::IsFailedPrecondition(store_->Resolve(selector).status()))
          << Text(selector);
      if (reads) continue;
      EXPECT_TRUE(absl::IsFailedPrecondition(store_->Delete(selector)));
    }
  }
  EXPECT_THAT(StepNumbers(), ElementsAre(1, 2, 3));
}

}  // namespace
}  // namespace ckptree::testing
