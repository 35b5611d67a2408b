// SPDX-License-Identifier: Apache-2.0

// Saving: a state becomes a step, and a handle follows it.

#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "python/src/bindings.h"
#include "python/src/errors.h"
#include "python/src/records.h"
#include "python/src/save_handle.h"
#include "python/src/state_map.h"
#include "python/src/waiting.h"

namespace nb = nanobind;

namespace ckptree::python {
namespace {

Handle Save(const std::shared_ptr<OpenStore>& store, std::int64_t step,
            nb::object state, nb::object rules_module, bool overwrite,
            bool delete_later, const std::string& branch,
            const std::map<std::string, double>& metrics,
            const std::string& note, const std::string& metadata, bool borrow,
            std::optional<std::int64_t> time_ns,
            const std::vector<std::string>& per_rank) {
  store->release_queue()->Drain();
  StepBuilder builder = Take(WithoutGil([&] {
    SaveOptions options = {
        .overwrite = overwrite, .delete_later = delete_later, .branch = branch};
    if (time_ns.has_value()) options.time = absl::FromUnixNanos(*time_ns);
    return store->Begin(step, options);
  }));
  for (const std::string& subtree : per_rank) builder.SetPerRank(subtree);
  for (const auto& [name, value] : metrics) builder.SetMetric(name, value);
  if (!note.empty()) builder.SetNote(note);
  if (!metadata.empty()) builder.SetCustomMetadata(metadata);
  absl::Status staged;
  Handle handle = SaveState(
      store, std::move(builder), state, rules_module, borrow,
      [](StepBuilder begun) { return std::move(begun).Submit(); }, &staged);
  Check(staged);
  return handle;
}

// Of a rank whose call of save() came to nothing, because of `error`, before
// the step was begun.
void GiveUpStep(const std::shared_ptr<OpenStore>& store, std::int64_t step,
                nb::handle error, bool overwrite, bool delete_later,
                const std::string& branch) {
  if (!store->ranked()) return;
  const absl::Status why = StatusOf(error);
  StepBuilder builder = Take(WithoutGil([&] {
    return store->Begin(step, {.overwrite = overwrite,
                               .delete_later = delete_later,
                               .branch = branch});
  }));
  GiveUp(store, std::move(builder), why, nb::list());
}

}  // namespace

void BindSave(nb::module_& m) {
  nb::class_<Handle>(m, "SaveHandle", "One save on its way.")
      .def(
          "wait_staged",
          [](Handle& self, std::optional<double> timeout) {
            Check(self.Wait(timeout, &SaveHandle::WaitStaged));
          },
          nb::arg("timeout").none())
      .def(
          "wait_committed",
          [](Handle& self, std::optional<double> timeout) {
            Check(self.Wait(timeout, &SaveHandle::WaitCommitted));
          },
          nb::arg("timeout").none())
      .def(
          "wait_done",
          [](const Handle& self, std::optional<double> timeout) {
            Check(self.WaitDone(timeout));
          },
          nb::arg("timeout").none())
      .def("staged", [](const Handle& self) { return self.save.Staged(); })
      .def("done", [](const Handle& self) { return self.save.Done(); })
      .def("cancel", [](Handle& self) { self.save.Cancel(); })
      .def("progress",
           [](const Handle& self) { return ToDict(self.save.Progress()); })
      .def_prop_ro("step", [](const Handle& self) { return self.save.step(); })
      .def_prop_ro("version",
                   [](const Handle& self) { return self.save.version(); });

  m.def("save", &Save, nb::arg("store"), nb::arg("step"),
        nb::arg("state").none(), nb::arg("rules"), nb::arg("overwrite"),
        nb::arg("delete_later"), nb::arg("branch"), nb::arg("metrics"),
        nb::arg("note"), nb::arg("metadata"), nb::arg("borrow"),
        nb::arg("time_ns").none() = nb::none(),
        nb::arg("per_rank") = std::vector<std::string>());
  m.def("give_up", &GiveUpStep, nb::arg("store"), nb::arg("step"),
        nb::arg("error"), nb::arg("overwrite"), nb::arg("delete_later"),
        nb::arg("branch"));
  m.def(
      "map_state",
      [](nb::handle state, nb::handle rules, nb::handle on_node,
         nb::handle on_leaf) -> nb::any {
        return nb::steal<nb::any>(
            MapState(state, Rules(rules), on_node, on_leaf).release());
      },
      nb::arg("state").none(), nb::arg("rules"), nb::arg("on_node"),
      nb::arg("on_leaf"));
}

}  // namespace ckptree::python
