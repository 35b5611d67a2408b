// SPDX-License-Identifier: Apache-2.0

#include "kv/near_rows.h"

#include "base/status_macros.h"
#include "schema/spaces.h"

namespace ckptree::kv {

absl::StatusOr<std::optional<std::string_view>> NearRows::Find(
    std::string_view key) {
  // More steps take as long as to seek.
  constexpr int kMostSteps = 8;
  if (!rows_.has_value()) {
    CKPTREE_ASSIGN_OR_RETURN(
        rows_, database_.Scan(schema::Space::kRecords, /*begin=*/"",
                              /*end=*/""));
    rows_->Seek(key);
  } else if (key < last_) {
    rows_->Seek(key);
  }
  for (int i = 0; i < kMostSteps && rows_->Valid() && rows_->key() < key; ++i) {
    rows_->Next();
  }
  if (rows_->Valid() && rows_->key() < key) rows_->Seek(key);
  last_.assign(key.data(), key.size());
  if (!rows_->Valid()) {
    CKPTREE_RETURN_IF_ERROR(rows_->status());
    return std::nullopt;
  }
  if (rows_->key() != key) return std::nullopt;
  return rows_->value();
}

}  // namespace ckptree::kv
