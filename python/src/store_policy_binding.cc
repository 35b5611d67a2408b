// SPDX-License-Identifier: Apache-2.0

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
          [](const StorePtr& self, const std::string& branch) {
            return ToDict(
                Take(With(self, [&](Store& s) { return s.Policy(branch); })));
          },
          nb::arg("branch"))
      .def(
          "set_policy",
          [](const StorePtr& self, const Preservation& policy,
             const std::string& branch) {
            Check(With(self,
                       [&](Store& s) { return s.SetPolicy(policy, branch); }));
          },
          nb::arg("policy"), nb::arg("branch"))
      .def(
          "preview_policy",
          [](const StorePtr& self, const std::string& branch,
             const std::optional<Preservation>& policy) {
            return ToDict(Take(With(self, [&](Store& s) {
              return s.PreviewPolicy(branch, policy);
            })));
          },
          nb::arg("branch"), nb::arg("policy").none())
      .def(
          "apply_policy",
          [](const StorePtr& self, const std::string& branch) {
            return Take(
                With(self, [&](Store& s) { return s.ApplyPolicy(branch); }));
          },
          nb::arg("branch"))
      .def(
          "metadata",
          [](const StorePtr& self, const std::string& branch) {
            return ToText(
                Take(With(self, [&](Store& s) { return s.Metadata(branch); })));
          },
          nb::arg("branch"))
      .def(
          "set_metadata",
          [](const StorePtr& self, const std::string& json,
             const std::string& branch) {
            Check(With(self,
                       [&](Store& s) { return s.SetMetadata(json, branch); }));
          },
          nb::arg("json"), nb::arg("branch"));
}

}  // namespace ckptree::python
