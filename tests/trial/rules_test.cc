// SPDX-License-Identifier: Apache-2.0

// One test for each rule of the save protocol: the situation that would break
// it. Stores are opened in children only.

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/notification.h"
#include "gtest/gtest.h"
#include "tests/model/store.h"
#include "tests/testutil/flip_byte.h"
#include "tests/trial/fixture.h"

namespace ckptree::testing {
namespace {

namespace fs = std::filesystem;
using Mode = FaultPlan::Mode;

// A step of one array whose bytes come from `copy`.
SaveHandle BeginCopied(Store& store, std::int64_t step, CopyFn copy) {
  StepBuilder builder = store.Begin(step);
  Tensor tensor;
  tensor.dtype = DType::kUint8;
  tensor.shape = {5000};
  tensor.copy = std::move(copy);
  builder.Put("params/l0", std::move(tensor));
  return std::move(builder).Submit();
}

ModelStep FilledStep(char with) {
  ModelStep model;
  ModelLeaf leaf;
  leaf.dtype = DType::kUint8;
  leaf.shape = {5000};
  leaf.bytes = std::string(5000, with);
  model.leaves["params/l0"] = leaf;
  return model;
}

TEST_F(TrialRulesTest, SavesOverlapWithAFailingOneBeforeThem) {
  ExpectRan(InStore(true, [&](Store& store, FaultFs&, const TrialPipe& pipe) {
    Must(SaveStep(store, 1, *small_[0]), "save 1", pipe);
    absl::Notification others_staged;
    SaveHandle bad =
        BeginCopied(store, 2, [&](std::uint64_t, std::span<std::byte>) {
          others_staged.WaitForNotification();
          return absl::InternalError("the device is gone");
        });
    SaveHandle third = BeginModel(store, 3, *small_[1]);
    SaveHandle fourth = BeginModel(store, 4, *large_[0]);
    others_staged.Notify();
    absl::Status failed = bad.WaitCommitted(kTrialWait);
    Must(!failed.ok() && failed.message().find("the device is gone") !=
                             absl::string_view::npos,
         "the failure does not reach its handle", pipe);
    Must(third.WaitCommitted(kTrialWait), "save 3", pipe);
    Must(fourth.WaitCommitted(kTrialWait), "save 4", pipe);
    absl::StatusOr<StepInfo> info = store.Resolve(AtStep(3));
    Must(info.ok() && info->base == 1, "step 3 is not based on step 1", pipe);
  }));
  ModelState state;
  state.Save(1, small_[0]);
  state.Save(3, small_[1]);
  state.Save(4, large_[0]);
  ExpectStore({state});
}

TEST_F(TrialRulesTest, TicketsStageOutOfOrder) {
  ExpectRan(InStore(true, [&](Store& store, FaultFs&, const TrialPipe& pipe) {
    absl::Notification second_asked;
    SaveHandle first =
        BeginCopied(store, 1, [&](std::uint64_t, std::span<std::byte> to) {
          second_asked.WaitForNotification();
          std::ranges::fill(to, std::byte{'a'});
          return absl::OkStatus();
        });
    SaveHandle second =
        BeginCopied(store, 2, [&](std::uint64_t, std::span<std::byte> to) {
          std::ranges::fill(to, std::byte{'b'});
          return absl::OkStatus();
        });
    SaveHandle third = BeginModel(store, 3, *small_[0]);
    second_asked.Notify();
    Must(third.WaitCommitted(kTrialWait), "save 3", pipe);
    Must(second.WaitCommitted(kTrialWait), "save 2", pipe);
    Must(first.WaitCommitted(kTrialWait), "save 1", pipe);
    Must(first.version() < second.version() &&
             second.version() < third.version(),
         "versions are not in Begin order", pipe);
    absl::StatusOr<StepInfo> info = store.Resolve(AtStep(2));
    Must(info.ok() && info->base == first.version(), "base of 2", pipe);
    info = store.Resolve(AtStep(3));
    Must(info.ok() && info->base == second.version(), "base of 3", pipe);
  }));
  ModelState state;
  state.Save(1, Share(FilledStep('a')));
  state.Save(2, Share(FilledStep('b')));
  state.Save(3, small_[0]);
  ExpectStore({state});
}

TEST_F(TrialRulesTest, TheNewestStepIsDeleted) {
  ModelState state;
  for (const bool reopened : {false, true}) {
    fs::remove_all(directory_.store());
    ExpectRan(InStore(true, [&](Store& store, FaultFs&, const TrialPipe& pipe) {
      Must(SaveStep(store, 1, *large_[0]), "save 1", pipe);
      Must(SaveStep(store, 2, *large_[1]), "save 2", pipe);
      Must(store.Delete(2), "delete 2", pipe);
      if (reopened) return;
      Must(SaveStep(store, 3, *large_[2]), "save 3", pipe);
      Must(SaveStep(store, 2, *large_[1]), "save 2 again", pipe);
    }));
    if (reopened) {
      ExpectRan(
          InStore(false, [&](Store& store, FaultFs&, const TrialPipe& pipe) {
            Must(SaveStep(store, 3, *large_[2]), "save 3", pipe);
            Must(SaveStep(store, 2, *large_[1]), "save 2 again", pipe);
          }));
    }
    state = {};
    state.Save(1, large_[0]);
    state.Save(2, large_[1]);
    state.Save(3, large_[2]);
    ExpectStore({state}, reopened ? "reopened" : "in one process");
  }
}

// Save 2 has its segments in the database when it is cancelled; save 3 is
// committed above it; then the process dies at every call.
TEST_F(TrialRulesTest, AnOrphanLiesBelowACommittedVersion) {
  int cancelled = 0;
  bool fired = true;
  for (std::uint64_t n = 1; fired && n < 500; ++n) {
    fs::remove_all(directory_.store());
    const TrialResult result = InStore(
        true, [&](Store& store, FaultFs& faults, const TrialPipe& pipe) {
          Must(SaveStep(store, 1, *small_[0]), "save 1", pipe);
          StepBuilder builder = store.Begin(2);
          PutAll(*large_[0], builder);
          SaveHandle orphan;
          absl::Notification has_handle;
          faults.Arm({{.mode = Mode::kNotify,
                       .kinds = Bit(CallKind::kSync),
                       .classes = Bit(FileClass::kManifest),
                       .notify =
                           [&] {
                             has_handle.WaitForNotification();
                             orphan.Cancel();
                           }},
                      {.mode = Mode::kKill,
                       .at = n,
                       .kinds = Bit(CallKind::kWrite) | Bit(CallKind::kPwrite) |
                                Bit(CallKind::kSync) | Bit(CallKind::kUnlink) |
                                Bit(CallKind::kSyncDirectory)}});
          orphan = std::move(builder).Commit();
          has_handle.Notify();
          if (absl::IsCancelled(orphan.WaitCommitted(kTrialWait))) {
            pipe.Say("CANCELLED");
          }
          Must(SaveStep(store, 3, *small_[1]), "save 3", pipe);
          pipe.Say("ACK 3");
        });
    EXPECT_FALSE(result.broken()) << result.Text();
    fired = result.killed;
    cancelled += result.Said("CANCELLED").empty() ? 0 : 1;
    ModelState before;
    before.Save(1, small_[0]);
    ModelState after = before;
    after.Save(3, small_[1]);
    ModelState late = before;  // The cancel came too late.
    late.Save(2, large_[0]);
    ModelState both = late;
    both.Save(3, small_[1]);
    std::vector<ModelState> allowed = {after};
    if (result.Said("ACK").empty()) allowed = {before, after};
    if (result.Said("CANCELLED").empty()) {
      allowed.push_back(late);
      allowed.push_back(both);
    }
    ExpectStore(allowed, absl::StrFormat("killed at %d", n));
    if (HasFailure()) break;
  }
  EXPECT_FALSE(fired);
  EXPECT_GT(cancelled, 0) << "no save was cancelled after its segments were in";
}

TEST_F(TrialRulesTest, AVersionThatWasBegunIsNeverUsedAgain) {
  int begun = 0;
  bool fired = true;
  for (std::uint64_t n = 1; fired && n < 500; ++n) {
    fs::remove_all(directory_.store());
    const TrialResult result = InStore(
        true, [&](Store& store, FaultFs& faults, const TrialPipe& pipe) {
          Must(SaveStep(store, 1, *small_[0]), "save 1", pipe);
          faults.Arm({{.mode = Mode::kNotify,
                       .kinds = Bit(CallKind::kOpen),
                       .classes = Bit(FileClass::kStaging),
                       .notify = [&] { pipe.Say("BEGUN"); }},
                      {.mode = Mode::kKill, .at = n}});
          Must(SaveStep(store, 2, *large_[0]), "save 2", pipe);
        });
    EXPECT_FALSE(result.broken()) << result.Text();
    fired = result.killed;
    if (result.Said("BEGUN").empty()) continue;
    ++begun;
    // Opened twice: what the first open swept away must not be forgotten.
    ExpectRan(InStore(false, [](Store& store, FaultFs&, const TrialPipe& pipe) {
      Must(store.Close(), "close", pipe);
    }));
    ExpectRan(
        InStore(false, [&](Store& store, FaultFs&, const TrialPipe& pipe) {
          StepBuilder builder = store.Begin(3);
          PutAll(*small_[1], builder);
          SaveHandle handle = std::move(builder).Commit();
          Must(handle.WaitCommitted(kTrialWait), "save 3", pipe);
          Must(handle.version() > 2,
               absl::StrFormat("version %d is used again, killed at %d",
                               handle.version(), n),
               pipe);
        }));
    if (HasFailure()) break;
  }
  EXPECT_FALSE(fired);
  EXPECT_GT(begun, 5);
}

// A record is written twice before it counts: damage in one copy of the newest
// takes no deletion back.
TEST_F(TrialRulesTest, TheTailOfACopyOfTheJournalIsDamagedAfterADelete) {
  const std::string kept = directory_.path() + "/kept";
  ExpectRan(InStore(true, [&](Store& store, FaultFs&, const TrialPipe& pipe) {
    Must(SaveStep(store, 1, *small_[0]), "save 1", pipe);
    Must(SaveStep(store, 2, *small_[1]), "save 2", pipe);
    Must(store.Delete(2), "delete 2", pipe);
  }));
  CopyStore(directory_.store(), kept);
  ModelState state;
  state.Save(1, small_[0]);
  for (const std::string name : {"a-0000000001", "b-0000000001"}) {
    const std::string file = directory_.store() + "/journal/" + name;
    std::ifstream stream(kept + "/journal/" + name, std::ios::binary);
    const std::string bytes(std::istreambuf_iterator<char>(stream), {});
    const std::size_t size = bytes.find_last_not_of('\0') + 1;
    ASSERT_GT(size, 4096u);
    for (std::size_t back = 1; back < 200; back += 17) {
      for (const bool cut : {false, true}) {
        CopyStore(kept, directory_.store());
        if (cut) {
          fs::resize_file(file, size - back);
        } else {
          FlipByte(file, size - back);
        }
        SCOPED_TRACE(absl::StrFormat("%s %s, %d from its end", name,
                                     cut ? "cut" : "flipped", back));
        // Whoever writes mends it.
        ExpectRan(
            InStore(false, [](Store& store, FaultFs&, const TrialPipe& pipe) {
              Must(store.Close(), "close", pipe);
            }));
        ExpectStore({state});
        if (HasFailure()) return;
      }
    }
  }
}

TEST_F(TrialRulesTest, AnUnknownOutcomeKillsTheHandleAndIsLearntByReopening) {
  const TrialResult result =
      InStore(true, [&](Store& store, FaultFs& faults, const TrialPipe& pipe) {
        Must(SaveStep(store, 1, *small_[0]), "save 1", pipe);
        faults.Arm({{.mode = Mode::kFail,
                     .kinds = Bit(CallKind::kSync),
                     .classes = Bit(FileClass::kJournal),
                     .error = EIO}});
        absl::Status failed = SaveStep(store, 2, *small_[1]);
        Must(absl::IsUnknown(failed),
             "not unknown: " + std::string(failed.ToString()), pipe);
        Must(!absl::StrContains(failed.message(), "was not saved"),
             "it may have been saved: " + std::string(failed.message()), pipe);
        Must(!SaveStep(store, 3, *small_[2]).ok(), "the handle lives", pipe);
        Must(!store.Delete(1).ok(), "the handle deletes", pipe);
      });
  ExpectRan(result);
  EXPECT_GT(counts_->fired, 0u);
  ModelState without;
  without.Save(1, small_[0]);
  ModelState with = without;
  with.Save(2, small_[1]);
  ExpectStore({with, without});
}

TEST_F(TrialRulesTest, ACopiedStoreIsAnotherIncarnation) {
  ModelState state;
  state.Save(1, small_[0]);
  state.Save(2, large_[0]);
  ExpectRan(InStore(true, [&](Store& store, FaultFs&, const TrialPipe& pipe) {
    Must(SaveStep(store, 1, *small_[0]), "save 1", pipe);
    Must(SaveStep(store, 2, *large_[0]), "save 2", pipe);
    pipe.Say(absl::StrFormat("INCARNATION %d", store.Info().incarnation));
  }));
  const std::string copy = directory_.path() + "/copy";
  CopyStore(directory_.store(), copy);
  std::vector<std::string> incarnations;
  for (const std::string& at : {directory_.store(), copy, copy}) {
    const TrialResult result = RunChild([&](const TrialPipe& pipe) {
      absl::StatusOr<Store> store = OpenStore(at, 1);
      Must(store.status(), "open", pipe);
      pipe.Say(absl::StrFormat("%d", store->Info().incarnation));
      if (auto wrong = StateDifference(*store, state)) {
        Must(false, *wrong, pipe);
      }
      Must(store->Close(), "close", pipe);
    });
    ExpectRan(result);
    ASSERT_EQ(result.lines.size(), 1u);
    incarnations.push_back(result.lines[0]);
  }
  EXPECT_NE(incarnations[0], incarnations[1]) << "the copy is not told apart";
  EXPECT_EQ(incarnations[1], incarnations[2]) << "a copy becomes new each time";
  ExpectStore({state});
  const TrialResult judged = RunChild(
      [&](const TrialPipe& pipe) { JudgeStore(copy, {state}, false, pipe); });
  EXPECT_EQ(Wrongs(judged), std::vector<std::string>());
}

// Cancelled at the 1st, 2nd, ... file-system call of a large save.
TEST_F(TrialRulesTest, ASaveIsCancelledAtEachStep) {
  int cancelled = 0;
  int committed = 0;
  // Two threads make one or two segments, and so more or fewer calls: a save
  // that ends before the n-th call is not yet the end.
  int unfired = 0;
  for (std::uint64_t n = 1; unfired < 5 && n < 500; ++n) {
    fs::remove_all(directory_.store());
    const TrialResult result = InStore(
        true, [&](Store& store, FaultFs& faults, const TrialPipe& pipe) {
          Must(SaveStep(store, 1, *large_[0]), "save 1", pipe);
          StepBuilder builder = store.Begin(2);
          PutAll(*large_[1], builder);
          SaveHandle handle;
          absl::Notification has_handle;
          faults.Arm({{.mode = Mode::kNotify, .at = n, .notify = [&] {
                         has_handle.WaitForNotification();
                         handle.Cancel();
                         pipe.Say("FIRED");
                       }}});
          handle = std::move(builder).Submit();
          has_handle.Notify();
          absl::Status status = handle.WaitCommitted(kTrialWait);
          Must(status.ok() || absl::IsCancelled(status),
               std::string(status.ToString()), pipe);
          pipe.Say(status.ok() ? "COMMITTED" : "CANCELLED");
          faults.Disarm();
          if (!status.ok()) {
            Must(StagingIsEmpty(directory_.store(), StoreIs::kOpen),
                 "staging is left", pipe);
          }
          Must(SaveStep(store, 3, *large_[2]), "save 3", pipe);
        });
    ExpectRan(result);
    const bool fired = !result.Said("FIRED").empty();
    unfired += fired ? 0 : 1;
    ModelState state;
    state.Save(1, large_[0]);
    if (!result.Said("COMMITTED").empty()) {
      state.Save(2, large_[1]);
      committed += fired ? 1 : 0;
    } else {
      ++cancelled;
    }
    state.Save(3, large_[2]);
    ExpectStore({state}, absl::StrFormat("cancelled at call %d", n));
    if (HasFailure()) break;
  }
  EXPECT_EQ(unfired, 5);
  EXPECT_GT(cancelled, 3);
  EXPECT_GT(committed, 0);
}

TEST_F(TrialRulesTest, AStepIsSavedOutOfOrder) {
  ExpectRan(InStore(true, [&](Store& store, FaultFs&, const TrialPipe& pipe) {
    Must(SaveStep(store, 10, *large_[0]), "save 10", pipe);
    Must(SaveStep(store, 30, *large_[1]), "save 30", pipe);
    Must(SaveStep(store, 20, *large_[2]), "save 20", pipe);
    absl::StatusOr<StepInfo> thirty = store.Resolve(AtStep(30));
    absl::StatusOr<StepInfo> twenty = store.Resolve(AtStep(20));
    Must(thirty.ok() && twenty.ok(), "resolve", pipe);
    Must(twenty->base == thirty->version, "bases follow steps", pipe);
    absl::StatusOr<StepInfo> latest = store.Resolve(Latest());
    Must(latest.ok() && latest->step == 30, "latest", pipe);
    Must(store.Delete(30), "delete 30", pipe);
    latest = store.Resolve(Latest());
    Must(latest.ok() && latest->step == 20, "latest after delete", pipe);
    Must(SaveStep(store, 5, *large_[3]), "save 5", pipe);
  }));
  ModelState state;
  state.Save(5, large_[3]);
  state.Save(10, large_[0]);
  state.Save(20, large_[2]);
  ExpectStore({state});
}

TEST_F(TrialRulesTest, AStepIsOverwritten) {
  ExpectRan(InStore(true, [&](Store& store, FaultFs&, const TrialPipe& pipe) {
    Must(SaveStep(store, 1, *large_[0]), "save 1", pipe);
    Must(SaveStep(store, 2, *large_[1]), "save 2", pipe);
    Must(absl::IsAlreadyExists(SaveStep(store, 1, *small_[0])), "exists", pipe);
    Must(SaveStep(store, 1, *large_[2], true), "overwrite 1", pipe);
    Must(SaveStep(store, 2, *small_[0], true), "overwrite 2", pipe);
    Must(SaveStep(store, 2, *small_[1], true), "overwrite 2 again", pipe);
    Must(store.Pin(1), "pin", pipe);
    Must(absl::IsFailedPrecondition(SaveStep(store, 1, *small_[2], true)),
         "a pinned step is overwritten", pipe);
    Must(absl::IsFailedPrecondition(store.Delete(1)), "... deleted", pipe);
    Must(SaveStep(store, 3, *small_[3]), "save 3", pipe);
  }));
  ModelState state;
  state.Save(1, large_[2]);
  state.Save(2, small_[1]);
  state.Save(3, small_[3]);
  state.pins.insert(1);
  ExpectStore({state});
}

}  // namespace
}  // namespace ckptree::testing
