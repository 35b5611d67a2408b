// SPDX-License-Identifier: Apache-2.0

// Names of a step that has very many leaves, at once.

#include <nanobind/nanobind.h>

#include <algorithm>
#include <cstddef>
#include <vector>

#include "ckptree/step.h"
#include "python/src/bindings.h"
#include "python/src/errors.h"
#include "python/src/key_path.h"
#include "python/src/step_object.h"

namespace nb = nanobind;

namespace ckptree::python {
namespace {

using Names = nb::typed<nb::list, nb::str>;
using Infos = nb::typed<nb::list, LeafInfo>;
using InfosByName = nb::typed<nb::dict, nb::str, LeafInfo>;
using Kinds = nb::typed<nb::dict, nb::str, nb::int_>;
using Inventory =
    nb::typed<nb::tuple, InfosByName, InfosByName, InfosByName, Kinds>;

Names LeafNames(const StepObject& self) {
  const std::vector<LeafInfo> leaves =
      Take(self.With([](const Step& step) { return step.Leaves(); }));
  nb::list names;
  for (const LeafInfo& leaf : leaves) {
    if (leaf.is_leaf()) names.append(ToText(leaf.name));
  }
  return names;
}

std::size_t InCommon(const std::vector<PathPart>& a,
                     const std::vector<PathPart>& b) {
  return static_cast<std::size_t>(
      std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
}

// What the leaves are below, and the kind of the first part that follows. Each
// name is made once where the leaves are in the order of a tree.
nb::dict Parents(const Infos& leaves) {
  nb::dict kinds;
  const std::vector<PathPart>* before = nullptr;
  for (const nb::handle item : leaves) {
    const auto& parts = nb::cast<const LeafInfo&>(item).path.parts();
    std::size_t known = 0;
    if (before != nullptr && !before->empty()) {
      // It was below all of its path but the last part.
      known = std::min(InCommon(*before, parts), before->size() - 1);
    }
    for (std::size_t n = known + 1; n < parts.size(); ++n) {
      const Parts parent(parts.begin(),
                         parts.begin() + static_cast<std::ptrdiff_t>(n));
      const nb::object name = ToText(NameOf(parent));
      if (!kinds.contains(name)) kinds[name] = static_cast<int>(parts[n].kind);
    }
    before = &parts;
  }
  return kinds;
}

// All of `infos` by their names, the leaves, the ties, and what they are below.
Inventory TakeInventory(const Infos& infos) {
  nb::dict all;
  nb::dict leaves;
  nb::dict ties;
  for (const nb::handle item : infos) {
    const auto& info = nb::cast<const LeafInfo&>(item);
    const nb::object name = ToText(info.name);
    all[name] = item;
    if (info.is_leaf()) leaves[name] = item;
    if (info.tie_to.has_value()) ties[name] = item;
  }
  return nb::make_tuple(all, leaves, ties, Parents(infos));
}

}  // namespace

void BindInventory(nb::module_& m) {
  m.def("leaf_names", &LeafNames, nb::arg("step"));
  m.def("inventory", &TakeInventory, nb::arg("infos"));
}

}  // namespace ckptree::python
