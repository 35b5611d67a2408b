// SPDX-License-Identifier: Apache-2.0

// How saves go on beside each other, end, fail and are told of.

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "tests/core/fixture.h"
#include "tests/core/waiting_tensor.h"

namespace ckptree::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr auto kPrecondition = absl::StatusCode::kFailedPrecondition;

class SaveTest : public CoreTest {
 protected:
  // A save that fails when its values are fetched.
  SaveHandle StartFailing(std::int64_t step,
                          std::string why = "the device is gone") {
    return StartCopied(step, [why](std::uint64_t, std::span<std::byte>) {
      return absl::InternalError(why);
    });
  }
  SaveHandle StartCopied(std::int64_t step, CopyFn copy,
                         Ownership ownership = Ownership::kCopy) {
    StepBuilder builder = store_->Begin(step);
    PutCopied(builder, std::move(copy), ownership);
    return std::move(builder).Submit();
  }
  void PutCopied(StepBuilder& builder, CopyFn copy,
                 Ownership ownership = Ownership::kCopy) {
    Tensor tensor;
    tensor.dtype = DType::kUint8;
    tensor.shape = {static_cast<std::int64_t>(large_.size())};
    tensor.copy = std::move(copy);
    builder.Put("w", std::move(tensor), ownership);
  }

  // A save of `large_` whose turn does not end before OpenGate(). Behind it
  // there is room for as many saves as a test makes.
  void StartGate(std::int64_t step) {
    StoreOptions options = Options();
    options.max_saves_in_flight = 100;
    options.threads = 4;  // One of them waits at the gate.
    Open(std::move(options));
    StepBuilder builder = store_->Begin(step);
    builder.Put("w", Uint8s(large_));
    builder.Put("gate", WaitingFor(gate_open_), Ownership::kBorrow);
    gate_ = std::move(builder).Submit();
  }
  void OpenGate() {
    gate_open_.Notify();
    EXPECT_OK(gate_.WaitCommitted(kLong));
  }

  const Bytes small_ = RandomBytes(1000, 1);
  const Bytes large_ = RandomBytes(2 << 20, 2);

 private:
  absl::Notification gate_open_;
  SaveHandle gate_;
};

TEST_F(SaveTest, SavesAreCommittedInTheOrderOfTheirCommit) {
  absl::Mutex mu;
  std::vector<std::int64_t> order;
  StartGate(100);
  std::vector<StepBuilder> builders;
  for (std::int64_t step = 0; step < 6; ++step) {
    builders.push_back(store_->Begin(step));
    builders.back().Put("w", Uint8s(step % 2 == 0 ? large_ : small_));
  }
  std::vector<SaveHandle> saves(builders.size());
  for (std::size_t i = builders.size(); i-- > 0;) {  // The last one first.
    saves[i] = std::move(builders[i]).Commit();
    saves[i].OnCommitted([&mu, &order, i](const absl::Status& status) {
      EXPECT_OK(status);
      absl::MutexLock lock(&mu);
      order.push_back(static_cast<std::int64_t>(i));
    });
    EXPECT_OK(saves[i].WaitStaged(kLong));
    EXPECT_THAT(saves[i].WaitCommitted(absl::ZeroDuration()),
                StatusIs(absl::StatusCode::kDeadlineExceeded,
                         HasSubstr("step " + std::to_string(i))));
    EXPECT_FALSE(saves[i].Done());
    EXPECT_THAT(StepNumbers(), IsEmpty());
  }
  OpenGate();
  EXPECT_THAT(store_->Flush(), IsOk());
  for (std::size_t i = 0; i < saves.size(); ++i) {
    EXPECT_OK(saves[i].WaitCommitted(absl::ZeroDuration()));
    EXPECT_EQ(saves[i].version(), 1 + saves.size() - i);
  }
  absl::MutexLock lock(&mu);
  EXPECT_THAT(order, ElementsAre(5, 4, 3, 2, 1, 0));
  ExpectClean();
}

TEST_F(SaveTest, AStepThatIsPutTogetherHoldsUpNothing) {
  StepBuilder kept = store_->Begin(1);
  kept.Put("w", Uint8s(large_));
  // More than may be in flight at once.
  for (std::int64_t step = 2; step < 8; ++step) {
    EXPECT_OK(Save(step, small_));
  }
  EXPECT_OK(store_->Flush());
  EXPECT_THAT(StepNumbers(), ElementsAre(2, 3, 4, 5, 6, 7));
  EXPECT_OK(Commit(std::move(kept)));
  EXPECT_THAT(StepNumbers(), ElementsAre(1, 2, 3, 4, 5, 6, 7));
  StepBuilder late = store_->Begin(8);
  late.PutInt("n", 1);
  EXPECT_OK(store_->Close());
  EXPECT_THAT(std::move(late).Commit().WaitCommitted(kLong),
              StatusIs(kPrecondition, HasSubstr("step 8 was not saved")));
  Open();
  ExpectClean();
}

using SaveDeathTest = SaveTest;

TEST_F(SaveDeathTest, WhatWasMovedFromIsNotUsed) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  const auto commit_twice = [this] {
    StepBuilder builder = store_->Begin(1);
    static_cast<void>(std::move(builder).Commit());
    static_cast<void>(std::move(builder).Commit());  // NOLINT: the mistake.
  };
  const auto put_after_move = [this] {
    StepBuilder builder = store_->Begin(1);
    const StepBuilder other = std::move(builder);
    builder.PutInt("n", 1);  // NOLINT: the mistake.
  };
  const auto use_moved_store = [this] {
    const Store taken = std::move(*store_);
    store_->Steps().IgnoreError();  // NOLINT: the mistake.
  };
  EXPECT_DEATH(use_moved_store(), "ckptree: a ckptree::Store was used after");
  EXPECT_DEATH(commit_twice(), "ckptree: .*used after Commit");
  EXPECT_DEATH(put_after_move(), "ckptree: .*begin another step");
}

TEST_F(SaveTest, AFailureInBetweenHurtsNobodyElse) {
  StartGate(1);  // All of them wait for it.
  SaveHandle failing = StartFailing(2);
  StepBuilder mistaken = store_->Begin(3);
  SaveHandle after = Start(4, large_);
  mistaken.PutInt("a", 1).PutInt("a", 1);
  EXPECT_THAT(std::move(mistaken).Commit().WaitCommitted(kLong),
              StatusIs(absl::StatusCode::kInvalidArgument));
  OpenGate();
  EXPECT_THAT(
      failing.WaitCommitted(kLong),
      StatusIs(absl::StatusCode::kInternal,
               AllOf(HasSubstr("step 2 was not saved"), HasSubstr("w: "),
                     HasSubstr("the device is gone"))));
  EXPECT_FALSE(failing.WaitStaged(kLong).ok());
  EXPECT_EQ(failing.version(), 0u);
  EXPECT_EQ(failing.Progress().phase, Progress::Phase::kFailed);
  EXPECT_OK(after.WaitCommitted(kLong));
  EXPECT_THAT(StepNumbers(), ElementsAre(1, 4));
  const StepInfo info = store_->Resolve(AtStep(4)).value();
  EXPECT_EQ(info.base, store_->Resolve(AtStep(1))->version);
  EXPECT_EQ(info.new_bytes, 0u);
  EXPECT_OK(Save(2, small_));
  ExpectClean();
}

TEST_F(SaveTest, CancelledBeforeItsTurn) {
  StartGate(1);
  SaveHandle cancelled = Start(2, large_);
  SaveHandle after = Start(3, large_);
  cancelled.Cancel();
  OpenGate();
  EXPECT_THAT(cancelled.WaitCommitted(kLong),
              StatusIs(absl::StatusCode::kCancelled, HasSubstr("step 2")));
  EXPECT_OK(after.WaitCommitted(kLong));
  after.Cancel();  // Too late.
  EXPECT_OK(after.WaitCommitted(kLong));
  EXPECT_THAT(StepNumbers(), ElementsAre(1, 3));
  ExpectClean();
}

TEST_F(SaveTest, CancelledInMidWrite) {
  SaveHandle save;
  absl::Notification started;
  save = StartCopied(
      1,
      [&](std::uint64_t offset, std::span<std::byte> destination) {
        started.WaitForNotification();
        save.Cancel();
        std::copy_n(large_.begin() + static_cast<long>(offset),
                    destination.size(), destination.begin());
        return absl::OkStatus();
      },
      Ownership::kBorrow);
  started.Notify();
  EXPECT_THAT(save.WaitCommitted(kLong),
              StatusIs(absl::StatusCode::kCancelled));
  EXPECT_THAT(StepNumbers(), IsEmpty());
  // Nobody asks about a save that was cancelled.
  save = SaveHandle();
  EXPECT_THAT(store_->Flush(), IsOk());
  EXPECT_OK(Save(1, large_));
  EXPECT_TRUE(Read(AtStep(1)) == large_);
  ExpectClean();
}

TEST_F(SaveTest, ADroppedHandleNeitherWaitsNorCancels) {
  static_cast<void>(Start(1, large_));
  EXPECT_THAT(store_->Flush(), IsOk());
  EXPECT_TRUE(Read(AtStep(1)) == large_);
  EXPECT_THAT(SaveHandle().WaitCommitted(kLong), StatusIs(kPrecondition));
}

TEST_F(SaveTest, TheDestructorWaits) {
  static_cast<void>(Start(1, large_));
  static_cast<void>(Start(2, small_));
  Open();
  EXPECT_THAT(StepNumbers(), ElementsAre(1, 2));
  EXPECT_TRUE(Read(AtStep(1)) == large_);
}

TEST_F(SaveTest, OnCommittedIsCalledOnceAlsoAfterwards) {
  std::atomic<int> good{0}, bad{0};
  const auto count = [&](const absl::Status& status) {
    ++(status.ok() ? good : bad);
  };
  SaveHandle first = Start(1, small_);
  first.OnCommitted(count);
  EXPECT_OK(first.WaitCommitted(kLong));
  SaveHandle second = StartFailing(2);
  second.OnCommitted(count);
  EXPECT_THAT(store_->Flush(), IsOk());  // The callback was told.
  EXPECT_EQ(good, 1);
  EXPECT_EQ(bad, 1);
  first.OnCommitted(count);
  second.OnCommitted(count);
  EXPECT_EQ(good, 2);
  EXPECT_EQ(bad, 2);
}

TEST_F(SaveTest, OnDoneSeesNoFailure) {
  std::atomic<int> done{0};
  SaveHandle save = StartFailing(1);
  save.OnDone([&done] { ++done; });
  EXPECT_THAT(store_->Flush(), StatusIs(absl::StatusCode::kInternal,
                                        HasSubstr("step 1 was not saved")));
  EXPECT_EQ(done, 1);
  save.OnDone([&done] { ++done; });
  EXPECT_EQ(done, 2);
  SaveHandle().OnDone([&done] { ++done; });
  EXPECT_EQ(done, 3);
  EXPECT_OK(store_->Close());
}

TEST_F(SaveTest, AnUnseenFailureIsToldOnceByFlush) {
  StepBuilder failing = store_->Begin(1);
  PutCopied(failing, [](std::uint64_t, std::span<std::byte>) {
    return absl::InternalError("the device is gone");
  });
  StepBuilder mistaken = store_->Begin(2);
  mistaken.PutInt("a", 1).PutInt("a", 1);
  static_cast<void>(std::move(failing).Commit());
  static_cast<void>(std::move(mistaken).Commit());
  std::vector<absl::StatusCode> codes;
  codes.push_back(store_->Flush().code());
  codes.push_back(store_->Flush().code());
  EXPECT_THAT(codes, ::testing::UnorderedElementsAre(
                         absl::StatusCode::kInternal,
                         absl::StatusCode::kInvalidArgument));
  EXPECT_OK(store_->Flush());
  EXPECT_OK(Save(1, small_));
  EXPECT_OK(store_->Close());
}

TEST_F(SaveTest, AnUnseenFailureIsToldOnceByClose) {
  static_cast<void>(StartFailing(1));
  EXPECT_THAT(store_->Close(), StatusIs(absl::StatusCode::kInternal,
                                        HasSubstr("step 1 was not saved")));
  EXPECT_OK(store_->Close());
}

TEST_F(SaveTest, AnUnseenFailureIsToldOnceByTheNextBegin) {
  static_cast<void>(StartFailing(1));
  absl::Status told;
  const absl::Time deadline = absl::Now() + kLong;
  for (std::int64_t step = 2; told.ok() && absl::Now() < deadline; ++step) {
    StepBuilder next = store_->Begin(step);
    next.Put("w", Uint8s(small_));
    told = next.status();
    // What only passes a failure on is not one more failure.
    static_cast<void>(std::move(next).Commit());
  }
  EXPECT_THAT(told, StatusIs(absl::StatusCode::kInternal,
                             HasSubstr("step 1 was not saved")));
  EXPECT_OK(store_->Flush());
  EXPECT_OK(store_->Close());
}

// Whatever of the engine still holds the save then.
TEST_F(SaveTest, AFailureIsToldByTheBeginBehindItsEnd) {
  for (std::int64_t step = 1; step < 20; ++step) {
    SaveHandle save = StartFailing(step);
    SaveHandle copy = save;
    absl::Notification ended;
    save.OnDone([&ended] { ended.Notify(); });
    ended.WaitForNotification();
    EXPECT_OK(store_->Begin(100).status());  // A handle can tell.
    save = SaveHandle();
    EXPECT_OK(store_->Begin(100).status());
    copy = SaveHandle();
    EXPECT_THAT(store_->Begin(100).status(),
                StatusIs(absl::StatusCode::kInternal,
                         HasSubstr(absl::StrCat("step ", step, " was not"))));
  }
  EXPECT_OK(store_->Close());
}

TEST_F(SaveTest, AFailureThatTheHandleToldIsNotToldAgain) {
  SaveHandle save = StartFailing(1);
  EXPECT_FALSE(save.WaitCommitted(kLong).ok());
  save = SaveHandle();
  EXPECT_OK(store_->Begin(2).status());
  EXPECT_OK(store_->Flush());
  EXPECT_OK(store_->Close());
}

TEST_F(SaveTest, AStateLargerThanTheStagingPool) {
  StoreOptions options = Options();
  options.staging_bytes = 256 << 10;
  std::atomic<std::int64_t> lent{0}, most{0};
  options.host_allocator.allocate = [&](std::size_t bytes) {
    const std::int64_t now = lent += static_cast<std::int64_t>(bytes);
    if (now > most) most = now;
    return std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  };
  options.host_allocator.free = [&](void* memory, std::size_t bytes) {
    lent -= static_cast<std::int64_t>(bytes);
    std::free(memory);
  };
  Open(options);
  Bytes bytes = RandomBytes(8 << 20, 3);
  const Bytes kept = bytes;
  SaveHandle save = Start(1, bytes);
  SaveHandle behind = Start(2, large_);
  EXPECT_OK(save.WaitStaged(kLong));
  std::fill(bytes.begin(), bytes.end(), std::byte{0});  // Ours again.
  EXPECT_OK(save.WaitCommitted(kLong));
  EXPECT_OK(behind.WaitCommitted(kLong));
  EXPECT_TRUE(Read(AtStep(1)) == kept);
  EXPECT_TRUE(Read(AtStep(2)) == large_);
  EXPECT_EQ(store_->GetStats().staging_bytes_in_use, 0u);
  EXPECT_GT(most, 0);
  EXPECT_LE(most, 512 << 10);
  ExpectClean();
  store_.reset();
  EXPECT_EQ(lent, 0);
}

TEST_F(SaveTest, PinsOverwritesAndTags) {
  ASSERT_OK(Save(1, small_));
  ASSERT_OK(Save(2, large_));
  ASSERT_OK(store_->Tag("good", 1));
  ASSERT_OK(store_->Pin(1));
  for (int opened = 0; opened < 2; ++opened, Open()) {
    EXPECT_TRUE(store_->Resolve(AtStep(1))->pinned);
    EXPECT_THAT(store_->Delete(1),
                StatusIs(kPrecondition, HasSubstr("step 1 is pinned")));
    EXPECT_THAT(Save(1, large_, {.overwrite = true}),
                StatusIs(kPrecondition, HasSubstr("step 1 is pinned")));
  }
  ASSERT_OK(store_->Unpin(1));
  for (int opened = 0; opened < 2; ++opened, Open()) {
    EXPECT_THAT(Save(1, large_, {.overwrite = true}),
                StatusIs(kPrecondition, HasSubstr("step 1 is tagged 'good'")));
    EXPECT_TRUE(Read(Tagged("good")) == small_);
  }
  const StepInfo old = store_->Resolve(AtStep(1)).value();
  const Step held = Restored(AtStep(1));
  // Tagged after it began: the commit looks again.
  ASSERT_OK(store_->Untag("good"));
  StepBuilder builder = store_->Begin(1, {.overwrite = true});
  builder.Put("w", Uint8s(large_));
  ASSERT_OK(store_->Tag("good", 1));
  EXPECT_THAT(std::move(builder).Commit().WaitCommitted(kLong),
              StatusIs(kPrecondition, HasSubstr("step 1 is tagged 'good'")));
  EXPECT_TRUE(Read(Tagged("good")) == small_);
  EXPECT_THAT(Save(1, large_, {.tagged = true}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("`overwrite` is not set")));
  ASSERT_OK(Save(1, large_, {.overwrite = true, .tagged = true}));
  EXPECT_TRUE(held.Value("w")->bytes == small_);
  EXPECT_TRUE(Read(AtStep(1)) == large_);
  EXPECT_GT(store_->Resolve(AtStep(1))->version, old.version);
  EXPECT_EQ(store_->Resolve(AtStep(1))->new_bytes, 0u);  // All of step 2's.
  EXPECT_THAT(store_->Tags().value(), IsEmpty());
  EXPECT_THAT(StepNumbers(), ElementsAre(1, 2));
  // Two of one number on their way: the first one has it.
  SaveHandle first = Start(5, small_);
  SaveHandle second = Start(5, large_);
  EXPECT_OK(first.WaitCommitted(kLong));
  EXPECT_THAT(
      second.WaitCommitted(kLong),
      StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("step 5 exists")));
  ExpectClean();
}

TEST_F(SaveTest, TaggedStepsAreDeletedOnlyByThatName) {
  ASSERT_OK(Save(1, small_));
  ASSERT_OK(Save(2, large_));
  ASSERT_OK(store_->Tag("good", 1));
  for (int opened = 0; opened < 2; ++opened, Open()) {
    const auto refused =
        StatusIs(kPrecondition, HasSubstr("step 1 is tagged 'good'"));
    EXPECT_THAT(store_->Delete(1), refused);
    EXPECT_THAT(store_->Delete(Tagged("good")), refused);
    EXPECT_THAT(store_->Delete({AtStep(2), AtStep(1)}), refused);
    EXPECT_THAT(StepNumbers(), ElementsAre(1, 2));
    EXPECT_TRUE(Read(Tagged("good")) == small_);
  }
  ASSERT_OK(store_->Delete(1, {.tagged = true}));
  EXPECT_THAT(StepNumbers(), ElementsAre(2));
  EXPECT_THAT(store_->Tags().value(), IsEmpty());
  ExpectClean();
}

TEST_F(SaveTest, DeletedNewestIsStillTheBase) {
  ASSERT_OK(Save(1, small_));
  ASSERT_OK(Save(2, large_));
  const std::uint64_t version = store_->Resolve(AtStep(2))->version;
  ASSERT_OK(store_->Delete(2));
  EXPECT_THAT(StepNumbers(), ElementsAre(1));
  Open();
  ASSERT_OK(Save(3, large_));
  const StepInfo info = store_->Resolve(AtStep(3)).value();
  EXPECT_EQ(info.base, version);
  EXPECT_EQ(info.new_bytes, 0u);
  ASSERT_OK(Save(2, small_));
  EXPECT_GT(store_->Resolve(AtStep(2))->version, info.version);
  EXPECT_TRUE(Read(AtStep(3)) == large_);
  EXPECT_TRUE(Read(AtStep(2)) == small_);
  ExpectClean();
}

TEST_F(SaveTest, StepsInAnyOrder) {
  for (const int step : {10, 5, 7, 0}) ASSERT_OK(Save(step, small_));
  for (int opened = 0; opened < 2; ++opened, Open()) {
    EXPECT_THAT(StepNumbers(), ElementsAre(0, 5, 7, 10));
    EXPECT_EQ(store_->Resolve(Latest())->step, 10);
    StepSelector selector = AtStep(0);
    selector.back = 2;
    EXPECT_EQ(store_->Resolve(selector)->step, 5);
    selector = Latest();
    selector.back = 1;
    EXPECT_THAT(store_->Resolve(selector),
                StatusIs(absl::StatusCode::kNotFound, HasSubstr("latest~1")));
  }
  ExpectClean();
}

TEST_F(SaveTest, ProgressIsTold) {
  absl::Mutex mu;
  std::vector<Progress> told;
  StoreOptions options = Options();
  options.on_progress = [&](const Progress& progress) {
    absl::MutexLock lock(&mu);
    told.push_back(progress);
  };
  Open(options);
  ASSERT_OK(Save(1, large_));
  SaveHandle again = Start(2, large_);
  EXPECT_OK(again.WaitCommitted(kLong));
  EXPECT_FALSE(StartFailing(3).WaitCommitted(kLong).ok());
  const Progress done = again.Progress();
  EXPECT_EQ(done.phase, Progress::Phase::kDone);
  EXPECT_EQ(done.bytes_total, large_.size());
  EXPECT_EQ(done.bytes_staged, large_.size());
  EXPECT_EQ(done.bytes_compared, large_.size());
  EXPECT_EQ(done.bytes_written, 0u);
  EXPECT_EQ(done.bytes_unchanged, large_.size());
  EXPECT_EQ(done.leaves_total, 1u);
  store_.reset();  // Nothing is told after this.
  absl::MutexLock lock(&mu);
  std::vector<Progress> last(4);
  for (const Progress& progress : told) {
    ASSERT_THAT(progress.step,
                ::testing::AllOf(::testing::Ge(1), ::testing::Le(3)));
    Progress& before = last[static_cast<std::size_t>(progress.step)];
    EXPECT_GE(progress.phase, before.phase);
    EXPECT_GE(progress.bytes_written, before.bytes_written);
    EXPECT_LE(progress.bytes_staged, progress.bytes_total);
    before = progress;
  }
  EXPECT_EQ(last[1].phase, Progress::Phase::kDone);
  EXPECT_EQ(last[1].bytes_written, large_.size());
  EXPECT_EQ(last[2].phase, Progress::Phase::kDone);
  EXPECT_EQ(last[3].phase, Progress::Phase::kFailed);
}

TEST_F(SaveTest, StatisticsOfTheStore) {
  ASSERT_OK(Save(1, large_));
  ASSERT_OK(Save(2, large_));
  EXPECT_FALSE(StartFailing(3).WaitCommitted(kLong).ok());
  Read(AtStep(2));
  const Stats stats = store_->GetStats();
  EXPECT_EQ(stats.saves_committed, 2u);
  EXPECT_EQ(stats.saves_failed, 1u);
  EXPECT_EQ(stats.saves_in_flight, 0u);
  EXPECT_EQ(stats.bytes_written, large_.size());
  EXPECT_EQ(stats.bytes_unchanged, large_.size());
  EXPECT_EQ(stats.chunks_written, large_.size() / kChunk);
  EXPECT_EQ(stats.leaf_records_written, 1u);
  EXPECT_GE(stats.bytes_read, large_.size());
  EXPECT_GT(stats.segments_written, 0u);
  const std::string text = PrometheusText(stats);
  EXPECT_THAT(text, HasSubstr("\nckptree_saves_committed_total 2\n"));
  EXPECT_THAT(text, HasSubstr("\nckptree_saves_failed_total 1\n"));
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    EXPECT_THAT(line, ::testing::MatchesRegex(
                          "# (HELP|TYPE) ckptree_[a-z_]+ .+|"
                          "ckptree_[a-z_]+(\\{phase=\"[a-z]+\"\\})? "
                          "[0-9.e+-]+"));
  }
}

TEST_F(SaveTest, AForkedChildIsRefusedAndTheParentGoesOn) {
  ASSERT_OK(Save(1, large_));
  std::optional<Step> step(Restored(AtStep(1)));
  StepBuilder open = store_->Begin(2);
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    int refused = 0, calls = 0;
    const auto count = [&](const absl::Status& status) {
      ++calls;
      if (absl::IsFailedPrecondition(status)) ++refused;
    };
    Bytes bytes(large_.size());
    count(store_->Begin(3).status());
    count(std::move(open).Commit().WaitCommitted(kLong));
    count(store_->OpenStep(Latest()).status());
    count(store_->Steps().status());
    count(store_->Delete(1));
    count(store_->Tag("t", 1));
    count(store_->Pin(1));
    count(store_->Flush());
    count(store_->Verify().status());
    count(step->Read("w", bytes));
    count(step->View(At("w")).status());
    count(store_->Close());
    step.reset();
    // Opened again, read only, it may.
    absl::StatusOr<Store> reader = Store::Open(path(), ReadOnly());
    if (!reader.ok()) _exit(100);
    *store_ = *std::move(reader);
    if (!store_->Resolve(Latest()).ok()) _exit(101);
    _exit(refused == calls ? 0 : 1 + refused);
  }
  int ended = -1;
  ASSERT_EQ(waitpid(child, &ended, 0), child);
  ASSERT_TRUE(WIFEXITED(ended));
  EXPECT_EQ(WEXITSTATUS(ended), 0);
  open.Put("w", Uint8s(small_));
  EXPECT_OK(Commit(std::move(open)));
  EXPECT_TRUE(step->Value("w")->bytes == large_);
  step.reset();
  ExpectClean();
}

}  // namespace
}  // namespace ckptree::testing
