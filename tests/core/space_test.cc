// SPDX-License-Identifier: Apache-2.0

// The room that a store of small saves takes, as the file system counts it:
// dead steps are given back while it runs, by a collection, and at the close.

#include <sys/stat.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <map>
#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/fixture.h"

namespace ckptree::testing {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kStepBytes = 220 << 10;
constexpr int kSteps = 1200;
constexpr std::uint64_t kMiB = 1 << 20;

class SpaceTest : public CoreTest {
 protected:
  void SetUp() override { Open(Collecting()); }

  static StoreOptions Collecting() {
    StoreOptions options = Options();
    options.collect = true;
    return options;
  }

  // As `du` counts: blocks, not lengths. What it is made of goes to `parts`.
  std::uint64_t OnDisk(std::string* parts = nullptr) const {
    std::map<std::string, std::uint64_t> sums;
    std::uint64_t bytes = 0;
    std::error_code error;
    for (fs::recursive_directory_iterator it(path(), error), end;
         !error && it != end; it.increment(error)) {
      struct stat status;
      // Collection removes files at any time.
      if (stat(it->path().c_str(), &status) == 0 && S_ISREG(status.st_mode)) {
        bytes += static_cast<std::uint64_t>(status.st_blocks) * 512;
        const std::string name = it->path().filename().string();
        const std::string kind = it->path().has_extension()
                                     ? it->path().extension().string()
                                     : name.substr(0, 2);
        sums[kind] += static_cast<std::uint64_t>(status.st_blocks) * 512;
      }
    }
    for (const auto& [kind, sum] : sums) {
      if (parts != nullptr) {
        *parts += kind + " " + std::to_string(sum / kMiB) + " MiB  ";
      }
    }
    return bytes;
  }

  absl::Status SaveStep(std::int64_t step) {
    return Save(step,
                RandomBytes(kStepBytes, static_cast<std::uint64_t>(step)));
  }
};

TEST_F(SpaceTest, SmallSavesWithThreeKeptStayBounded) {
  constexpr std::uint64_t kLiving = 3 * kStepBytes;
  ASSERT_OK(store_->SetPolicy(LatestN{3}));
  std::uint64_t most = 0;
  std::string at_most;
  for (std::int64_t step = 1; step <= kSteps; ++step) {
    ASSERT_OK(SaveStep(step));
    if (step % 10 != 0) continue;
    std::string parts;
    const std::uint64_t now = OnDisk(&parts);
    if (now > most) at_most = parts;
    most = std::max(most, now);
  }
  ASSERT_THAT(StepNumbers(),
              ::testing::ElementsAre(kSteps - 2, kSteps - 1, kSteps));
  std::cout << most / kMiB << " MiB at most: " << at_most << "\n";
  EXPECT_LE(most, 3 * kLiving + 64 * kMiB) << at_most;
  ASSERT_OK(store_->Close());
  store_.reset();
  const std::uint64_t closed = OnDisk();
  EXPECT_LE(closed, kLiving + kLiving / 2 + 24 * kMiB);
  Open();
  for (std::int64_t step = kSteps - 2; step <= kSteps; ++step) {
    EXPECT_EQ(Read(AtStep(step)),
              RandomBytes(kStepBytes, static_cast<std::uint64_t>(step)));
  }
}

TEST_F(SpaceTest, WhatWasDeletedAtOnceIsGivenBackByACollection) {
  for (std::int64_t step = 1; step <= kSteps; ++step) {
    ASSERT_OK(SaveStep(step));
  }
  const std::uint64_t before = OnDisk();
  ASSERT_GE(before, kSteps * kStepBytes);
  for (std::int64_t step = 1; step <= kSteps - 5; ++step) {
    ASSERT_OK(store_->Delete(AtStep(step)));
  }
  CollectOptions options;
  options.min_dead_fraction = 0;
  const absl::StatusOr<CollectReport> report = store_->Collect(options);
  ASSERT_OK(report);
  EXPECT_LE(OnDisk(), 3 * 5 * kStepBytes + 64 * kMiB);
  ASSERT_OK(store_->Close());
  store_.reset();
  EXPECT_LE(OnDisk(), 5 * kStepBytes * 3 / 2 + 24 * kMiB);
  Open();
  EXPECT_EQ(StepNumbers().size(), 5u);
  ExpectClean();
}

}  // namespace
}  // namespace ckptree::testing
