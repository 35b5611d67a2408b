// SPDX-License-Identifier: Apache-2.0

// The engine behind a store.

#ifndef CKPTREE_CORE_ENGINE_STORE_ENGINE_H_
#define CKPTREE_CORE_ENGINE_STORE_ENGINE_H_

#include <memory>
#include <utility>

#include "ckptree/store.h"

namespace ckptree::internal {

// For what is more than the public face gives: recover, ranks, benchmarks,
// tests.
struct StoreEngine {
  // Lives as long as `store`, and longer where something else holds it.
  static Engine& Of(const Store& store) { return *store.engine(); }
  static std::shared_ptr<Engine> Shared(const Store& store) {
    return store.engine();
  }
  static Store StoreOf(std::shared_ptr<Engine> engine) {
    return Store(std::move(engine));
  }
};

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_ENGINE_STORE_ENGINE_H_
