// SPDX-License-Identifier: Apache-2.0

// ckptree_s3.so: see module.h.

#include <string>

#include "kv/object_store.h"
#include "kv/objects/module.h"
#include "kv/objects/names.h"
#include "kv/objects/s3_store.h"

extern "C" __attribute__((visibility("default")))
const ckptree::kv::ObjectModule CkptreeObjectModule;

const ckptree::kv::ObjectModule CkptreeObjectModule = {
    CKPTREE_VERSION,
    [](const std::string& address, const ckptree::kv::ObjectAddress& parsed,
       const ckptree::kv::ObjectStoreOptions& options,
       const ckptree::kv::Call&) {
      return ckptree::kv::OpenS3Store(address, parsed, options);
    }};
