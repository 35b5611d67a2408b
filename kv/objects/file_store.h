// SPDX-License-Identifier: Apache-2.0

// Objects as the files of a folder, also a shared one.

#ifndef CKPTREE_KV_OBJECTS_FILE_STORE_H_
#define CKPTREE_KV_OBJECTS_FILE_STORE_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "kv/object_store.h"

namespace ckptree::kv {

// A folder that is missing is made by the first write; kFailedPrecondition
// where the one above it is missing, too. An object is written under another
// name, synced, and then linked (PutIfAbsent) or renamed to its own, and the
// folders above it are synced: what was answered survives a power cut. Files
// have no write id: it is told from the bytes. While the folder is gone, or
// another one and empty, as of a share that is not mounted, every call is
// kUnavailable, and makes nothing in its place.
absl::StatusOr<std::unique_ptr<ObjectStore>> OpenFileStore(
    const std::string& address, const std::string& folder);

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_OBJECTS_FILE_STORE_H_
