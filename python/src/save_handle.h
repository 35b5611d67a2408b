// SPDX-License-Identifier: Apache-2.0

// A save of a state: begun, and followed by its handle.

#ifndef CKPTREE_PYTHON_SRC_SAVE_HANDLE_H_
#define CKPTREE_PYTHON_SRC_SAVE_HANDLE_H_

#include <nanobind/nanobind.h>

#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "absl/synchronization/notification.h"
#include "ckptree/save.h"
#include "python/src/open_store.h"

namespace ckptree::python {

// A builder that nothing comes of takes locks of the engine, which functions of
// policies are called under: they need the GIL.
struct Unfinished {
  explicit Unfinished(StepBuilder begun) : builder(std::move(begun)) {}
  Unfinished(const Unfinished&) = delete;
  Unfinished& operator=(const Unfinished&) = delete;
  ~Unfinished();

  std::optional<StepBuilder> builder;
};

// A handle, and the store it comes from.
struct Handle {
  SaveHandle save;
  std::shared_ptr<ReleaseQueue> release_queue;
  std::shared_ptr<OpenStore> store;
  // Given when the save is committed, failed or cancelled.
  std::shared_ptr<absl::Notification> done =
      std::make_shared<absl::Notification>();

  absl::Status Wait(std::optional<double> timeout,
                    absl::Status (SaveHandle::*wait)(absl::Duration));
  // They see no result: a failure is raised elsewhere.
  absl::Status WaitStagedOrDone() const;
  absl::Status WaitDone(std::optional<double> timeout) const;
};

// The status nearest to an exception of Python, with its class in the text.
absl::Status StatusOf(nanobind::handle error);

// Fails the step of `builder` because of `why`. Among ranks the others hear
// that; where the step of a group is only dropped, they hear no reason. `kept`:
// what must stay alive as long as the engine may read it.
void GiveUp(const std::shared_ptr<OpenStore>& store, StepBuilder builder,
            const absl::Status& why, nanobind::list kept);

// Puts `state` into what `builder` puts together; `commit` is called without
// the GIL. Returns when the caller may change its arrays again, and puts into
// `staged` how the save stood then; OK among ranks, where a failure of others
// may have come by then or not, and is the handle's to tell. Throws what
// StateWriter throws, and what a signal handler does: the save is cancelled
// then. Until it is committed to, the other ranks of a group are told what was
// thrown.
Handle SaveState(const std::shared_ptr<OpenStore>& store, StepBuilder builder,
                 nanobind::handle state, nanobind::handle rules_module,
                 bool borrow,
                 const std::function<SaveHandle(StepBuilder)>& commit,
                 absl::Status* staged);

}  // namespace ckptree::python

#endif  // CKPTREE_PYTHON_SRC_SAVE_HANDLE_H_
