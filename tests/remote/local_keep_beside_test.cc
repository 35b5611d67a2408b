// SPDX-License-Identifier: Apache-2.0

// What else goes on while segments leave a disk, or since: readers, a verify,
// collection, forks, other directories, a remote that goes away.

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "ckptree/ckptree.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/fixture.h"
#include "tests/fault/scale.h"
#include "tests/remote/fixture.h"
#include "tests/remote/local_keep_fixture.h"

namespace ckptree::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

// What stands on both sides of segments that left is never merged: a file from
// the first to the last would seem to have them.
TEST_F(LocalKeepTest, CollectionBesideWhatLeftMergesNothingAroundIt) {
  {
    Store store = Store::Open(Directory(), Remote(CustomSteps{{1, 6}})).value();
    const Bytes constant = RandomBytes(kLargeSave / 2, 1000);
    for (std::int64_t step = 1; step <= 8; ++step) {
      const Bytes own = RandomBytes(kLargeSave, step);
      const Bytes shared = RandomBytes(kLargeSave / 2, 2000 + (step + 2) / 3);
      StepBuilder builder = store.Begin(step);
      builder.Put("params/w", Uint8s(own))
          .Put("shared", Uint8s(shared))
          .Put("constant", Uint8s(constant));
      ASSERT_TRUE(std::move(builder).Commit().WaitCommitted(kLong).ok());
    }
    ASSERT_TRUE(store.Close().ok());
  }
  const std::size_t far = FarRows().size();
  ASSERT_GT(far, 3u);
  for (int opens = 0; opens < 2; ++opens) {
    Store store = Store::Open(Directory(), Remote(CustomSteps{{1, 6}})).value();
    if (opens == 0) {
      ASSERT_TRUE(store.Delete(1).ok());
      ASSERT_TRUE(store.Delete(6).ok());
      const CollectReport report =
          store.Collect({.min_dead_fraction = 0}).value();
      EXPECT_GT(report.files_rewritten, 0);
    }
    for (const std::int64_t step : {2, 3, 4, 5, 7, 8}) {
      ExpectStep(store, step, kLargeSave);
    }
    ExpectWhole(store);
    ASSERT_TRUE(store.Close().ok());
  }
  Store reader = Store::Open(Directory(), ReadOnly()).value();
  for (const std::int64_t step : {2, 3, 4, 5, 7, 8}) {
    ExpectStep(reader, step, kLargeSave);
  }
  ExpectWhole(reader);
}

// A share that goes away and comes back, and a folder in its place until then.
TEST_F(LocalKeepTest, AFolderInPlaceOfTheRemoteGetsNothing) {
  StoreOptions options = Remote(LatestN{2});
  options.remote_timeout = absl::Milliseconds(100);  // Of its close.
  Store store = Store::Open(Directory(), options).value();
  for (std::int64_t step = 1; step <= 3; ++step) {
    SaveStep(store, step, kLargeSave);
  }
  ASSERT_TRUE(store.WaitReplicated(kLong).ok());
  Hide();
  fs::create_directory(Bucket());
  for (std::int64_t step = 4; step <= 9; ++step) {
    SaveStep(store, step, kLargeSave);
    store.WaitReplicated(absl::Milliseconds(200)).IgnoreError();
  }
  store.Close().IgnoreError();
  EXPECT_TRUE(fs::is_empty(Bucket()));
  fs::remove(Bucket());
  Show();
  Store reader = Store::Open(Directory(), ReadOnly()).value();
  ExpectSteps(reader, 1, 9);
}

// Who reads while segments leave and come back looks again.
TEST_F(LocalKeepTest, NewReadersBesideItMeetNoDamage) {
  Save(1, 5, std::nullopt);
  std::atomic<bool> done = false;
  std::jthread trains([&] {
    for (int i = 0; i < 6; ++i) {
      Store store =
          Store::Open(Directory(), Remote(i % 2 == 0 ? Preservation(LatestN{1})
                                                     : PreserveAll{}))
              .value();
      EXPECT_TRUE(store.Close().ok());
    }
    done = true;
  });
  int looks = 0;
  while (!done) {
    Store reader = Store::Open(Directory(), ReadOnly()).value();
    ExpectSteps(reader, 1, 5);
    ++looks;
  }
  EXPECT_GT(looks, 0);
}

// A directory of which all was shipped is behind, and not diverged.
TEST_F(LocalKeepTest, WhatLeftIsNoCommitThatWasNotShipped) {
  Save(1, 3);
  {
    StoreOptions options = Remote(std::nullopt);
    Store second = Store::Open(folder_ / "second", options).value();
    SaveStep(second, 4, kLargeSave);
    ASSERT_TRUE(second.Close().ok());
  }
  const absl::StatusOr<Store> behind = Store::Open(Directory(), Remote());
  EXPECT_THAT(std::string(behind.status().message()),
              HasSubstr("after this directory was shipped, all of it"));
}

// Rule h, and rule c: who was taken over drops nothing more.
TEST_F(LocalKeepTest, AnotherDirectoryHasAllOfIt) {
  Save(1, 3);
  Store first = Store::Open(Directory(), Remote()).value();
  {
    StoreOptions options = Remote(std::nullopt);
    options.take_over = true;
    Store second = Store::Open(folder_ / "second", options).value();
    ExpectSteps(second, 1, 3);
    SaveStep(second, 4, kLargeSave);
    ASSERT_TRUE(second.Close().ok());
  }
  const std::vector<std::string> far = FarRows();
  StepBuilder builder = first.Begin(5);
  const Bytes bytes = RandomBytes(kLargeSave, 5);
  builder.Put("params/w", Uint8s(bytes));
  // It may know by now, or hear of it when it ships.
  const bool saved = std::move(builder).Commit().WaitCommitted(kLong).ok();
  EXPECT_FALSE(first.WaitReplicated(kLong).ok());
  first.Close().IgnoreError();
  EXPECT_EQ(FarRows(), far);
  Hide();
  {
    Store reader = Store::Open(Directory(), ReadOnly()).value();
    ExpectStep(reader, 3, kLargeSave);
    if (saved) ExpectStep(reader, 5, kLargeSave);
  }
  Store second = Store::Open(folder_ / "second", ReadOnly()).value();
  ExpectSteps(second, 1, 4);
}

// A reader that was there before goes on.
TEST_F(LocalKeepTest, ReadersBesideItGoOn) {
  Save(1, 2, std::nullopt);
  Store store = Store::Open(Directory(), Remote()).value();
  Store reader = Store::Open(Directory(), ReadOnly()).value();
  const Step old = reader.OpenStep(1).value();
  for (std::int64_t step = 3; step <= 5; ++step) {
    SaveStep(store, step, kLargeSave);
  }
  ASSERT_TRUE(store.WaitReplicated(kLong).ok());
  ASSERT_TRUE(store.Close().ok());
  ASSERT_LT(BytesHere(), 3 * kLargeSave / 2);
  Bytes bytes(kLargeSave);
  const absl::Status read = old.Read("params/w", std::span(bytes));
  ASSERT_TRUE(read.ok()) << read;
  EXPECT_EQ(bytes, RandomBytes(kLargeSave, 1));
  ExpectSteps(reader, 1, 2);
  ASSERT_TRUE(reader.Refresh().ok());
  ExpectSteps(reader, 1, 5);
}

// Of the same process: none of its files goes under it.
TEST_F(LocalKeepTest, AVerifyBesideItMeetsNoDamage) {
  Store store = Store::Open(Directory(), Remote()).value();
  std::atomic<bool> done = false;
  std::atomic<int> looks = 0;
  std::jthread verifies([&] {
    while (!done) {
      const absl::StatusOr<VerifyReport> report =
          store.Verify({.level = VerifyOptions::Level::kDeep});
      ASSERT_TRUE(report.ok()) << report.status();
      for (const Finding& finding : report->findings) {
        ADD_FAILURE() << finding.what;
      }
      ++looks;
    }
  });
  for (std::int64_t step = 1; step <= 12; ++step) {
    SaveStep(store, step, kLargeSave);
    ASSERT_TRUE(store.WaitReplicated(kLong).ok());
  }
  done = true;
  verifies.join();
  EXPECT_GT(looks, 0);
  ExpectSteps(store, 1, 12);
  ASSERT_TRUE(store.Close().ok());
  EXPECT_LT(BytesHere(), 3 * kLargeSave / 2);
}

// Which steps live is another thing than which are here, and changes beside it.
TEST_F(LocalKeepTest, APolicyThatIsSetBesideIt) {
  const int saves = std::max(20, Scaled(50));
  int sets = 0, removed = 0;
  {
    Store store = Store::Open(Directory(), Remote()).value();
    std::atomic<bool> done = false;
    std::jthread sets_policies([&] {
      while (!done) {
        const absl::Status set = sets % 3 == 0 ? store.SetPolicy(LatestN{2})
                                 : sets % 3 == 1
                                     ? store.SetPolicy(LatestN{6})
                                     : store.SetPolicy(PreserveAll{});
        ASSERT_TRUE(set.ok()) << set;
        ++sets;
      }
    });
    for (std::int64_t step = 1; step <= saves; ++step) {
      SaveStep(store, step, kLargeSave);
      if (step % 5 == 0) {
        ASSERT_TRUE(store.WaitReplicated(kLong).ok());
      }
      if (step % 7 == 0) {
        const auto gone = store.ApplyPolicy();
        ASSERT_TRUE(gone.ok()) << gone.status();
      }
    }
    done = true;
    sets_policies.join();
    ASSERT_TRUE(store.SetPolicy(LatestN{6}).ok());
    ASSERT_TRUE(store.ApplyPolicy().ok());
    ASSERT_TRUE(store.Close().ok());
  }
  EXPECT_GT(sets, 0);
  Store here = Store::Open(Directory(), ReadOnly()).value();
  Store there = Store::Open(Address(), ReadOnly()).value();
  const std::vector<std::int64_t> steps = StepsOf(here);
  EXPECT_EQ(StepsOf(there), steps);
  ASSERT_FALSE(steps.empty());
  EXPECT_EQ(steps.back(), saves);
  removed = saves - static_cast<int>(steps.size());
  EXPECT_GT(removed, 0);
  for (const std::int64_t step : steps) {
    ExpectStep(here, step, kLargeSave);
    ExpectStep(there, step, kLargeSave);
  }
  ExpectWhole(here);
  ExpectWhole(there);
  EXPECT_FALSE(FarRows().empty());
  Hide();
  Store alone = Store::Open(Directory(), ReadOnly()).value();
  ExpectStep(alone, saves, kLargeSave);
  absl::PrintF(
      "trial remote, file, local_keep, policies set beside it: %d trials, %d "
      "fired, 0 lost (set %d times, %d steps removed)\n",
      saves, std::min(saves, sets), sets, removed);
}

// A branch from a step of which the arrays have left.
TEST_F(LocalKeepTest, AForkOfAStepThatLeftGoesOn) {
  Save(1, 3);
  {
    Store store = Store::Open(Directory(), Remote()).value();
    ASSERT_TRUE(store.Fork(AtStep(1), "other").ok());
    StepBuilder builder = store.Begin(2, {.branch = "other"});
    const Bytes same = RandomBytes(kLargeSave, 1);
    const Bytes more = RandomBytes(kLargeSave, 99);
    builder.Put("params/w", Uint8s(same)).Put("more", Uint8s(more));
    ASSERT_TRUE(std::move(builder).Commit().WaitCommitted(kLong).ok());
    ASSERT_TRUE(store.Close().ok());
  }
  // The newest of each branch is here, what the fork shares among it.
  Hide();
  Store store = Store::Open(Directory(), ReadOnly()).value();
  ExpectStep(store, 3, kLargeSave);
  const Step forked = store.OpenStep(AtStep(2, "other")).value();
  Bytes bytes(kLargeSave);
  ASSERT_TRUE(forked.Read("params/w", std::span(bytes)).ok());
  EXPECT_EQ(bytes, RandomBytes(kLargeSave, 1));
  ASSERT_TRUE(forked.Read("more", std::span(bytes)).ok());
  EXPECT_EQ(bytes, RandomBytes(kLargeSave, 99));
  EXPECT_FALSE(ReadOf(store, 2).ok());
}

}  // namespace
}  // namespace ckptree::testing
