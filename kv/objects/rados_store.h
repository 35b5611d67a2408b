// SPDX-License-Identifier: Apache-2.0

// Objects of a namespace in a pool of Ceph.

#ifndef CKPTREE_KV_OBJECTS_RADOS_STORE_H_
#define CKPTREE_KV_OBJECTS_RADOS_STORE_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "kv/object_store.h"
#include "kv/objects/names.h"

namespace ckptree::kv {

// Connects to the cluster of the ceph.conf, as CEPH_ARGS and its keyring say.
// kUnavailable where it does not answer, kFailedPrecondition where the pool is
// not there.
//
// An object of Ceph is at most 128 MiB, a write 90: what is larger than 64 MiB
// is in pieces of that size, "NAME:ID:1" and so on, beside the first, which is
// written last and says how many bytes there are and which id they have. A
// listing reads the names of the whole namespace: Ceph has no order of them.
absl::StatusOr<std::unique_ptr<ObjectStore>> OpenRadosStore(
    const std::string& address, const ObjectAddress& parsed,
    const ObjectStoreOptions& options, const Call& call);

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_OBJECTS_RADOS_STORE_H_
