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

  struct Room {
    std::uint64_t bytes = 0;  // As `du` counts: blocks, not lengths.
    // Of `bytes`, taken ahead for a table that a flush is about to write: what
    // it does not need is given back at the table's end.
    std::uint64_t ahead = 0;
    std::string parts;  // `bytes` by kind of file.
  };

  Room OnDisk() const {
    std::map<std::string, std::uint64_t> sums;
    Room room;
    std::error_code error;
    for (fs::recursive_directory_iterator it(path(), error), end;
         !error && it != end; it.increment(error)) {
      struct stat status;
      // Collection removes files at any time.
      if (stat(it->path().c_str(), &status) == 0 && S_ISREG(status.st_mode)) {
        const std::uint64_t blocks =
            static_cast<std::uint64_t>(status.st_blocks) * 512;
        const std::string name = it->path().filename().string();
        const std::string kind = it->path().has_extension()
                                     ? it->path().extension().string()
                                     : name.substr(0, 2);
        const std::uint64_t filled =
            (static_cast<std::uint64_t>(status.st_size) + 4095) / 4096 * 4096;
        if ((kind == ".sst" || name == "flush-room.tmp") && blocks > filled) {
          room.ahead += blocks - filled;
        }
        room.bytes += blocks;
        sums[kind] += blocks;
      }
    }
    for (const auto& [kind, sum] : sums) {
      room.parts += kind + " " + std::to_string(sum / kMiB) + " MiB  ";
    }
    return room;
  }

  absl::Status SaveStep(std::int64_t step) {
    return Save(step,
                RandomBytes(kStepBytes, static_cast<std::uint64_t>(step)));
  }
};

TEST_F(SpaceTest, SmallSavesWithThreeKeptStayBounded) {
  constexpr std::uint64_t kLiving = 3 * kStepBytes;
  ASSERT_OK(store_->SetPolicy(LatestN{3}));
  Room most;
  std::uint64_t most_ahead = 0;
  for (std::int64_t step = 1; step <= kSteps; ++step) {
    ASSERT_OK(SaveStep(step));
    if (step % 10 != 0) continue;
    const Room now = OnDisk();
    most_ahead = std::max(most_ahead, now.ahead);
    if (now.bytes - now.ahead > most.bytes - most.ahead) most = now;
  }
  ASSERT_THAT(StepNumbers(),
              ::testing::ElementsAre(kSteps - 2, kSteps - 1, kSteps));
  std::cout << (most.bytes - most.ahead) / kMiB << " MiB at most, and "
            << most_ahead / kMiB << " MiB ahead: " << most.parts << "\n";
  EXPECT_LE(most.bytes - most.ahead, 3 * kLiving + 64 * kMiB) << most.parts;
  // Commits wait where the index is 32 MiB behind: a flush writes no more.
  EXPECT_LE(most_ahead, 33 * kMiB) << most.parts;
  ASSERT_OK(store_->Close());
  store_.reset();
  const std::uint64_t closed = OnDisk().bytes;
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
  const std::uint64_t before = OnDisk().bytes;
  ASSERT_GE(before, kSteps * kStepBytes);
  for (std::int64_t step = 1; step <= kSteps - 5; ++step) {
    ASSERT_OK(store_->Delete(AtStep(step)));
  }
  CollectOptions options;
  options.min_dead_fraction = 0;
  const absl::StatusOr<CollectReport> report = store_->Collect(options);
  ASSERT_OK(report);
  EXPECT_LE(OnDisk().bytes, 3 * 5 * kStepBytes + 64 * kMiB);
  ASSERT_OK(store_->Close());
  store_.reset();
  EXPECT_LE(OnDisk().bytes, 5 * kStepBytes * 3 / 2 + 24 * kMiB);
  Open();
  EXPECT_EQ(StepNumbers().size(), 5u);
  ExpectClean();
}

}  // namespace
}  // namespace ckptree::testing
