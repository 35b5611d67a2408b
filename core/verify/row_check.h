// SPDX-License-Identifier: Apache-2.0

// Reads every row once: what stands by itself must be whole.

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

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_VERIFY_ROW_CHECK_H_
