// SPDX-License-Identifier: Apache-2.0

// The manager of a training loop's steps.

#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "ckptree/manager.h"
#include "python/src/bindings.h"
#include "python/src/errors.h"
#include "python/src/interpreter_lock.h"
#include "python/src/log_queue.h"
#include "python/src/policy_functions.h"
#include "python/src/python_function.h"
#include "python/src/records.h"
#include "python/src/save_handle.h"
#include "python/src/step_object.h"
#include "python/src/waiting.h"

namespace nb = nanobind;

namespace ckptree::python {
namespace {

using StorePtr = std::shared_ptr<OpenStore>;
using Count = std::optional<std::int64_t>;

struct Manager {
  StorePtr store;
  std::shared_ptr<OpenStore::OpenManager> open;
  // Held from the end of a save until it is known which handle is its.
  std::unique_ptr<absl::Mutex> ending = std::make_unique<absl::Mutex>();

  // Calls `use` without the GIL; what functions raise in there is thrown.
  template <typename Use>
  auto With(Use&& use) const {
    store->release_queue()->Drain();
    return Calling([&] { return store->WithManager(*open, use); });
  }

  // For what never fails where the manager is open.
  template <typename Result, typename Use>
  Result Ask(Use&& use) const {
    return Take(With([&](CheckpointManager& manager) -> absl::StatusOr<Result> {
      return use(manager);
    }));
  }
};

template <typename Value>
Value Option(const nb::dict& options, const char* name) {
  return nb::cast<Value>(options[name]);
}

using Cancelled = std::function<bool()>;

// Calls `use` as Manager::With(), of what may wait; throws what a signal
// handler raises until then.
template <typename Use>
auto Waiting(const Manager& self, Use&& use) {
  std::optional<nb::python_error> raised;
  const Cancelled cancelled = [&raised] {
    const Locked locked;
    if (PyErr_CheckSignals() != 0) raised.emplace();
    return raised.has_value();
  };
  auto result = self.With(
      [&](CheckpointManager& manager) { return use(manager, cancelled); });
  if (raised.has_value()) throw std::move(*raised);
  return result;
}

// The function of that name, or none.
std::optional<nb::callable> Function(const nb::dict& options,
                                     const char* name) {
  const nb::object value = options[name];
  if (value.is_none()) return std::nullopt;
  return nb::cast<nb::callable>(value);
}

ManagerOptions ToOptions(const nb::dict& given) {
  ManagerOptions options;
  options.store.read_only = Option<bool>(given, "read_only");
  options.branch = Option<std::string>(given, "branch");
  options.save_interval_steps = Option<Count>(given, "save_interval_steps");
  options.save_on_steps =
      Option<std::vector<std::int64_t>>(given, "save_on_steps");
  if (auto function = Function(given, "should_save_fn")) {
    options.should_save_fn = ToSaveFn(*std::move(function));
  }
  options.save_decision =
      Option<std::optional<SaveDecision>>(given, "save_decision");
  options.max_to_keep = Option<Count>(given, "max_to_keep");
  options.keep_period = Option<Count>(given, "keep_period");
  if (const auto microseconds = Option<Count>(given, "keep_time_interval")) {
    options.keep_time_interval = absl::Microseconds(*microseconds);
  }
  if (auto function = Function(given, "should_keep_fn")) {
    options.should_keep_fn = ToKeepFn(*std::move(function));
  }
  options.best_metric = Option<std::string>(given, "best_metric");
  if (auto function = Function(given, "best_fn")) {
    options.best_fn = ToMetricFn(*std::move(function));
  }
  if (const auto mode =
          Option<std::optional<std::string>>(given, "best_mode")) {
    options.best_mode = *mode == "min" ? BestMode::kMin : BestMode::kMax;
  }
  options.keep_checkpoints_without_metrics =
      Option<bool>(given, "keep_checkpoints_without_metrics");
  options.preservation =
      Option<std::optional<Preservation>>(given, "preservation");
  options.metadata = Option<std::string>(given, "metadata");
  options.watch_sigterm = Option<bool>(given, "watch_sigterm");
  options.max_saves_in_flight = Option<int>(given, "max_saves_in_flight");
  options.save_timeout =
      ToDuration(Option<std::optional<double>>(given, "save_timeout"));
  return options;
}

Manager Manage(const StorePtr& store, const Record& given) {
  ManagerOptions options = ToOptions(given);
  store->release_queue()->Drain();
  // A rank waits for another, which may not come.
  auto managed =
      store->ranked()
          ? LeaveOnSignal([store, options = std::move(options)] {
              return store->Manage(options);
            })
          : Calling([&] { return store->Manage(std::move(options)); });
  DeliverLogs();
  return Manager{store, Take(std::move(managed))};
}

StepObject Restore(const Manager& self, const std::string& selector,
                   const std::vector<std::string>& items) {
  // "best": by its own metric.
  const StepSelector parsed =
      selector == "best" ? BestByPolicy() : Take(ParseSelector(selector));
  return StepObject{self.store, Take(Calling([&] {
                      return self.store->Restore(*self.open, parsed, items);
                    }))};
}

// Nothing where the step is not to be saved.
std::optional<Handle> Save(const Manager& self, std::int64_t step,
                           nb::handle state, nb::handle rules,
                           const std::map<std::string, double>& metrics,
                           const std::string& metadata, const std::string& note,
                           bool force, bool overwrite, bool borrow,
                           const std::vector<std::string>& per_rank) {
  SaveArguments arguments;
  arguments.metrics.assign(metrics.begin(), metrics.end());
  arguments.custom_metadata = metadata;
  arguments.note = note;
  arguments.force = force;
  arguments.overwrite = overwrite;
  auto decided = Waiting(
      self, [&](CheckpointManager& manager, const Cancelled& cancelled) {
        arguments.cancelled = cancelled;
        return manager.BeginSave(step, arguments);
      });
  std::optional<StepBuilder> builder = Take(std::move(decided));
  if (!builder.has_value()) {
    DeliverLogs();  // It may have said why.
    return std::nullopt;
  }
  for (const std::string& subtree : per_rank) builder->SetPerRank(subtree);
  absl::Status ended;
  // What fails in the background is told by the manager's next call, once.
  absl::Status staged;
  Handle handle = SaveState(
      self.store, *std::move(builder), state, rules, borrow,
      [&](StepBuilder begun) {
        const absl::MutexLock lock(self.ending.get());
        SaveHandle last;
        ended = self.store->WithManager(
            *self.open, [&](CheckpointManager& manager) {
              absl::Status status = manager.SubmitSave(std::move(begun));
              last = manager.LastSave();
              return status;
            });
        return last;
      },
      &staged);
  Check(ended);
  return handle;
}

// Of a rank whose call of save() came to nothing, because of `error`, before
// rank 0 was asked about the step.
void GiveUpSave(const Manager& self, std::int64_t step, nb::handle error,
                bool force, bool overwrite) {
  const absl::Status why = StatusOf(error);
  SaveArguments arguments;
  arguments.force = force;
  arguments.overwrite = overwrite;
  Check(Waiting(self,
                [&](CheckpointManager& manager, const Cancelled& cancelled) {
                  arguments.cancelled = cancelled;
                  return manager.GiveUpSave(step, why, arguments);
                }));
}

// Until nothing of its own, or of the store, is in flight, a moment at a time,
// for Ctrl-C; tells of no failure.
absl::Status Settle(const Manager& self, SavesOf whose,
                    std::optional<double> timeout) {
  return WaitInterruptibly(
      ToDuration(timeout), [] { return false; },
      [&](absl::Duration moment) {
        return self.store->WithManager(
            *self.open, [&](CheckpointManager& manager) {
              return manager.WaitForSaves(whose, moment);
            });
      });
}

void WaitUntilFinished(const Manager& self, std::optional<double> timeout) {
  const absl::Status waited = Settle(self, SavesOf::kManager, timeout);
  Check(self.With([&](CheckpointManager& manager) {
    return waited.ok() ? manager.WaitUntilFinished() : manager.CheckForErrors();
  }));
  Check(waited);
}

void Close(const Manager& self) {
  // Another thread may be closing it, and wait for what needs the GIL.
  if (self.store->forked() ||
      WithoutGil([&] { return self.store->closed(); })) {
    return;
  }
  // First without the lock: other calls go on, and Ctrl-C works.
  Settle(self, SavesOf::kManager, {}).IgnoreError();
  const absl::Status status =
      WithoutGil([&] { return self.store->CloseManager(*self.open); });
  self.store->release_queue()->Drain();
  Check(status);
}

void BindSaving(nb::class_<Manager>& manager) {
  manager
      .def(
          "should_save",
          [](const Manager& self, std::int64_t step) {
            return Take(Waiting(
                self, [&](CheckpointManager& m, const Cancelled& cancelled) {
                  return m.ShouldSave(step, cancelled);
                }));
          },
          nb::arg("step"))
      .def("save", &Save, nb::arg("step"), nb::arg("state").none(),
           nb::arg("rules"), nb::arg("metrics"), nb::arg("metadata"),
           nb::arg("note"), nb::arg("force"), nb::arg("overwrite"),
           nb::arg("borrow"), nb::arg("per_rank") = std::vector<std::string>())
      .def("give_up_save", &GiveUpSave, nb::arg("step"), nb::arg("error"),
           nb::arg("force"), nb::arg("overwrite"))
      .def("wait_until_finished", &WaitUntilFinished, nb::arg("timeout").none())
      // For all saves to the store; what failed stays to be told.
      .def(
          "settle",
          [](const Manager& self) { Check(Settle(self, SavesOf::kStore, {})); })
      .def("close", &Close)
      .def("check_for_errors",
           [](const Manager& self) {
             Check(self.With(
                 [](CheckpointManager& m) { return m.CheckForErrors(); }));
           })
      .def("is_saving_in_progress",
           [](const Manager& self) {
             return self.Ask<bool>(
                 [](CheckpointManager& m) { return m.IsSavingInProgress(); });
           })
      .def("request_preemption",
           [](const Manager& self) {
             Check(self.With([](CheckpointManager& m) {
               m.RequestPreemption();
               return absl::OkStatus();
             }));
           })
      .def(
          "reached_preemption",
          [](const Manager& self, Count step) {
            return Take(Waiting(
                self,
                [&](CheckpointManager& m,
                    const Cancelled& cancelled) -> absl::StatusOr<bool> {
                  if (!step.has_value()) return m.ReachedPreemption();
                  return m.ReachedPreemption(*step, cancelled);
                }));
          },
          nb::arg("step").none() = nb::none())
      .def("saved_for_preemption", [](const Manager& self) {
        return self.Ask<bool>(
            [](CheckpointManager& m) { return m.SavedForPreemption(); });
      });
}

void BindCatalog(nb::class_<Manager>& manager) {
  manager.def("restore", &Restore, nb::arg("selector"), nb::arg("items"))
      .def("all_steps",
           [](const Manager& self) {
             return Take(
                 self.With([](CheckpointManager& m) { return m.AllSteps(); }));
           })
      .def("latest_step",
           [](const Manager& self) {
             return Take(self.With(
                 [](CheckpointManager& m) { return m.LatestStep(); }));
           })
      .def("best_step",
           [](const Manager& self) {
             return Take(
                 self.With([](CheckpointManager& m) { return m.BestStep(); }));
           })
      .def(
          "metrics",
          [](const Manager& self, std::int64_t step) {
            const auto metrics = Take(self.With(
                [&](CheckpointManager& m) { return m.Metrics(step); }));
            return std::map<std::string, double>(metrics.begin(),
                                                 metrics.end());
          },
          nb::arg("step"))
      .def(
          "item_metadata",
          [](const Manager& self, std::int64_t step) {
            return ToDicts(Take(self.With(
                [&](CheckpointManager& m) { return m.ItemMetadata(step); })));
          },
          nb::arg("step"))
      .def("reload",
           [](const Manager& self) {
             Check(self.With([](CheckpointManager& m) { return m.Reload(); }));
           })
      .def(
          "delete",
          [](const Manager& self, std::int64_t step, bool tagged) {
            Check(Waiting(
                self, [&](CheckpointManager& m, const Cancelled& cancelled) {
                  return m.Delete(step, {.tagged = tagged}, cancelled);
                }));
          },
          nb::arg("step"), nb::arg("tagged") = false)
      .def(
          "delete_after",
          [](const Manager& self, std::int64_t step, bool tagged) {
            Check(Settle(self, SavesOf::kStore, {}));
            Check(Waiting(
                self, [&](CheckpointManager& m, const Cancelled& cancelled) {
                  return m.DeleteAfter(step, {.tagged = tagged}, cancelled);
                }));
          },
          nb::arg("step"), nb::arg("tagged") = false)
      .def(
          "fork_from",
          [](const Manager& self, std::int64_t step,
             const std::string& branch) {
            Check(Settle(self, SavesOf::kStore, {}));
            Check(Waiting(
                self, [&](CheckpointManager& m, const Cancelled& cancelled) {
                  return m.ForkFrom(step, branch, cancelled);
                }));
          },
          nb::arg("step"), nb::arg("branch"))
      .def_prop_ro("branch",
                   [](const Manager& self) {
                     return self.Ask<std::string>(
                         [](CheckpointManager& m) { return m.branch(); });
                   })
      .def_prop_ro("store", [](const Manager& self) { return self.store; });
}

}  // namespace

void BindManager(nb::module_& m) {
  nb::class_<Manager> manager(m, "Manager", "A manager that is open.");
  BindSaving(manager);
  BindCatalog(manager);
  // What would be an error of manage(), before a store is opened.
  m.def(
      "check_manager",
      [](const Record& options) { Check(ckptree::Check(ToOptions(options))); },
      nb::arg("options"));
  m.def("manage", &Manage, nb::arg("store"), nb::arg("options"));
}

}  // namespace ckptree::python
