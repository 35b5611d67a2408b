// SPDX-License-Identifier: Apache-2.0

// ckptree_rados.so: see module.h.

#include "kv/objects/module.h"
#include "kv/objects/rados_store.h"

extern "C" __attribute__((visibility("default")))
const ckptree::kv::ObjectModule CkptreeObjectModule;

const ckptree::kv::ObjectModule CkptreeObjectModule = {
    CKPTREE_VERSION, &ckptree::kv::OpenRadosStore};
