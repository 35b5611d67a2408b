// SPDX-License-Identifier: Apache-2.0

// Reading: a step, what it holds, and its values.

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <complex>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "python/src/bindings.h"
#include "python/src/errors.h"
#include "python/src/key_path.h"
#include "python/src/numpy_array.h"
#include "python/src/python_function.h"
#include "python/src/records.h"
#include "python/src/step_object.h"
#include "python/src/waiting.h"

namespace nb = nanobind;

namespace ckptree::python {
namespace {

// Less is read in a moment, and needs no thread of its own.
constexpr std::size_t kLongBytes = std::size_t{16} << 20;
constexpr std::size_t kLongCount = 1000;

constexpr std::size_t kUnknownSize = std::numeric_limits<std::size_t>::max();

using Parents = nb::typed<nb::list, nb::typed<nb::tuple, nb::str, nb::int_>>;
using Objects = nb::typed<nb::list, nb::any>;
using ReadRequests =
    nb::typed<nb::sequence,
              nb::typed<nb::tuple, LeafInfo, nb::any, nb::any, nb::any>>;

// A bool, int, ... as Python has it.
nb::object ToObject(const LeafValue& value) {
  const auto* bytes = reinterpret_cast<const char*>(value.bytes.data());
  const EntryKind kind = value.info.kind;
  if (kind == EntryKind::kBool) return nb::bool_(Take(value.Bool()));
  if (kind == EntryKind::kInt) return nb::int_(Take(value.Int()));
  if (kind == EntryKind::kFloat) return nb::float_(Take(value.Float()));
  if (kind == EntryKind::kComplex && value.bytes.size() == 2 * sizeof(double)) {
    double parts[2];
    std::memcpy(parts, bytes, sizeof(parts));
    return nb::steal(PyComplex_FromDoubles(parts[0], parts[1]));
  }
  if (kind == EntryKind::kStr || kind == EntryKind::kJson)
    return ToText(Take(value.String()));
  return nb::bytes(bytes, value.bytes.size());
}

// Bytes of the values of `leaves`, which are no arrays.
absl::StatusOr<std::vector<std::size_t>> SizesOf(
    const Step& step, const std::vector<LeafInfo>& leaves) {
  std::vector<std::size_t> sizes;
  std::vector<LeafInfo> unknown;
  for (const LeafInfo& leaf : leaves) {
    std::size_t size = 0;
    if (leaf.kind == EntryKind::kBool) {
      size = 1;
    } else if (leaf.kind == EntryKind::kInt || leaf.kind == EntryKind::kFloat) {
      size = sizeof(double);
    } else if (leaf.kind == EntryKind::kComplex) {
      size = 2 * sizeof(double);
    } else {
      unknown.push_back(leaf);
      size = kUnknownSize;
    }
    sizes.push_back(size);
  }
  if (unknown.empty()) return sizes;
  const absl::StatusOr<std::vector<LeafDetail>> details = step.Details(unknown);
  if (!details.ok()) return details.status();
  auto detail = details->begin();
  for (std::size_t& size : sizes) {
    if (size == kUnknownSize) size = (detail++)->bytes;
  }
  return sizes;
}

// In one pass: far faster than one by one.
absl::StatusOr<std::vector<LeafValue>> ReadValues(
    const Step& step, const std::vector<LeafInfo>& leaves,
    const ReadOptions& options) {
  const absl::StatusOr<std::vector<std::size_t>> sizes = SizesOf(step, leaves);
  if (!sizes.ok()) return sizes.status();
  std::vector<LeafValue> values(leaves.size());
  std::vector<ReadRequest> requests(leaves.size());
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    values[i].info = leaves[i];
    values[i].bytes.resize((*sizes)[i]);
    requests[i].path = leaves[i].path;
    requests[i].destination = values[i].bytes;
  }
  if (absl::Status status = step.ReadMany(requests, options); !status.ok()) {
    return status;
  }
  return values;
}

// Calls `use` with the step, where that may take long in a thread of its own.
// The result is a status, or has one.
template <typename Use>
auto ReadWith(const StepObject& self, bool is_long, nb::handle progress,
              Use&& use) {
  if (!is_long) {
    return self.With(
        [&](const Step& step) { return use(step, ReadOptions()); });
  }
  decltype(use(std::declval<const Step&>(), ReadOptions())) result =
      absl::UnknownError("it was not read");
  RunInterruptibly(
      [&](Work& work) {
        const ReadOptions options = {.cancelled = work.Cancelled(),
                                     .on_progress = work.OnProgress()};
        result = self.store->WithStep(
            *self.open, [&](const Step& step) { return use(step, options); });
      },
      progress);
  return result;
}

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
  const bool is_long = bytes >= kLongBytes || batch.size() >= kLongCount;
  Check(ReadWith(self, is_long, progress,
                 [&](const Step& step, const ReadOptions& options) {
                   return step.ReadMany(batch, options);
                 }));
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
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
          [](const StepObject& self, const std::string& glob) {
            Check(ValidateGlob(glob));
            return Take(
                self.With([&](const Step& step) { return step.Leaves(glob); }));
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
      .def("read", &Read, nb::arg("requests"),
           nb::arg("progress").none() = nb::none())
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
        return StepObject{
            store, Take(WithoutGil([&] { return store->Restore(parsed); }))};
      },
      nb::arg("store"), nb::arg("selector"));
}

}  // namespace ckptree::python
