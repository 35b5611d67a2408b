// SPDX-License-Identifier: Apache-2.0

// A store: opened, asked, changed and closed.

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <optional>

#include "ckptree/local_path.h"
#include "python/src/bindings.h"
#include "python/src/coding_option.h"
#include "python/src/errors.h"
#include "python/src/local_keep_option.h"
#include "python/src/log_queue.h"
#include "python/src/records.h"
#include "python/src/staging_memory.h"
#include "python/src/waiting.h"

namespace nb = nanobind;

namespace ckptree::python {
namespace {

using StorePtr = std::shared_ptr<OpenStore>;

// The steps that `selectors` mean.
std::vector<StepSelector> Parse(const std::vector<std::string>& selectors) {
  std::vector<StepSelector> parsed;
  for (const std::string& text : selectors) {
    parsed.push_back(Take(ParseSelector(text)));
  }
  return parsed;
}

template <typename Use>
auto With(const StorePtr& store, Use&& use) {
  store->release_queue()->Drain();
  return WithoutGil([&] { return store->With(use); });
}

// For questions that may take long. `use` owns what it uses.
template <typename Use>
auto AskLong(const StorePtr& store, Use use) {
  store->release_queue()->Drain();
  return LeaveOnSignal(
      [store, use = std::move(use)] { return store->With(use); });
}

// For changes: one waits for a commit that is on its way, however long the disk
// or a function of a policy takes for it. `use` owns what it uses.
template <typename Use>
void Change(const StorePtr& store, Use use) {
  Check(AskLong(store, std::move(use)));
}

// For what may take long: in a thread of its own.
template <typename Result, typename Use>
Result WithWork(const StorePtr& store, nb::handle progress, Use&& use) {
  std::optional<absl::StatusOr<Result>> result;
  RunInterruptibly(
      [&](Work& work) {
        result = store->With([&](Store& open) -> absl::StatusOr<Result> {
          return use(open, work);
        });
      },
      progress, {store->cancel()});
  store->release_queue()->Drain();
  DeliverLogs();
  return Take(*std::move(result));
}

StorePtr OpenOrCreate(nb::handle directory, const std::string& mode,
                      double lock_wait, int threads, std::size_t staging_bytes,
                      double staging_idle, std::size_t chunk_bytes,
                      bool collect, std::uint64_t collect_bytes_per_second,
                      bool statistics, int permissions, int max_saves_in_flight,
                      const std::optional<std::string>& coding,
                      const std::string& remote, const std::string& durable,
                      bool take_over, double remote_timeout,
                      double remote_grace,
                      const std::optional<std::string>& local_keep) {
  StoreOptions options;
  options.coding = ToCoding(coding);
  options.remote = remote;
  options.durable = durable == "remote" ? Durable::kRemote : Durable::kLocal;
  options.take_over = take_over;
  options.remote_timeout = ToDuration(remote_timeout);
  options.remote_grace = ToDuration(remote_grace);
  options.local_keep = ToLocalKeep(local_keep);
  options.create_if_missing = mode == "write or create";
  options.read_only = mode == "read";
  options.threads = threads;
  options.staging_bytes = staging_bytes;
  options.staging_idle = ToDuration(staging_idle);
  options.chunk_bytes = chunk_bytes;
  options.collect = collect;
  options.collect_bytes_per_second = collect_bytes_per_second;
  options.statistics = statistics;
  options.permissions = permissions;
  options.max_saves_in_flight = max_saves_in_flight;
  const std::string name = FromFileName(directory);
  const bool far = !remote.empty() || name.find("://") != std::string::npos;
  // A reader of this disk does nothing outside of calls, and has nothing to say
  // in most. The thread that logs, and what it imports, would take a tenth of
  // the time of a short program.
  const std::shared_ptr<StoreLog> log =
      StoreLog::Of(name, /*background=*/far || !options.read_only);
  options.log = log->Sink();
  options.host_allocator = StagingMemory();
  const absl::Duration wait = ToDuration(lock_wait);
  std::optional<absl::StatusOr<Store>> opened;
  const auto open = [&] {
    opened = mode == "create" ? Store::Create(name, options)
                              : Store::Open(name, options);
    return opened->status();
  };
  // Waits for the lock a moment at a time, for Ctrl-C.
  // An object store may be waited for long; else an open is quick.
  const CancelFlag cancel = std::make_shared<std::atomic<int>>(0);
  options.cancelled = [cancel] { return cancel->load() > 0; };
  if (far) {
    options.lock_wait = wait;
    RunInterruptibly([&](Work&) { open().IgnoreError(); }, nb::none(),
                     {cancel});
  }
  const absl::Status status =
      far ? opened->status()
          : WaitInterruptibly(
                wait, [] { return false; },
                [&](absl::Duration moment) -> absl::Status {
                  options.lock_wait = moment;
                  const absl::Status result = open();
                  return absl::IsUnavailable(result) &&
                                 wait > absl::ZeroDuration()
                             ? absl::DeadlineExceededError(result.message())
                             : result;
                });
  const StorePtr store =
      status.ok() ? OpenStore::Of(*std::move(*opened), name, cancel, far)
                  : nullptr;
  log->Opened();
  if (absl::IsDeadlineExceeded(status)) {
    Raise(absl::UnavailableError(status.message()));
  }
  Check(status);
  return store;
}

void Close(const StorePtr& store) {
  // Another thread may be closing it, and wait for what needs the GIL.
  if (store->forked() || WithoutGil([&] { return store->closed(); })) return;
  const bool writes = store->ranked() || WithoutGil([&] {
                        return store
                            ->With([](Store& open) -> absl::StatusOr<bool> {
                              return !open.Info().read_only;
                            })
                            .value_or(false);
                      });
  // First without the store's lock: readers go on, and Ctrl-C works.
  const std::uint64_t saves = WithoutGil([&] { return store->SavesBegun(); });
  absl::Status status = WaitInterruptibly(
      absl::InfiniteDuration(), [] { return false; },
      [&](absl::Duration moment) {
        store->EndRanked();
        return writes ? store->Flush(saves, moment) : absl::OkStatus();
      });
  if (store->has_remote()) {
    RunInterruptibly([&](Work&) { status.Update(store->Close()); }, nb::none(),
                     {store->cancel()});
  } else {
    status.Update(WithoutGil([&] { return store->Close(); }));
  }
  store->release_queue()->Drain();
  DeliverLogs();
  Check(status);
}

VerifyReport Verify(const StorePtr& store, const std::string& level,
                    const std::vector<std::string>& steps,
                    nb::handle progress) {
  VerifyOptions options;
  if (level == "quick") {
    options.level = VerifyOptions::Level::kQuick;
  } else if (level == "deep") {
    options.level = VerifyOptions::Level::kDeep;
  } else if (level != "full") {
    throw nb::value_error("the level is 'quick', 'full' or 'deep'");
  }
  options.steps = Parse(steps);
  return WithWork<VerifyReport>(store, progress, [&](Store& open, Work& work) {
    options.cancelled = work.Cancelled();
    options.on_progress = work.OnProgress();
    return open.Verify(options);
  });
}

// Its progress is counted in deleted saves.
CollectReport Collect(const StorePtr& store, double min_dead_fraction,
                      std::uint64_t bytes_per_second, bool pack,
                      nb::handle progress) {
  CollectOptions options;
  options.min_dead_fraction = min_dead_fraction;
  options.bytes_per_second = bytes_per_second;
  options.pack = pack;
  return WithWork<CollectReport>(store, progress, [&](Store& open, Work& work) {
    options.cancelled = work.Cancelled();
    options.on_progress =
        [say = work.OnProgress()](const CollectProgress& so_far) {
          say(so_far.versions_done, so_far.versions_total);
        };
    return open.Collect(options);
  });
}

void BindChanges(nb::class_<OpenStore>& store) {
  store
      .def(
          "delete",
          [](const StorePtr& self, const std::vector<std::string>& steps,
             bool tagged) {
            const auto selectors = Parse(steps);
            Change(self, [selectors, tagged](Store& s) {
              return s.Delete(selectors, {.tagged = tagged});
            });
          },
          nb::arg("steps"), nb::arg("tagged"))
      .def(
          "tag",
          [](const StorePtr& self, const std::string& name,
             const std::string& step, bool move) {
            const StepSelector selector = Take(ParseSelector(step));
            Change(self, [name, selector, move](Store& s) {
              return s.Tag(name, selector, {.move = move});
            });
          },
          nb::arg("name"), nb::arg("step"), nb::arg("move"))
      .def(
          "untag",
          [](const StorePtr& self, const std::string& name) {
            Change(self, [name](Store& s) { return s.Untag(name); });
          },
          nb::arg("name"))
      .def(
          "pin",
          [](const StorePtr& self, const std::string& step) {
            const StepSelector selector = Take(ParseSelector(step));
            Change(self, [selector](Store& s) { return s.Pin(selector); });
          },
          nb::arg("step"))
      .def(
          "unpin",
          [](const StorePtr& self, const std::string& step) {
            const StepSelector selector = Take(ParseSelector(step));
            Change(self, [selector](Store& s) { return s.Unpin(selector); });
          },
          nb::arg("step"))
      .def(
          "fork",
          [](const StorePtr& self, const std::string& step,
             const std::string& branch) {
            const StepSelector selector = Take(ParseSelector(step));
            Change(self, [selector, branch](Store& s) {
              return s.Fork(selector, branch);
            });
          },
          nb::arg("step"), nb::arg("branch"))
      .def(
          "drop_branch",
          [](const StorePtr& self, const std::string& branch, bool tagged) {
            Change(self, [branch, tagged](Store& s) {
              return s.DropBranch(branch, {.tagged = tagged});
            });
          },
          nb::arg("branch"), nb::arg("tagged"))
      .def(
          "collect",
          [](const StorePtr& self, double min_dead_fraction,
             std::uint64_t bytes_per_second, bool pack, nb::handle progress) {
            return ToDict(Collect(self, min_dead_fraction, bytes_per_second,
                                  pack, progress));
          },
          nb::arg("min_dead_fraction"), nb::arg("bytes_per_second"),
          nb::arg("pack"), nb::arg("progress").none() = nb::none());
}

void BindQuestions(nb::class_<OpenStore>& store) {
  store
      .def(
          "steps",
          [](const StorePtr& self, const std::string& branch) {
            return ToDicts(
                Take(With(self, [&](Store& s) { return s.Steps(branch); })));
          },
          nb::arg("branch"))
      .def(
          "step_numbers",
          [](const StorePtr& self, const std::string& branch) {
            return Take(
                With(self, [&](Store& s) { return s.StepNumbers(branch); }));
          },
          nb::arg("branch"))
      .def(
          "resolve",
          [](const StorePtr& self, const std::string& step) {
            const StepSelector selector = Take(ParseSelector(step));
            return ToDict(Take(
                With(self, [&](Store& s) { return s.Resolve(selector); })));
          },
          nb::arg("step"))
      .def(
          "tags",
          [](const StorePtr& self) {
            return ToDicts(Take(With(self, [](Store& s) { return s.Tags(); })));
          })
      .def("branches",
           [](const StorePtr& self) {
             return ToDicts(
                 Take(With(self, [](Store& s) { return s.Branches(); })));
           })
      .def("usage",
           [](const StorePtr& self) {
             return ToDict(
                 Take(AskLong(self, [](Store& s) { return s.Usage(); })));
           })
      .def(
          "would_free",
          [](const StorePtr& self, const std::vector<std::string>& steps) {
            const auto selectors = Parse(steps);
            return ToDict(Take(AskLong(self, [selectors](Store& s) {
              return s.WouldFree(selectors);
            })));
          },
          nb::arg("steps"))
      .def(
          "subtrees",
          [](const StorePtr& self, const std::string& step, int depth) {
            const StepSelector selector = Take(ParseSelector(step));
            return ToDicts(Take(AskLong(self, [selector, depth](Store& s) {
              return s.Subtrees(selector, depth);
            })));
          },
          nb::arg("step"), nb::arg("depth"))
      .def(
          "verify",
          [](const StorePtr& self, const std::string& level,
             const std::vector<std::string>& steps, nb::handle progress) {
            return ToDict(Verify(self, level, steps, progress));
          },
          nb::arg("level"), nb::arg("steps"),
          nb::arg("progress").none() = nb::none())
      .def("info",
           [](const StorePtr& self) {
             return ToDict(
                 Take(With(self, [](Store& s) -> absl::StatusOr<StoreInfo> {
                   return s.Info();
                 })));
           })
      .def("stats", [](const StorePtr& self) {
        return ToDict(Take(With(self, [](Store& s) -> absl::StatusOr<Stats> {
          return s.GetStats();
        })));
      });
}

}  // namespace

void BindStore(nb::module_& m) {
  m.def(
      "remove_store",
      [](const std::string& directory, std::size_t most_steps) {
        // What holds much takes long: Ctrl-C leaves it to its thread.
        Check(LeaveOnSignal([directory, most_steps] {
          return RemoveStore(directory, most_steps);
        }));
      },
      nb::arg("directory"), nb::arg("most_steps"));
  nb::class_<OpenStore> store(m, "Store", "A store that is open.");
  store
      .def("saves_begun",
           [](const StorePtr& self) {
             return WithoutGil([&] { return self->SavesBegun(); });
           })
      .def(
          "flush",
          [](const StorePtr& self, std::optional<double> timeout,
             std::optional<std::uint64_t> saves) {
            if (!saves.has_value()) {
              saves = WithoutGil([&] { return self->SavesBegun(); });
            }
            const absl::Status status = WaitInterruptibly(
                ToDuration(timeout), [] { return false; },
                [&](absl::Duration moment) {
                  return self->Flush(*saves, moment);
                });
            self->release_queue()->Drain();
            DeliverLogs();
            Check(status);
          },
          nb::arg("timeout").none(), nb::arg("saves").none() = nb::none())
      .def(
          "wait_replicated",
          [](const StorePtr& self, std::optional<double> timeout) {
            const absl::Status status = WaitInterruptibly(
                ToDuration(timeout), [] { return false; },
                [&](absl::Duration moment) {
                  return self->With(
                      [&](Store& s) { return s.WaitReplicated(moment); });
                });
            DeliverLogs();
            Check(status);
          },
          nb::arg("timeout").none())
      .def("refresh",
           [](const StorePtr& self) {
             if (!self->has_remote()) {
               const absl::Status refreshed =
                   With(self, [](Store& s) { return s.Refresh(); });
               DeliverLogs();
               Check(refreshed);
               return;
             }
             absl::Status status;
             RunInterruptibly(
                 [&](Work&) {
                   status = self->With([](Store& s) { return s.Refresh(); });
                 },
                 nb::none(), {self->cancel()});
             DeliverLogs();
             Check(status);
           })
      .def("close", &Close)
      .def_prop_ro("closed",
                   [](const StorePtr& self) {
                     return WithoutGil([&] { return self->closed(); });
                   })
      .def_prop_ro("forked",
                   [](const StorePtr& self) { return self->forked(); })
      .def_prop_ro("directory", [](const StorePtr& self) {
        return ToFileName(self->directory());
      });
  BindChanges(store);
  BindQuestions(store);
  BindStorePolicy(store);
  // Of a path as os.fspath() gives it.
  m.def(
      "local_path",
      [](nb::handle path) {
        return ToFileName(Take(LocalPath(FromFileName(path))));
      },
      nb::arg("path"));
  m.def("open", &OpenOrCreate, nb::arg("directory"), nb::arg("mode"),
        nb::arg("lock_wait"), nb::arg("threads"), nb::arg("staging_bytes"),
        nb::arg("staging_idle"), nb::arg("chunk_bytes"), nb::arg("collect"),
        nb::arg("collect_bytes_per_second"), nb::arg("statistics"),
        nb::arg("permissions"), nb::arg("max_saves_in_flight"),
        nb::arg("coding").none(), nb::arg("remote"), nb::arg("durable"),
        nb::arg("take_over"), nb::arg("remote_timeout"),
        nb::arg("remote_grace"), nb::arg("local_keep").none());
}

}  // namespace ckptree::python
