// SPDX-License-Identifier: Apache-2.0

// From RocksDB's statuses to ours; nowhere else are they looked into.

#ifndef CKPTREE_KV_FILES_STATUS_H_
#define CKPTREE_KV_FILES_STATUS_H_

#include <string_view>

#include "absl/status/status.h"

namespace rocksdb {
class Status;
}  // namespace rocksdb

namespace ckptree::kv {

// `context` says what was being done to what; it starts the message.
absl::Status ToStatus(const rocksdb::Status& status, std::string_view context);

// The same of a read of the index, where a file that the disk cannot give is
// damage, as the journal has its rows, and so is a table that is gone, which is
// no missing key. IsGone() knows that: a reader may find another in its place.
absl::Status ToReadStatus(const rocksdb::Status& status,
                          std::string_view context);
bool IsGone(const absl::Status& status);

// Whether a read failed because the disk cannot give what is there (EIO), or a
// folder stands in the place of the file, and not for lack of memory, of file
// descriptors or of rights.
bool IsUnreadable(const absl::Status& status);

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_FILES_STATUS_H_
