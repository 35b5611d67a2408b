// SPDX-License-Identifier: Apache-2.0

// Two who write, readers of what is deleted, and a network that is away, over
// any object store: what is done is decided at requests of this process.

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <random>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "ckptree/ckptree.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/fixture.h"
#include "tests/fault/scale.h"
#include "tests/objects/counting_store.h"
#include "tests/objects/fixture.h"
#include "tests/remote/fixture.h"
#include "tests/remote/trainer.h"
#include "tests/testutil/temp_dir.h"

namespace ckptree::testing {
namespace {

namespace fs = std::filesystem;

int Trials(int all) {
  return StoreKind() == "file" ? Scaled(all) : ScaledWithServers(all);
}

class RaceTest : public ObjectStoreTest {
 protected:
  void SetUp() override {
    UseServers();
    address_ = Address();
  }

  StoreOptions Remote(Durable durable) {
    StoreOptions options = QuietOptions();
    options.remote = address_;
    options.durable = durable;
    options.take_over = true;
    options.remote_timeout = kLong;
    return options;
  }
  std::string Disk(const std::string& name) { return disks_ / name; }
  void UseCache(const std::string& name) {
    setenv("XDG_CACHE_HOME", Disk(name).c_str(), 1);
  }
  std::string WhatIsWrong(const Told& told) {
    const std::string cache = Disk(absl::StrCat("cache", ++caches_));
    const std::string wrong = RemoteFault(address_, told, cache);
    fs::remove_all(cache);
    return wrong;
  }
  static void Tell(const std::string& name, int trials, int fired, int lost) {
    absl::PrintF("trial remote, %s, %s: %d trials, %d fired, %d lost\n",
                 StoreKind(), name, trials, fired, lost);
  }

  TempDir disks_;
  std::string address_;
  int caches_ = 0;
};

// The commit of one waits, unsent or unheard, while the other takes over.
TEST_F(RaceTest, OfTwoWhoWriteOneIsFenced) {
  const int rounds = Trials(50);
  Told told;
  std::int64_t step = 0;
  for (const bool arrives : {false, true}) {
    int fired = 0, lost = 0;
    for (int i = 0; i < rounds; ++i) {
      // Who takes over fetches all that is there.
      if (i % 5 == 0) {
        address_ = absl::StrCat(Address(), "/", arrives ? 2 : 1, "-", i);
        told = Told();
      }
      RequestCount requests;
      absl::Notification there, go;
      std::atomic<int> armed = 0;
      const auto wait = [&](const std::string& what) {
        if (!absl::StartsWith(what, "create ") ||
            !absl::StrContains(what, "/commit/") || armed.exchange(0) == 0) {
          return;
        }
        there.Notify();
        go.WaitForNotification();
      };
      if (arrives) {
        requests.SetAnsweredHook(wait);
      } else {
        requests.SetHook([&](const std::string& what) {
          wait(what);
          return absl::OkStatus();
        });
      }
      absl::StatusOr<Store> first =
          Store::Open(Disk("first"), Remote(Durable::kRemote));
      ASSERT_TRUE(first.ok()) << first.status();
      told.asked.insert(++step);
      ASSERT_TRUE(StartStep(*first, step).WaitCommitted(kLong).ok());
      told.acknowledged.insert(step);
      armed = 1;
      told.asked.insert(step += step % 3 == 2 ? 2 : 1);
      SaveHandle late = StartStep(*first, step);
      ASSERT_TRUE(there.WaitForNotificationWithTimeout(kLong));
      absl::StatusOr<Store> second =
          Store::Open(Disk("second"), Remote(Durable::kRemote));
      ASSERT_TRUE(second.ok()) << second.status();
      ++fired;
      go.Notify();
      const absl::Status saved = late.WaitCommitted(kLong);
      if (saved.ok()) told.acknowledged.insert(step);
      // Unsent it meets the open of the other; what arrived is committed.
      EXPECT_EQ(saved.ok(), arrives) << saved;
      EXPECT_EQ(absl::IsFailedPrecondition(saved), !arrives) << saved;
      const absl::Status after =
          StartStep(*first, step + 1).WaitCommitted(kLong);
      EXPECT_TRUE(absl::IsFailedPrecondition(after)) << after;
      told.asked.insert(step += 2);
      const absl::Status mine = StartStep(*second, step).WaitCommitted(kLong);
      EXPECT_TRUE(mine.ok()) << mine;
      told.acknowledged.insert(step);
      first->Close().IgnoreError();
      EXPECT_TRUE(second->Close().ok());
      if (i % 5 == 4 || i + 1 == rounds) {
        const std::string wrong = WhatIsWrong(told);
        EXPECT_EQ(wrong, "") << i;
        lost += !wrong.empty();
      }
      fs::remove_all(Disk("first"));
      fs::remove_all(Disk("second"));
    }
    EXPECT_EQ(fired, rounds);
    Tell(arrives ? "two writers, one unheard, at requests"
                 : "two writers, one late, at requests",
         rounds, fired, lost);
  }
}

// The writer deletes objects, without any grace, while others read by the
// address: right bytes, or the step is gone; never damage.
TEST_F(RaceTest, ReadersOfWhatIsDeletedAreToldSo) {
  const int rounds = Trials(50);
  std::atomic<int> deleted = 0;
  RequestCount requests;
  requests.SetHook([&](const std::string& what) {
    deleted += absl::StartsWith(what, "delete ") &&
               absl::StrContains(what, "/segment/");
    return absl::OkStatus();
  });
  StoreOptions options = Remote(Durable::kLocal);
  options.remote_grace = absl::ZeroDuration();
  absl::StatusOr<Store> writer = Store::Open(Disk("disk"), options);
  ASSERT_TRUE(writer.ok()) << writer.status();
  constexpr std::size_t kBytes = std::size_t{1100} << 10;
  SaveStep(*writer, 1, kBytes);
  ASSERT_TRUE(writer->WaitReplicated(kLong).ok());
  std::atomic<bool> done = false;
  std::atomic<int> whole = 0, gone = 0, wrong = 0;
  UseCache("cache");
  const auto look = [&](int reader) {
    std::minstd_rand random(static_cast<unsigned>(reader) + 1);
    const auto say = [&](const absl::Status& status) {
      ADD_FAILURE() << "a reader: " << status;
      ++wrong;
    };
    while (!done) {
      absl::StatusOr<Store> store =
          Store::Open(address_, ToRead(QuietOptions()));
      if (!store.ok()) return say(store.status());
      for (int i = 0; i < 4; ++i) {
        const std::vector<std::int64_t> steps = StepsOf(*store);
        if (steps.empty()) return say(absl::UnknownError("no step"));
        const std::int64_t number = steps[random() % steps.size()];
        const absl::StatusOr<Step> step = store->OpenStep(number);
        Bytes bytes(kBytes);
        const absl::Status read = step.ok()
                                      ? step->Read("params/w", std::span(bytes))
                                      : step.status();
        if (read.ok() && bytes != RandomBytes(kBytes, number)) {
          say(absl::DataLossError(absl::StrCat(number, " has other bytes")));
        } else if (read.ok()) {
          ++whole;
        } else if (IsStepGone(read) || absl::IsNotFound(read)) {
          ++gone;
        } else {
          say(read);
        }
        if (const absl::Status s = store->Refresh(); !s.ok()) say(s);
      }
    }
  };
  std::vector<std::jthread> readers;
  const absl::Cleanup end = [&] { done = true; };
  for (int reader = 0; reader < 2; ++reader) readers.emplace_back(look, reader);
  int fired = 0, late = 0;
  std::int64_t newest = 1;
  for (int i = 0; i < rounds; ++i) {
    // One that has opened a step which is removed before it reads.
    absl::StatusOr<Store> slow = Store::Open(address_, ToRead(QuietOptions()));
    ASSERT_TRUE(slow.ok()) << slow.status();
    const std::int64_t old_number = newest;
    const absl::StatusOr<Step> old = slow->OpenStep(old_number);
    ASSERT_TRUE(old.ok()) << old.status();
    const int before = deleted;
    const int reads = whole + gone;
    for (int saves = 0; saves < 2; ++saves) {
      SaveStep(*writer, ++newest, kBytes);
      ASSERT_TRUE(writer->WaitReplicated(kLong).ok());
    }
    const std::vector<std::int64_t> steps = StepsOf(*writer);
    for (const std::int64_t step : steps) {
      if (step + 1 >= newest) continue;
      const absl::Status removed = writer->Delete(step, {.tagged = true});
      ASSERT_TRUE(removed.ok()) << removed;
    }
    ASSERT_TRUE(writer->Collect().ok());
    // What is dead is deleted behind an index that says so.
    for (int more = 0; deleted == before && more < 40; ++more) {
      if (!writer->Untag("t").ok()) {
        ASSERT_TRUE(writer->Tag("t", newest).ok());
      }
      ASSERT_TRUE(writer->WaitReplicated(kLong).ok());
    }
    // And somebody has read since then.
    while (whole + gone == reads && wrong == 0) std::this_thread::yield();
    Bytes bytes(kBytes);
    const absl::Status read = old->Read("params/w", std::span(bytes));
    if (read.ok()) {
      EXPECT_EQ(bytes, RandomBytes(kBytes, old_number));
    } else {
      EXPECT_TRUE(IsStepGone(read)) << read;
      wrong += !IsStepGone(read);
      ++late;
    }
    fired += deleted > before;
  }
  done = true;
  readers.clear();
  EXPECT_EQ(fired, rounds);
  EXPECT_GT(whole, 0);
  EXPECT_TRUE(rounds < 5 || late > 0);
  Tell(absl::StrCat("segments deleted under readers (", deleted.load(),
                    " deleted, ", whole.load(), " reads whole, ",
                    gone.load() + late, " of steps that were gone)"),
       rounds, fired, wrong);
  ASSERT_TRUE(writer->Close().ok());
}

// Training and saves go on; what waits is what the policy keeps, not what was
// saved. $CKPTREE_TEST_AWAY_SECONDS: for how long the first time.
TEST_F(RaceTest, WhatWaitsForTheNetworkIsBounded) {
  constexpr int kSaves = 12, kKept = 2;
  const int rounds = Trials(50);
  const int seconds =
      std::atoi(Environment("CKPTREE_TEST_AWAY_SECONDS").c_str());
  RequestCount requests;
  std::atomic<bool> away = false;
  std::atomic<int> refused = 0, uploads = 0, commits = 0;
  requests.SetHook([&](const std::string& what) -> absl::Status {
    if (away) {
      ++refused;
      return absl::UnavailableError("the network is away");
    }
    uploads +=
        absl::StartsWith(what, "put ") && absl::StrContains(what, "/segment/");
    commits += absl::StartsWith(what, "create ");
    return absl::OkStatus();
  });
  absl::StatusOr<Store> store =
      Store::Open(Disk("disk"), Remote(Durable::kLocal));
  ASSERT_TRUE(store.ok()) << store.status();
  ASSERT_TRUE(store->SetPolicy(LatestN{kKept}).ok());
  ASSERT_TRUE(store->WaitReplicated(kLong).ok());
  constexpr std::size_t kBytes = std::size_t{1100} << 10;
  std::int64_t step = 0;
  int fired = 0, lost = 0, most = 0;
  for (int i = 0; i < rounds; ++i) {
    away = true;
    refused = 0;
    const absl::Time until = absl::Now() + absl::Seconds(i == 0 ? seconds : 0);
    int saves = 0;
    for (; saves < kSaves || absl::Now() < until; ++saves) {
      SaveStep(*store, ++step, kBytes);
    }
    while (refused == 0) std::this_thread::yield();
    EXPECT_GT(store->Info().unshipped, 0);
    EXPECT_TRUE(
        absl::IsDeadlineExceeded(store->WaitReplicated(absl::ZeroDuration())));
    fired += refused > 0;
    uploads = commits = 0;
    away = false;
    const absl::Status caught_up = store->WaitReplicated(kLong);
    ASSERT_TRUE(caught_up.ok()) << caught_up;
    // One commit for all of them, or one that had begun before and one more.
    EXPECT_LE(commits, 3);
    EXPECT_GT(uploads, 0);
    EXPECT_LE(uploads, 2 * (kKept + 1));
    most = std::max(most, saves);
    if (i % 10 != 0 && i + 1 != rounds) continue;
    UseCache(absl::StrCat("cache", i));
    absl::StatusOr<Store> reader =
        Store::Open(address_, ToRead(QuietOptions()));
    ASSERT_TRUE(reader.ok()) << reader.status();
    lost += StepsOf(*reader) != std::vector<std::int64_t>{step - 1, step};
    EXPECT_EQ(lost, 0);
    ExpectStep(*reader, step - 1, kBytes);
    ExpectStep(*reader, step, kBytes);
    ExpectWhole(*reader);
  }
  EXPECT_EQ(fired, rounds);
  Tell(absl::StrFormat("network away, what waits is bounded (%d saves and %d s "
                       "at most)",
                       most, seconds),
       rounds, fired, lost);
  ASSERT_TRUE(store->Close().ok());
}

}  // namespace
}  // namespace ckptree::testing
