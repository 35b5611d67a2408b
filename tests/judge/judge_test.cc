// SPDX-License-Identifier: Apache-2.0

// The judge is held against stores of which the answer is known: it sees what
// is planted, and has nothing to say where nothing is.

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"
#include "tests/fault/directory.h"
#include "tests/fault/runner.h"
#include "tests/judge/files.h"
#include "tests/judge/kinds.h"
#include "tests/judge/payload.h"
#include "tests/judge/record.h"
#include "tests/judge/verbs.h"

namespace ckptree::testing {
namespace {

class JudgeTest : public ::testing::Test {
 protected:
  void SetUp() override {
    MadeStore made = MakeKind("closed", 1, directory_.store(),
                              directory_.path() + "/earlier");
    ASSERT_EQ(made.error, "");
    known_ = std::move(made.known);
    files_ = ReadFiles(directory_.store());
    std::filesystem::remove_all(directory_.path() + "/earlier");
    std::filesystem::remove_all(directory_.scratch());
  }

  // The faults that the judge finds in `damaged`; a child's end is one, too.
  unsigned FaultsOf(const DamagedStore& damaged, Verb verb) const {
    const TrialResult result = RunChild([&](const TrialPipe& pipe) {
      const Verdict verdict = Judge(damaged, directory_.path(), verb);
      pipe.Say(absl::StrCat(verdict.faults, " ", verdict.text));
      _exit(0);
    });
    EXPECT_FALSE(result.broken() || result.killed) << result.Text();
    if (result.lines.size() != 1) return ~0u;
    return static_cast<unsigned>(std::atoll(result.lines[0].c_str()));
  }
  // Of the store as it is, held against another record of it.
  unsigned FaultsOf(const Acknowledged& known, Verb verb) const {
    return FaultsOf({.files = &files_, .known = &known}, verb);
  }

  TrialDirectory directory_;
  Acknowledged known_;
  StoreFiles files_;
};

TEST_F(JudgeTest, SaysNothingOfAWholeStore) {
  for (int verb = 0; verb < kVerbs; ++verb) {
    EXPECT_EQ(FaultsOf(known_, static_cast<Verb>(verb)), 0u)
        << VerbName(static_cast<Verb>(verb));
  }
}

TEST_F(JudgeTest, SeesAStepThatIsGone) {
  known_.state.Save(9, known_.state.steps.rbegin()->second);
  for (const Verb verb :
       {Verb::kRead, Verb::kWrite, Verb::kVerify, Verb::kRecover, Verb::kRepair,
        Verb::kVerifyCommand, Verb::kRecoverCommand, Verb::kRepairCommand}) {
    EXPECT_EQ(FaultsOf(known_, verb) & (kLost | kOlder | kUnnamed),
              kLost | kOlder | kUnnamed)
        << VerbName(verb);
  }
}

TEST_F(JudgeTest, SeesWhatCameBack) {
  known_.state.Delete(1);
  EXPECT_EQ(FaultsOf(known_, Verb::kRead), kOther);
  EXPECT_EQ(FaultsOf(known_, Verb::kRecover), kOther);
}

TEST_F(JudgeTest, SeesAnotherByteAndOtherValues) {
  using Change = std::function<void(ModelStep*)>;
  const std::vector<Change> changes = {
      [](ModelStep* step) { step->leaves.at("large/w").bytes[70000] ^= 1; },
      [](ModelStep* step) { step->leaves.at("opt/count").bytes[0] ^= 1; },
      [](ModelStep* step) { step->metrics["loss"] += 1; },
      [](ModelStep* step) { step->leaves.at("params/tied").target = "x"; }};
  for (const Change& change : changes) {
    Acknowledged known = known_;
    ModelStep step = *known.state.steps.at(2);
    change(&step);
    known.state.Save(2, std::make_shared<const ModelStep>(step));
    EXPECT_NE(FaultsOf(known, Verb::kRead) & kWrongBytes, 0u);
  }
}

TEST_F(JudgeTest, SeesWhatBelongsToBranchesAndNames) {
  Acknowledged known = known_;
  known.state.tags["good"] = 1;
  EXPECT_NE(FaultsOf(known, Verb::kRead) & kWrongBytes, 0u);
  known = known_;
  known.state.tags["gone"] = 1;
  EXPECT_NE(FaultsOf(known, Verb::kRead) & kLost, 0u);
  known = known_;
  known.state.pins.insert(1);
  EXPECT_NE(FaultsOf(known, Verb::kRead) & kLost, 0u);
  known = known_;
  known.policies[0] = "latest(3)";
  EXPECT_NE(FaultsOf(known, Verb::kRead) & kLost, 0u);
  known = known_;
  known.metadata[0] = "{}";
  EXPECT_NE(FaultsOf(known, Verb::kRead) & kLost, 0u);
  known = known_;
  known.state.branches.insert(1);
  EXPECT_NE(FaultsOf(known, Verb::kRead) & kLost, 0u);
}

// A bit of the large array, in the one place where it stands.
TEST_F(JudgeTest, PayloadCostsItsLeafAndNothingElse) {
  const PayloadMap payload(files_, known_);
  EXPECT_EQ(payload.unfound(), 0u);
  const std::string& bytes =
      known_.state.steps.at(2)->leaves.at("large/w").bytes;
  Change change;
  for (const auto& [name, content] : files_.bytes) {
    const std::size_t at = content.find(bytes.substr(1000, 64));
    if (at == std::string::npos) continue;
    EXPECT_EQ(change.file, "") << "it stands in two places";
    change.file = name;
    change.at = at;
  }
  ASSERT_NE(change.file, "");
  ASSERT_TRUE(payload.IsPayload(change.file, change.at));
  Damaged damaged = Apply(files_, {}, {change});
  ASSERT_TRUE(damaged.fired);
  ASSERT_EQ(damaged.hits.size(), 1u);
  DamagedStore store = {.files = &files_, .known = &known_};
  store.changed = damaged.files;
  store.damaged = {change.file};
  store.may_be_lost = payload.MayBeLost(damaged.hits);
  ASSERT_FALSE(store.may_be_lost.empty());
  for (const auto& [key, leaf] : store.may_be_lost) {
    EXPECT_EQ(leaf, "large/w");
  }
  for (const Verb verb : {Verb::kRead, Verb::kVerify, Verb::kRecover}) {
    EXPECT_EQ(FaultsOf(store, verb), 0u) << VerbName(verb);
  }
  // Where nothing may be lost, that is a loss.
  store.may_be_lost.clear();
  EXPECT_EQ(FaultsOf(store, Verb::kRead), kLost);
  EXPECT_EQ(FaultsOf(store, Verb::kRecover), kLost);
}

TEST_F(JudgeTest, ACopyOfPayloadMustBeUsed) {
  StoreFiles twice = files_;
  const std::string& bytes =
      known_.state.steps.at(2)->leaves.at("large/w").bytes;
  twice.bytes["copy"] = bytes;
  const PayloadMap payload(twice, known_);
  EXPECT_TRUE(payload.MayBeLost({{"copy", 10, 11}}).empty());
  for (const auto& [name, content] : files_.bytes) {
    const std::size_t at = content.find(bytes.substr(1000, 64));
    if (at == std::string::npos) continue;
    EXPECT_TRUE(payload.MayBeLost({{name, at, at + 1}}).empty());
    EXPECT_FALSE(
        payload.MayBeLost({{name, at, at + 1}, {"copy", 1000, 1001}}).empty());
  }
}

TEST(JudgeWordsTest, NumbersAreWords) {
  EXPECT_TRUE(NamesIt("step 7: params/w0: damaged", 7, "params/w0"));
  EXPECT_FALSE(NamesIt("step 17: params/w0: damaged", 7, "params/w0"));
  EXPECT_FALSE(NamesIt("step 7: params/w1: damaged", 7, "params/w0"));
  EXPECT_TRUE(NamesIt("branch1/7", kBranchSteps + 7, ""));
  EXPECT_EQ(NamePattern("db/000012.sst"), "db/#.sst");
  EXPECT_EQ(NamePattern("journal/a-000001"), "journal/a-#");
  EXPECT_EQ(NamePattern("HEAD"), "HEAD");
}

TEST(JudgeWordsTest, AChangeIsReadAsItIsPrinted) {
  const Change change = {.shape = DamageShape::kSwapped,
                         .file = "db/000012.sst",
                         .at = 70,
                         .bit = 3,
                         .other = "db/000014.sst",
                         .seed = 5};
  const std::optional<Change> read = ParseChange(change.Text());
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->Text(), change.Text());
  EXPECT_FALSE(ParseChange("shape=bent file=x").has_value());
}

}  // namespace
}  // namespace ckptree::testing
