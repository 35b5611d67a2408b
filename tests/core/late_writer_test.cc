// SPDX-License-Identifier: Apache-2.0

// A reader that had the store to itself, and a writer that comes later.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "ckptree/ckptree.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/fixture.h"
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
