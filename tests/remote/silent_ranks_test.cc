// SPDX-License-Identifier: Apache-2.0

// Ranks that share no folder, and an object store that is connected and does
// not answer: what each request may take says how long they wait.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <latch>
#include <mutex>
#include <stop_token>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "ckptree/ckptree.h"
#include "ckptree/ranks.h"
#include "core/ranks/message_calls.h"
#include "gtest/gtest.h"
#include "kv/monotonic.h"
#include "kv/object_store.h"
#include "tests/objects/counting_store.h"
#include "tests/ranks/fixture.h"
#include "tests/remote/fixture.h"

namespace ckptree::testing {
namespace {

using internal::MessageCalls;

// As a server that has the connection and says nothing.
absl::Status Silence(const kv::Call& call) {
  absl::Notification over;
  const std::stop_callback on_stop(call.cancelled, [&] { over.Notify(); });
  over.WaitForNotificationWithTimeout(call.deadline - kv::MonotonicNow());
  return absl::UnavailableError("nothing, says the test");
}

TEST(MessageCallsTest, WaitsOnceInFullForWhoIsSilent) {
  MessageCalls calls(absl::Seconds(1));
  absl::Duration has;
  const auto look = [&has](const kv::Call& call) {
    has = call.deadline - kv::MonotonicNow();
    return absl::OkStatus();
  };
  const auto wait = [&has](const kv::Call& call) {
    has = call.deadline - kv::MonotonicNow();
    return Silence(call);
  };
  EXPECT_TRUE(calls.Make(look).ok());
  EXPECT_GT(has, absl::Milliseconds(500));
  EXPECT_LE(has, absl::Seconds(1));
  EXPECT_FALSE(calls.Make(wait).ok());
  EXPECT_GT(has, absl::Milliseconds(500));
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(calls.Make(wait).ok());
    EXPECT_LE(has, absl::Milliseconds(100));
  }
  // What is answered, with an error or not, has its time again.
  const absl::StatusOr<int> refused =
      calls.Make([](const kv::Call&) -> absl::StatusOr<int> {
        return absl::PermissionDeniedError("no");
      });
  EXPECT_TRUE(absl::IsPermissionDenied(refused.status()));
  EXPECT_TRUE(calls.Make(look).ok());
  EXPECT_GT(has, absl::Milliseconds(500));
}

TEST(MessageCallsTest, NoRequestHasMoreThanTwentySeconds) {
  MessageCalls calls(absl::Minutes(5));
  absl::Duration has;
  EXPECT_TRUE(calls
                  .Make([&has](const kv::Call& call) {
                    has = call.deadline - kv::MonotonicNow();
                    return absl::OkStatus();
                  })
                  .ok());
  EXPECT_LE(has, absl::Seconds(20));
}

using SilentRanksTest = RanksTest;

// From the request of the commit on: rank 1 has handed its part over.
TEST_F(SilentRanksTest, WhoWaitsForAStepIsToldAndCloses) {
  setenv("XDG_CACHE_HOME", std::string(dir_ / "cache").c_str(), 1);
  const std::string bucket = dir_ / "bucket";
  std::filesystem::create_directories(bucket);
  constexpr absl::Duration kDeadline = absl::Seconds(3);

  std::atomic<bool> armed = false;
  std::atomic<bool> away = false;
  std::mutex mu;
  absl::Duration longest;
  RequestCount count;
  count.SetCallHook([&](const std::string& what, const kv::Call& call) {
    if (armed && what.starts_with("create ") &&
        absl::StrContains(what, "/commit/")) {
      away = true;
    }
    if (!away) return absl::OkStatus();
    if (absl::StrContains(what, "/attempt/")) {
      const std::scoped_lock lock(mu);
      longest = std::max(longest, call.deadline - kv::MonotonicNow());
    }
    return Silence(call);
  });

  std::latch opened(2);
  OnAll(2, [&](int rank) {
    RankOptions options = Options(rank, 2);
    options.shared_folder = false;
    options.deadline = kDeadline;
    options.store.create_if_missing = true;
    options.store.remote = "file://" + bucket;
    options.store.durable = Durable::kRemote;
    options.store.remote_timeout = absl::Seconds(1);
    absl::StatusOr<RankGroup> group =
        RankGroup::Open(dir_ / absl::StrCat("disk", rank), options);
    if (rank == 0) armed = true;
    opened.arrive_and_wait();
    ASSERT_OK(group);
    StepBuilder builder = group->Begin(1);
    PutAll(&builder, rank, 2, 1, RowsOf(rank, 1));
    SaveHandle saved = std::move(builder).Commit();
    const absl::Status told = saved.WaitCommitted(kLong);
    EXPECT_TRUE(saved.Done()) << told;
    EXPECT_FALSE(told.ok());
    group->Close().IgnoreError();
  });
  EXPECT_TRUE(away);
  const std::scoped_lock lock(mu);
  EXPECT_GT(longest, absl::ZeroDuration());
  EXPECT_LE(longest, kDeadline);
}

}  // namespace
}  // namespace ckptree::testing
