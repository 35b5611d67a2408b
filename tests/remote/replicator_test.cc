// SPDX-License-Identifier: Apache-2.0

// A store that ships to an object store: what is there afterwards is judged by
// a machine that has nothing else.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "ckptree/ckptree.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/fixture.h"
#include "tests/objects/counting_store.h"
#include "tests/objects/fixture.h"
#include "tests/remote/fixture.h"
#include "tests/testutil/status_matchers.h"
#include "tests/testutil/temp_dir.h"

namespace ckptree::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class ReplicatorTest : public ObjectStoreTest {
 protected:
  void SetUp() override { UseServers(); }

  StoreOptions Remote() { return RemoteOptions(Address()); }
  // A directory on a disk of its own.
  std::string Disk(const std::string& name) { return disks_ / name; }

  TempDir disks_;
};

constexpr std::size_t kSmallSave = 4 << 10;
constexpr std::size_t kLargeSave = 3 << 20;

TEST_F(ReplicatorTest, AnEmptyDirectoryTakesTheStoreOver) {
  std::vector<std::int64_t> steps;
  {
    absl::StatusOr<Store> store = Store::Open(Disk("a"), Remote());
    ASSERT_TRUE(store.ok()) << store.status();
    for (std::int64_t step = 1; step <= 6; ++step) {
      SaveStep(*store, step, step % 2 == 0 ? kSmallSave : kLargeSave);
    }
    ASSERT_TRUE(store->Tag("best", 3).ok());
    ASSERT_TRUE(store->Delete(2).ok());
    ASSERT_TRUE(store->Collect().ok());
    ASSERT_TRUE(store->WaitReplicated(kLong).ok());
    EXPECT_EQ(store->Info().unshipped, 0);
    EXPECT_EQ(store->Info().remote, Address());
    steps = StepsOf(*store);
    ASSERT_TRUE(store->Close().ok());
  }
  fs::remove_all(Disk("a"));
  absl::StatusOr<Store> store = Store::Open(Disk("b"), Remote());
  ASSERT_TRUE(store.ok()) << store.status();
  EXPECT_EQ(StepsOf(*store), steps);
  for (const std::int64_t step : steps) {
    ExpectStep(*store, step, step % 2 == 0 ? kSmallSave : kLargeSave);
  }
  EXPECT_EQ(store->OpenStep(Tagged("best")).value().info().step, 3);
  ExpectWhole(*store);
  // And goes on.
  SaveStep(*store, 7, kLargeSave);
  ASSERT_TRUE(store->WaitReplicated(kLong).ok());
  ASSERT_TRUE(store->Close().ok());
  absl::StatusOr<Store> third = Store::Open(Disk("c"), Remote());
  ASSERT_TRUE(third.ok()) << third.status();
  ExpectStep(*third, 7, kLargeSave);
  ExpectStep(*third, 1, kLargeSave);
  ExpectWhole(*third);
}

TEST_F(ReplicatorTest, WhatWasNotShippedIsShippedByTheNextOpen) {
  StoreOptions local = QuietOptions();
  local.create_if_missing = true;
  local.chunk_bytes = kChunk;
  {
    Store store = Store::Open(Disk("a"), local).value();
    SaveStep(store, 1, kLargeSave);
    SaveStep(store, 2, kSmallSave);
    // Files are written again, and hold several segments.
    SaveStep(store, 3, kLargeSave);
    ASSERT_TRUE(store.Delete(1).ok());
    ASSERT_TRUE(store.Collect().ok());
    ASSERT_TRUE(store.Collect({.pack = true}).ok());
  }
  {
    Store store = Store::Open(Disk("a"), Remote()).value();
    ASSERT_TRUE(store.WaitReplicated(kLong).ok());
    SaveStep(store, 4, kSmallSave);
  }
  {
    Store store = Store::Open(Disk("a"), local).value();
    SaveStep(store, 5, kLargeSave);
    ASSERT_TRUE(store.Delete(2).ok());
  }
  { Store store = Store::Open(Disk("a"), Remote()).value(); }
  Store store = Store::Open(Disk("b"), Remote()).value();
  EXPECT_THAT(StepsOf(store), ::testing::ElementsAre(3, 4, 5));
  ExpectStep(store, 3, kLargeSave);
  ExpectStep(store, 4, kSmallSave);
  ExpectStep(store, 5, kLargeSave);
  ExpectWhole(store);
}

TEST_F(ReplicatorTest, FilesThatWereWrittenAgainAreShipped) {
  StoreOptions local = QuietOptions();
  local.collect = false;
  const Bytes kept = RandomBytes(kLargeSave, 99);
  const Bytes even(kLargeSave, std::byte{7});
  const auto save = [&](Store& store, std::int64_t step) {
    const Bytes bytes = RandomBytes(kLargeSave, step);
    StepBuilder builder = store.Begin(step);
    builder.Put("params/w", Uint8s(bytes)).Put("kept", Uint8s(kept));
    builder.Put("even", Uint8s(even));
    ASSERT_TRUE(builder.Commit().WaitCommitted(kLong).ok());
  };
  {
    Store store = Store::Open(Disk("a"), local).value();
    for (std::int64_t step = 1; step <= 4; ++step) save(store, step);
    // The segments of the first save lose what it had alone.
    ASSERT_TRUE(store.Delete(1).ok());
    const CollectReport again = store.Collect({.min_dead_fraction = 0}).value();
    EXPECT_GT(again.files_rewritten, 0);
    const CollectReport packed = store.Collect({.pack = true}).value();
    EXPECT_GT(packed.files_packed, 0);
  }
  {
    Store store = Store::Open(Disk("a"), Remote()).value();
    ASSERT_TRUE(store.WaitReplicated(kLong).ok());
    // Nor do they stand in the way of what is shipped already.
    ASSERT_TRUE(store.Delete(2).ok());
    ASSERT_TRUE(store.Collect({.min_dead_fraction = 0}).ok());
    save(store, 5);
  }
  Store store = Store::Open(Disk("b"), Remote()).value();
  EXPECT_THAT(StepsOf(store), ::testing::ElementsAre(3, 4, 5));
  for (const std::int64_t step : {3, 4, 5}) {
    ExpectStep(store, step, kLargeSave);
    const Step read = store.OpenStep(step).value();
    for (const auto& [name, bytes] :
         {std::pair("kept", &kept), std::pair("even", &even)}) {
      Bytes got(kLargeSave);
      ASSERT_TRUE(read.Read(name, std::span(got)).ok());
      EXPECT_EQ(got, *bytes) << name;
    }
  }
  ExpectWhole(store);
}

TEST_F(ReplicatorTest, DurableInTheRemoteMeansThere) {
  StoreOptions options = Remote();
  options.durable = Durable::kRemote;
  Store store = Store::Open(Disk("a"), options).value();
  SaveStep(store, 1, kSmallSave);
  EXPECT_EQ(store.Info().unshipped, 0);
  // The other takes it over without a word from this one.
  options.take_over = true;
  Store other = Store::Open(Disk("b"), options).value();
  ExpectStep(other, 1, kSmallSave);
  StepBuilder late = store.Begin(2);
  late.PutInt("count", 2);
  const absl::Status fenced = late.Commit().WaitCommitted(kLong);
  EXPECT_TRUE(absl::IsFailedPrecondition(fenced)) << fenced;
  EXPECT_THAT(std::string(fenced.message()), HasSubstr("another process took"));
  EXPECT_TRUE(fs::exists(Disk("b")));
  // Sticky: here, and after a restart.
  EXPECT_EQ(store.Begin(3).status(), store.Delete(1));
  EXPECT_TRUE(absl::IsFailedPrecondition(store.Delete(1)));
  store.Close().IgnoreError();
  const absl::Status again = Store::Open(Disk("a"), options).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(again)) << again;
  EXPECT_THAT(std::string(again.message()), HasSubstr("goes on no more"));
  SaveStep(other, 2, kSmallSave);
  ExpectWhole(other);
}

TEST_F(ReplicatorTest, ASegmentIsDigestedInWhateverOrderItIsRead) {
  RequestCount requests;
  int segments = 0;
  requests.SetPutHook(
      [&](const std::string& name, const kv::ObjectSource& source) {
        if (!absl::StrContains(name, "/segment/")) return;
        ++segments;
        // As a pool reads it, the end first; then it is read once more.
        const auto size = static_cast<std::size_t>(source.size());
        std::vector<std::byte> bytes(size);
        const std::span<std::byte> all(bytes);
        const std::size_t some = size / 3;
        for (const std::size_t from : {some, std::size_t{0}}) {
          EXPECT_THAT(source.Read(from, all.subspan(from, some)), IsOk());
        }
      });
  StoreOptions options = Remote();
  options.durable = Durable::kRemote;
  {
    Store store = Store::Open(Disk("a"), options).value();
    SaveStep(store, 1, kLargeSave);
    EXPECT_THAT(store.Close(), IsOk());
  }
  EXPECT_GT(segments, 0);
  setenv("XDG_CACHE_HOME", Disk("cache").c_str(), 1);
  StoreOptions read = QuietOptions();
  read.create_if_missing = false;
  read.read_only = true;
  Store there = Store::Open(Address(), read).value();
  ExpectStep(there, 1, kLargeSave);
  // Compares each segment with the digest in its commit.
  ExpectWhole(there);
}

TEST_F(ReplicatorTest, ARunThatGoesOnSavingIsTakenOver) {
  StoreOptions options = Remote();
  options.durable = Durable::kRemote;
  options.take_over = true;
  std::int64_t acknowledged = 0;
  std::int64_t step = 0;
  const int rounds = StoreKind() == "file" ? 6 : 2;  // Which take seconds.
  for (int round = 0; round < rounds; ++round) {
    Store store =
        Store::Open(Disk(absl::StrCat("disk", round)), options).value();
    const std::vector<std::int64_t> there = StepsOf(store);
    EXPECT_GE(there.empty() ? 0 : there.back(), acknowledged) << round;
    absl::Notification begun;
    std::thread trainer([&] {
      while (true) {
        StepBuilder builder = store.Begin(++step);
        builder.PutInt("count", step);
        if (!builder.Commit().WaitCommitted(kLong).ok()) break;
        acknowledged = step;
        if (!begun.HasBeenNotified()) begun.Notify();
      }
    });
    begun.WaitForNotification();
    {
      // The next one: it ends the trainer in the middle of its saves.
      absl::StatusOr<Store> opened =
          Store::Open(Disk(absl::StrCat("next", round)), options);
      EXPECT_TRUE(opened.ok()) << opened.status();
      if (!opened.ok()) store.Close().IgnoreError();  // Ends the trainer.
      trainer.join();
      ASSERT_TRUE(opened.ok());
      Store next = *std::move(opened);
      EXPECT_TRUE(absl::IsFailedPrecondition(store.Begin(1).status()));
      const std::vector<std::int64_t> steps = StepsOf(next);
      EXPECT_EQ(steps.back(), acknowledged) << round;
      ExpectWhole(next);
    }
    store.Close().IgnoreError();
  }
}

TEST_F(ReplicatorTest, TakingOverIsPolite) {
  Store store = Store::Open(Disk("a"), Remote()).value();
  SaveStep(store, 1, kSmallSave);
  ASSERT_TRUE(store.WaitReplicated(kLong).ok());
  const absl::Status refused = Store::Open(Disk("b"), Remote()).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("it may still be training"));
  ASSERT_TRUE(store.Close().ok());
  EXPECT_TRUE(Store::Open(Disk("b"), Remote()).ok());
}

TEST_F(ReplicatorTest, AMachineThatComesBackDivergedIsRefused) {
  StoreOptions local = QuietOptions();
  {
    Store store = Store::Open(Disk("a"), Remote()).value();
    SaveStep(store, 1, kSmallSave);
  }
  {
    Store store = Store::Open(Disk("a"), local).value();
    SaveStep(store, 2, kSmallSave);
  }
  {
    Store other = Store::Open(Disk("b"), Remote()).value();
    SaveStep(other, 2, kLargeSave);
  }
  const absl::Status diverged = Store::Open(Disk("a"), Remote()).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(diverged)) << diverged;
  EXPECT_THAT(std::string(diverged.message()), HasSubstr("diverged"));
  // Nothing of both is lost.
  Store mine = Store::Open(Disk("a"), local).value();
  ExpectStep(mine, 2, kSmallSave);
  Store theirs = Store::Open(Disk("c"), Remote()).value();
  ExpectStep(theirs, 2, kLargeSave);
}

TEST_F(ReplicatorTest, ADirectoryThatIsBehindIsToldSo) {
  {
    Store store = Store::Open(Disk("a"), Remote()).value();
    SaveStep(store, 1, kSmallSave);
  }
  {
    Store other = Store::Open(Disk("b"), Remote()).value();
    SaveStep(other, 2, kSmallSave);
  }
  const absl::Status behind = Store::Open(Disk("a"), Remote()).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(behind)) << behind;
  EXPECT_THAT(std::string(behind.message()), HasSubstr("all of it"));
  // Only opened, nothing shipped: it goes on.
  Store store = Store::Open(Disk("b"), Remote()).value();
  ExpectStep(store, 2, kSmallSave);
}

TEST_F(ReplicatorTest, AnOpenThatFailsLeavesTheStoreToOthers) {
  {
    Store store = Store::Open(Disk("a"), Remote()).value();
    SaveStep(store, 1, kSmallSave);
  }
  EXPECT_TRUE(
      absl::IsNotFound(Store::Open(Disk("no/such"), Remote()).status()));
  // What an open left that was killed while it fetched.
  fs::create_directories(Disk("b/store.fetching/db"));
  {
    absl::StatusOr<Store> store = Store::Open(Disk("b"), Remote());
    ASSERT_TRUE(store.ok()) << store.status();
    ExpectStep(*store, 1, kSmallSave);
  }
  // A segment cannot be read: nothing is made of the rest, and the next one is
  // not told to wait for the one that failed.
  {
    Store store = Store::Open(Disk("a2"), Remote()).value();
    SaveStep(store, 2, kLargeSave);
  }
  {
    RequestCount count;
    bool fired = false;
    count.SetHook([&fired](const std::string& what) {
      if (!absl::StrContains(what, "/segment/")) return absl::OkStatus();
      fired = true;
      return absl::PermissionDeniedError("no");
    });
    const absl::Status failed = Store::Open(Disk("c"), Remote()).status();
    EXPECT_TRUE(absl::IsPermissionDenied(failed)) << failed;
    EXPECT_TRUE(fired);
    EXPECT_TRUE(absl::IsNotFound(
        Store::Open(Disk("c"), ToRead(QuietOptions())).status()));
    EXPECT_FALSE(fs::exists(Disk("c/store.fetching")));
  }
  absl::StatusOr<Store> store = Store::Open(Disk("c"), Remote());
  ASSERT_TRUE(store.ok()) << store.status();
  ExpectStep(*store, 2, kLargeSave);
}

// It took the store over, and ended before it shipped anything.
TEST_F(ReplicatorTest, WhatTookOverAndShippedNothingGoesOn) {
  if (StoreKind() != "file") GTEST_SKIP() << "its commits are files";
  {
    Store store = Store::Open(Disk("a"), Remote()).value();
    SaveStep(store, 1, kLargeSave);
  }
  fs::remove_all(Disk("a"));
  fs::path commits;
  for (const auto& entry : fs::recursive_directory_iterator(
           Address().substr(std::string("file://").size()))) {
    if (entry.path().filename() == "commit") commits = entry.path();
  }
  ASSERT_FALSE(commits.empty());
  const std::string away = commits.string() + ".away";
  {
    StoreOptions options = Remote();
    options.remote_timeout = absl::ZeroDuration();
    Store store = Store::Open(Disk("b"), options).value();
    fs::rename(commits, away);
    std::ofstream(commits) << "no folder";
    SaveStep(store, 2, kSmallSave);
    SaveStep(store, 3, kLargeSave);
    EXPECT_TRUE(absl::IsDeadlineExceeded(store.Close()));
  }
  fs::remove(commits);
  fs::rename(away, commits);
  {
    absl::StatusOr<Store> store = Store::Open(Disk("b"), Remote());
    ASSERT_TRUE(store.ok()) << store.status();
    EXPECT_THAT(StepsOf(*store), ::testing::ElementsAre(1, 2, 3));
  }
  Store store = Store::Open(Disk("c"), Remote()).value();
  EXPECT_THAT(StepsOf(store), ::testing::ElementsAre(1, 2, 3));
  ExpectStep(store, 2, kSmallSave);
  ExpectStep(store, 3, kLargeSave);
}

TEST_F(ReplicatorTest, SegmentsThatAreLostThereAreUploadedAgain) {
  if (StoreKind() != "file") GTEST_SKIP() << "its segments are files";
  const fs::path folder = Address().substr(std::string("file://").size());
  {
    Store store = Store::Open(Disk("a"), Remote()).value();
    for (std::int64_t step = 1; step <= 3; ++step) {
      SaveStep(store, step, kLargeSave);
    }
  }
  const std::vector<fs::path> segments = ObjectsOf(folder, "segment");
  ASSERT_GE(segments.size(), 3);
  fs::remove(segments[0]);
  fs::resize_file(segments[1], fs::file_size(segments[1]) / 2);
  {
    StoreOptions options = Remote();
    std::vector<std::string> said;
    absl::Mutex mu;
    options.log = [&](LogSeverity, std::string_view, std::string_view message) {
      const absl::MutexLock lock(&mu);
      said.emplace_back(message);
    };
    Store store = Store::Open(Disk("a"), options).value();
    SaveStep(store, 4, kSmallSave);
    ASSERT_TRUE(store.WaitReplicated(kLong).ok());
    SaveStep(store, 5, kSmallSave);
    ASSERT_TRUE(store.WaitReplicated(kLong).ok());
    ASSERT_TRUE(store.Close().ok());
    const absl::MutexLock lock(&mu);
    EXPECT_THAT(said, ::testing::Contains(
                          HasSubstr("2 segments that steps need are missing")));
  }
  Store store = Store::Open(Disk("b"), Remote()).value();
  EXPECT_THAT(StepsOf(store), ::testing::ElementsAre(1, 2, 3, 4, 5));
  for (std::int64_t step = 1; step <= 3; ++step) {
    ExpectStep(store, step, kLargeSave);
  }
  ExpectWhole(store);
}

TEST_F(ReplicatorTest, AnotherStoreIsRefused) {
  { Store store = Store::Open(Disk("a"), Remote()).value(); }
  StoreOptions local = QuietOptions();
  local.create_if_missing = true;
  {
    Store store = Store::Open(Disk("b"), local).value();
    SaveStep(store, 1, kSmallSave);
  }
  const absl::Status other = Store::Open(Disk("b"), Remote()).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(other)) << other;
  EXPECT_THAT(std::string(other.message()), HasSubstr("address of its own"));
  EXPECT_TRUE(
      absl::IsAlreadyExists(Store::Create(Disk("c"), Remote()).status()));
  EXPECT_FALSE(fs::exists(Disk("c")));
}

TEST_F(ReplicatorTest, IsReadByItsAddress) {
  setenv("XDG_CACHE_HOME", Disk("cache").c_str(), 1);
  StoreOptions read = QuietOptions();
  read.create_if_missing = false;
  read.read_only = true;
  const std::string address = Address();
  EXPECT_FALSE(Store::Open(address, read).ok());
  Store writer = Store::Open(Disk("a"), Remote()).value();
  SaveStep(writer, 1, kLargeSave);
  SaveStep(writer, 2, kSmallSave);
  ASSERT_TRUE(writer.WaitReplicated(kLong).ok());
  Store reader = Store::Open(address, read).value();
  EXPECT_EQ(reader.Info().remote, address);
  ExpectStep(reader, 1, kLargeSave);
  ExpectStep(reader, 2, kSmallSave);
  EXPECT_TRUE(reader.Refresh().ok());
  EXPECT_TRUE(
      absl::IsInvalidArgument(Store::Open(address, QuietOptions()).status()));
  const std::string first = reader.Info().directory;
  EXPECT_EQ(Store::Open(address, read).value().Info().directory, first);
  // What is new is seen by the next open; the older one stays readable.
  SaveStep(writer, 3, kLargeSave);
  ASSERT_TRUE(writer.Delete(1).ok());
  ASSERT_TRUE(writer.WaitReplicated(kLong).ok());
  {
    Store next = Store::Open(address, read).value();
    EXPECT_THAT(StepsOf(next), ::testing::ElementsAre(2, 3));
    ExpectStep(next, 3, kLargeSave);
    ExpectWhole(next);
  }
  ExpectStep(reader, 1, kLargeSave);
  EXPECT_TRUE(fs::exists(first));
  const Step held = reader.OpenStep(2).value();
  ASSERT_TRUE(reader.Refresh().ok());
  EXPECT_THAT(StepsOf(reader), ::testing::ElementsAre(2, 3));
  ExpectStep(reader, 2, kSmallSave);
  ExpectStep(reader, 3, kLargeSave);
  // Again and again, and beside another one of the same directory.
  Store second = Store::Open(address, read).value();
  for (std::int64_t step = 4; step <= 9; ++step) {
    SaveStep(writer, step, step % 2 == 0 ? kSmallSave : kLargeSave);
    ASSERT_TRUE(writer.WaitReplicated(kLong).ok());
    const absl::Status refreshed = reader.Refresh();
    ASSERT_TRUE(refreshed.ok()) << refreshed;
    EXPECT_EQ(StepsOf(reader).back(), step);
    ExpectStep(reader, step, step % 2 == 0 ? kSmallSave : kLargeSave);
    if (step % 2 == 0) continue;
    ASSERT_TRUE(second.Refresh().ok());
    EXPECT_EQ(StepsOf(second), StepsOf(reader));
    ExpectStep(second, step, kLargeSave);
  }
  EXPECT_EQ(held.Read<std::int64_t>("count").value(), 2);
  ExpectWhole(reader);
  ASSERT_TRUE(reader.Close().ok());
  ExpectStep(second, 9, kLargeSave);
}

// Who loses the disk would lose both.
TEST_F(ReplicatorTest, ARemoteInItsOwnDirectoryIsRefused) {
  const std::string there = Disk("there");
  ASSERT_THAT(Store::Open(there, {.create_if_missing = true})->Close(), IsOk());
  std::filesystem::create_symlink(there, Disk("link"));
  for (const std::string& directory : {there, Disk("absent"), there + "/"}) {
    for (const std::string& remote :
         {directory, directory + "/remote",
          Disk("x/..") + "/" +
              std::filesystem::path(Disk("absent")).filename().string() + "/r",
          Disk("link") + "/a/b"}) {
      SCOPED_TRACE(directory + " " + remote);
      const bool is_of_absent = remote.find("/x/../") != std::string::npos;
      const bool is_of_link = remote.find("/link/") != std::string::npos;
      if (is_of_absent && directory != Disk("absent")) continue;
      if (is_of_link && directory == Disk("absent")) continue;
      StoreOptions options = QuietOptions();
      options.create_if_missing = true;
      options.remote = "file://" + remote;
      const absl::Status refused = Store::Open(directory, options).status();
      EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
      EXPECT_THAT(std::string(refused.message()),
                  HasSubstr("in the directory of its own store"));
      EXPECT_FALSE(std::filesystem::exists(Disk("absent")));
      EXPECT_FALSE(std::filesystem::exists(there + "/remote"));
      EXPECT_FALSE(std::filesystem::exists(there + "/store"));
    }
  }
  // A name that begins alike is another folder.
  StoreOptions options = QuietOptions();
  options.create_if_missing = true;
  options.remote = "file://" + there + "-far";
  EXPECT_THAT(Store::Open(there, options).status(), IsOk());
}

TEST_F(ReplicatorTest, OptionsThatGoWithNothingAreRefused) {
  StoreOptions options = QuietOptions();
  options.create_if_missing = true;
  options.durable = Durable::kRemote;
  EXPECT_TRUE(
      absl::IsInvalidArgument(Store::Open(Disk("a"), options).status()));
  options.durable = Durable::kLocal;
  options.take_over = true;
  EXPECT_TRUE(
      absl::IsInvalidArgument(Store::Open(Disk("a"), options).status()));
  options = Remote();
  options.create_if_missing = false;
  options.read_only = true;
  EXPECT_TRUE(
      absl::IsInvalidArgument(Store::Open(Disk("a"), options).status()));
  options = Remote();
  options.remote = "gs://bucket/run";
  EXPECT_TRUE(
      absl::IsInvalidArgument(Store::Open(Disk("a"), options).status()));
  Store plain = Store::Open(Disk("a"), {.create_if_missing = true}).value();
  EXPECT_TRUE(absl::IsFailedPrecondition(plain.WaitReplicated(kLong)));
}

}  // namespace
}  // namespace ckptree::testing
