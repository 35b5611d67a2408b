// SPDX-License-Identifier: Apache-2.0

// For tests: object stores that they look into, or hurt, wherever one is
// opened.

#ifndef CKPTREE_KV_OBJECT_STORE_WRAPPER_H_
#define CKPTREE_KV_OBJECT_STORE_WRAPPER_H_

#include <functional>
#include <memory>

#include "kv/object_store.h"

namespace ckptree::kv {

using ObjectStoreWrapper = std::function<std::unique_ptr<ObjectStore>(
    std::unique_ptr<ObjectStore> opened)>;

// What OpenObjectStore() opens from now on is what `wrapper` makes of it; null:
// it is as it is. Not while one is opened.
void SetObjectStoreWrapper(ObjectStoreWrapper wrapper);

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_OBJECT_STORE_WRAPPER_H_
