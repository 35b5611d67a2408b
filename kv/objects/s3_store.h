// SPDX-License-Identifier: Apache-2.0

// Objects of an S3 bucket, or of one that Google shows to clients of S3.

#ifndef CKPTREE_KV_OBJECTS_S3_STORE_H_
#define CKPTREE_KV_OBJECTS_S3_STORE_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "kv/object_store.h"
#include "kv/objects/names.h"

namespace ckptree::kv {

// kInvalidArgument for an endpoint that is no https://host:port; plain http to
// another host than this one is kFailedPrecondition unless the options allow
// it. Nothing is asked of the server yet. Requests carry the SHA-256 of what
// they send, signed: the server refuses what arrives as something else, and it
// is sent again. What exceeds 64 MiB goes in parts.
absl::StatusOr<std::unique_ptr<ObjectStore>> OpenS3Store(
    const std::string& address, const ObjectAddress& parsed,
    const ObjectStoreOptions& options);

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_OBJECTS_S3_STORE_H_
