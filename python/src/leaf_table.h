// SPDX-License-Identifier: Apache-2.0

// The leaves of a step, all together: of very many, what is asked of each comes
// in columns, and an object of its own is made of those that are looked at.

#ifndef CKPTREE_PYTHON_SRC_LEAF_TABLE_H_
#define CKPTREE_PYTHON_SRC_LEAF_TABLE_H_

#include <nanobind/nanobind.h>

#include <utility>
#include <vector>

#include "ckptree/step.h"
#include "python/src/numpy_array.h"

namespace ckptree::python {

// Immutable once made.
class LeafTable {
 public:
  using Columns =
      nanobind::typed<nanobind::tuple,
                      nanobind::typed<nanobind::list, nanobind::str>,
                      nanobind::typed<nanobind::list, nanobind::int_>,
                      nanobind::typed<nanobind::list, ShapeTuple>>;

  // Of `found`, without nodes and ties.
  explicit LeafTable(std::vector<LeafInfo> found);

  const std::vector<LeafInfo>& leaves() const { return leaves_; }

  // Names, numbers of dtypes, shapes.
  Columns ToColumns() const;

 private:
  std::vector<LeafInfo> leaves_;
};

void BindLeafTable(nanobind::module_& m);

}  // namespace ckptree::python

#endif  // CKPTREE_PYTHON_SRC_LEAF_TABLE_H_
