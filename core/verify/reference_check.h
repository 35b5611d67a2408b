// SPDX-License-Identifier: Apache-2.0

// Whether what is stored is what something refers to.

#ifndef CKPTREE_CORE_VERIFY_REFERENCE_CHECK_H_
#define CKPTREE_CORE_VERIFY_REFERENCE_CHECK_H_

#include <set>

#include "absl/status/status.h"
#include "core/verify/verify_walk.h"
#include "kv/database.h"

namespace ckptree::internal {

// What stood in a store at one moment. `small` was looked at first: every block
// in it has its rows.
struct Moment {
  kv::Iterator rows;         // All of `records`.
  kv::Iterator small;        // All of `small`, at its first.
  bool beside_save = false;  // Some trees may be of a step that is not there.
};

// `blocks` and `trees`: all that the versions of the store refer to. A block
// that is marked dead and referred to is damage; blocks and trees that are
// stored and not referred to are a warning: they cost space. Reads rows, tables
// and the keys of `small`, no arrays.
absl::Status CheckReferences(const kv::Database& database, Moment* moment,
                             const std::set<BlockId>& blocks,
                             const std::set<base::Digest>& trees,
                             Damage* damage);

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_VERIFY_REFERENCE_CHECK_H_
