// SPDX-License-Identifier: Apache-2.0

// What goes on in a store at the same time, and what throws in its threads.

#include "core/engine/engine.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "base/big_endian.h"
#include "core/engine/store_engine.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kv/database.h"
#include "schema/envelope.h"
#include "schema/keys.h"
#include "schema/limits.h"
#include "tests/core/fixture.h"
#include "tests/core/waiting_tensor.h"

namespace ckptree::testing {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class EngineTest : public CoreTest {
 protected:
  internal::Engine& engine() { return internal::StoreEngine::Of(*store_); }
  Store Reader() { return Store::Open(path(), ReadOnly()).value(); }

  const Bytes small_ = RandomBytes(1000, 1);
};

TEST_F(EngineTest, RefreshTellsOfARowThatIsDamagedMeanwhile) {
  ASSERT_OK(Save(1, small_));
  ASSERT_OK(Save(2, small_));
  Store reader = Reader();
  EXPECT_THAT(reader.Info().warnings, ElementsAre());
  kv::CommitRequest request;
  request.kind = kv::CommitKind::kSave;
  request.batch.Put(schema::Space::kRecords, schema::StepKey(0, 1), "x");
  ASSERT_OK(engine().mutable_database()->Commit(std::move(request)).status);
  // Again and again: it is told once.
  for (int i = 0; i < 3; ++i) {
    ASSERT_OK(reader.Refresh());
    EXPECT_THAT(reader.Info().warnings, ElementsAre(HasSubstr("step 1")));
  }
  EXPECT_EQ(reader.Steps()->size(), 1u);
  // Nobody can say whether it was the one before the latest.
  EXPECT_EQ(reader.Resolve(Latest())->step, 2);
  StepSelector before = Latest();
  before.back = 1;
  EXPECT_THAT(reader.Resolve(before).status(),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("nobody can say which step")));
}

// Nobody can say what the step was that cannot be read: saved later, or better.
// Its number is in its key, so that the one with the highest number is known.
TEST_F(EngineTest, WhereARowIsDamagedNoStepIsTheLatestOrTheBest) {
  for (const int step : {1, 2, 3}) {
    StepBuilder builder = store_->Begin(step);
    builder.PutInt("n", step).SetMetric("loss", 4 - step);
    ASSERT_OK(std::move(builder).Commit().WaitCommitted(kLong));
  }
  const auto told = [](const absl::Status& status) {
    return absl::IsDataLoss(status) &&
           std::string(status.message()).find("nobody can say which step") !=
               std::string::npos;
  };
  // The newest, and one before it; damaged, and of a format from later on.
  std::string later =
      schema::Envelope(schema::RecordKind::kStep, "what comes later");
  later[3] = static_cast<char>(schema::kFormatNumber + 1);
  const std::string checked =
      later.substr(0, 8) + later.substr(schema::kEnvelopeBytes);
  std::string checksum;
  base::AppendBig(base::ChecksumOf(checked), &checksum);
  later.replace(8, 8, checksum);
  for (const int victim : {3, 2}) {
    for (const std::string& bytes : {std::string("x"), later}) {
      SCOPED_TRACE(absl::StrCat(victim, ": ", bytes.size(), " bytes"));
      const std::string key = schema::StepKey(0, victim);
      const auto whole = engine().database().Get(schema::Space::kRecords, key);
      ASSERT_OK(whole.status());
      const auto put = [&](const std::string& value) {
        kv::CommitRequest request;
        request.kind = kv::CommitKind::kSave;
        request.batch.Put(schema::Space::kRecords, key, value);
        return engine().mutable_database()->Commit(std::move(request)).status;
      };
      ASSERT_OK(put(bytes));
      Store reader = Reader();
      // Before all rows were read, and after it.
      for (int i = 0; i < 2; ++i) {
        const absl::StatusOr<StepInfo> latest = reader.Resolve(Latest());
        if (victim == 3) {
          EXPECT_PRED1(told, latest.status());
          EXPECT_THAT(latest.status().message(),
                      HasSubstr("the newest known is 2"));
          EXPECT_PRED1(told, reader.OpenStep(Latest()).status());
        } else {
          ASSERT_OK(latest);
          EXPECT_EQ(latest->step, 3);
          EXPECT_OK(reader.OpenStep(Latest()).status());
        }
        EXPECT_EQ(reader.Steps()->size(), 2u);
        EXPECT_THAT(reader.Info().warnings,
                    ElementsAre(HasSubstr(absl::StrCat("step ", victim))));
      }
      StepSelector before = Latest();
      before.back = 1;
      EXPECT_PRED1(told, reader.Resolve(before).status());
      EXPECT_PRED1(told, reader.Resolve(Best("loss", BestMode::kMin)).status());
      EXPECT_PRED1(told, reader.Resolve(LatestHealthy()).status());
      EXPECT_OK(reader.OpenStep(AtStep(1)).status());
      ManagerOptions options;
      options.store.read_only = true;
      options.best_metric = "loss";
      options.best_mode = BestMode::kMin;
      ASSERT_OK_AND_ASSIGN(CheckpointManager manager,
                           CheckpointManager::Open(path(), options));
      EXPECT_EQ(manager.LatestStep().ok(), victim == 2);
      EXPECT_PRED1(told, manager.BestStep().status());
      EXPECT_EQ(manager.OpenStep(Latest()).ok(), victim == 2);
      EXPECT_PRED1(told, manager.OpenStep(BestByPolicy()).status());
      ASSERT_OK(put(**whole));
    }
  }
}

// What a commit of the store says of itself is its place in the chain.
TEST_F(EngineTest, CommitsAreThoseOfNowAndNotOfTheOpen) {
  const std::uint64_t before = store_->Info().commits;
  Store reader = Reader();
  ASSERT_OK(Save(1, small_));
  ASSERT_OK(store_->Tag("a", 1));
  ASSERT_OK(store_->Untag("a"));
  EXPECT_EQ(store_->Info().commits, before + 3);
  ASSERT_OK(reader.Refresh());
  EXPECT_EQ(reader.Info().commits, before + 3);
}

TEST_F(EngineTest, SavesGoOnWhileAPolicyWaitsForAVerification) {
  for (int step = 1; step <= 4; ++step) ASSERT_OK(Save(step, small_));
  ASSERT_OK(store_->SetPolicy(LatestN{2}));
  absl::Notification verifying, go_on;
  VerifyOptions verification;
  verification.on_progress = [&](std::uint64_t, std::uint64_t) {
    if (!verifying.HasBeenNotified()) verifying.Notify();
    go_on.WaitForNotification();
  };
  std::thread verifier(
      [&] { EXPECT_OK(store_->Verify(verification).status()); });
  verifying.WaitForNotification();
  std::vector<std::int64_t> removed;
  std::thread applier([&] { removed = store_->ApplyPolicy().value(); });
  while (engine().collector()->waiting() == 0) std::this_thread::yield();
  // Not applied yet, and holding nobody up. The save applies it itself.
  SaveHandle save = Start(5, small_);
  EXPECT_OK(save.WaitCommitted(absl::Seconds(20)));
  go_on.Notify();
  verifier.join();
  applier.join();
  EXPECT_OK(save.WaitCommitted(kLong));
  EXPECT_THAT(removed, ElementsAre());
  EXPECT_THAT(StepNumbers(), ElementsAre(4, 5));
}

TEST_F(EngineTest, SubtreesOfAStepThatWentMeanwhile) {
  ASSERT_OK(Save(1, small_));
  ASSERT_OK(Save(2, small_));
  Store reader = Reader();
  ASSERT_OK(store_->Delete(1));
  ASSERT_OK(store_->Collect().status());
  // The reader still lists it; looking at it catches up with the rows.
  EXPECT_THAT(reader.OpenStep(AtStep(1)).status(),
              StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(reader.Subtrees(AtStep(1), 1).status(),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("step 1")));
  EXPECT_THAT(reader.WouldFree({AtStep(1)}).status(),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("step 1")));
  EXPECT_OK(reader.Subtrees(AtStep(2), 1).status());
}

TEST_F(EngineTest, TheSecondCloseReturnsWhenTheStoreIsClosed) {
  absl::Notification copying, copy, closed;
  Tensor slow = Uint8s(small_);
  slow.data = nullptr;
  slow.copy = [&](std::uint64_t, std::span<std::byte> to) {
    if (!copying.HasBeenNotified()) copying.Notify();
    copy.WaitForNotification();
    std::fill(to.begin(), to.end(), std::byte{7});
    return absl::OkStatus();
  };
  StepBuilder builder = store_->Begin(1);
  builder.Put("w", slow);
  SaveHandle save;
  std::thread committing([&] { save = std::move(builder).Commit(); });
  copying.WaitForNotification();
  std::thread first([&] { EXPECT_OK(store_->Close()); });
  while (!absl::IsFailedPrecondition(store_->Steps().status())) {
    std::this_thread::yield();
  }
  std::thread second([&] {
    EXPECT_OK(store_->Close());
    closed.Notify();
  });
  EXPECT_FALSE(closed.WaitForNotificationWithTimeout(absl::Milliseconds(300)));
  copy.Notify();
  first.join();
  second.join();
  committing.join();
  Open();
  EXPECT_TRUE(Read(AtStep(1)) == Bytes(small_.size(), std::byte{7}));
}

// ---- a writer that comes and goes ----

TEST_F(EngineTest, AVerificationBesideAWriterThatComesAndGoesFindsNothing) {
  constexpr int kSteps = 24;
  for (int step = 1; step <= kSteps; ++step) {
    ASSERT_OK(Save(step, RandomBytes(2 << 20, step)));
  }
  store_.reset();
  // Few tables are held open: the others are opened when they are read.
  struct rlimit before {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  struct rlimit few = before;
  few.rlim_cur = 64;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  const absl::Cleanup restore = [before] { setrlimit(RLIMIT_NOFILE, &before); };
  Store reader = Reader();
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  int looks = 1;
  std::uint64_t last = 0;
  bool gone = false;
  VerifyOptions verification;
  verification.level = VerifyOptions::Level::kDeep;
  verification.on_progress = [&](std::uint64_t done, std::uint64_t) {
    if (done < last) ++looks;
    last = done;
    // After the first step.
    if (gone || done < 2 << 20) return;
    gone = true;
    Open();
    std::vector<StepSelector> most;
    for (int step = 2; step <= kSteps; ++step) most.push_back(AtStep(step));
    ASSERT_OK(store_->Delete(most));
    ASSERT_OK(store_->Collect().status());
    ASSERT_OK(Save(kSteps + 1, small_));
    store_.reset();
  };
  const absl::StatusOr<VerifyReport> report = reader.Verify(verification);
  ASSERT_OK(report);
  for (const Finding& finding : report->findings) {
    ADD_FAILURE() << finding.what;
  }
  // It looked twice: the first time files were missing.
  EXPECT_EQ(looks, 2);
  EXPECT_EQ(report->steps, 2u);
}

TEST_F(EngineTest, DamageIsFoundAtTheSecondLookToo) {
  ASSERT_OK(Save(1, small_));
  ASSERT_OK(Save(2, small_));
  kv::CommitRequest request;
  request.kind = kv::CommitKind::kSave;
  request.batch.Put(schema::Space::kRecords, schema::StepKey(0, 1), "x");
  ASSERT_OK(engine().mutable_database()->Commit(std::move(request)).status);
  Store reader = Reader();
  const absl::StatusOr<VerifyReport> report = reader.Verify({});
  ASSERT_OK(report);
  EXPECT_FALSE(report->findings.empty());
}

TEST_F(EngineTest, LatestIsAskedAgainWhereItWent) {
  for (int step = 1; step <= 3; ++step) {
    ASSERT_OK(Save(step, RandomBytes(100, step)));
  }
  ASSERT_OK(store_->Tag("good", 3));
  Store reader = Reader();
  ASSERT_OK(store_->Tag("good", 2, {.move = true}));
  ASSERT_OK(store_->Delete(3));
  ASSERT_OK(store_->Collect().status());
  const absl::StatusOr<Step> latest = reader.OpenStep(Latest());
  ASSERT_OK(latest);
  EXPECT_EQ(latest->info().step, 2);
  EXPECT_THAT(reader.OpenStep(AtStep(3)).status(),
              StatusIs(absl::StatusCode::kNotFound));
  EXPECT_OK(reader.OpenStep(Tagged("good")).status());
}

// ---- saves in flight, and their memory ----

TEST_F(EngineTest, AThirdSaveWaitsForTheFirst) {
  absl::Notification write, third_is_in;
  const auto held = [&](std::int64_t step) {
    Tensor waiting = Uint8s(small_);
    waiting.data = nullptr;
    waiting.copy = [&](std::uint64_t, std::span<std::byte> to) {
      write.WaitForNotification();
      std::fill(to.begin(), to.end(), std::byte{7});
      return absl::OkStatus();
    };
    StepBuilder builder = store_->Begin(step);
    builder.Put("w", waiting, Ownership::kBorrow);
    return builder;
  };
  SaveHandle first = held(1).Commit();
  SaveHandle second = held(2).Commit();
  SaveHandle third;
  StepBuilder builder = held(3);
  std::thread committing([&] {
    third = std::move(builder).Commit();
    third_is_in.Notify();
  });
  EXPECT_FALSE(
      third_is_in.WaitForNotificationWithTimeout(absl::Milliseconds(300)));
  EXPECT_EQ(store_->GetStats().saves_in_flight, 2u);
  write.Notify();
  committing.join();
  EXPECT_OK(first.WaitCommitted(kLong));
  EXPECT_OK(second.WaitCommitted(kLong));
  EXPECT_OK(third.WaitCommitted(kLong));
  EXPECT_THAT(StepNumbers(), ElementsAre(1, 2, 3));
}

TEST_F(EngineTest, AStepThatWasBegunAndIsKeptHoldsUpNoCommit) {
  StepBuilder kept = store_->Begin(1);
  kept.PutInt("i", 1);
  std::vector<SaveHandle> saves;
  for (int step = 2; step <= 8; ++step) saves.push_back(Start(step, small_));
  saves.push_back(std::move(kept).Commit());
  for (SaveHandle& save : saves) EXPECT_OK(save.WaitCommitted(kLong));
  EXPECT_EQ(StepNumbers().size(), 8u);
}

TEST_F(EngineTest, AVerificationOfOneStepIsFollowedAndStopped) {
  StoreOptions one = Options();
  one.threads = 1;
  Open(one);
  ASSERT_OK(Save(1, RandomBytes(32 << 20, 1)));
  std::vector<std::uint64_t> done;
  VerifyOptions options;
  options.steps = {AtStep(1)};
  options.on_progress = [&](std::uint64_t so_far, std::uint64_t total) {
    EXPECT_EQ(total, 32u << 20);
    done.push_back(so_far);
  };
  EXPECT_OK(store_->Verify(options).status());
  EXPECT_GT(done.size(), 3u);  // Not at the end alone.
  EXPECT_TRUE(std::is_sorted(done.begin(), done.end()));
  EXPECT_EQ(done.back(), 32u << 20);
  done.clear();
  options.cancelled = [&] { return !done.empty() && done.back() > 0; };
  EXPECT_EQ(store_->Verify(options).status().code(),
            absl::StatusCode::kCancelled);
  EXPECT_LT(done.back(), 32u << 20);
}

TEST_F(EngineTest, RoomForASaveIsWaitedFor) {
  StoreOptions options = Options();
  options.max_saves_in_flight = 1;
  Open(options);
  EXPECT_OK(store_->WaitForRoom(absl::ZeroDuration()));
  absl::Notification set;
  StepBuilder builder = store_->Begin(1);
  builder.Put("w", WaitingFor(set), Ownership::kBorrow);
  SaveHandle save = std::move(builder).Commit();
  EXPECT_EQ(store_->WaitForRoom(absl::Milliseconds(1)).code(),
            absl::StatusCode::kDeadlineExceeded);
  set.Notify();
  EXPECT_OK(store_->WaitForRoom(kLong));
  EXPECT_OK(save.WaitCommitted(kLong));
}

TEST_F(EngineTest, ACallbackMaySave) {
  StoreOptions options = Options();
  options.max_saves_in_flight = 1;
  Open(options);
  absl::Notification set, saved;
  StepBuilder builder = store_->Begin(1);
  builder.Put("w", WaitingFor(set), Ownership::kBorrow);
  SaveHandle save = std::move(builder).Commit();
  SaveHandle second, third;
  save.OnCommitted([&](const absl::Status&) {
    StepBuilder more = store_->Begin(2);
    more.PutInt("i", 2);
    second = std::move(more).Commit();
    StepBuilder still_more = store_->Begin(3);
    still_more.PutInt("i", 3);
    third = std::move(still_more).Commit();
    saved.Notify();
  });
  set.Notify();
  saved.WaitForNotification();
  EXPECT_OK(third.WaitCommitted(kLong));
  EXPECT_THAT(StepNumbers(), ElementsAre(1, 2, 3));
}

TEST_F(EngineTest, AnIdleStoreGivesItsStagingMemoryBack) {
  std::int64_t step = 0;
  // The writer may be faster than the copy.
  const auto save_until_staged = [&] {
    const std::int64_t most = step + 500;
    do {
      ASSERT_OK(Save(++step, RandomBytes(1 << 20, 3)));
    } while (store_->GetStats().bytes_staged == 0 && step < most);
    ASSERT_GT(store_->GetStats().bytes_staged, 0u);
  };
  save_until_staged();
  EXPECT_GT(engine().pool().reserved(), 0u);  // For a save that follows soon.
  StoreOptions options = Options();
  options.staging_idle = absl::ZeroDuration();
  Open(options);
  save_until_staged();
  const absl::Time deadline = absl::Now() + kLong;
  while (engine().pool().reserved() > 0 && absl::Now() < deadline) {
    std::this_thread::yield();
  }
  EXPECT_EQ(engine().pool().reserved(), 0u);
}

TEST_F(EngineTest, StagingIsBoundedByTheMemoryOfTheMachine) {
  const auto memory = static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) *
                      static_cast<std::uint64_t>(sysconf(_SC_PAGE_SIZE));
  EXPECT_LE(engine().pool().limit(),
            std::max<std::uint64_t>(memory / 8, 64 << 20));
  EXPECT_GE(engine().pool().limit(), 64u << 20);
}

// ---- exceptions ----

TEST_F(EngineTest, ACopyFunctionThatThrowsFailsItsSave) {
  for (const bool lent : {false, true}) {
    Tensor throwing = Uint8s(small_);
    throwing.data = nullptr;
    throwing.copy = [](std::uint64_t, std::span<std::byte>) -> absl::Status {
      throw std::runtime_error("the device is gone");
    };
    StepBuilder builder = store_->Begin(1);
    builder.Put("w", throwing, lent ? Ownership::kBorrow : Ownership::kCopy);
    EXPECT_THAT(
        Commit(std::move(builder)),
        StatusIs(absl::StatusCode::kInternal, HasSubstr("the device is gone")));
  }
  EXPECT_OK(Save(1, small_));
  ExpectClean();
}

TEST_F(EngineTest, NoMemoryInTheAllocatorIsAnError) {
  std::atomic<int> asked = 0;
  StoreOptions options = Options();
  options.host_allocator.allocate = [&](std::size_t) -> void* {
    ++asked;
    throw std::bad_alloc();
  };
  options.host_allocator.free = [](void*, std::size_t) {};
  Open(options);
  // Read in place: nothing needs the copy, which the writer may forestall.
  std::int64_t step = 0;
  const Bytes large = RandomBytes(1 << 20, 2);
  do {
    ASSERT_OK(Save(++step, large));
  } while (asked == 0 && step < 500);
  EXPECT_GT(asked, 0);
  EXPECT_TRUE(Read(AtStep(step)) == large);
  ExpectClean();
}

TEST_F(EngineTest, CallbacksThatThrowAreLoggedAndHurtNothing) {
  std::atomic<int> progress = 0, committed = 0, done = 0;
  std::vector<std::string> logged;
  StoreOptions options = Options();
  options.on_progress = [&](const Progress&) {
    ++progress;
    throw std::runtime_error("no progress");
  };
  options.log = [&](LogSeverity, std::string_view, std::string_view text) {
    logged.emplace_back(text);
    throw 42;
  };
  Open(options);
  absl::Notification set;
  StepBuilder builder = store_->Begin(1);
  builder.Put("w", WaitingFor(set), Ownership::kBorrow);
  SaveHandle save = std::move(builder).Commit();
  save.OnCommitted([&](const absl::Status&) {
    ++committed;
    throw std::runtime_error("not on commit");
  });
  save.OnDone([&] {
    ++done;
    throw 42;
  });
  set.Notify();
  EXPECT_OK(save.WaitCommitted(kLong));
  EXPECT_OK(Save(2, small_));
  EXPECT_OK(store_->Flush(kLong));
  store_.reset();
  EXPECT_GT(progress, 0);
  EXPECT_EQ(committed, 1);
  EXPECT_EQ(done, 1);
  EXPECT_THAT(logged, Contains(HasSubstr("no progress")));
  EXPECT_THAT(logged, Contains(HasSubstr("not on commit")));
  Open();
  EXPECT_THAT(StepNumbers(), ElementsAre(1, 2));
  ExpectClean();
}

TEST_F(EngineTest, ProgressOfACollectionThatThrowsEndsIt) {
  for (int step = 1; step <= 3; ++step) {
    ASSERT_OK(Save(step, RandomBytes(1 << 20, step)));
  }
  ASSERT_OK(store_->Delete({AtStep(1), AtStep(2)}));
  CollectOptions options;
  options.on_progress = [](const CollectProgress&) {
    throw std::runtime_error("enough");
  };
  EXPECT_THAT(store_->Collect(options).status(),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("enough")));
  VerifyOptions verification;
  verification.on_progress = [](std::uint64_t, std::uint64_t) {
    throw std::runtime_error("enough");
  };
  EXPECT_THAT(store_->Verify(verification).status(),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("enough")));
  EXPECT_OK(store_->Collect().status());
  ExpectClean();
}

TEST_F(EngineTest, ClosingInACallbackIsRefused) {
  absl::Notification set, closed;
  absl::Status said;
  StepBuilder builder = store_->Begin(1);
  builder.Put("w", WaitingFor(set), Ownership::kBorrow);
  SaveHandle save = std::move(builder).Commit();
  save.OnCommitted([&](const absl::Status&) {
    said = store_->Close();
    closed.Notify();
  });
  set.Notify();
  closed.WaitForNotification();
  EXPECT_THAT(said, StatusIs(absl::StatusCode::kFailedPrecondition,
                             HasSubstr("callback")));
  EXPECT_OK(Save(2, small_));
}

}  // namespace
}  // namespace ckptree::testing
