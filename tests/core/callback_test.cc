// SPDX-License-Identifier: Apache-2.0

// Functions of the caller that throw: nothing comes through a public function,
// and the store goes on.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "absl/synchronization/notification.h"
#include "ckptree/history.h"
#include "ckptree/manager.h"
#include "ckptree/repair.h"
#include "tests/core/fixture.h"
#include "tests/core/waiting_tensor.h"

namespace ckptree::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr auto kInternal = absl::StatusCode::kInternal;

[[noreturn]] void Throw() { throw std::runtime_error("out of tea"); }
bool ThrowsInsteadOfBool() { Throw(); }

class CallbackTest : public CoreTest {
 protected:
  void SetUp() override {
    CoreTest::SetUp();
    ASSERT_OK(Save(1, bytes_));
    ASSERT_OK(Save(2, bytes_));
  }
  // Step 9, of a store that is opened anew, once `set` is given.
  SaveHandle SaveWhenSet(absl::Notification& set) {
    StoreOptions options = Options();
    options.threads = 4;
    Open(options);
    StepBuilder builder = store_->Begin(9);
    builder.Put("w", WaitingFor(set));
    return builder.Submit();
  }
  // The status says what was thrown; the store is as it was, and saves.
  void ExpectThrown(const absl::Status& status) {
    EXPECT_THAT(status, StatusIs(kInternal, HasSubstr("out of tea")));
  }
  void TearDown() override {
    if (!store_.has_value()) Open();
    EXPECT_THAT(StepNumbers(), ElementsAre(1, 2));
    EXPECT_OK(Save(3, bytes_));
    EXPECT_EQ(Read(AtStep(3)), bytes_);
    ExpectClean();
  }

  const Bytes bytes_ = RandomBytes(300'000, 1);
};

TEST_F(CallbackTest, Verify) {
  VerifyOptions options;
  options.cancelled = ThrowsInsteadOfBool;
  ExpectThrown(store_->Verify(options).status());
  options = {};
  options.on_progress = [](std::uint64_t, std::uint64_t) { Throw(); };
  ExpectThrown(store_->Verify(options).status());
}

TEST_F(CallbackTest, Collect) {
  // There is something to collect.
  ASSERT_OK(Save(2, RandomBytes(300'000, 2), {.overwrite = true}));
  ASSERT_OK(Save(2, bytes_, {.overwrite = true}));
  CollectOptions options;
  options.cancelled = ThrowsInsteadOfBool;
  ExpectThrown(store_->Collect(options).status());
}

TEST_F(CallbackTest, History) {
  HistoryOptions options;
  options.cancelled = ThrowsInsteadOfBool;
  ExpectThrown(History(*store_, "w", options).status());
}

TEST_F(CallbackTest, Recover) {
  store_.reset();
  RecoverOptions options;
  options.cancelled = ThrowsInsteadOfBool;
  ExpectThrown(Recover(path(), dir_ / "copy", options).status());
  EXPECT_FALSE(std::filesystem::exists(dir_ / "copy"));
}

TEST_F(CallbackTest, Repair) {
  store_.reset();
  // Both copies: it must be put together anew, and asks before.
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(path())) {
    const std::string name = entry.path().filename();
    if (name.starts_with("MANIFEST") || name == "CURRENT") {
      std::filesystem::resize_file(entry.path(), 3);
    }
  }
  RepairOptions options;
  options.execute = true;
  int asked = 0;
  options.confirm = [&asked](const RepairReport&) -> bool {
    ++asked;
    Throw();
  };
  const absl::Status status = Repair(path(), options).status();
  if (asked > 0) ExpectThrown(status);
  options.confirm = {};
  EXPECT_OK(Repair(path(), options));
  EXPECT_EQ(asked, 1);
}

// It would wait for the commit that waits for it.
TEST_F(CallbackTest, APolicyThatCallsItsStore) {
  int asked = 0;
  const auto expect_refused = [](const absl::Status& status) {
    EXPECT_THAT(status, testing::StatusIs(absl::StatusCode::kFailedPrecondition,
                                          HasSubstr("a function of a policy")));
  };
  ASSERT_OK(store_->SetPolicy(
      CustomPreservation{"all", [&](std::span<const PolicyStep> steps) {
                           ++asked;
                           expect_refused(store_->OpenStep(Latest()).status());
                           expect_refused(store_->Steps().status());
                           expect_refused(store_->Delete(11));
                           expect_refused(store_->WaitForSaves());
                           return std::vector<bool>(steps.size(), true);
                         }}));
  ASSERT_OK(Save(11, Bytes(10)));
  ASSERT_OK(Save(12, Bytes(10)));
  EXPECT_GE(asked, 2);
  EXPECT_THAT(StepNumbers(), ::testing::IsSupersetOf({11, 12}));
  ASSERT_OK(store_->SetPolicy(PreserveAll()));
  ASSERT_OK(store_->Delete(11));
  ASSERT_OK(store_->Delete(12));
}

TEST_F(CallbackTest, OnCommitted) {
  absl::Notification set;
  SaveHandle save = SaveWhenSet(set);
  int called = 0;
  const auto throws = [&called](const absl::Status& status) {
    EXPECT_OK(status);
    ++called;
    Throw();
  };
  save.OnCommitted(throws);
  save.OnCommitted(nullptr);
  save.OnDone([&called] {
    ++called;
    Throw();
  });
  set.Notify();
  ASSERT_OK(save.WaitCommitted());
  EXPECT_OK(store_->Flush());
  // Over: each is called at once.
  save.OnCommitted(throws);
  save.OnDone([&called] {
    ++called;
    Throw();
  });
  save.OnDone(nullptr);
  SaveHandle().OnCommitted(nullptr);
  SaveHandle().OnCommitted([&called](const absl::Status& status) {
    EXPECT_FALSE(status.ok());
    ++called;
    Throw();
  });
  ASSERT_OK(store_->Close());
  EXPECT_EQ(called, 5);
  Open();
  ASSERT_OK(store_->Delete(9));
}

// The store cannot wait for the callback that destroys it.
TEST_F(CallbackTest, DestroysItsStore) {
  absl::Notification set;
  absl::Notification destroyed;
  SaveHandle save = SaveWhenSet(set);
  save.OnCommitted([&](const absl::Status& status) {
    EXPECT_OK(status);
    store_.reset();
    destroyed.Notify();
  });
  set.Notify();
  destroyed.WaitForNotification();
  ASSERT_OK(save.WaitCommitted());
  StoreOptions options = Options();
  options.lock_wait = absl::Minutes(1);
  Open(options);
  EXPECT_THAT(StepNumbers(), ElementsAre(1, 2, 9));
  ASSERT_OK(store_->Delete(9));
}

// Nor can a manager: it is told so, reads what is there, and may go.
TEST_F(CallbackTest, ClosesAndReadsByAManager) {
  for (const bool own : {false, true}) {
    std::optional<CheckpointManager> manager;
    absl::Notification set;
    absl::Notification called;
    ManagerOptions options;
    options.save_timeout = kLong;
    StoreOptions opening = Options();
    opening.threads = 4;
    if (own) {
      store_.reset();
      opening.lock_wait = absl::Minutes(1);
      options.store = opening;
      manager.emplace(CheckpointManager::Open(path(), options).value());
    } else {
      Open(opening);
      manager.emplace(CheckpointManager::Over(*store_, options).value());
    }
    const auto save = [&](std::int64_t step, Tensor tensor) {
      auto builder = manager->BeginSave(step, {.force = true});
      (*builder)->Put("w", std::move(tensor));
      EXPECT_OK(manager->SubmitSave(**std::move(builder)));
      return manager->LastSave();
    };
    SaveHandle first = save(8, Uint8s(bytes_));
    SaveHandle second = save(9, WaitingFor(set));
    // Behind it another is in flight.
    second.OnCommitted([&](const absl::Status& status) {
      EXPECT_OK(status);
      EXPECT_THAT(manager->Close(),
                  StatusIs(absl::StatusCode::kFailedPrecondition,
                           HasSubstr("callback")));
      {
        const absl::StatusOr<Step> read = manager->OpenStep(AtStep(1));
        EXPECT_OK(read);
        if (read.ok()) EXPECT_EQ(read->Value("w")->bytes, bytes_);
      }
      manager.reset();
      called.Notify();
    });
    SaveHandle third;
    {
      StepBuilder builder = manager->store().Begin(10);
      builder.Put("w", Uint8s(bytes_));
      third = std::move(builder).Submit();
    }
    set.Notify();
    called.WaitForNotification();
    EXPECT_FALSE(manager.has_value());
    EXPECT_OK(first.WaitCommitted());
    EXPECT_OK(second.WaitCommitted());
    EXPECT_OK(third.WaitCommitted());
    opening.lock_wait = absl::Minutes(1);
    Open(opening);
    EXPECT_THAT(StepNumbers(), ElementsAre(1, 2, 8, 9, 10));
    for (const std::int64_t step : {8, 9, 10}) ASSERT_OK(store_->Delete(step));
  }
}

TEST_F(CallbackTest, Manager) {
  store_.reset();
  ManagerOptions options;
  options.store = Options();
  bool late = false;
  options.clock = [&late]() -> absl::Time {
    if (late) Throw();
    return absl::Now();
  };
  auto manager = CheckpointManager::Open(path(), options);
  ASSERT_OK(manager);
  const auto fill = [](StepBuilder& builder) -> absl::Status {
    builder.PutInt("n", 1);
    Throw();
  };
  ExpectThrown(manager->Save(7, fill).status());
  late = true;
  ExpectThrown(manager->ShouldSave(7).status());
  ExpectThrown(manager->Save(7, fill).status());
  EXPECT_THAT(manager->AllSteps(), IsOkAndHolds(ElementsAre(1, 2)));
  EXPECT_OK(manager->Close());
}

}  // namespace
}  // namespace ckptree::testing
