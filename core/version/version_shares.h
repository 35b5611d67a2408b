// SPDX-License-Identifier: Apache-2.0

// What the bytes of versions take on the disk, where arrays are coded.

#ifndef CKPTREE_CORE_VERSION_VERSION_SHARES_H_
#define CKPTREE_CORE_VERSION_VERSION_SHARES_H_

#include <cstdint>
#include <map>

#include "absl/status/statusor.h"
#include "kv/database.h"

namespace ckptree::internal {

// By version: what a byte of its blocks takes in its files, at most 1. About
// right, and exact where nothing in them is dead. Versions without a coded
// block may be missing; none is there in a store that has none.
absl::StatusOr<std::map<std::uint64_t, double>> SharesByVersion(
    const kv::Database& database);

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_VERSION_VERSION_SHARES_H_
