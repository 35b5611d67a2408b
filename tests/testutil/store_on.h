// SPDX-License-Identifier: Apache-2.0

// Stores on a file system of the test's own.

#ifndef CKPTREE_TESTS_TESTUTIL_STORE_ON_H_
#define CKPTREE_TESTS_TESTUTIL_STORE_ON_H_

#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "ckptree/store.h"
#include "core/engine/engine.h"
#include "core/engine/store_engine.h"

namespace ckptree::testing {

// As Store::Create and Store::Open; `file_system` as in kv::Options.
inline absl::StatusOr<Store> CreateStoreOn(std::shared_ptr<void> file_system,
                                           const std::string& directory,
                                           StoreOptions options) {
  auto engine = internal::Engine::Create(
      directory,
      {.store = std::move(options), .file_system = std::move(file_system)});
  if (!engine.ok()) return engine.status();
  return internal::StoreEngine::StoreOf(*std::move(engine));
}

inline absl::StatusOr<Store> OpenStoreOn(std::shared_ptr<void> file_system,
                                         const std::string& directory,
                                         StoreOptions options) {
  auto engine = internal::Engine::Open(
      directory,
      {.store = std::move(options), .file_system = std::move(file_system)});
  if (!engine.ok()) return engine.status();
  return internal::StoreEngine::StoreOf(*std::move(engine));
}

}  // namespace ckptree::testing

#endif  // CKPTREE_TESTS_TESTUTIL_STORE_ON_H_
