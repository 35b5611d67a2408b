// SPDX-License-Identifier: Apache-2.0

// Reading: a step, what it holds, and its values.

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "python/src/bindings.h"
#include "python/src/errors.h"
#include "python/src/key_path.h"
#include "python/src/leaf_reading.h"
#include "python/src/leaf_table.h"
#include "python/src/like_state.h"
#include "python/src/numpy_array.h"
#include "python/src/python_function.h"
#include "python/src/records.h"
#include "python/src/state_node.h"
#include "python/src/step_object.h"
#include "python/src/waiting.h"

namespace nb = nanobind;

namespace ckptree::python {
namespace {

using Parents = nb::typed<nb::list, nb::typed<nb::tuple, nb::str, nb::int_>>;
using Objects = nb::typed<nb::list, nb::any>;
using LeafInfos = nb::typed<nb::list, LeafInfo>;
using ReadRequests =
    nb::typed<nb::sequence,
              nb::typed<nb::tuple, LeafInfo, nb::any, nb::any, nb::any>>;

// `requests`: (leaf, array, start, shape) each; start None: the whole array.
// All in one go, which reads no chunk twice.
void Read(const StepObject& self, ReadRequests requests, nb::handle progress) {
  std::vector<ReadRequest> batch;
  std::size_t bytes = 0;
  for (const nb::handle item : requests) {
    const auto request = nb::cast<nb::tuple>(item);
    ReadRequest& read = batch.emplace_back();
    read.path = nb::cast<const LeafInfo&>(request[0]).path;
    read.destination = WritableBytes(request[1]);
    if (!request[2].is_none()) {
      read.box = BoxSpec{ToShape(request[2]), ToShape(request[3])};
    }
    bytes += read.destination.size();
  }
  ReadInto(self, batch, bytes, progress);
}

// The state of the step, or of an item of it, in the containers of `like`;
// NotImplemented where the two differ, or have what LikeState does not know.
nb::object RestoreLike(const StepObject& self, nb::handle like,
                       nb::handle rules, std::string item) {
  LikeState state(Rules(rules), std::move(item));
  const nb::object other_way = nb::borrow(Py_NotImplemented);
  // To list all leaves takes a while, and most templates that do not fit show
  // it at once.
  try {
    std::optional<Path> first;
    if (!state.StartsPlain(like, &first)) return other_way;
    if (first.has_value() && !Take(self.With([&first](const Step& step) {
                                return step.Find(*first);
                              })).has_value()) {
      return other_way;
    }
  } catch (nb::python_error& raised) {
    if (!raised.matches(PyExc_Exception)) throw;
    return other_way;
  }
  std::vector<LeafInfo> leaves =
      Take(self.With([](const Step& step) { return step.Leaves(); }));
  if (!state.Match(like, std::move(leaves))) return other_way;
  if (!state.values().empty()) {
    state.SetValues(
        Take(ReadWith(self, state.values().size() >= kLongCount, nb::none(),
                      [&state](const Step& step, const ReadOptions& options) {
                        return ReadValues(step, state.values(), options);
                      })));
  }
  ReadInto(self, state.arrays(), state.array_bytes(), nb::none());
  return state.Finish();
}

absl::StatusOr<LeafInfo> Find(const Step& step, const std::string& name) {
  absl::StatusOr<std::optional<LeafInfo>> leaf = step.Find(name);
  if (!leaf.ok()) return leaf.status();
  if (leaf->has_value()) return **std::move(leaf);
  return step.Detail(name).status();  // Names the closest one.
}

void BindLeafInfo(nb::module_& m) {
  nb::class_<LeafInfo>(m, "LeafInfo",
                       "A leaf, node or tie of a step, from records alone.")
      .def_prop_ro("name",
                   [](const LeafInfo& self) { return ToText(self.name); })
      .def_prop_ro("kind",
                   [](const LeafInfo& self) { return ToText(Name(self.kind)); })
      .def_prop_ro("is_leaf", &LeafInfo::is_leaf)
      .def_prop_ro(
          "dtype",
          [](const LeafInfo& self) { return static_cast<int>(self.dtype); })
      .def_prop_ro(
          "dtype_name",
          [](const LeafInfo& self) { return ToText(Name(self.dtype)); })
      .def_ro("packed", &LeafInfo::packed)
      .def_prop_ro("shape",
                   [](const LeafInfo& self) { return FromShape(self.shape); })
      .def_prop_ro("tag", [](const LeafInfo& self) { return ToText(self.tag); })
      .def_prop_ro("path",
                   [](const LeafInfo& self) { return FromPath(self.path); })
      // (name, kind of the part that follows) of what it is below.
      .def("parents",
           [](const LeafInfo& self) -> Parents {
             nb::list parents;
             Parts parts;
             for (const PathPart& part : self.path.parts()) {
               if (!parts.empty()) {
                 parents.append(nb::make_tuple(ToText(NameOf(parts)),
                                               static_cast<int>(part.kind)));
               }
               parts.push_back(part);
             }
             return parents;
           })
      .def_prop_ro("tie_to",
                   [](const LeafInfo& self) -> std::optional<nb::str> {
                     if (!self.tie_to.has_value()) return std::nullopt;
                     return ToText(self.tie_to->Text());
                   });
}

}  // namespace

void BindStep(nb::module_& m) {
  BindLeafInfo(m);
  BindLeafTable(m);
  nb::class_<StepObject>(m, "Step", "One step, open for reading.")
      .def("info",
           [](const StepObject& self) {
             return ToDict(Take(
                 self.With([](const Step& step) -> absl::StatusOr<StepInfo> {
                   return step.info();
                 })));
           })
      .def("metadata",
           [](const StepObject& self) {
             return ToDict(Take(
                 self.With([](const Step& step) { return step.Metadata(); })));
           })
      .def(
          "leaves",
          [](const StepObject& self, const std::string& glob) -> LeafInfos {
            Check(ValidateGlob(glob));
            std::vector<LeafInfo> found = Take(
                self.With([&](const Step& step) { return step.Leaves(glob); }));
            nb::list leaves;
            for (LeafInfo& leaf : found) {
              leaves.append(nb::cast(std::move(leaf)));
            }
            return leaves;
          },
          nb::arg("glob") = "")
      .def(
          "leaf_table",
          [](const StepObject& self, const std::string& glob) {
            Check(ValidateGlob(glob));
            return LeafTable(Take(self.With(
                [&](const Step& step) { return step.Leaves(glob); })));
          },
          nb::arg("glob") = "")
      .def(
          "find",
          [](const StepObject& self, const std::string& name) {
            return Take(
                self.With([&](const Step& step) { return Find(step, name); }));
          },
          nb::arg("name"))
      .def(
          "details",
          [](const StepObject& self, const std::vector<LeafInfo>& leaves) {
            return ToDicts(
                Take(ReadWith(self, leaves.size() >= kLongCount, nb::none(),
                              [&](const Step& step, const ReadOptions&) {
                                return step.Details(leaves);
                              })));
          },
          nb::arg("leaves"))
      .def(
          "details",
          [](const StepObject& self, const LeafTable& table) {
            return ToDicts(Take(
                ReadWith(self, table.leaves().size() >= kLongCount, nb::none(),
                         [&](const Step& step, const ReadOptions&) {
                           return step.Details(table.leaves());
                         })));
          },
          nb::arg("leaves"))
      .def("read", &Read, nb::arg("requests"),
           nb::arg("progress").none() = nb::none())
      .def("restore_like", &RestoreLike, nb::arg("like").none(),
           nb::arg("rules"), nb::arg("item") = "")
      .def(
          "values",
          [](const StepObject& self, const std::vector<LeafInfo>& leaves,
             nb::handle progress) -> Objects {
            const std::vector<LeafValue> values = Take(
                ReadWith(self, leaves.size() >= kLongCount, progress,
                         [&](const Step& step, const ReadOptions& options) {
                           return ReadValues(step, leaves, options);
                         }));
            nb::list objects;
            for (const LeafValue& value : values) {
              objects.append(ToObject(value));
            }
            return objects;
          },
          nb::arg("leaves"), nb::arg("progress").none() = nb::none());
  m.def(
      "restore",
      [](const std::shared_ptr<OpenStore>& store, const std::string& selector) {
        const StepSelector parsed = Take(ParseSelector(selector));
        using Opened = absl::StatusOr<std::shared_ptr<OpenStore::OpenStep>>;
        std::optional<Opened> opened =
            WithoutGil([&]() -> std::optional<Opened> {
              if (store->MayReadRemote()) return std::nullopt;
              return store->Restore(parsed);
            });
        if (!opened.has_value()) {
          RunInterruptibly(
              [&](Work&) { opened.emplace(store->Restore(parsed)); },
              nb::none(), {store->cancel()});
        }
        return StepObject{store, Take(*std::move(opened))};
      },
      nb::arg("store"), nb::arg("selector"));
}

}  // namespace ckptree::python
