// SPDX-License-Identifier: Apache-2.0

// A store that several processes save to: one rank opens it here.

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "ckptree/ranks.h"
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

template <typename Value>
Value Option(const nb::dict& options, const char* name) {
  return nb::cast<Value>(options[name]);
}

// Waits for the other ranks. Where a signal handler raises, the group that may
// yet come of it is closed at once.
std::shared_ptr<OpenStore> OpenRanks(nb::handle directory, bool create,
                                     int rank, int world,
                                     const std::string& job, double deadline,
                                     double open_deadline, bool shared_folder,
                                     const Record& given) {
  RankOptions options;
  options.rank = rank;
  options.world = world;
  options.job = job;
  options.deadline = ToDuration(deadline);
  options.open_deadline = ToDuration(open_deadline);
  options.shared_folder = shared_folder;
  StoreOptions& store = options.store;
  store.create_if_missing = create;
  store.lock_wait = ToDuration(Option<double>(given, "lock_wait"));
  store.threads = Option<int>(given, "threads");
  store.staging_bytes = Option<std::size_t>(given, "staging_bytes");
  store.staging_idle = ToDuration(Option<double>(given, "staging_idle"));
  store.chunk_bytes = Option<std::size_t>(given, "chunk_bytes");
  store.collect = Option<bool>(given, "collect");
  store.collect_bytes_per_second =
      Option<std::uint64_t>(given, "collect_bytes_per_second");
  store.statistics = Option<bool>(given, "statistics");
  store.permissions = Option<int>(given, "permissions");
  store.coding = ToCoding(Option<std::optional<std::string>>(given, "coding"));
  store.remote = Option<std::string>(given, "remote");
  store.durable = Option<std::string>(given, "durable") == "remote"
                      ? Durable::kRemote
                      : Durable::kLocal;
  store.take_over = Option<bool>(given, "take_over");
  store.remote_timeout = ToDuration(Option<double>(given, "remote_timeout"));
  store.remote_grace = ToDuration(Option<double>(given, "remote_grace"));
  store.local_keep =
      ToLocalKeep(Option<std::optional<std::string>>(given, "local_keep"));
  store.max_saves_in_flight = Option<int>(given, "max_saves_in_flight");
  const std::string name = FromFileName(directory);
  const std::shared_ptr<StoreLog> log = StoreLog::Of(name, /*background=*/true);
  store.log = log->Sink();
  store.host_allocator = StagingMemory();
  const auto cancel = std::make_shared<std::atomic<int>>(0);
  store.cancelled = [cancel] { return cancel->load() > 0; };
  absl::StatusOr<RankGroup> group =
      LeaveOnSignal([name, options] { return RankGroup::Open(name, options); });
  const absl::Status status = group.status();
  const std::shared_ptr<OpenStore> opened =
      status.ok() ? OpenStore::Of(*std::move(group), name, cancel,
                                  options.store.max_saves_in_flight)
                  : nullptr;
  log->Opened();
  Check(OutcomeOf(status));
  return opened;
}

}  // namespace

void BindRankGroup(nb::module_& m) {
  m.def("open_ranks", &OpenRanks, nb::arg("directory"), nb::arg("create"),
        nb::arg("rank"), nb::arg("world"), nb::arg("job"), nb::arg("deadline"),
        nb::arg("open_deadline"), nb::arg("shared_folder"), nb::arg("options"));
}

}  // namespace ckptree::python
