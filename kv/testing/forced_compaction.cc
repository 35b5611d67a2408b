// SPDX-License-Identifier: Apache-2.0

#include "kv/testing/forced_compaction.h"

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/status_macros.h"
#include "kv/files/status.h"
#include "kv/options.h"
#include "kv/rocks/instance.h"
#include "kv/rocks/rocksdb_options.h"
#include "rocksdb/db.h"
#include "rocksdb/options.h"
#include "schema/spaces.h"

namespace ckptree::kv {

absl::StatusOr<int> CompactBesideSnapshot(const std::string& db_directory,
                                          schema::Space space) {
  CKPTREE_ASSIGN_OR_RETURN(const std::shared_ptr<Instance> instance,
                           Instance::Open(Role::kReadWrite, db_directory,
                                          Options(), nullptr, nullptr));
  rocksdb::DB* const db = instance->db();
  const rocksdb::Snapshot* const snapshot = db->GetSnapshot();
  rocksdb::CompactRangeOptions force;
  force.bottommost_level_compaction =
      rocksdb::BottommostLevelCompaction::kForce;
  const rocksdb::Status compacted =
      db->CompactRange(force, instance->family(space), nullptr, nullptr);
  db->ReleaseSnapshot(snapshot);
  CKPTREE_RETURN_IF_ERROR(ToStatus(compacted, "compacting"));
  const std::unique_ptr<rocksdb::Iterator> scan(
      db->NewIterator(rocksdb::ReadOptions(), instance->family(space)));
  int found = 0;
  for (scan->SeekToFirst(); scan->Valid(); scan->Next()) ++found;
  CKPTREE_RETURN_IF_ERROR(ToStatus(scan->status(), "counting"));
  return found;
}

absl::Status Settle(const std::string& db_directory, schema::Space space) {
  CKPTREE_ASSIGN_OR_RETURN(const std::shared_ptr<Instance> instance,
                           Instance::Open(Role::kReadWrite, db_directory,
                                          Options(), nullptr, nullptr));
  rocksdb::CompactRangeOptions down;
  down.change_level = true;
  down.target_level = kBottomLevel;
  return ToStatus(instance->db()->CompactRange(down, instance->family(space),
                                               nullptr, nullptr),
                  "compacting");
}

}  // namespace ckptree::kv
