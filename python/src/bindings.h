// SPDX-License-Identifier: Apache-2.0

// The classes and functions of the extension, by the files that bind them.

#ifndef CKPTREE_PYTHON_SRC_BINDINGS_H_
#define CKPTREE_PYTHON_SRC_BINDINGS_H_

#include <nanobind/nanobind.h>

#include "python/src/open_store.h"

namespace ckptree::python {

void BindStore(nanobind::module_& m);
void BindStep(nanobind::module_& m);
void BindSave(nanobind::module_& m);
void BindRankedSave(nanobind::module_& m);
void BindPolicy(nanobind::module_& m);
// Adds to the class that BindStore() made.
void BindStorePolicy(nanobind::class_<OpenStore>& store);
// Several processes that save one step.
void BindRankGroup(nanobind::module_& m);
void BindManager(nanobind::module_& m);
void BindHistory(nanobind::module_& m);
void BindLogs(nanobind::module_& m);
void BindArrayMemory(nanobind::module_& m);
void BindStagingMemory(nanobind::module_& m);
// Before BindSave(), which copies by it.
void BindCuda(nanobind::module_& m);
void BindView(nanobind::module_& m);
void BindInventory(nanobind::module_& m);

}  // namespace ckptree::python

#endif  // CKPTREE_PYTHON_SRC_BINDINGS_H_
