// SPDX-License-Identifier: Apache-2.0

#include "core/version/row_scan.h"

#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "kv/iterator.h"
#include "schema/spaces.h"

namespace ckptree::internal {

using schema::Space;

absl::Status ScanRows(const kv::Database& database, schema::Row row, RowFn fn) {
  const schema::KeyRange range = schema::AllRows(row);
  CKPTREE_ASSIGN_OR_RETURN(
      kv::Iterator scan,
      database.Scan(Space::kRecords, range.begin, range.end));
  for (; scan.Valid(); scan.Next()) {
    const absl::Status status = fn(scan.key(), scan.value());
    if (!status.ok()) return NamingRow(scan.key(), status);
  }
  return scan.status();
}

absl::Status NamingRow(std::string_view key, const absl::Status& status) {
  return absl::Status(
      status.code(),
      absl::StrFormat("%s: %s", schema::DescribeKey(Space::kRecords, key),
                      status.message()));
}

}  // namespace ckptree::internal
