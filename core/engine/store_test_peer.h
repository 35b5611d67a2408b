// How tests open a store on a file system of their own.

#ifndef CKPTREE_CORE_ENGINE_STORE_TEST_PEER_H_
#define CKPTREE_CORE_ENGINE_STORE_TEST_PEER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "ckptree/repair.h"
#include "ckptree/store.h"

namespace ckptree::internal {

// As Store::Create and Store::Open; `file_system` as in kv::Options.
struct StoreTestPeer {
  static absl::StatusOr<Store> Create(const std::string& directory,
                                      StoreOptions options,
                                      std::shared_ptr<void> file_system);
  static absl::StatusOr<Store> Open(const std::string& directory,
                                    StoreOptions options,
                                    std::shared_ptr<void> file_system);

  static Engine& engine(const Store& store) { return *store.engine_; }
};

// As Repair; what it writes in the store, and what changes places, goes through
// `file_system`.
absl::StatusOr<RepairReport> RepairOn(const std::string& directory,
                                      const RepairOptions& options,
                                      std::shared_ptr<void> file_system);

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_ENGINE_STORE_TEST_PEER_H_
