// SPDX-License-Identifier: Apache-2.0

// An object store that has what left a disk, and does not answer: it is waited
// for once, and somebody hears of it.

#include "core/remote/far_place.h"

#include <atomic>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "core/process/out_of_reach.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kv/object_store.h"
#include "tests/objects/counting_store.h"
#include "tests/testutil/temp_dir.h"

namespace ckptree::internal {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

class FarPlaceTest : public ::testing::Test {
 protected:
  FarPlace Place(FarPlace::Times times) {
    return FarPlace(
        address_,
        [this](const std::string& address, const kv::Call& call) {
          ++opened_;
          return kv::OpenObjectStore(address, {}, call);
        },
        {.log =
             [this](LogSeverity severity, std::string_view,
                    std::string_view text) {
               if (severity == LogSeverity::kInfo) return;
               const absl::MutexLock lock(&mu_);
               said_.emplace_back(text);
               if (said_.size() == 1) told_.Notify();
             },
         .cancelled = [this] { return enough_.load(); }},
        times);
  }

  testing::TempDir folder_;
  const std::string address_ = "file://" + (folder_ / "bucket");
  std::atomic<int> opened_ = 0;
  std::atomic<bool> enough_ = false;
  absl::Notification told_;
  absl::Mutex mu_;
  std::vector<std::string> said_ ABSL_GUARDED_BY(mu_);
};

TEST_F(FarPlaceTest, WhoIsSilentIsNotAskedForEach) {
  FarPlace place = Place({.silence = absl::InfiniteDuration()});
  int asked = 0;
  const auto silent = [&](kv::ObjectStore&) -> absl::Status {
    ++asked;
    return absl::DeadlineExceededError("no answer, says the test");
  };
  EXPECT_TRUE(absl::IsDeadlineExceeded(place.Ask(silent)));
  EXPECT_THAT(std::string(place.Ask(silent).message()),
              HasSubstr("says the test"));
  EXPECT_EQ(asked, 1);
  EXPECT_EQ(opened_, 1);
}

// A share that is mounted again is there at once.
TEST_F(FarPlaceTest, WhoIsAwayAtOnceIsAskedEachTime) {
  FarPlace place = Place({.silence = absl::InfiniteDuration(),
                          .at_once = absl::InfiniteDuration()});
  int asked = 0;
  bool back = false;
  const auto away = [&](kv::ObjectStore&) -> absl::Status {
    ++asked;
    return back ? absl::OkStatus() : absl::UnavailableError("not mounted");
  };
  EXPECT_TRUE(absl::IsUnavailable(place.Ask(away)));
  EXPECT_TRUE(absl::IsUnavailable(place.Ask(away)));
  EXPECT_EQ(asked, 2);
  back = true;
  EXPECT_TRUE(place.Ask(away).ok());
}

TEST_F(FarPlaceTest, WhatIsRefusedWasAnswered) {
  FarPlace place = Place({.silence = absl::InfiniteDuration()});
  int asked = 0;
  const auto refuses = [&](kv::ObjectStore&) -> absl::Status {
    ++asked;
    return absl::PermissionDeniedError("no");
  };
  EXPECT_TRUE(absl::IsPermissionDenied(place.Ask(refuses)));
  EXPECT_TRUE(absl::IsPermissionDenied(place.Ask(refuses)));
  EXPECT_EQ(asked, 2);
}

// A minute for the first, and little for those behind it: what it is asked for
// comes once anything was answered.
TEST_F(FarPlaceTest, WhoWasSilentHasLittleTime) {
  FarPlace place = Place({.silence = absl::ZeroDuration(),
                          .first = absl::Minutes(1),
                          .of_silent = -absl::Seconds(1)});
  int asked = 0;
  bool answers = false;
  const auto ask = [&](kv::ObjectStore&) -> absl::Status {
    ++asked;
    return answers ? absl::OkStatus() : absl::UnavailableError("silent");
  };
  EXPECT_TRUE(absl::IsUnavailable(place.Ask(ask)));
  EXPECT_EQ(asked, 1);
  // Its time is over before it began.
  answers = true;
  EXPECT_TRUE(absl::IsDeadlineExceeded(place.Ask(ask)));
  EXPECT_EQ(asked, 1);
}

TEST_F(FarPlaceTest, WhoAnswersAgainHasItsTime) {
  FarPlace place = Place({.silence = absl::ZeroDuration()});
  bool answers = false;
  const auto ask = [&](kv::ObjectStore&) -> absl::Status {
    return answers ? absl::OkStatus() : absl::UnavailableError("silent");
  };
  EXPECT_FALSE(place.Ask(ask).ok());
  answers = true;
  EXPECT_TRUE(place.Ask(ask).ok());
  EXPECT_TRUE(place.Ask(ask).ok());
  EXPECT_EQ(opened_, 1);
}

TEST_F(FarPlaceTest, ThatItIsWaitedForIsSaid) {
  testing::RequestCount count;
  // Until somebody was told.
  count.SetHook([this](const std::string&) {
    told_.WaitForNotification();
    return absl::OkStatus();
  });
  FarPlace place = Place({.until_told = absl::Milliseconds(1)});
  const absl::Status asked = place.Ask([](kv::ObjectStore& store) {
    return store.Head("store", kv::Call::Within(absl::Hours(1))).status();
  });
  EXPECT_TRUE(asked.ok()) << asked;
  const absl::MutexLock lock(&mu_);
  ASSERT_THAT(said_, SizeIs(1));
  EXPECT_THAT(said_[0], HasSubstr(address_ + " is waited for"));
}

// A request that would take an hour.
TEST_F(FarPlaceTest, WhoHasEnoughWaitsNoMore) {
  testing::RequestCount count;
  count.SetCallHook([this](const std::string&, const kv::Call& call) {
    enough_ = true;
    absl::Notification over;
    const std::stop_callback on_stop(call.cancelled, [&] { over.Notify(); });
    over.WaitForNotificationWithTimeout(absl::Hours(1));
    return absl::UnavailableError("silent");
  });
  FarPlace place = Place({.silence = absl::InfiniteDuration()});
  int asked = 0;
  const auto ask = [&](kv::ObjectStore& store) {
    ++asked;
    return store.Head("store", kv::Call::Within(absl::Hours(1))).status();
  };
  EXPECT_TRUE(absl::IsCancelled(place.Ask(ask)));
  // Nothing is begun then.
  EXPECT_TRUE(absl::IsCancelled(place.Ask(ask)));
  EXPECT_EQ(asked, 1);
  // And it was no silence.
  enough_ = false;
  count.SetHook(nullptr);
  EXPECT_TRUE(place.Ask(ask).ok());
  EXPECT_EQ(asked, 2);
}

TEST_F(FarPlaceTest, OneThreadAttendsReadsThatFollowEachOther) {
  FarPlace place = Place({.attends = absl::InfiniteDuration()});
  const auto read = [](kv::ObjectStore&) { return absl::OkStatus(); };
  std::vector<std::jthread> readers;
  for (int reader = 0; reader < 4; ++reader) {
    readers.emplace_back([&] {
      for (int i = 0; i < 1000; ++i) EXPECT_TRUE(place.Ask(read).ok());
    });
  }
  readers.clear();
  EXPECT_EQ(place.attendant().threads_started(), 1u);
  // Who closes the store ends it, beside those that still read.
  for (int reader = 0; reader < 4; ++reader) {
    readers.emplace_back([&] {
      for (int i = 0; i < 1000; ++i) EXPECT_TRUE(place.Ask(read).ok());
    });
  }
  for (int i = 0; i < 20; ++i) place.attendant().Rest();
  readers.clear();
  place.attendant().Rest();
  const auto started = place.attendant().threads_started();
  EXPECT_TRUE(place.Ask(read).ok());
  EXPECT_EQ(place.attendant().threads_started(), started + 1);
}

TEST_F(FarPlaceTest, NobodyAttendsWhereNothingIsRead) {
  FarPlace place = Place({.attends = absl::ZeroDuration()});
  const auto read = [](kv::ObjectStore&) { return absl::OkStatus(); };
  // Its thread ends by itself; the next read has another.
  while (place.attendant().threads_started() < 3) {
    EXPECT_TRUE(place.Ask(read).ok());
  }
}

TEST(OutOfReachTest, KnowsWhatIsOfAnObjectStore) {
  const std::string address = "s3://bucket/run";
  for (const absl::Status& status :
       {absl::UnavailableError("a"), absl::DeadlineExceededError("a"),
        absl::PermissionDeniedError("a"), absl::UnauthenticatedError("a"),
        absl::CancelledError("a")}) {
    EXPECT_EQ(OutOfReach(status), std::nullopt);
    EXPECT_EQ(OutOfReach(OfObjectStore(status, address)), address);
  }
  EXPECT_TRUE(absl::IsUnavailable(
      OfObjectStore(absl::DeadlineExceededError("a"), address)));
  for (const absl::Status& status :
       {absl::OkStatus(), absl::DataLossError("a"), absl::NotFoundError("a"),
        absl::FailedPreconditionError("a")}) {
    EXPECT_EQ(OfObjectStore(status, address), status);
  }
}

}  // namespace
}  // namespace ckptree::internal
