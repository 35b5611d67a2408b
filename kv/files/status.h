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

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_FILES_STATUS_H_
