// SPDX-License-Identifier: Apache-2.0

// A store as the Python objects that belong to it share it.

#ifndef CKPTREE_PYTHON_SRC_OPEN_STORE_H_
#define CKPTREE_PYTHON_SRC_OPEN_STORE_H_

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "ckptree/manager.h"
#include "ckptree/ranks.h"
#include "ckptree/save.h"
#include "ckptree/step.h"
#include "ckptree/store.h"
#include "python/src/read_hold.h"
#include "python/src/release_queue.h"
#include "python/src/waiting.h"

namespace ckptree::python {

// How a save ended, which is not to be taken for a wait that ended: what failed
// because a rank did not come in time is kUnavailable.
absl::Status OutcomeOf(const absl::Status& status);

// The engine wants its steps gone before the store, Python drops objects in any
// order and from any thread: so closing drops the steps that are still open,
// and waits for the calls that use them.
//
// Thread-safe. Nothing here needs the GIL, and nothing may be called with it
// that another thread could hold up; what Of() returns lets go of it by itself.
class OpenStore : public std::enable_shared_from_this<OpenStore> {
 public:
  // A step that closing the store takes away.
  struct OpenStep {
    std::optional<Step> step;
  };
  // A manager over the store, which may close before it.
  struct OpenManager {
    // Read by every call, written by closing; after the lock of the store.
    absl::Mutex mu;
    std::optional<CheckpointManager> manager ABSL_GUARDED_BY(mu);
  };

  // A step of several processes, until it is answered. Thread-safe.
  struct OpenRanked {
    explicit OpenRanked(RankedSave begun) : save(std::move(begun)) {}
    RankedSave save;
    // By Commit() or Fail(): one call is.
    std::atomic<bool> answered = false;
  };

  // To be destroyed with or without the GIL.
  // `cancel`: what the store asks while it waits for an object store, which
  // opening, refreshing and closing do where `has_remote`.
  static std::shared_ptr<OpenStore> Of(Store store, std::string directory,
                                       CancelFlag cancel, bool has_remote);
  // Of one rank among several; at most `max_saves_in_flight` of its saves are.
  static std::shared_ptr<OpenStore> Of(RankGroup group, std::string directory,
                                       CancelFlag cancel,
                                       int max_saves_in_flight);
  OpenStore(const OpenStore&) = delete;
  OpenStore& operator=(const OpenStore&) = delete;
  ~OpenStore();

  const std::string& directory() const { return directory_; }
  const CancelFlag& cancel() const { return cancel_; }
  bool has_remote() const { return has_remote_; }
  // Whether a read may wait for an object store.
  bool MayReadRemote() {
    return With([](Store& store) -> absl::StatusOr<bool> {
             return store.MayReadRemote();
           })
        .value_or(false);
  }
  const std::shared_ptr<ReleaseQueue>& release_queue() const {
    return release_queue_;
  }

  // Calls `use` with the store, which stays open until it returns. Statuses of
  // kFailedPrecondition are returned instead where it is closed, or where this
  // is a child that was forked off.
  template <typename Use>
  auto With(Use&& use) -> decltype(use(std::declval<Store&>())) {
    if (absl::Status status = CheckProcess(); !status.ok()) return status;
    const ReadHold lock(&mu_);
    if (!lock.ok()) return Busy();
    if (store_ == nullptr) return Closed();
    return std::forward<Use>(use)(*store_);
  }

  // A step of this process, or of all ranks.
  absl::StatusOr<StepBuilder> Begin(std::int64_t step,
                                    const SaveOptions& options);
  // To be told of each save that was committed to.
  void Begun(SaveHandle save);
  // As the functions of the store, and of the group.
  absl::Status WaitForRoom(absl::Duration timeout);
  // Of the first `saves` of SavesBegun(), and not of those that others begin
  // while it is waited a moment at a time.
  absl::Status Flush(std::uint64_t saves, absl::Duration timeout);
  std::uint64_t SavesBegun();

  template <typename Use>
  auto WithManager(OpenManager& open, Use&& use)
      -> decltype(use(std::declval<CheckpointManager&>())) {
    if (absl::Status status = CheckProcess(); !status.ok()) return status;
    const ReadHold lock(&mu_);
    if (!lock.ok()) return Busy();
    if (store_ == nullptr) return Closed();
    const ReadHold manager_lock(&open.mu);
    if (!manager_lock.ok()) return Busy();
    if (!open.manager.has_value()) return Closed();
    return std::forward<Use>(use)(*open.manager);
  }

  template <typename Use>
  auto WithStep(const OpenStep& open, Use&& use)
      -> decltype(use(std::declval<const Step&>())) {
    if (absl::Status status = CheckProcess(); !status.ok()) return status;
    const ReadHold lock(&mu_);
    if (!lock.ok()) return Busy();
    if (!open.step.has_value()) return Closed();
    return std::forward<Use>(use)(*open.step);
  }

  template <typename Use>
  auto WithStoreAndStep(const OpenStep& open, Use&& use)
      -> decltype(use(std::declval<Store&>(), std::declval<const Step&>())) {
    if (absl::Status status = CheckProcess(); !status.ok()) return status;
    const ReadHold lock(&mu_);
    if (!lock.ok()) return Busy();
    if (!open.step.has_value()) return Closed();
    return std::forward<Use>(use)(*store_, *open.step);
  }

  // Of one store or of two; both stay open.
  template <typename Use>
  static auto WithSteps(OpenStore& a_store, const OpenStep& a,
                        OpenStore& b_store, const OpenStep& b, Use&& use)
      -> decltype(use(std::declval<const Step&>(),
                      std::declval<const Step&>())) {
    // Each lock once, and two in the order of their addresses: a thread that
    // closes one of the stores waits for those who read, and holds up others.
    if (&a_store == &b_store) {
      return a_store.WithStep(
          a, [&](const Step& step) -> decltype(use(step, step)) {
            if (!b.step.has_value()) return a_store.Closed();
            return use(step, *b.step);
          });
    }
    if (std::less<>()(&a_store, &b_store)) {
      return a_store.WithStep(a, [&](const Step& a_step) {
        return b_store.WithStep(
            b, [&](const Step& b_step) { return use(a_step, b_step); });
      });
    }
    return b_store.WithStep(b, [&](const Step& b_step) {
      return a_store.WithStep(
          a, [&](const Step& a_step) { return use(a_step, b_step); });
    });
  }

  absl::StatusOr<std::shared_ptr<OpenStep>> Restore(
      const StepSelector& selector);
  // As CheckpointManager::OpenStep().
  absl::StatusOr<std::shared_ptr<OpenStep>> Restore(
      OpenManager& manager, const StepSelector& selector,
      const std::vector<std::string>& items);

  // As CheckpointManager::Over(); what it returns is to be destroyed with or
  // without the GIL.
  absl::StatusOr<std::shared_ptr<OpenManager>> Manage(ManagerOptions options);
  // Waits for its saves in flight. Again: nothing happens.
  absl::Status CloseManager(OpenManager& open);

  // What it returns is to be destroyed with or without the GIL.
  std::shared_ptr<OpenRanked> Keep(RankedSave save);
  // Gives up the saves of ranks that nobody has answered: closing waits for
  // all that are in flight.
  void EndRanked();

  bool closed() const;
  // Whether it is one rank among several.
  bool ranked() const { return max_saves_in_flight_ > 0; }
  // True in a child that was forked off.
  bool forked() const;
  // kFailedPrecondition there.
  absl::Status CheckProcess() const;

  // Waits for saves in flight, and closes the managers first. Again: nothing
  // happens.
  absl::Status Close();

 private:
  // How many saves of this rank there were, and are over.
  struct Count {
    absl::Mutex mu;
    std::uint64_t begun ABSL_GUARDED_BY(mu) = 0;
    std::uint64_t ended ABSL_GUARDED_BY(mu) = 0;
  };

  OpenStore(std::string directory, CancelFlag cancel, bool has_remote,
            int max_saves_in_flight);
  absl::Status Closed() const;
  // To a function that is called while the store closes.
  absl::Status Busy() const;
  absl::StatusOr<std::shared_ptr<OpenStep>> Keep(absl::StatusOr<Step> step);

  const std::string directory_;
  const CancelFlag cancel_;
  const bool has_remote_;
  const pid_t pid_;
  const std::shared_ptr<ReleaseQueue> release_queue_ =
      std::make_shared<ReleaseQueue>();

  // Read by every call, written by Close().
  mutable absl::Mutex mu_;
  // One of the two is what is open, and has the store.
  std::optional<Store> alone_ ABSL_GUARDED_BY(mu_);
  std::optional<RankGroup> group_ ABSL_GUARDED_BY(mu_);
  Store* store_ ABSL_GUARDED_BY(mu_) = nullptr;  // Null: closed.

  // Of a group.
  const std::uint64_t max_saves_in_flight_;
  const std::shared_ptr<Count> count_ = std::make_shared<Count>();

  absl::Mutex opened_mu_ ABSL_ACQUIRED_AFTER(mu_);
  std::vector<std::weak_ptr<OpenStep>> steps_ ABSL_GUARDED_BY(opened_mu_);
  std::vector<std::weak_ptr<OpenManager>> managers_ ABSL_GUARDED_BY(opened_mu_);
  std::vector<std::weak_ptr<OpenRanked>> ranked_ ABSL_GUARDED_BY(opened_mu_);
};

}  // namespace ckptree::python

#endif  // CKPTREE_PYTHON_SRC_OPEN_STORE_H_
