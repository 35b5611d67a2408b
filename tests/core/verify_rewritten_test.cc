// SPDX-License-Identifier: Apache-2.0

// A reader that was open before a writer wrote files anew: the store is sound,
// and a file that is gone is not.

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/core/fixture.h"

namespace ckptree::testing {
namespace {

using ::testing::IsEmpty;
using ::testing::Not;

constexpr std::int64_t kSteps = 9;
constexpr int kLeaves = 6;

class VerifyRewrittenTest : public CoreTest {
 protected:
  void SetUp() override {
    CoreTest::SetUp();
    std::vector<Bytes> leaves(kLeaves);
    std::vector<StepSelector> some;
    for (std::int64_t step = 1; step <= kSteps; ++step) {
      StepBuilder builder = store_->Begin(step);
      for (int i = 0; i < kLeaves; ++i) {
        Bytes& leaf = leaves[static_cast<std::size_t>(i)];
        if (leaf.empty() || (i + step) % 3 != 0) {
          leaf = RandomBytes(512 << 10, kLeaves * step + i);
        }
        builder.Put("k" + std::to_string(i), Uint8s(leaf));
      }
      ASSERT_OK(Commit(std::move(builder)));
      if (step % 2 == 0) some.push_back(AtStep(step));
    }
    ASSERT_OK(store_->Delete(some));
    // What is dead is known, and every file is there still.
    ASSERT_OK(store_->Collect({.min_dead_fraction = 1}));
  }

  static std::vector<std::string> Damaged(const Store& store,
                                          VerifyOptions::Level level) {
    const absl::StatusOr<VerifyReport> report = store.Verify({.level = level});
    EXPECT_OK(report);
    std::vector<std::string> damaged;
    for (const Finding& finding :
         report.ok() ? report->findings : std::vector<Finding>()) {
      if (finding.severity == Finding::Severity::kWarning) continue;
      damaged.push_back(finding.what);
    }
    return damaged;
  }
  std::vector<std::string> LargeFiles() const {
    std::vector<std::string> files;
    for (const auto& file :
         std::filesystem::recursive_directory_iterator(path())) {
      if (file.path().extension() == ".sst" && file.file_size() > 256 << 10) {
        files.push_back(file.path().string());
      }
    }
    return files;
  }
};

TEST_F(VerifyRewrittenTest, WhatWasWrittenAnewIsNoDamage) {
  const Store deep = Store::Open(path(), ReadOnly()).value();
  const Store full = Store::Open(path(), ReadOnly()).value();
  EXPECT_THAT(Damaged(deep, VerifyOptions::Level::kDeep), IsEmpty());
  const std::vector<std::string> before = LargeFiles();
  const auto report = store_->Collect({.min_dead_fraction = 0});
  ASSERT_OK(report);
  EXPECT_GT(report->files_rewritten, 0u);
  EXPECT_TRUE(std::ranges::any_of(before, [](const std::string& file) {
    return !std::filesystem::exists(file);
  }));
  EXPECT_THAT(Damaged(deep, VerifyOptions::Level::kDeep), IsEmpty());
  EXPECT_THAT(Damaged(full, VerifyOptions::Level::kFull), IsEmpty());
}

TEST_F(VerifyRewrittenTest, UsageCountsTheFilesThatThereAre) {
  Store reader = Store::Open(path(), ReadOnly()).value();
  const std::uint64_t before = reader.Usage()->dead_bytes;
  EXPECT_GT(before, 0u);
  const auto report = store_->Collect({.min_dead_fraction = 0});
  ASSERT_OK(report);
  ASSERT_GT(report->files_rewritten, 0u);
  ASSERT_OK(reader.Refresh());
  const absl::StatusOr<UsageReport> seen = reader.Usage();
  ASSERT_OK(seen);
  const absl::StatusOr<UsageReport> is = store_->Usage();
  ASSERT_OK(is);
  EXPECT_EQ(seen->files, is->files);
  EXPECT_EQ(seen->dead_bytes, is->dead_bytes);
  EXPECT_LT(seen->dead_bytes, before);
}

TEST_F(VerifyRewrittenTest, AFileThatIsGoneIsDamage) {
  const Store reader = Store::Open(path(), ReadOnly()).value();
  EXPECT_THAT(Damaged(reader, VerifyOptions::Level::kDeep), IsEmpty());
  ASSERT_OK(store_->Collect({.min_dead_fraction = 0}));
  const std::vector<std::string> files = LargeFiles();
  ASSERT_FALSE(files.empty());
  std::filesystem::remove(files.front());
  EXPECT_THAT(Damaged(reader, VerifyOptions::Level::kDeep), Not(IsEmpty()));
}

}  // namespace
}  // namespace ckptree::testing
