// SPDX-License-Identifier: Apache-2.0

#include "python/src/save_handle.h"

#include <nanobind/stl/string.h>

#include <exception>
#include <string>
#include <utility>

#include "absl/cleanup/cleanup.h"
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

absl::Status Handle::WaitStagedOrDone() const {
  return WaitInterruptibly(
      absl::InfiniteDuration(), [this] { return save.Done(); },
      [this](absl::Duration moment) {
        return save.WaitStagedOrDone(moment)
                   ? absl::OkStatus()
                   : absl::DeadlineExceededError("the save goes on");
      });
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

absl::Status StatusOf(nb::handle error) {
  const nb::object said =
      nb::module_::import_("ckptree.errors").attr("to_status")(error);
  return absl::Status(static_cast<absl::StatusCode>(nb::cast<int>(said[0])),
                      nb::cast<std::string>(said[1]));
}

void GiveUp(const std::shared_ptr<OpenStore>& store, StepBuilder builder,
            const absl::Status& why, nb::list kept) {
  PyObject* const held = kept.release().ptr();
  WithoutGil([&] {
    StepBuilder failing = std::move(builder);
    const auto let_go = [queue = store->release_queue(), held] {
      queue->Add(held);
    };
    // Submitting it waits where there is no room, and who was interrupted waits
    // for nothing.
    if (!store->ranked() || !store->WaitForRoom(absl::ZeroDuration()).ok()) {
      let_go();
      return;
    }
    SaveHandle handle = std::move(failing).Fail(why).Submit();
    store->Begun(handle);
    // It is thrown here, and not told again.
    handle.OnCommitted([](const absl::Status&) {});
    handle.OnDone(let_go);
  });
}

namespace {

// Of what is being handled.
absl::Status StatusOfThrown() {
  try {
    throw;
  } catch (const nb::python_error& error) {
    return StatusOf(error.value());
  } catch (const std::exception& error) {
    return absl::InvalidArgumentError(error.what());
  }
}

// The state, and that it is complete.
void Fill(const std::shared_ptr<OpenStore>& store, StepBuilder* step,
          StateWriter* writer, const Rules& rules, nb::handle state) {
  writer->Write(state);
  const nb::object lines =
      rules.lineage(writer->shardings(), writer->variables());
  for (const auto [name, text] : nb::borrow<nb::dict>(lines)) {
    step->SetLineage(nb::cast<std::string>(name), nb::cast<std::string>(text));
  }
  Check(OutcomeOf(step->status()));
  // Committing to it would wait, too, and hear of no signal.
  WaitInterruptibly(
      absl::InfiniteDuration(), [] { return false; },
      [&](absl::Duration moment) { return store->WaitForRoom(moment); })
      .IgnoreError();  // The save fails, and says why.
}

}  // namespace

Handle SaveState(const std::shared_ptr<OpenStore>& store, StepBuilder builder,
                 nb::handle state, nb::handle rules_module, bool borrow,
                 const std::function<SaveHandle(StepBuilder)>& commit,
                 absl::Status* staged) {
  Unfinished step(std::move(builder));
  const Rules rules(rules_module);
  StateWriter writer(&*step.builder, &rules,
                     borrow ? Ownership::kBorrow : Ownership::kCopy);
  try {
    Fill(store, &*step.builder, &writer, rules, state);
  } catch (...) {
    const absl::Status why = StatusOfThrown();
    StepBuilder begun = *std::move(step.builder);
    step.builder.reset();
    GiveUp(store, std::move(begun), why, writer.Kept());
    throw;
  }

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
    // Also where the queue finds no memory: `kept` is kept for good then.
    const absl::Cleanup over = [&done] { done->Notify(); };
    queue->Add(kept);
  });
  if (!writer.copies()) return handle;
  // The caller may change the arrays as soon as this returns.
  try {
    *staged = store->ranked()
                  ? handle.WaitStagedOrDone()
                  : handle.Wait(std::nullopt, &SaveHandle::WaitStaged);
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
