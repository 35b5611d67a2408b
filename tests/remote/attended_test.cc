// SPDX-License-Identifier: Apache-2.0

// An object store that does not answer: who waits for it is told why, and may
// have enough of it.

#include <atomic>
#include <cstdlib>
#include <functional>
#include <memory>
#include <new>
#include <span>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "ckptree/ckptree.h"
#include "core/remote/attended_store.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kv/conditional_put.h"
#include "kv/monotonic.h"
#include "kv/object_store.h"
#include "tests/core/fixture.h"
#include "tests/objects/counting_store.h"
#include "tests/remote/fixture.h"
#include "tests/testutil/temp_dir.h"

namespace ckptree::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kCause[] = "connection refused, says the test";

class AttendedTest : public ::testing::Test {
 protected:
  void SetUp() override {
    setenv("XDG_CACHE_HOME", Disk("cache").c_str(), 1);
    count_.SetCallHook([this](const std::string&, const kv::Call& call) {
      return away_ ? Away(call) : absl::OkStatus();
    });
  }
  std::string Address() { return absl::StrCat("file://", dir_.path()); }
  std::string Disk(const std::string& name) { return disks_ / name; }

  // As a request that is sent again until its call ends.
  absl::Status Away(const kv::Call& call) {
    if (call.heard) call.heard(absl::UnavailableError(kCause));
    ++waited_;
    absl::Notification over;
    const std::stop_callback on_stop(call.cancelled, [&] { over.Notify(); });
    over.WaitForNotificationWithTimeout(call.deadline - kv::MonotonicNow());
    return call.cancelled.stop_requested() ? absl::CancelledError(kCause)
                                           : absl::UnavailableError(kCause);
  }
  std::function<bool()> Cancelled() {
    // Once something waits.
    return [this] { return enough_ && waited_ > 0; };
  }

  TempDir dir_;
  TempDir disks_;
  RequestCount count_;
  std::atomic<bool> away_ = false;
  std::atomic<bool> enough_ = false;
  std::atomic<int> waited_ = 0;
};

TEST_F(AttendedTest, AnOpenIsCancelled) {
  {
    Store writer = Store::Open(Disk("first"), RemoteOptions(Address())).value();
    SaveStep(writer, 1, 100);
    ASSERT_TRUE(writer.WaitReplicated(kLong).ok());
  }
  away_ = enough_ = true;
  StoreOptions reading = QuietOptions();
  reading.create_if_missing = false;
  reading.read_only = true;
  reading.cancelled = Cancelled();
  const absl::StatusOr<Store> read = Store::Open(Address(), reading);
  EXPECT_FALSE(read.ok());
  EXPECT_GT(waited_.exchange(0), 0) << read.status();
  StoreOptions writing = RemoteOptions(Address());
  writing.cancelled = Cancelled();
  const absl::StatusOr<Store> written = Store::Open(Disk("a"), writing);
  EXPECT_FALSE(written.ok());
  EXPECT_GT(waited_, 0);
}

TEST_F(AttendedTest, WhoThrowsHasEnough) {
  std::atomic<bool> throws = false;
  StoreOptions options = RemoteOptions(Address());
  options.cancelled = [&]() -> bool {
    if (throws && waited_ > 0) throw std::runtime_error(kCause);
    return false;
  };
  Store store = Store::Open(Disk("first"), options).value();
  SaveStep(store, 1, 100);
  ASSERT_TRUE(store.WaitReplicated(kLong).ok());
  throws = away_ = true;
  SaveStep(store, 2, 100);
  EXPECT_EQ(store.Close().code(), absl::StatusCode::kCancelled);
  options.create_if_missing = false;
  waited_ = 0;
  EXPECT_EQ(Store::Open(Disk("first"), options).status().code(),
            absl::StatusCode::kCancelled);
  away_ = throws = false;
  options.remote.clear();
  options.read_only = true;
  Store reader = Store::Open(Address(), options).value();
  waited_ = 0;
  throws = away_ = true;
  EXPECT_FALSE(reader.Refresh().ok());
}

// Where the answer to a creation was lost, what became of it is looked for
// until the open ends: requests that wait, and such that fail at once.
TEST_F(AttendedTest, AnOpenIsCancelledThatCreates) {
  count_.LoseAnswers();
  int nth = 0;
  for (const std::string from : {"proof-", "create store", "/commit/"}) {
    for (const bool waits : {true, false}) {
      const TempDir folder;
      std::atomic<bool> gone = false;
      std::atomic<int> asked = 0;
      std::atomic<bool> told = false;
      std::atomic<int> asked_then = 0;
      count_.SetCallHook([&](const std::string& what, const kv::Call& call) {
        if (!gone && what.starts_with("create ") &&
            what.find(from) != std::string::npos) {
          gone = true;
        }
        if (!gone) return absl::OkStatus();
        ++asked;
        if (told) ++asked_then;
        if (waits && !what.starts_with("create ")) return Away(call);
        return absl::UnavailableError(kCause);
      });
      StoreOptions options =
          RemoteOptions(absl::StrCat("file://", folder.path()));
      options.cancelled = [&] {
        // In the pauses, or in the request that waits.
        if (asked >= 2) told = true;
        return told.load();
      };
      const absl::StatusOr<Store> opened =
          Store::Open(Disk(absl::StrCat("creates", ++nth)), options);
      EXPECT_EQ(opened.status().code(), absl::StatusCode::kCancelled)
          << from << waits << opened.status();
      EXPECT_THAT(std::string(opened.status().message()), HasSubstr(kCause));
      EXPECT_TRUE(told) << from << waits;
      // The one that the stop came into, and what goes on at once behind it.
      EXPECT_LE(asked_then, 4) << from << waits;
    }
  }
  count_.SetCallHook(nullptr);
}

TEST_F(AttendedTest, ALookIsCancelled) {
  Store writer = Store::Open(Disk("a"), RemoteOptions(Address())).value();
  SaveStep(writer, 1, 100);
  ASSERT_TRUE(writer.WaitReplicated(kLong).ok());
  StoreOptions reading = QuietOptions();
  reading.create_if_missing = false;
  reading.read_only = true;
  reading.cancelled = Cancelled();
  Store reader = Store::Open(Address(), reading).value();
  away_ = enough_ = true;
  EXPECT_FALSE(reader.Refresh().ok());
  EXPECT_GT(waited_, 0);
  away_ = enough_ = false;
  EXPECT_TRUE(reader.Refresh().ok());
  ExpectStep(reader, 1, 100);
}

// By the address, and in a directory whose arrays have left it.
TEST_F(AttendedTest, AReadIsCancelled) {
  constexpr std::size_t kLarge = 3 << 20;
  StoreOptions options = RemoteOptions(Address());
  options.local_keep = LatestN{1};
  {
    Store writer = Store::Open(Disk("a"), options).value();
    SaveStep(writer, 1, kLarge);
    SaveStep(writer, 2, kLarge);
    ASSERT_TRUE(writer.Close().ok());
  }
  StoreOptions reading = QuietOptions();
  reading.create_if_missing = false;
  reading.read_only = true;
  reading.cancelled = Cancelled();
  for (const std::string& where : {Address(), Disk("a")}) {
    Store reader = Store::Open(where, reading).value();
    EXPECT_TRUE(reader.MayReadRemote());
    const Step step = reader.OpenStep(1).value();
    Bytes bytes(kLarge);
    waited_ = 0;
    away_ = enough_ = true;
    const absl::Status read = step.Read("params/w", std::span(bytes));
    EXPECT_EQ(read.code(), absl::StatusCode::kCancelled) << read;
    EXPECT_GT(waited_, 0);
    waited_ = 0;
    for (const auto level :
         {VerifyOptions::Level::kFull, VerifyOptions::Level::kDeep}) {
      const absl::StatusOr<VerifyReport> verified =
          reader.Verify({.level = level});
      EXPECT_EQ(verified.status().code(), absl::StatusCode::kCancelled)
          << verified.status();
    }
    away_ = enough_ = false;
    ExpectStep(reader, 1, kLarge);
    ExpectWhole(reader);
  }
  ASSERT_TRUE(Store::Open(Disk("a"), options).value().Close().ok());
}

// One request has its whole time, and no other for the same silence.
TEST_F(AttendedTest, ByAnAddressSilenceIsWaitedForOnce) {
  constexpr std::size_t kLarge = 3 << 20;
  {
    Store writer = Store::Open(Disk("a"), RemoteOptions(Address())).value();
    SaveStep(writer, 1, kLarge);
    ASSERT_TRUE(writer.Close().ok());
  }
  StoreOptions reading = QuietOptions();
  reading.create_if_missing = false;
  reading.read_only = true;
  Store reader = Store::Open(Address(), reading).value();
  const Step step = reader.OpenStep(1).value();
  int asked = 0;
  count_.SetHook([&asked](const std::string&) {
    ++asked;
    return absl::DeadlineExceededError(kCause);
  });
  Bytes bytes(kLarge);
  for (int read = 0; read < 3; ++read) {
    const absl::Status silent = step.Read("params/w", std::span(bytes));
    EXPECT_EQ(silent.code(), absl::StatusCode::kUnavailable) << silent;
    EXPECT_THAT(std::string(silent.message()), HasSubstr(kCause));
  }
  EXPECT_EQ(asked, 1);
}

TEST_F(AttendedTest, WhoWaitsIsToldWhy) {
  StoreOptions options = RemoteOptions(Address());
  options.cancelled = Cancelled();
  Store store = Store::Open(Disk("a"), options).value();
  away_ = true;
  SaveStep(store, 1, 100);
  // The first request is on its way sooner or later; then it is known.
  absl::Status waited;
  do {
    waited = store.WaitReplicated(absl::Milliseconds(50));
  } while (waited_ == 0);
  waited = store.WaitReplicated(absl::Milliseconds(50));
  EXPECT_EQ(waited.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(waited.message()), HasSubstr(kCause));
  EXPECT_GT(store.Info().unshipped, 0);

  // Enough of it: what was not shipped is by the next open.
  enough_ = true;
  const absl::Status closed = store.Close();
  EXPECT_EQ(closed.code(), absl::StatusCode::kCancelled) << closed;
  EXPECT_THAT(std::string(closed.message()), HasSubstr(kCause));
  away_ = enough_ = false;
  Store again = Store::Open(Disk("a"), options).value();
  ASSERT_TRUE(again.WaitReplicated(kLong).ok());
  ASSERT_TRUE(again.Close().ok());
  StoreOptions other = RemoteOptions(Address());
  Store taken = Store::Open(Disk("b"), other).value();
  ExpectStep(taken, 1, 100);
}

// As where there is no memory for the bytes of an object.
TEST_F(AttendedTest, ARequestThatThrowsIsWaitedForNoMore) {
  const auto trouble = std::make_shared<internal::RemoteTrouble>(
      "s3://bucket/run", [](LogSeverity, std::string_view, std::string_view) {},
      absl::ZeroDuration());
  const auto store =
      internal::OpenAttended(Address(), trouble, kv::Call::Within(kLong))
          .value();
  ASSERT_TRUE(store->Head("a", kv::Call::Within(kLong)).ok());
  int thrown = 0;
  count_.SetCallHook(
      [&thrown](const std::string&, const kv::Call&) -> absl::Status {
        ++thrown;
        throw std::bad_alloc();
      });
  EXPECT_THROW((void)store->Head("a", kv::Call::Within(kLong)), std::bad_alloc);
  EXPECT_THROW((void)store->PutIfAbsent("b", "bytes", kv::NewWriteId(),
                                        kv::Call::Within(kLong)),
               std::bad_alloc);
  EXPECT_EQ(thrown, 2);
  EXPECT_TRUE(trouble->now().ok());
  EXPECT_EQ(trouble->silent(), absl::ZeroDuration());
}

TEST(RemoteTroubleTest, IsLoggedOnceAndWhenItIsOver) {
  std::vector<std::string> lines;
  internal::RemoteTrouble trouble(
      "s3://bucket/run",
      [&lines](LogSeverity, std::string_view, std::string_view text) {
        lines.emplace_back(text);
      },
      absl::ZeroDuration());
  EXPECT_TRUE(trouble.now().ok());
  trouble.Look();
  const auto call = trouble.Began("writing x");
  trouble.Heard(absl::UnavailableError(kCause));
  trouble.Heard(absl::UnavailableError(kCause));
  EXPECT_EQ(trouble.now().message(), kCause);
  trouble.Ended(call, absl::UnavailableError(kCause));
  EXPECT_TRUE(trouble.told());
  trouble.Ended(trouble.Began("writing x"), absl::OkStatus());
  EXPECT_FALSE(trouble.told());
  EXPECT_TRUE(trouble.now().ok());
  EXPECT_THAT(lines, ElementsAre(absl::StrCat("s3://bucket/run is waited for: ",
                                              kCause),
                                 "s3://bucket/run answers again"));
  // Nor does it where nobody waits any more.
  trouble.Heard(absl::UnavailableError(kCause));
  trouble.Ended(trouble.Began("writing x"), absl::CancelledError("enough"));
  EXPECT_FALSE(trouble.told());
  EXPECT_EQ(lines.size(), 3);
}

}  // namespace
}  // namespace ckptree::testing
