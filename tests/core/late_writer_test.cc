// SPDX-License-Identifier: Apache-2.0

// A reader that had the store to itself, and a writer that comes later.

#include <cstdint>
#include <deque>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "ckptree/ckptree.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/fixture.h"
#include "tests/testutil/no_room.h"
#include "tests/testutil/status_matchers.h"

namespace ckptree {
namespace {

using testing::Bytes;
using testing::CoreTest;
using ::testing::IsEmpty;
using testing::kLong;
using testing::RandomBytes;
using ::testing::SizeIs;
using testing::Uint8s;

constexpr std::size_t kLarge = std::size_t{4} << 20;
constexpr int kSteps = 12;

class LateWriterTest : public CoreTest {
 protected:
  void SetUp() override {
    CoreTest::SetUp();
    for (std::uint64_t i = 0; i < kSteps; ++i) {
      StepBuilder builder = store_->Begin(static_cast<std::int64_t>(i));
      builder.Put("large", Uint8s(large_[i]));
      builder.Put("small", Uint8s(small_[i]));
      builder.PutInt("number", static_cast<std::int64_t>(i));
      ASSERT_OK(std::move(builder).Commit().WaitCommitted(kLong));
    }
    store_.reset();
  }

  std::vector<std::string> Leases() const {
    std::vector<std::string> names;
    std::error_code error;
    for (const auto& entry :
         std::filesystem::directory_iterator(path() + "/leases", error)) {
      names.push_back(entry.path().filename());
    }
    return names;
  }

  // All but the newest, and whatever keeps their bytes.
  void DeleteAndRewrite() {
    for (int i = 0; i + 1 < kSteps; ++i) ASSERT_OK(store_->Delete(i));
    ASSERT_OK(store_->Collect({.min_dead_fraction = 0}));
  }

  void ExpectWhole(const Step& step) {
    const auto i = static_cast<std::size_t>(step.step());
    ASSERT_OK_AND_ASSIGN(const LeafValue large, step.Value("large"));
    EXPECT_TRUE(large.bytes == large_[i]);
    ASSERT_OK_AND_ASSIGN(const LeafValue small, step.Value("small"));
    EXPECT_TRUE(small.bytes == small_[i]);
    ASSERT_OK_AND_ASSIGN(const std::vector<LeafInfo> leaves, step.Leaves());
    EXPECT_THAT(leaves, SizeIs(3));
  }

  std::vector<Bytes> large_ = [] {
    std::vector<Bytes> all;
    for (std::uint64_t i = 0; i < kSteps; ++i) {
      all.push_back(RandomBytes(kLarge, i));
    }
    return all;
  }();
  std::vector<Bytes> small_ = [] {
    std::vector<Bytes> all;
    for (std::uint64_t i = 0; i < kSteps; ++i) {
      all.push_back(RandomBytes(700, 100 + i));
    }
    return all;
  }();
};

TEST_F(LateWriterTest, AStepThatIsOpenStaysReadable) {
  ASSERT_OK_AND_ASSIGN(Store reader, Store::Open(path(), ReadOnly()));
  ASSERT_FALSE(reader.Info().following);
  {
    ASSERT_OK_AND_ASSIGN(const Step untouched, reader.OpenStep(AtStep(3)));
    ASSERT_OK_AND_ASSIGN(const Step read, reader.OpenStep(AtStep(5)));
    ExpectWhole(read);
    EXPECT_THAT(Leases(), SizeIs(1));
    for (int writers = 0; writers < 2; ++writers) {
      Open();
      if (writers == 0) DeleteAndRewrite();
      ASSERT_OK(store_->Collect({.min_dead_fraction = 0}));
      ExpectWhole(untouched);
      ExpectWhole(read);
    }
    store_.reset();
    ExpectWhole(untouched);
  }
  // Nobody has them open any more.
  Open();
  ASSERT_OK_AND_ASSIGN(const CollectReport report,
                       store_->Collect({.min_dead_fraction = 0}));
  EXPECT_EQ(report.versions, 2u);
  EXPECT_THAT(report.kept, IsEmpty());
  ASSERT_OK(reader.Close());
  EXPECT_THAT(Leases(), IsEmpty());
}

// What was opened on a full disk is not held; what comes later is.
TEST_F(LateWriterTest, ALeaseThatCouldNotBeMadeIsMadeLater) {
  ASSERT_OK_AND_ASSIGN(Store reader, Store::Open(path(), ReadOnly()));
  {
    const testing::NoRoom no_room;
    ASSERT_OK_AND_ASSIGN(const Step unheld, reader.OpenStep(AtStep(3)));
    ExpectWhole(unheld);
    EXPECT_THAT(Leases(), IsEmpty());
  }
  ASSERT_OK_AND_ASSIGN(const Step held, reader.OpenStep(AtStep(5)));
  EXPECT_THAT(Leases(), SizeIs(1));
  Open();
  DeleteAndRewrite();
  ExpectWhole(held);
}

// A reader keeps few tables open. Those of steps that share records with the
// one it has open are written again, and the old ones are removed.
class LateRewriteTest : public LateWriterTest,
                        public ::testing::WithParamInterface<bool> {};

TEST_P(LateRewriteTest, TablesThatAreWrittenAgainAreFound) {
  constexpr int kLast = 40;
  constexpr int kRead = 30;
  constexpr int kLeaves = 20000;
  Open();
  for (int i = kSteps; i <= kLast; ++i) {
    const Bytes large = RandomBytes(kLarge / 2, static_cast<std::uint64_t>(i));
    StepBuilder builder = store_->Begin(i);
    builder.Put("large", Uint8s(large));
    std::deque<std::int64_t> values;
    for (int leaf = 0; leaf < kLeaves; ++leaf) {
      // Half of them change from step to step, and one in a hundred of the
      // rest: of each step some are needed by those behind it.
      const bool is_new = leaf % 2 == 0 || leaf % 100 == i % 100;
      values.push_back(is_new ? i : -leaf);
      builder.Put("leaf/" + std::to_string(leaf),
                  {DType::kInt64, {}, &values.back()});
    }
    ASSERT_OK(std::move(builder).Commit().WaitCommitted(kLong));
  }
  store_.reset();
  ASSERT_OK_AND_ASSIGN(Store reader, Store::Open(path(), ReadOnly()));
  ASSERT_OK_AND_ASSIGN(const Step step, reader.OpenStep(AtStep(kRead)));
  ASSERT_FALSE(reader.Info().following);
  Open();
  for (int i = 0; i < kLast; ++i) {
    if (i != kRead || GetParam()) {
      ASSERT_OK(store_->Delete(i));
    }
  }
  ASSERT_OK_AND_ASSIGN(const CollectReport report,
                       store_->Collect({.min_dead_fraction = 0}));
  EXPECT_GT(report.files_rewritten, 0u);
  EXPECT_THAT(report.kept, SizeIs(GetParam() ? 1 : 0));
  store_.reset();
  ASSERT_OK_AND_ASSIGN(const std::vector<LeafInfo> leaves, step.Leaves());
  EXPECT_THAT(leaves, SizeIs(kLeaves + 1));
  for (int leaf = 0; leaf < kLeaves; ++leaf) {
    const bool is_new = leaf % 2 == 0 || leaf % 100 == kRead % 100;
    std::int64_t found = 0;
    ASSERT_OK(step.Read("leaf/" + std::to_string(leaf),
                        std::as_writable_bytes(std::span(&found, 1))));
    ASSERT_EQ(found, is_new ? kRead : -leaf) << leaf;
  }
  ASSERT_OK_AND_ASSIGN(const LeafValue large, step.Value("large"));
  EXPECT_TRUE(large.bytes == RandomBytes(kLarge / 2, kRead));
}

INSTANTIATE_TEST_SUITE_P(StepIsDeleted, LateRewriteTest, ::testing::Bool());

TEST_F(LateWriterTest, AStepThatIsGoneIsNotOpened) {
  ASSERT_OK_AND_ASSIGN(Store reader, Store::Open(path(), ReadOnly()));
  Open();
  DeleteAndRewrite();
  store_.reset();
  const absl::StatusOr<Step> gone = reader.OpenStep(AtStep(3));
  ASSERT_FALSE(gone.ok());
  EXPECT_TRUE(IsStepGone(gone.status())) << gone.status();
  ASSERT_OK_AND_ASSIGN(const Step newest, reader.OpenStep(Latest()));
  ExpectWhole(newest);
}

}  // namespace
}  // namespace ckptree
