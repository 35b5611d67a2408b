// SPDX-License-Identifier: Apache-2.0

// Creating an object exactly once, whatever becomes of the answers.

#ifndef CKPTREE_KV_CONDITIONAL_PUT_H_
#define CKPTREE_KV_CONDITIONAL_PUT_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kv/object_store.h"

namespace ckptree::kv {

// 128 random bits from the system, as PutIfAbsent takes them.
std::string NewWriteId();

// PutIfAbsent, settled: where the answer is that it exists, or none, the object
// is looked at; the same bytes are sent again while it is absent.
//
//   kCreated  the object is there and has this write id
//   kExists   it is there, and is another's
//   kUnknown  the deadline passed before either could be seen, or the call was
//             cancelled (reason: kCancelled), also by the store's own token
//             (ObjectStore::Ending()); the caller may call again with the same
//             bytes and write id, and no others for this name
//
// An error is one of the first request: nothing was created. One of a later
// request leaves the first unknown, and is the reason of that.
absl::StatusOr<PutAnswer> PutSettled(ObjectStore& store,
                                     const std::string& name,
                                     std::string_view bytes,
                                     const std::string& write_id,
                                     const Call& call);

// Puts a scratch object below `prefix` twice; OK where the first created it
// and the second found it. kFailedPrecondition, naming the store and what it
// did instead, where it does not keep to that: nothing may be committed to such
// a store, which can be read all the same.
absl::Status ProveConditionalPut(ObjectStore& store, const std::string& prefix,
                                 const Call& call);

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_CONDITIONAL_PUT_H_
