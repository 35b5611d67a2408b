// SPDX-License-Identifier: Apache-2.0

// Segments that are uploaded while their save still writes others.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "ckptree/ckptree.h"
#include "core/engine/engine.h"
#include "core/engine/store_engine.h"
#include "core/save/step_writer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "schema/remote_record.h"
#include "tests/core/fixture.h"
#include "tests/objects/counting_store.h"
#include "tests/objects/fixture.h"
#include "tests/remote/fixture.h"
#include "tests/testutil/status_matchers.h"
#include "tests/testutil/temp_dir.h"

namespace ckptree::testing {
namespace {

using ::testing::_;
using ::testing::ElementsAre;
using ::testing::Pair;

// More than rides in a commit.
constexpr std::size_t kSize = 24 * kChunk;

bool IsSegment(const std::string& what) {
  return what.starts_with("put ") && absl::StrContains(what, "/segment/");
}

std::string BytesOfFile(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class EarlyUploadsTest : public ObjectStoreTest {
 protected:
  void SetUp() override {
    UseServers();
    setenv("XDG_CACHE_HOME", (disks_ / "cache").c_str(), 1);
  }

  // Each chunk of a save ends a segment.
  Store OpenHere(Durable durable = Durable::kRemote) {
    StoreOptions options = RemoteOptions(Address());
    options.durable = durable;
    Store store = Store::Open(disks_ / "a", options).value();
    internal::StoreEngine::Of(store).writer()->LimitSegments({.bytes = kChunk});
    return store;
  }
  Store OpenThere() {
    StoreOptions options = QuietOptions();
    options.create_if_missing = false;
    options.read_only = true;
    return Store::Open(Address(), options).value();
  }
  // An array behind which stands another: its bytes come when `give` says so.
  static SaveHandle Save(Store& store, std::int64_t step, const Bytes& first,
                         const Bytes& last,
                         const std::function<absl::Status()>& give) {
    StepBuilder builder = store.Begin(step);
    Tensor waits = Uint8s(last);
    waits.data = nullptr;
    waits.copy = [&last, give](std::uint64_t offset,
                               std::span<std::byte> to) -> absl::Status {
      if (absl::Status given = give(); !given.ok()) return given;
      std::memcpy(to.data(), last.data() + offset, to.size());
      return absl::OkStatus();
    };
    builder.Put("a", Uint8s(first), Ownership::kBorrow);
    builder.Put("b", waits, Ownership::kBorrow);
    return builder.Commit();
  }
  static void ExpectBytes(Store& store, std::int64_t step,
                          const std::string& path, const Bytes& wanted) {
    const absl::StatusOr<Step> read = store.OpenStep(step);
    ASSERT_THAT(read, IsOk());
    Bytes bytes(wanted.size());
    ASSERT_THAT(read->Read(path, std::span(bytes)), IsOk());
    EXPECT_EQ(bytes, wanted) << step << " " << path;
  }
  std::size_t SegmentsThere() const {
    return ObjectsOf(dir_.path(), "segment").size();
  }
  // How many segments each commit names, by its file name, where it names any;
  // where the blocks of one stand is known.
  std::map<std::string, std::size_t> SegmentsNamed() const {
    std::map<std::string, std::size_t> named;
    for (const std::filesystem::path& path : ObjectsOf(dir_.path(), "commit")) {
      const auto commit = schema::DecodeRemoteCommit(BytesOfFile(path));
      EXPECT_THAT(commit, IsOk());
      if (!commit.ok()) continue;
      for (const schema::RemoteSegment& segment : commit->segments) {
        ++named[path.filename()];
        EXPECT_EQ(segment.blocks.size(), 1) << path;
      }
    }
    return named;
  }

  TempDir disks_;
  const Bytes first_ = RandomBytes(kSize, 1);
  const Bytes last_ = RandomBytes(kSize, 2);
};

TEST_F(EarlyUploadsTest, ASegmentIsOnItsWayWhileTheSaveWritesOthers) {
  RequestCount requests;
  absl::Notification begun;
  std::atomic<bool> once = false;
  std::atomic<std::size_t> puts = 0;
  // By the file name of each commit, as it is begun. That of the opening may
  // be on its way when the first segments are.
  absl::Mutex mu;
  std::map<std::string, std::size_t> there_by_then;
  requests.SetHook([&](const std::string& what) {
    if (IsSegment(what)) {
      ++puts;
      if (!once.exchange(true)) begun.Notify();
    }
    if (what.starts_with("create ")) {
      absl::MutexLock lock(&mu);
      there_by_then.try_emplace(std::filesystem::path(what).filename(),
                                SegmentsThere());
    }
    return absl::OkStatus();
  });
  {
    Store store = OpenHere();
    SaveHandle save = Save(store, 1, first_, last_, [&begun] {
      return begun.WaitForNotificationWithTimeout(kLong)
                 ? absl::OkStatus()
                 : absl::DeadlineExceededError("nothing is uploaded");
    });
    ASSERT_THAT(save.WaitCommitted(kLong), IsOk());
    EXPECT_EQ(store.Info().unshipped, 0);
    // Each of them once, and all before the commit.
    EXPECT_EQ(puts, 2 * kSize / kChunk);
    EXPECT_EQ(SegmentsThere(), puts);
    const std::map<std::string, std::size_t> named = SegmentsNamed();
    ASSERT_THAT(named, ElementsAre(Pair(_, puts.load())));
    {
      // Not while it closes: that makes a commit.
      absl::MutexLock lock(&mu);
      EXPECT_EQ(there_by_then[named.begin()->first], puts);
    }
    EXPECT_THAT(store.Close(), IsOk());
  }
  Store there = OpenThere();
  ExpectBytes(there, 1, "a", first_);
  ExpectBytes(there, 1, "b", last_);
  ExpectWhole(there);
}

TEST_F(EarlyUploadsTest, WhatASaveThatFailsUploadedIsInNoCommit) {
  RequestCount requests;
  absl::Notification begun;
  std::atomic<bool> once = false;
  requests.SetHook([&](const std::string& what) {
    if (IsSegment(what) && !once.exchange(true)) begun.Notify();
    return absl::OkStatus();
  });
  {
    Store store = OpenHere();
    SaveHandle failing = Save(store, 1, first_, last_, [&begun] {
      begun.WaitForNotificationWithTimeout(kLong);
      return absl::InternalError("the device is gone");
    });
    EXPECT_EQ(failing.WaitCommitted(kLong).code(), absl::StatusCode::kInternal);
    SaveHandle save =
        Save(store, 2, first_, last_, [] { return absl::OkStatus(); });
    ASSERT_THAT(save.WaitCommitted(kLong), IsOk());
    EXPECT_THAT(SegmentsNamed(), ElementsAre(Pair(_, 2 * kSize / kChunk)));
    EXPECT_THAT(store.Close(), IsOk());
  }
  Store there = OpenThere();
  EXPECT_THAT(StepsOf(there), ElementsAre(2));
  ExpectBytes(there, 2, "a", first_);
  ExpectBytes(there, 2, "b", last_);
  ExpectWhole(there);
}

TEST_F(EarlyUploadsTest, WhatFailsIsUploadedBehindTheCommit) {
  RequestCount requests;
  absl::Notification begun;
  std::atomic<std::size_t> failed = 0;
  requests.SetHook([&](const std::string& what) {
    // All that comes before the save has all of its bytes.
    if (!IsSegment(what) || begun.HasBeenNotified()) return absl::OkStatus();
    if (++failed == 3) begun.Notify();
    return absl::UnavailableError("nobody is there");
  });
  {
    Store store = OpenHere();
    SaveHandle save = Save(store, 1, first_, last_, [&begun] {
      return begun.WaitForNotificationWithTimeout(kLong)
                 ? absl::OkStatus()
                 : absl::DeadlineExceededError("nothing is uploaded");
    });
    ASSERT_THAT(save.WaitCommitted(kLong), IsOk());
    EXPECT_THAT(store.Close(), IsOk());
  }
  EXPECT_GE(failed, 3);
  Store there = OpenThere();
  ExpectBytes(there, 1, "a", first_);
  ExpectBytes(there, 1, "b", last_);
  ExpectWhole(there);
}

TEST_F(EarlyUploadsTest, AnUploadThatIsNotAnsweredEndsWithTheStore) {
  RequestCount requests;
  requests.SetCallHook([](const std::string& what,
                          const kv::Call& call) -> absl::Status {
    if (!IsSegment(what)) return absl::OkStatus();
    absl::Notification ended;
    const std::stop_callback wake(call.cancelled, [&ended] { ended.Notify(); });
    ended.WaitForNotificationWithTimeout(kLong);
    return absl::CancelledError("");
  });
  StoreOptions options = RemoteOptions(Address());
  options.durable = Durable::kRemote;
  options.remote_timeout = absl::ZeroDuration();
  Store store = Store::Open(disks_ / "a", options).value();
  SaveHandle save =
      Save(store, 1, first_, last_, [] { return absl::OkStatus(); });
  EXPECT_EQ(save.WaitCommitted(kLong).code(),
            absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(store.Close().code(), absl::StatusCode::kDeadlineExceeded);
}

// A save that nobody waits for there has its disk and processors for itself.
TEST_F(EarlyUploadsTest, NothingGoesEarlyWhereNobodyWaitsForIt) {
  RequestCount requests;
  std::atomic<std::size_t> early = 0;
  std::atomic<bool> written = false;
  requests.SetHook([&](const std::string& what) {
    if (IsSegment(what) && !written) ++early;
    return absl::OkStatus();
  });
  Store store = OpenHere(Durable::kLocal);
  SaveHandle save = Save(store, 1, first_, last_, [&written] {
    written = true;
    return absl::OkStatus();
  });
  ASSERT_THAT(save.WaitCommitted(kLong), IsOk());
  ASSERT_THAT(store.WaitReplicated(kLong), IsOk());
  EXPECT_EQ(early, 0);
  EXPECT_THAT(store.Close(), IsOk());
}

}  // namespace
}  // namespace ckptree::testing
