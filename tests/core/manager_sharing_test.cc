// SPDX-License-Identifier: Apache-2.0

// Several managers over one open store.

#include <atomic>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/manager_fixture.h"
#include "tests/core/waiting_tensor.h"

namespace ckptree::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Optional;
using ::testing::SizeIs;
using Code = absl::StatusCode;

class ManagerSharingTest : public ManagerTest {
 protected:
  void SetUp() override {
    StoreOptions options = Quiet().store;
    options.create_if_missing = true;
    options.threads = 4;
    absl::StatusOr<Store> store = Store::Open(path(), options);
    ASSERT_OK(store);
    store_.emplace(*std::move(store));
  }

  absl::StatusOr<CheckpointManager> TryOver(ManagerOptions options = {}) {
    options.clock = [this] { return now_; };
    return CheckpointManager::Over(*store_, std::move(options));
  }
  CheckpointManager Over(ManagerOptions options = {}) {
    absl::StatusOr<CheckpointManager> manager = TryOver(std::move(options));
    EXPECT_OK(manager);
    return *std::move(manager);
  }
  static bool SaveBy(CheckpointManager& manager, std::int64_t step,
                     const SaveArguments& arguments = {}) {
    const absl::StatusOr<bool> saved = manager.Save(step, Fill, arguments);
    EXPECT_OK(saved);
    EXPECT_OK(manager.WaitUntilFinished(kLong));
    return saved.ok() && *saved;
  }
  // A save that goes on until `set` is given.
  static void BeginBy(CheckpointManager& manager, std::int64_t step,
                      absl::Notification& set) {
    auto builder = manager.BeginSave(step);
    ASSERT_OK(builder);
    ASSERT_TRUE(builder->has_value());
    (*builder)->Put("w", WaitingFor(set));
    ASSERT_OK(manager.SubmitSave(*std::move(*builder)));
  }
  static void BeginToFail(CheckpointManager& manager, std::int64_t step) {
    auto builder = manager.BeginSave(step);
    ASSERT_OK(builder);
    ASSERT_TRUE(builder->has_value());
    Tensor tensor;
    tensor.dtype = DType::kUint8;
    tensor.shape = {1000};
    tensor.copy = [](std::uint64_t, std::span<std::byte>) {
      return absl::InternalError("of the tensor");
    };
    (*builder)->Put("w", std::move(tensor));
    ASSERT_OK(manager.SubmitSave(*std::move(*builder)));
  }
  static std::vector<std::int64_t> StepsOf(const CheckpointManager& manager) {
    return manager.AllSteps().value();
  }

  std::optional<Store> store_;
};

TEST_F(ManagerSharingTest, EachSeesWhatTheOtherSaves) {
  CheckpointManager first = Over();
  CheckpointManager second = Over();
  EXPECT_TRUE(SaveBy(first, 1));
  EXPECT_THAT(StepsOf(second), ElementsAre(1));
  EXPECT_FALSE(SaveBy(second, 1));
  EXPECT_TRUE(SaveBy(second, 2));
  EXPECT_EQ(first.OpenStep()->step(), 2);
  EXPECT_THAT(first.LatestStep().value(), Optional(2));
  ASSERT_OK(first.Delete(2));
  EXPECT_THAT(StepsOf(second), ElementsAre(1));
  EXPECT_EQ(store_->Steps()->size(), 1u);
}

TEST_F(ManagerSharingTest, ClosesNothingButItself) {
  CheckpointManager first = Over();
  {
    CheckpointManager second = Over();
    EXPECT_TRUE(SaveBy(second, 1));
    ASSERT_OK(second.Close());
    ASSERT_OK(second.Close());
    const absl::StatusOr<bool> saved = second.Save(2, Fill);
    EXPECT_EQ(saved.status().code(), Code::kFailedPrecondition);
    EXPECT_THAT(std::string(saved.status().message()),
                HasSubstr("manager of " + path() + " was closed"));
    EXPECT_EQ(second.AllSteps().status().code(), Code::kFailedPrecondition);
    EXPECT_EQ(second.OpenStep().status().code(), Code::kFailedPrecondition);
    EXPECT_EQ(second.Delete(1).code(), Code::kFailedPrecondition);
  }
  EXPECT_TRUE(SaveBy(first, 3));
  // The store stays open while the manager is there.
  store_.reset();
  EXPECT_TRUE(SaveBy(first, 4));
  EXPECT_EQ(Opening({}).code(), Code::kUnavailable);
  { const CheckpointManager gone = std::move(first); }
  Open();
  EXPECT_THAT(Steps(), ElementsAre(1, 3, 4));
}

TEST_F(ManagerSharingTest, TheStoreMayCloseFirst) {
  CheckpointManager first = Over();
  CheckpointManager second = Over();
  EXPECT_TRUE(SaveBy(first, 1));
  BeginToFail(second, 2);
  EXPECT_OK(store_->Close());  // Who saved is told, not who closes.
  EXPECT_EQ(first.Save(3, Fill).status().code(), Code::kFailedPrecondition);
  EXPECT_EQ(first.AllSteps().status().code(), Code::kFailedPrecondition);
  EXPECT_OK(first.Close());
  EXPECT_THAT(std::string(second.Close().message()),
              HasSubstr("of the tensor"));
  Open();
  EXPECT_THAT(Steps(), ElementsAre(1));
}

TEST_F(ManagerSharingTest, SavesInFlightAreSeenByAll) {
  CheckpointManager first = Over();
  CheckpointManager second = Over();
  absl::Notification set;
  BeginBy(first, 5, set);
  EXPECT_FALSE(*second.ShouldSave(5));
  EXPECT_FALSE(*second.ShouldSave(4));
  EXPECT_TRUE(*second.ShouldSave(6));
  EXPECT_EQ(second.Save(5, Fill, {.force = true}).status().code(),
            Code::kAlreadyExists);
  EXPECT_TRUE(first.IsSavingInProgress());
  EXPECT_FALSE(second.IsSavingInProgress());
  EXPECT_OK(second.WaitUntilFinished(absl::ZeroDuration()));
  // Of the store as well.
  StepBuilder builder = store_->Begin(7);
  builder.PutInt("count", 7);
  SaveHandle save = std::move(builder).Submit();
  EXPECT_FALSE(*second.ShouldSave(7));
  EXPECT_TRUE(*second.ShouldSave(8));
  // To wait for one's own is not to wait for all.
  EXPECT_OK(second.WaitForSaves(SavesOf::kManager, kLong));
  EXPECT_EQ(second.WaitForSaves(SavesOf::kStore, absl::ZeroDuration()).code(),
            Code::kDeadlineExceeded);
  // Closing one waits for no save of another.
  EXPECT_OK(second.Close());
  set.Notify();
  EXPECT_OK(save.WaitCommitted(kLong));
  EXPECT_OK(first.WaitUntilFinished(kLong));
  EXPECT_THAT(StepsOf(first), ElementsAre(5, 7));
}

TEST_F(ManagerSharingTest, ReadingWaitsForAll) {
  CheckpointManager first = Over();
  CheckpointManager second = Over({.save_timeout = absl::Milliseconds(1)});
  absl::Notification set;
  BeginBy(first, 5, set);
  EXPECT_EQ(second.OpenStep().status().code(), Code::kDeadlineExceeded);
  EXPECT_EQ(second.DeleteAfter(5).code(), Code::kDeadlineExceeded);
  CheckpointManager third = Over();
  std::thread reads([&] {
    const absl::StatusOr<Step> step = third.OpenStep();
    ASSERT_OK(step);
    EXPECT_EQ(step->step(), 5);
  });
  set.Notify();
  reads.join();
}

TEST_F(ManagerSharingTest, FailuresAreToldToWhoSaved) {
  CheckpointManager first = Over();
  CheckpointManager second = Over();
  BeginToFail(first, 1);
  EXPECT_OK(store_->Flush(kLong));
  EXPECT_OK(first.WaitForSaves(SavesOf::kManager, kLong));  // Tells nothing.
  EXPECT_OK(second.WaitUntilFinished(kLong));
  EXPECT_TRUE(SaveBy(second, 2));
  EXPECT_OK(second.CheckForErrors());
  EXPECT_OK(second.Close());
  EXPECT_OK(store_->Flush());
  EXPECT_THAT(std::string(first.Save(3, Fill).status().message()),
              HasSubstr("of the tensor"));
  EXPECT_OK(first.CheckForErrors());
  EXPECT_TRUE(SaveBy(first, 3));
  EXPECT_THAT(StepsOf(first), ElementsAre(2, 3));
}

TEST_F(ManagerSharingTest, ABuilderOfAnotherStoreIsRefused) {
  CheckpointManager manager = Over();
  StoreOptions options = Quiet().store;
  options.create_if_missing = true;
  Store other = Store::Open(path() + "-other", options).value();
  const auto is_refused = [&](const absl::Status& status) {
    EXPECT_THAT(status, StatusIs(Code::kInvalidArgument,
                                 AllOf(HasSubstr(path() + "-other,"),
                                       HasSubstr(path()))));
  };
  is_refused(manager.EndSave(other.Begin(1)));
  is_refused(manager.SubmitSave(other.Begin(2)));
  EXPECT_OK(other.Flush(kLong));
  EXPECT_THAT(other.StepNumbers().value(), IsEmpty());
  EXPECT_TRUE(SaveBy(manager, 3));
  EXPECT_THAT(StepsOf(manager), ElementsAre(3));
}

TEST_F(ManagerSharingTest, EachSavesByItsOwnPolicy) {
  CheckpointManager few = Over({.max_to_keep = 1});
  EXPECT_TRUE(SaveBy(few, 0));
  CheckpointManager all = Over();
  // One that is opened to read changes nothing.
  EXPECT_EQ(store_->Policy()->text, "latest(1)");
  EXPECT_TRUE(SaveBy(few, 1));
  EXPECT_THAT(StepsOf(all), ElementsAre(1));
  EXPECT_TRUE(SaveBy(all, 2));
  EXPECT_TRUE(SaveBy(all, 3));
  EXPECT_THAT(StepsOf(all), ElementsAre(1, 2, 3));
  CheckpointManager two = Over({.max_to_keep = 2});
  EXPECT_EQ(store_->Policy()->text, "all");
  EXPECT_TRUE(SaveBy(two, 4));
  EXPECT_EQ(store_->Policy()->text, "latest(2)");
  EXPECT_THAT(StepsOf(all), ElementsAre(3, 4));
  EXPECT_TRUE(SaveBy(few, 5));
  EXPECT_THAT(StepsOf(all), ElementsAre(5));
  // Those that are gone leave theirs as a program that ended does.
  ASSERT_OK(few.Close());
  EXPECT_TRUE(SaveBy(all, 6));
  EXPECT_TRUE(SaveBy(all, 7));
  EXPECT_THAT(StepsOf(all), ElementsAre(5, 6, 7));
}

TEST_F(ManagerSharingTest, WhatIsSetByHandStays) {
  CheckpointManager few = Over({.max_to_keep = 1});
  CheckpointManager two = Over({.max_to_keep = 2});
  EXPECT_TRUE(SaveBy(two, 0));
  ASSERT_OK(store_->SetPolicy(LatestN{3}));
  for (std::int64_t step = 1; step < 5; ++step) {
    EXPECT_TRUE(SaveBy(step % 2 == 0 ? few : two, step));
  }
  EXPECT_THAT(StepsOf(few), ElementsAre(2, 3, 4));
  EXPECT_FALSE(store_->Policy()->from_program);
}

TEST_F(ManagerSharingTest, EachHasFunctionsOfItsOwn) {
  const auto keeping = [](std::int64_t kept) {
    ManagerOptions options;
    options.max_to_keep = 1;
    options.should_keep_fn = [kept](const PolicyStep& step) {
      return step.step == kept;
    };
    return options;
  };
  CheckpointManager first = Over(keeping(0));
  EXPECT_TRUE(SaveBy(first, 0));
  CheckpointManager second = Over(keeping(1));
  EXPECT_TRUE(SaveBy(first, 1));
  EXPECT_THAT(StepsOf(first), ElementsAre(0, 1));
  EXPECT_TRUE(SaveBy(second, 2));
  EXPECT_THAT(StepsOf(first), ElementsAre(1, 2));
  EXPECT_TRUE(SaveBy(first, 3));
  EXPECT_THAT(StepsOf(first), ElementsAre(3));
}

TEST_F(ManagerSharingTest, AForkTakesItsOwnPolicyAlong) {
  CheckpointManager few = Over({.max_to_keep = 1});
  EXPECT_TRUE(SaveBy(few, 0));
  CheckpointManager two = Over({.max_to_keep = 2});
  ASSERT_OK(few.ForkFrom(0, "colder"));
  EXPECT_EQ(store_->Policy("colder")->text, "latest(1)");
  EXPECT_TRUE(SaveBy(two, 1));
  EXPECT_TRUE(SaveBy(two, 2));
  EXPECT_TRUE(SaveBy(few, 1));
  EXPECT_TRUE(SaveBy(few, 2));
  EXPECT_THAT(StepsOf(two), ElementsAre(1, 2));
  EXPECT_THAT(StepsOf(few), ElementsAre(2));
}

// The settings of a branch go with it, and whoever brought its policy brings it
// again to another one of that name.
TEST_F(ManagerSharingTest, ABranchThatIsMadeAnew) {
  CheckpointManager main = Over();
  EXPECT_TRUE(SaveBy(main, 1));
  ASSERT_OK(store_->Fork(1, "trial"));
  CheckpointManager early = Over({.branch = "trial", .max_to_keep = 2});
  const auto run = [&](CheckpointManager& manager) {
    for (std::int64_t step = 2; step < 6; ++step) {
      EXPECT_TRUE(SaveBy(manager, step));
    }
    EXPECT_EQ(store_->Policy("trial")->text, "latest(2)");
    EXPECT_THAT(StepsOf(manager), ElementsAre(4, 5));
  };
  run(early);
  // One that found that policy when it was opened.
  CheckpointManager late = Over({.branch = "trial", .max_to_keep = 2});
  for (CheckpointManager* const manager : {&early, &late}) {
    ASSERT_OK(store_->DropBranch("trial"));
    ASSERT_OK(store_->Fork(1, "trial"));
    run(*manager);
  }
  // What was set by hand stays there, too.
  ASSERT_OK(store_->DropBranch("trial"));
  ASSERT_OK(store_->Fork(1, "trial"));
  ASSERT_OK(store_->SetPolicy(LatestN{3}, "trial"));
  for (std::int64_t step = 2; step < 6; ++step) {
    EXPECT_TRUE(SaveBy(early, step));
  }
  EXPECT_THAT(StepsOf(early), ElementsAre(3, 4, 5));
}

TEST_F(ManagerSharingTest, OptionsThatContradictTheStore) {
  ManagerOptions chunks;
  chunks.store.chunk_bytes = 64 << 10;
  ManagerOptions saves;
  saves.max_saves_in_flight = 3;
  ManagerOptions threads;
  threads.store.threads = 2;
  ManagerOptions coding;
  coding.store.coding = Coding::kPlanes;
  ManagerOptions collects;
  collects.store.collect = true;  // As usual: it says nothing.
  ManagerOptions log;
  log.store.log = [](LogSeverity, std::string_view, std::string_view) {};
  const std::vector<std::pair<ManagerOptions, std::string>> cases = {
      {chunks, "chunk_bytes is 65536, and the store is open with 4194304"},
      {saves, "max_saves_in_flight is 3, and the store is open with 2"},
      {threads, "threads is 2, and the store is open with 4"},
      {coding, "coding is kPlanes, and the store is open with kNone"},
      {log, "log"}};
  for (const auto& [options, text] : cases) {
    const absl::Status status = TryOver(options).status();
    EXPECT_EQ(status.code(), Code::kFailedPrecondition);
    EXPECT_THAT(std::string(status.message()), HasSubstr(text));
  }
  EXPECT_OK(TryOver(collects));
  EXPECT_EQ(TryOver({.save_interval_steps = 0}).status().code(),
            Code::kInvalidArgument);
  EXPECT_EQ(TryOver({.branch = "none"}).status().code(), Code::kNotFound);
}

TEST_F(ManagerSharingTest, OptionsOfARemoteThatContradictTheStore) {
  ManagerOptions remote;
  remote.store.remote = "file://" + path() + "-there";
  // With the remote of the store, which these are of.
  StoreOptions shipping = Quiet().store;
  shipping.remote = "file://" + path() + "-here";
  ManagerOptions durable;
  durable.store.remote = shipping.remote;
  ManagerOptions keep = durable;
  ManagerOptions patient = durable;
  ManagerOptions grace = durable;
  ManagerOptions taking = durable;
  durable.store.durable = Durable::kRemote;
  keep.store.local_keep = LatestN{1};
  patient.store.remote_timeout = absl::Seconds(1);
  grace.store.remote_grace = absl::Seconds(1);
  taking.store.take_over = true;
  ManagerOptions cancelled;
  cancelled.store.cancelled = [] { return false; };
  shipping.threads = 4;
  shipping.chunk_bytes = StoreOptions().chunk_bytes;
  shipping.create_if_missing = true;
  store_.reset();
  store_.emplace(Store::Open(path(), shipping).value());
  EXPECT_OK(TryOver(ManagerOptions{.store = {.remote = shipping.remote}}));
  const std::vector<std::pair<ManagerOptions, std::string>> cases = {
      {remote, "remote is not the one that the store is open with"},
      {durable, "durable is kRemote, and the store is open with kLocal"},
      {keep, "local_keep is 'latest(1)', and the store is open with 'not gi"},
      {patient, "remote_timeout is 1s, and the store is open with 10m"},
      {grace, "remote_grace is 1s, and the store is open with 1h"},
      {taking, "take_over is true, and the store is open with false"},
      {cancelled, "cancelled"}};
  for (const auto& [options, text] : cases) {
    const absl::Status status = TryOver(options).status();
    EXPECT_EQ(status.code(), Code::kFailedPrecondition) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr(text));
  }
}

TEST_F(ManagerSharingTest, ReadsOnly) {
  CheckpointManager writer = Over();
  EXPECT_TRUE(SaveBy(writer, 1));
  ManagerOptions reads;
  reads.store.read_only = true;
  CheckpointManager reader = Over(reads);
  EXPECT_FALSE(*reader.ShouldSave(2));
  EXPECT_FALSE(*reader.Save(2, Fill));
  for (const absl::Status& refused :
       {reader.Delete(1), reader.DeleteAfter(1), reader.ForkFrom(1, "f")}) {
    EXPECT_EQ(refused.code(), Code::kFailedPrecondition) << refused;
    EXPECT_THAT(std::string(refused.message()), HasSubstr("reads only"));
  }
  EXPECT_THAT(StepsOf(reader), ElementsAre(1));
  EXPECT_THAT(*store_->Branches(), SizeIs(1));  // The main one.
  // Over a store that only reads it must say so.
  StoreOptions options;
  options.read_only = true;
  const Store beside = *Store::Open(path(), options);
  EXPECT_THAT(std::string(CheckpointManager::Over(beside).status().message()),
              HasSubstr("read_only is false, and the store is open with true"));
  CheckpointManager follower = *CheckpointManager::Over(beside, reads);
  EXPECT_TRUE(SaveBy(writer, 2));
  ASSERT_OK(follower.Reload());
  EXPECT_THAT(StepsOf(follower), ElementsAre(1, 2));
}

TEST_F(ManagerSharingTest, APreemptionIsThatOfEach) {
  CheckpointManager first =
      Over({.save_interval_steps = 100, .watch_sigterm = true});
  CheckpointManager second =
      Over({.save_interval_steps = 100, .watch_sigterm = true});
  EXPECT_TRUE(SaveBy(first, 0));
  ASSERT_EQ(std::raise(SIGTERM), 0);
  EXPECT_TRUE(*first.Save(1, Fill));
  EXPECT_TRUE(first.SavedForPreemption());
  EXPECT_FALSE(second.SavedForPreemption());
  EXPECT_TRUE(*second.Save(2, Fill));
  EXPECT_TRUE(second.SavedForPreemption());
  EXPECT_THAT(StepsOf(first), ElementsAre(0, 1, 2));
}

// Each step is tried by four threads: one gets it, and every failure is told
// once, to the manager of the save.
TEST_F(ManagerSharingTest, ThreadsSaveTheSameSteps) {
  constexpr std::int64_t kSteps = 25;
  std::vector<CheckpointManager> managers;
  managers.push_back(Over());
  managers.push_back(Over({.max_to_keep = 1000}));
  std::atomic<std::uint64_t> begun = 0;
  std::atomic<std::uint64_t> told = 0;
  const auto tell = [&](const absl::Status& status) {
    EXPECT_EQ(status.code(), Code::kAlreadyExists) << status;
    if (absl::StrContains(status.message(), "was not saved")) ++told;
  };
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      CheckpointManager& manager = managers[i % 2];
      for (std::int64_t step = 0; step < kSteps;) {
        const absl::StatusOr<bool> saved =
            manager.Save(step, Fill, {.force = true});
        if (saved.ok()) {
          EXPECT_TRUE(*saved);
          ++begun;
        } else {
          tell(saved.status());
        }
        // What was told may be of an earlier save, and this one not begun.
        if (saved.ok() ||
            !absl::StrContains(saved.status().message(), "was not saved")) {
          ++step;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (CheckpointManager& manager : managers) {
    ASSERT_OK(manager.WaitForSaves(SavesOf::kManager, kLong));
    while (true) {
      const absl::Status status = manager.CheckForErrors();
      if (status.ok()) break;
      tell(status);
    }
  }
  std::vector<std::int64_t> all;
  for (std::int64_t step = 0; step < kSteps; ++step) all.push_back(step);
  EXPECT_EQ(StepsOf(managers[0]), all);
  EXPECT_EQ(begun, kSteps + told);
  EXPECT_EQ(store_->GetStats().saves_failed, told);
  for (CheckpointManager& manager : managers) EXPECT_OK(manager.Close());
  EXPECT_THAT(store_->Verify()->findings, IsEmpty());
}

}  // namespace
}  // namespace ckptree::testing
