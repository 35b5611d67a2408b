// SPDX-License-Identifier: Apache-2.0

#include "python/src/open_store.h"

#include <nanobind/nanobind.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"

namespace ckptree::python {
namespace {

// The last reference may be that of a Python object. Closing waits for threads
// that may call functions of Python.
void Destroy(OpenStore* store) {
  if (!nanobind::is_alive() || PyGILState_Check() == 0) {
    delete store;
    return;
  }
  const nanobind::gil_scoped_release release;
  delete store;
}

}  // namespace

OpenStore::OpenStore(std::string directory)
    : directory_(std::move(directory)), pid_(getpid()) {}

std::shared_ptr<OpenStore> OpenStore::Of(Store store, std::string directory) {
  std::shared_ptr<OpenStore> open(new OpenStore(std::move(directory)),
                                  &Destroy);
  absl::MutexLock lock(&open->mu_);
  open->store_.emplace(std::move(store));
  return open;
}

std::shared_ptr<OpenStore> OpenStore::Of(CheckpointManager manager,
                                         std::string directory) {
  std::shared_ptr<OpenStore> open(new OpenStore(std::move(directory)),
                                  &Destroy);
  absl::MutexLock lock(&open->mu_);
  open->manager_.emplace(std::move(manager));
  return open;
}

OpenStore::~OpenStore() {
  if (forked()) {
    // The engine's threads are not in this process: nothing can be closed.
    absl::MutexLock lock(&mu_);
    new std::optional<Store>(std::move(store_));
    new std::optional<CheckpointManager>(std::move(manager_));
    return;
  }
  Close().IgnoreError();  // The engine logs it.
}

bool OpenStore::forked() const { return getpid() != pid_; }

bool OpenStore::closed() const {
  if (forked()) return true;
  absl::ReaderMutexLock lock(&mu_);
  return !store_.has_value() && !manager_.has_value();
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
  absl::MutexLock lock(&steps_mu_);
  std::erase_if(steps_, [](const auto& other) { return other.expired(); });
  steps_.push_back(open);
  return open;
}

absl::StatusOr<std::shared_ptr<OpenStore::OpenStep>> OpenStore::Restore(
    const StepSelector& selector) {
  return With([&](Store& store) { return Keep(store.OpenStep(selector)); });
}

absl::StatusOr<std::shared_ptr<OpenStore::OpenStep>> OpenStore::Restore(
    const StepSelector& selector, const std::vector<std::string>& items) {
  return WithManager([&](CheckpointManager& manager) {
    return Keep(manager.OpenStep(selector, items));
  });
}

absl::Status OpenStore::Close() {
  if (forked()) return absl::OkStatus();
  absl::MutexLock lock(&mu_);
  if (!store_.has_value() && !manager_.has_value()) return absl::OkStatus();
  {
    absl::MutexLock steps_lock(&steps_mu_);
    for (const std::weak_ptr<OpenStep>& weak : steps_) {
      if (const auto open = weak.lock()) open->step.reset();
    }
    steps_.clear();
  }
  absl::Status status =
      manager_.has_value() ? manager_->Close() : store_->Close();
  manager_.reset();
  store_.reset();
  return status;
}

}  // namespace ckptree::python
