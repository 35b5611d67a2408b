// SPDX-License-Identifier: Apache-2.0

// Look-ups of rows that stand near each other.

#ifndef CKPTREE_KV_NEAR_ROWS_H_
#define CKPTREE_KV_NEAR_ROWS_H_

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "kv/database.h"
#include "kv/iterator.h"

namespace ckptree::kv {

// Rows of kRecords by their keys, as of the first look: a row that is one of
// the next few is reached by steps of an iterator, a tenth of what
// Database::Get() takes, and so is that there is none. Any order is right;
// ascending ones are fast.
//
// Keeps a view alive, as an Iterator does. Confined to one thread at a time.
class NearRows {
 public:
  // `database` must outlive it.
  explicit NearRows(const Database& database) : database_(database) {}

  // Nothing where there is no such row. The bytes are valid until the next
  // call.
  absl::StatusOr<std::optional<std::string_view>> Find(std::string_view key);

 private:
  const Database& database_;
  // At the first row that is not below `last_`, or at the end.
  std::optional<Iterator> rows_;
  std::string last_;
};

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_NEAR_ROWS_H_
