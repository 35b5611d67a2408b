// SPDX-License-Identifier: Apache-2.0

#include "python/src/leaf_table.h"

#include <cstddef>

#include "python/src/errors.h"

namespace nb = nanobind;

namespace ckptree::python {

LeafTable::LeafTable(std::vector<LeafInfo> found) : leaves_(std::move(found)) {
  std::erase_if(leaves_, [](const LeafInfo& leaf) { return !leaf.is_leaf(); });
}

LeafTable::Columns LeafTable::ToColumns() const {
  nb::list names, dtypes, shapes;
  // Most leaves have the shape of their neighbour: one tuple for all of them.
  nb::object shape;
  const Shape* last = nullptr;
  for (const LeafInfo& leaf : leaves_) {
    names.append(ToText(leaf.name));
    dtypes.append(static_cast<int>(leaf.dtype));
    if (last == nullptr || *last != leaf.shape) {
      shape = FromShape(leaf.shape);
      last = &leaf.shape;
    }
    shapes.append(shape);
  }
  return Columns(nb::make_tuple(names, dtypes, shapes));
}

void BindLeafTable(nb::module_& m) {
  nb::class_<LeafTable>(m, "LeafTable", "Leaves of a step, in its order.")
      .def("columns", &LeafTable::ToColumns)
      .def(
          "info",
          [](const LeafTable& self, std::size_t number) {
            return self.leaves().at(number);
          },
          nb::arg("number"))
      .def("__len__",
           [](const LeafTable& self) { return self.leaves().size(); });
}

}  // namespace ckptree::python
