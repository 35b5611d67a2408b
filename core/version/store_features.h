// SPDX-License-Identifier: Apache-2.0

// Format and features of a store: what an engine that does not know them must
// not read.

#ifndef CKPTREE_CORE_VERSION_STORE_FEATURES_H_
#define CKPTREE_CORE_VERSION_STORE_FEATURES_H_

#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/version/open_check.h"  // IWYU pragma: export
#include "kv/database.h"

namespace ckptree::internal {

// Whether the store has it.
absl::StatusOr<bool> HasFeature(const kv::Database& database,
                                std::string_view name);

// Puts it in, in a commit of its own, where the store does not have it:
// REQUIRED before the first use.
absl::Status AddFeature(kv::Database* database, std::string_view name);

// Makes the store's format number that of this engine where it is lower, in a
// commit of its own.
absl::Status RaiseFormat(kv::Database* database);

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_VERSION_STORE_FEATURES_H_
