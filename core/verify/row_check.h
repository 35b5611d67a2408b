// SPDX-License-Identifier: Apache-2.0

// Reads every row and segment once: what stands by itself must be whole, and
// segment rows, files and tables must agree.

#ifndef CKPTREE_CORE_VERIFY_ROW_CHECK_H_
#define CKPTREE_CORE_VERIFY_ROW_CHECK_H_

#include <functional>

#include "absl/status/status.h"
#include "core/verify/verify_walk.h"
#include "kv/database.h"

namespace ckptree::internal {

// Every row of `records` decodes, every small save has the blocks that its
// header says. Damage is reported by key. `cancelled`, unless it is null, is
// asked between rows: kCancelled.
absl::Status CheckRows(const kv::Database& database,
                       const std::function<bool()>& cancelled, Damage* damage);

// Every segment's file is checked block by block; header, table, counts and
// bytes are compared with its row. Files that belong to no row are reported,
// but for those of versions after `newest_settled`. `rows`: of `records`, older
// than this call. `far`: also what is elsewhere alone. Runs in a TBB arena;
// `cancelled` is asked by the thread that calls.
absl::Status CheckSegmentFiles(const kv::Database& database, kv::Iterator* rows,
                               std::uint64_t newest_settled, bool far,
                               const std::function<bool()>& cancelled,
                               Damage* damage);

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_VERIFY_ROW_CHECK_H_
