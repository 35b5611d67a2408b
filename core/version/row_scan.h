// SPDX-License-Identifier: Apache-2.0

// Every row of one kind, in the order of the keys.

#ifndef CKPTREE_CORE_VERSION_ROW_SCAN_H_
#define CKPTREE_CORE_VERSION_ROW_SCAN_H_

#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "kv/database.h"
#include "schema/keys.h"

namespace ckptree::internal {

using RowFn = absl::FunctionRef<absl::Status(std::string_view key,
                                             std::string_view value)>;

// Calls `fn` for each row; ends with its first error, which then names the row,
// or with that of the database: some rows were not seen.
absl::Status ScanRows(const kv::Database& database, schema::Row row, RowFn fn);

// `status` with the name of the row before its message.
absl::Status NamingRow(std::string_view key, const absl::Status& status);

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_VERSION_ROW_SCAN_H_
