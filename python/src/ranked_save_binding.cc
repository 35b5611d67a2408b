// SPDX-License-Identifier: Apache-2.0

// A step that several processes save, by messages that the caller carries.

#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "ckptree/ranks.h"
#include "python/src/bindings.h"
#include "python/src/errors.h"
#include "python/src/log_queue.h"
#include "python/src/save_handle.h"
#include "python/src/state_writer.h"
#include "python/src/waiting.h"

namespace nb = nanobind;

namespace ckptree::python {
namespace {

using StorePtr = std::shared_ptr<OpenStore>;

// The coordinator's side of a step, and the store it is of.
struct Ranked {
  StorePtr store;
  std::shared_ptr<OpenStore::OpenRanked> open;
};

std::string BytesOf(const nb::bytes& bytes) {
  return std::string(bytes.c_str(), bytes.size());
}

nb::bytes ToBytes(const std::string& bytes) {
  return nb::bytes(bytes.data(), bytes.size());
}

Ranked BeginRanked(const StorePtr& store, std::int64_t step, int world,
                   double deadline, bool overwrite, bool delete_later,
                   const std::string& branch,
                   const std::map<std::string, double>& metrics,
                   const std::string& note, const std::string& metadata) {
  store->release_queue()->Drain();
  const RankedSaveOptions ranks = {.world = world,
                                   .deadline = ToDuration(deadline)};
  const SaveOptions options = {
      .overwrite = overwrite, .delete_later = delete_later, .branch = branch};
  using Kept = std::shared_ptr<OpenStore::OpenRanked>;
  // It waits for the saves before it. Where a signal ends that wait, the save
  // is dropped when it has its turn.
  absl::StatusOr<Kept> open = LeaveOnSignal([=] {
    return store->With([&](Store& opened) -> absl::StatusOr<Kept> {
      StepBuilder about = opened.Begin(step, options);
      for (const auto& [name, value] : metrics) about.SetMetric(name, value);
      if (!note.empty()) about.SetNote(note);
      if (!metadata.empty()) about.SetCustomMetadata(metadata);
      absl::StatusOr<RankedSave> begun =
          RankedSave::Begin(std::move(about), ranks);
      if (!begun.ok()) return begun.status();
      return store->Keep(*std::move(begun));
    });
  });
  DeliverLogs();
  return {store, Take(std::move(open))};
}

Handle Commit(const Ranked& ranked, nb::typed<nb::list, nb::bytes> parts) {
  std::vector<std::string> tokens;
  for (const nb::handle part : parts) {
    tokens.push_back(BytesOf(nb::cast<nb::bytes>(part)));
  }
  Check(ranked.store->CheckProcess());
  if (ranked.open->answered.exchange(true)) {
    Raise(absl::FailedPreconditionError(
        "the save of these parts was committed or given up before"));
  }
  Handle handle{ranked.open->save.Commit(std::move(tokens)),
                ranked.store->release_queue(), ranked.store};
  handle.save.OnDone([done = handle.done] { done->Notify(); });
  return handle;
}

// Returns when the next save may have its turn. Does nothing where the save was
// answered, or ended with its store. With `tell`, raises what the save had
// ended with before, as at its deadline.
void Fail(const Ranked& ranked, const std::string& why, bool tell) {
  Check(ranked.store->CheckProcess());
  if (ranked.open->answered.exchange(true)) return;
  const absl::Status given = absl::AbortedError(why);
  // Who gives it up knows of the failure.
  const absl::Status ended =
      WithoutGil([&] { return ranked.open->save.Fail(given).WaitCommitted(); });
  const bool by_this = ended.code() == given.code() &&
                       absl::StrContains(ended.message(), given.message());
  if (tell && !by_this) Check(ended);
}

nb::bytes BuildPart(const StorePtr& store, const nb::bytes& plan, int rank,
                    nb::object state, nb::object rules_module) {
  store->release_queue()->Drain();
  const std::string text = BytesOf(plan);
  Unfinished part(Take(WithoutGil([&] {
    return store->With([&](Store& open) -> absl::StatusOr<StepBuilder> {
      StepBuilder begun = BeginPart(open, text, rank);
      // The caller has decided who saves what.
      begun.SetPerRank(Path());
      return begun;
    });
  })));
  const Rules rules(rules_module);
  // Lent: the part is built before anybody goes on.
  StateWriter writer(&*part.builder, &rules, Ownership::kBorrow);
  writer.Write(state);
  const nb::list kept = writer.Kept();
  Check(part.builder->status());
  absl::StatusOr<std::string> token = absl::UnknownError("it was not built");
  RunInterruptibly([&](Work&) {
    token = store->With([&](Store&) -> absl::StatusOr<std::string> {
      return FinishPart(*std::move(part.builder));
    });
    part.builder.reset();
  });
  store->release_queue()->Drain();
  DeliverLogs();
  return ToBytes(Take(std::move(token)));
}

}  // namespace

void BindRankedSave(nb::module_& m) {
  nb::class_<Ranked>(m, "RankedSave",
                     "The coordinator's side of a step of several processes.")
      .def_prop_ro(
          "plan",
          [](const Ranked& self) { return ToBytes(self.open->save.plan()); })
      .def("commit", &Commit, nb::arg("parts"))
      .def("fail", &Fail, nb::arg("why"), nb::arg("tell") = false);

  m.def("begin_ranked", &BeginRanked, nb::arg("store"), nb::arg("step"),
        nb::arg("world"), nb::arg("deadline"), nb::arg("overwrite"),
        nb::arg("delete_later"), nb::arg("branch"), nb::arg("metrics"),
        nb::arg("note"), nb::arg("metadata"));
  m.def("build_part", &BuildPart, nb::arg("store"), nb::arg("plan"),
        nb::arg("rank"), nb::arg("state").none(), nb::arg("rules"));
}

}  // namespace ckptree::python
