// SPDX-License-Identifier: Apache-2.0

#include "python/src/save_handle.h"

#include <nanobind/stl/string.h>

#include <string>
#include <utility>

#include "python/src/errors.h"
#include "python/src/log_queue.h"
#include "python/src/state_writer.h"
#include "python/src/waiting.h"

namespace nb = nanobind;

namespace ckptree::python {

Unfinished::~Unfinished() {
  if (builder.has_value()) WithoutGil([this] { builder.reset(); });
}

absl::Status Handle::Wait(std::optional<double> timeout,
                          absl::Status (SaveHandle::*wait)(absl::Duration)) {
  const absl::Duration duration = ToDuration(timeout);
  if (store->forked()) return store->CheckProcess();
  absl::Status status = WaitInterruptibly(
      duration, [this] { return save.Done(); },
      [this, wait](absl::Duration moment) { return (save.*wait)(moment); });
  if (absl::IsDeadlineExceeded(status) && save.Done()) {
    status = OutcomeOf((save.*wait)(absl::ZeroDuration()));
  }
  release_queue->Drain();
  DeliverLogs();
  return status;
}

absl::Status Handle::WaitDone(std::optional<double> timeout) const {
  const absl::Duration duration = ToDuration(timeout);
  if (store->forked()) return store->CheckProcess();
  return WaitInterruptibly(
      duration, [this] { return done->HasBeenNotified(); },
      [this](absl::Duration moment) {
        return done->WaitForNotificationWithTimeout(moment)
                   ? absl::OkStatus()
                   : absl::DeadlineExceededError("the save goes on");
      });
}

Handle SaveState(const std::shared_ptr<OpenStore>& store, StepBuilder builder,
                 nb::handle state, nb::handle rules_module, bool borrow,
                 const std::function<SaveHandle(StepBuilder)>& commit,
                 absl::Status* staged) {
  Unfinished step(std::move(builder));
  const Rules rules(rules_module);
  StateWriter writer(&*step.builder, &rules,
                     borrow ? Ownership::kBorrow : Ownership::kCopy);
  writer.Write(state);
  const auto sharding =
      nb::cast<std::string>(rules.sharding_text(writer.shardings()));
  if (!sharding.empty()) {
    step.builder->SetLineage(nb::cast<std::string>(rules.sharding_line),
                             sharding);
  }
  Check(OutcomeOf(step.builder->status()));
  // Committing to it would wait, too, and hear of no signal.
  WaitInterruptibly(
      absl::InfiniteDuration(), [] { return false; },
      [&](absl::Duration moment) { return store->WaitForRoom(moment); })
      .IgnoreError();  // The save fails, and says why.

  Handle handle{WithoutGil([&] {
                  SaveHandle begun = commit(*std::move(step.builder));
                  step.builder.reset();
                  store->Begun(begun);
                  return begun;
                }),
                store->release_queue(), store};
  // What fails stays to be told: here nobody looks at the result.
  handle.save.OnDone([queue = handle.release_queue, done = handle.done,
                      kept = writer.Kept().inc_ref().ptr()] {
    queue->Add(kept);
    done->Notify();
  });
  if (!writer.copies()) return handle;
  // The caller may change the arrays as soon as this returns.
  try {
    *staged = handle.Wait(std::nullopt, &SaveHandle::WaitStaged);
  } catch (...) {
    // Interrupted: their bytes must not be read any more.
    handle.save.Cancel();
    WithoutGil([&] {
      handle.save.WaitCommitted(absl::InfiniteDuration()).IgnoreError();
    });
    throw;
  }
  return handle;
}

}  // namespace ckptree::python
