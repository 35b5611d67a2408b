// SPDX-License-Identifier: Apache-2.0

// A module of an engine that was before this one.

#include "kv/objects/module.h"

extern "C" __attribute__((visibility("default")))
const ckptree::kv::ObjectModule CkptreeObjectModule;

const ckptree::kv::ObjectModule CkptreeObjectModule = {"0.0.1", nullptr};
