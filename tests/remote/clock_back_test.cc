// SPDX-License-Identifier: Apache-2.0

// A clock that is set back again and again: what is to be over in time is.

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "ckptree/ckptree.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kv/monotonic.h"
#include "tests/core/fixture.h"
#include "tests/objects/counting_store.h"
#include "tests/remote/fixture.h"
#include "tests/testutil/clock_of_waits.h"

namespace ckptree::testing {
namespace {

// For what lasts a second or two; behind it the clock goes on, so that a wait
// by the time of day ends, too, and the test with it.
constexpr absl::Duration kPatience = absl::Seconds(45);

// While it lives the clock of this process loses a minute each 10 ms.
class BackwardClock {
 public:
  BackwardClock() {
    setter_ = std::jthread([](const std::stop_token& stop) {
      const absl::Time end = kv::MonotonicNow() + kPatience;
      while (!stop.stop_requested() && kv::MonotonicNow() < end) {
        clock_offset_seconds -= 60;
        absl::SleepFor(absl::Milliseconds(10));
      }
      clock_offset_seconds = 0;
    });
  }
  BackwardClock(const BackwardClock&) = delete;
  BackwardClock& operator=(const BackwardClock&) = delete;

 private:
  std::jthread setter_;
};

class ClockBackTest : public ::testing::Test {
 protected:
  std::string Directory() const { return dir_ / "run"; }

  const TempDir dir_;
};

TEST_F(ClockBackTest, ASaveWaitsForTheRemoteAsLongAsItIsTold) {
  StoreOptions options = RemoteOptions("file://" + (dir_ / "far"));
  options.durable = Durable::kRemote;
  options.remote_timeout = absl::Seconds(2);
  absl::Time begun;
  RequestCount requests;
  {
    absl::StatusOr<Store> store = Store::Open(Directory(), options);
    ASSERT_OK(store);
    requests.SetHook([](const std::string& what) -> absl::Status {
      if (what.find("/commit/") == std::string::npos) return absl::OkStatus();
      return absl::UnavailableError("not now");
    });
    const BackwardClock clock;
    begun = kv::MonotonicNow();
    EXPECT_THAT(
        store->Begin(1).PutInt("n", 1).Commit().WaitCommitted(absl::Hours(1)),
        StatusIs(absl::StatusCode::kDeadlineExceeded));
    EXPECT_LT(kv::MonotonicNow() - begun, kPatience);
    store->Close().IgnoreError();
  }
}

TEST_F(ClockBackTest, ACollectionIsAsFastAsItMayBe) {
  StoreOptions options = QuietOptions();
  options.create_if_missing = true;
  options.collect = false;
  options.threads = 1;  // One segment a save.
  absl::StatusOr<Store> store = Store::Open(Directory(), options);
  ASSERT_OK(store);
  // What is left of the first segment, a leaf of four, is written again.
  const std::size_t size = 1 << 20;
  const Bytes stays = RandomBytes(size, 7);
  for (const std::int64_t step : {1, 2}) {
    const Bytes goes = RandomBytes(3 * size, step);
    ASSERT_OK(store->Begin(step)
                  .Put("stays", Uint8s(stays))
                  .Put("goes", Uint8s(goes))
                  .Commit()
                  .WaitCommitted(kLong));
  }
  ASSERT_OK(store->Delete(1));
  const BackwardClock clock;
  const absl::Time begun = kv::MonotonicNow();
  const auto report = store->Collect({.bytes_per_second = 2 << 20});
  ASSERT_OK(report);
  for (const auto& kept : report->kept) ADD_FAILURE() << kept.why;
  EXPECT_GT(report->bytes_written, 0u);
  EXPECT_LT(kv::MonotonicNow() - begun, kPatience);
}

}  // namespace
}  // namespace ckptree::testing
