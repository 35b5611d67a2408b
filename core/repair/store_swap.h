// SPDX-License-Identifier: Apache-2.0

// A rebuilt store takes the place of a damaged one.

#ifndef CKPTREE_CORE_REPAIR_STORE_SWAP_H_
#define CKPTREE_CORE_REPAIR_STORE_SWAP_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kv/options.h"
#include "kv/store_lock.h"

namespace ckptree::internal {

// The folder <store>.repairing, locked: LOCK, the new store in `store`, scratch
// folders, and from step 1 on DONE, which holds the uuid of the new store.
//
//   1. The new store is whole: DONE, durable.
//   2. The two change places, in one step where the file system can do that;
//      else the damaged store moves to `damaged` first.
//   3. Files of others go back into <store>; the damaged store moves to
//      <store>.damaged, or <store>.damaged.2, ...
//   4. The folder goes.
//
// Before step 2 the folder holds nothing that is needed. Which steps an
// interrupted swap had done, DONE and the uuid of <store> tell.
//
// Confined to one thread.
class StoreSwap {
 public:
  // What an interrupted repair left.
  enum class Leftover {
    kNone,     // Nothing, or nothing that is needed.
    kAdopted,  // The new store has its place; the damaged one is in the way.
    kHalfWay,  // Neither is at `store`.
  };

  // Looks, takes no lock. kFailedPrecondition: something else is at `store`
  // than an interrupted swap can have left there.
  static absl::StatusOr<Leftover> Look(const kv::Options& options,
                                       const std::string& store);

  // Makes and locks the folder, and removes what an interrupted repair left in
  // it. kUnavailable: another repair has it. REQUIRES: Look() says kNone.
  static absl::StatusOr<std::unique_ptr<StoreSwap>> Begin(
      const kv::Options& options, const std::string& store);

  // Removes a folder that holds nothing that is needed. kUnavailable: another
  // repair has it. REQUIRES: Look() says kNone.
  static absl::Status Tidy(const kv::Options& options,
                           const std::string& store);

  // Does what is left of an interrupted swap; says where the damaged store is,
  // or nothing where it was moved already. REQUIRES: Look() says otherwise.
  static absl::StatusOr<std::string> Finish(const kv::Options& options,
                                            const std::string& store);

  // Removes the folder unless a swap was begun.
  ~StoreSwap();
  StoreSwap(const StoreSwap&) = delete;
  StoreSwap& operator=(const StoreSwap&) = delete;

  std::string made() const;     // Where the new store is to be made.
  std::string scratch() const;  // See RecoverInto.

  // Steps 1 to 4; says where the damaged store is. On an error before step 2
  // everything is as it was. REQUIRES: the new store is closed, and the caller
  // holds the lock of the damaged one.
  absl::StatusOr<std::string> Run();

 private:
  StoreSwap(const kv::Options& options, std::string store,
            std::unique_ptr<kv::StoreLock> lock);

  // Step 2.
  absl::Status ChangePlaces();
  // What has no name of a store, as far as nothing stands there.
  absl::Status ReturnFilesOfOthers(const std::string& from);
  // Steps 3 and 4.
  absl::StatusOr<std::string> PutAway();
  std::string Name(std::string_view name) const;

  const kv::Options options_;
  const std::string store_;
  const std::string folder_;
  std::unique_ptr<kv::StoreLock> lock_;
  bool begun_ = false;  // From DONE on the folder may be needed.
};

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_REPAIR_STORE_SWAP_H_
