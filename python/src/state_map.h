// SPDX-License-Identifier: Apache-2.0

// A Python state with other leaves.

#ifndef CKPTREE_PYTHON_SRC_STATE_MAP_H_
#define CKPTREE_PYTHON_SRC_STATE_MAP_H_

#include <nanobind/nanobind.h>

#include "python/src/state_node.h"

namespace ckptree::python {

// Calls on_node(name, kind, is_empty, tag) for every container and
// on_leaf(name, leaf) for every leaf, by the names that saving `state` gives
// them, in the order of the state; returns a state of the same containers with
// what on_leaf returned. Throws what saving throws for keys, cycles and what is
// no leaf. Where rules.container() says None, all values of that type are
// leaves; where it says False, that one is.
//
// Leaves are what the state has: arrays and scalars of any library.
nanobind::object MapState(nanobind::handle state, const Rules& rules,
                          nanobind::handle on_node, nanobind::handle on_leaf);

}  // namespace ckptree::python

#endif  // CKPTREE_PYTHON_SRC_STATE_MAP_H_
