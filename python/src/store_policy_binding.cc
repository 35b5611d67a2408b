// What a store keeps, by policy, and what it says of the run.

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <optional>

#include "python/src/bindings.h"
#include "python/src/errors.h"
#include "python/src/python_function.h"
#include "python/src/records.h"

namespace nb = nanobind;

namespace ckptree::python {
namespace {

using StorePtr = std::shared_ptr<OpenStore>;

// Functions of the policy may run in this thread.
template <typename Use>
auto With(const StorePtr& store, Use&& use) {
  store->release_queue()->Drain();
  return Calling([&] { return store->With(use); });
}

}  // namespace

void BindStorePolicy(nb::class_<OpenStore>& store) {
  store
      .def(
          "policy",
          [](const StorePtr& self, const std::string& line) {
            return ToDict(
                Take(With(self, [&](Store& s) { return s.Policy(line); })));
          },
          nb::arg("line"))
      .def(
          "set_policy",
          [](const StorePtr& self, const Preservation& policy,
             const std::string& line) {
            Check(With(self,
                       [&](Store& s) { return s.SetPolicy(policy, line); }));
          },
          nb::arg("policy"), nb::arg("line"))
      .def(
          "preview_policy",
          [](const StorePtr& self, const std::string& line,
             const std::optional<Preservation>& policy) {
            return ToDict(Take(With(self, [&](Store& s) {
              return s.PreviewPolicy(line, policy);
            })));
          },
          nb::arg("line"), nb::arg("policy").none())
      .def(
          "apply_policy",
          [](const StorePtr& self, const std::string& line) {
            return Take(
                With(self, [&](Store& s) { return s.ApplyPolicy(line); }));
          },
          nb::arg("line"))
      .def(
          "metadata",
          [](const StorePtr& self, const std::string& line) {
            return ToText(
                Take(With(self, [&](Store& s) { return s.Metadata(line); })));
          },
          nb::arg("line"))
      .def(
          "set_metadata",
          [](const StorePtr& self, const std::string& json,
             const std::string& line) {
            Check(With(self,
                       [&](Store& s) { return s.SetMetadata(json, line); }));
          },
          nb::arg("json"), nb::arg("line"));
}

}  // namespace ckptree::python
