// SPDX-License-Identifier: Apache-2.0

#include "python/src/open_store.h"

#include <nanobind/nanobind.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "python/src/in_function.h"
#include "python/src/interpreter_lock.h"

namespace ckptree::python {
namespace {

// The last reference may be that of a Python object. Closing waits for threads
// that may call functions of Python.
template <typename Opened>
void Destroy(Opened* opened) {
  if (!nanobind::is_alive() || PyGILState_Check() == 0) {
    delete opened;
    return;
  }
  const Unlocked unlocked;
  delete opened;
}

// Whoever closes waits for saves, which may wait for the function.
absl::Status NotInFunction() {
  if (!IsInFunction()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "a function that the engine calls closes no store: close it when the "
      "function has returned");
}

}  // namespace

absl::Status OutcomeOf(const absl::Status& status) {
  return absl::IsDeadlineExceeded(status)
             ? absl::UnavailableError(status.message())
             : status;
}

OpenStore::OpenStore(std::string directory, CancelFlag cancel, bool has_remote,
                     int max_saves_in_flight)
    : directory_(std::move(directory)),
      cancel_(std::move(cancel)),
      has_remote_(has_remote),
      pid_(getpid()),
      max_saves_in_flight_(static_cast<std::uint64_t>(max_saves_in_flight)) {}

std::shared_ptr<OpenStore> OpenStore::Of(Store store, std::string directory,
                                         CancelFlag cancel, bool has_remote) {
  std::shared_ptr<OpenStore> open(
      new OpenStore(std::move(directory), std::move(cancel), has_remote, 0),
      &Destroy<OpenStore>);
  absl::MutexLock lock(&open->mu_);
  open->store_ = &open->alone_.emplace(std::move(store));
  return open;
}

std::shared_ptr<OpenStore> OpenStore::Of(RankGroup group, std::string directory,
                                         CancelFlag cancel,
                                         int max_saves_in_flight) {
  std::shared_ptr<OpenStore> open(
      new OpenStore(std::move(directory), std::move(cancel),
                    /*has_remote=*/false, max_saves_in_flight),
      &Destroy<OpenStore>);
  absl::MutexLock lock(&open->mu_);
  open->store_ = &open->group_.emplace(std::move(group)).store();
  return open;
}

OpenStore::~OpenStore() {
  if (forked()) {
    // The engine's threads are not in this process: nothing can be closed.
    absl::MutexLock lock(&mu_);
    new std::optional<Store>(std::move(alone_));
    new std::optional<RankGroup>(std::move(group_));
    return;
  }
  Close().IgnoreError();  // The engine logs it.
}

bool OpenStore::forked() const { return getpid() != pid_; }

bool OpenStore::closed() const {
  if (forked()) return true;
  const ReadHold lock(&mu_);
  return lock.ok() && store_ == nullptr;
}

absl::Status OpenStore::CheckProcess() const {
  if (!forked()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrFormat(
      "store %s was opened by process %d and this is its child %d, made by "
      "fork(): open the store again here with ckptree.open(), or start "
      "processes by 'spawn' or 'forkserver'",
      directory_, pid_, getpid()));
}

absl::Status OpenStore::Closed() const {
  return absl::FailedPreconditionError(
      absl::StrFormat("store %s was closed", directory_));
}

absl::Status OpenStore::Busy() const {
  return absl::FailedPreconditionError(absl::StrFormat(
      "store %s is being closed, which waits for the function that calls it",
      directory_));
}

absl::StatusOr<StepBuilder> OpenStore::Begin(std::int64_t step,
                                             const SaveOptions& options) {
  if (absl::Status status = CheckProcess(); !status.ok()) return status;
  const ReadHold lock(&mu_);
  if (!lock.ok()) return Busy();
  if (store_ == nullptr) return Closed();
  return group_.has_value() ? group_->Begin(step, options)
                            : store_->Begin(step, options);
}

void OpenStore::Begun(SaveHandle save) {
  {
    absl::MutexLock lock(&count_->mu);
    ++count_->begun;
  }
  save.OnDone([count = count_] {
    absl::MutexLock lock(&count->mu);
    ++count->ended;
  });
}

absl::Status OpenStore::WaitForRoom(absl::Duration timeout) {
  return With([&](Store& store) -> absl::Status {
    if (!group_.has_value()) return store.WaitForRoom(timeout);
    // A rank that only reads has no such call.
    absl::MutexLock lock(&count_->mu);
    const auto has_room = [this]() ABSL_SHARED_LOCKS_REQUIRED(count_->mu) {
      return count_->begun - count_->ended < max_saves_in_flight_;
    };
    if (count_->mu.AwaitWithTimeout(absl::Condition(&has_room), timeout)) {
      return absl::OkStatus();
    }
    return absl::DeadlineExceededError("saves are still in flight");
  });
}

std::uint64_t OpenStore::SavesBegun() {
  return With([&](Store& store) -> absl::StatusOr<std::uint64_t> {
           if (!group_.has_value()) return store.SavesBegun();
           absl::MutexLock lock(&count_->mu);
           return count_->begun;
         })
      .value_or(0);
}

absl::Status OpenStore::Flush(std::uint64_t saves, absl::Duration timeout) {
  return With([&](Store& store) -> absl::Status {
    if (!group_.has_value()) return store.Flush(saves, timeout);
    {
      absl::MutexLock lock(&count_->mu);
      const auto over = [this, saves]() ABSL_SHARED_LOCKS_REQUIRED(count_->mu) {
        return count_->ended >= saves;
      };
      if (!count_->mu.AwaitWithTimeout(absl::Condition(&over), timeout)) {
        return absl::DeadlineExceededError(
            "saves are still in flight; they go on");
      }
    }
    return OutcomeOf(group_->Flush());
  });
}

absl::StatusOr<std::shared_ptr<OpenStore::OpenStep>> OpenStore::Keep(
    absl::StatusOr<Step> step) {
  if (!step.ok()) return step.status();
  // In a child that was forked off the reader can no more be destroyed than
  // the store.
  const pid_t pid = pid_;
  std::shared_ptr<OpenStep> open(new OpenStep{*std::move(step)},
                                 [pid](OpenStep* gone) {
                                   if (getpid() == pid) delete gone;
                                 });
  absl::MutexLock lock(&opened_mu_);
  std::erase_if(steps_, [](const auto& other) { return other.expired(); });
  steps_.push_back(open);
  return open;
}

absl::StatusOr<std::shared_ptr<OpenStore::OpenStep>> OpenStore::Restore(
    const StepSelector& selector) {
  return With([&](Store& store) { return Keep(store.OpenStep(selector)); });
}

absl::StatusOr<std::shared_ptr<OpenStore::OpenStep>> OpenStore::Restore(
    OpenManager& manager, const StepSelector& selector,
    const std::vector<std::string>& items) {
  return WithManager(manager, [&](CheckpointManager& open) {
    return Keep(open.OpenStep(selector, items));
  });
}

absl::StatusOr<std::shared_ptr<OpenStore::OpenManager>> OpenStore::Manage(
    ManagerOptions options) {
  return With(
      [&](Store& store) -> absl::StatusOr<std::shared_ptr<OpenManager>> {
        // Another rank than 0 waits for it here.
        absl::StatusOr<CheckpointManager> manager =
            group_.has_value()
                ? CheckpointManager::Over(*group_, std::move(options))
                : CheckpointManager::Over(store, std::move(options));
        if (!manager.ok()) return manager.status();
        // As a step in a child that was forked off.
        const pid_t pid = pid_;
        std::shared_ptr<OpenManager> open(new OpenManager,
                                          [pid](OpenManager* gone) {
                                            if (getpid() == pid) Destroy(gone);
                                          });
        {
          absl::MutexLock manager_lock(&open->mu);
          open->manager.emplace(*std::move(manager));
        }
        absl::MutexLock lock(&opened_mu_);
        std::erase_if(managers_,
                      [](const auto& other) { return other.expired(); });
        managers_.push_back(open);
        return open;
      });
}

absl::Status OpenStore::CloseManager(OpenManager& open) {
  if (forked()) return absl::OkStatus();
  const absl::Status may_close = NotInFunction();
  if (!may_close.ok()) return may_close;
  absl::ReaderMutexLock lock(&mu_);
  absl::MutexLock manager_lock(&open.mu);
  if (!open.manager.has_value()) return absl::OkStatus();
  absl::Status status = open.manager->Close();
  open.manager.reset();
  return status;
}

std::shared_ptr<OpenStore::OpenRanked> OpenStore::Keep(RankedSave save) {
  // As a step in a child that was forked off.
  const pid_t pid = pid_;
  std::shared_ptr<OpenRanked> open(new OpenRanked(std::move(save)),
                                   [pid](OpenRanked* gone) {
                                     if (getpid() == pid) Destroy(gone);
                                   });
  absl::MutexLock lock(&opened_mu_);
  std::erase_if(ranked_, [](const auto& other) { return other.expired(); });
  ranked_.push_back(open);
  return open;
}

void OpenStore::EndRanked() {
  if (forked()) return;
  std::vector<std::weak_ptr<OpenRanked>> ranked;
  {
    absl::MutexLock lock(&opened_mu_);
    ranked.swap(ranked_);
  }
  for (const std::weak_ptr<OpenRanked>& weak : ranked) {
    const std::shared_ptr<OpenRanked> open = weak.lock();
    if (open == nullptr || open->answered.exchange(true)) continue;
    // Who closes knows why.
    open->save.Fail(absl::CancelledError("the store was closed"))
        .WaitCommitted()
        .IgnoreError();
  }
}

absl::Status OpenStore::Close() {
  if (forked()) return absl::OkStatus();
  const absl::Status may_close = NotInFunction();
  if (!may_close.ok()) return may_close;
  EndRanked();
  absl::MutexLock lock(&mu_);
  if (store_ == nullptr) return absl::OkStatus();
  // None is made without the lock of the store.
  std::vector<std::weak_ptr<OpenManager>> managers;
  {
    absl::MutexLock opened_lock(&opened_mu_);
    for (const std::weak_ptr<OpenStep>& weak : steps_) {
      if (const auto open = weak.lock()) open->step.reset();
    }
    steps_.clear();
    managers.swap(managers_);
  }
  absl::Status status;
  for (const std::weak_ptr<OpenManager>& weak : managers) {
    const std::shared_ptr<OpenManager> open = weak.lock();
    if (open == nullptr) continue;
    absl::MutexLock manager_lock(&open->mu);
    if (!open->manager.has_value()) continue;
    status.Update(open->manager->Close());
    open->manager.reset();
  }
  status.Update(group_.has_value() ? OutcomeOf(group_->Close())
                                   : store_->Close());
  store_ = nullptr;
  alone_.reset();
  group_.reset();
  return status;
}

}  // namespace ckptree::python
