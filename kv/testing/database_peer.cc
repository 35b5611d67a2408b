// SPDX-License-Identifier: Apache-2.0

#include "kv/testing/database_peer.h"

#include <memory>
#include <string>
#include <utility>

#include "kv/database.h"
#include "kv/journal/overlay.h"
#include "kv/rocks/database_impl.h"
#include "kv/rocks/instance.h"
#include "rocksdb/convenience.h"
#include "rocksdb/db.h"

namespace ckptree::kv {

void DatabasePeer::SetOverlay(Database& database,
                              std::shared_ptr<const Overlay> overlay) {
  database.impl_->ReplaceOverlay(std::move(overlay), {});
}

void DatabasePeer::DropFile(Database& database, const LiveFile& file) {
  const std::shared_ptr<Instance> instance = database.impl_->Reading().value();
  rocksdb::ColumnFamilyHandle* const family =
      file.copy ? instance->leaf_copies() : instance->family(file.space);
  const std::string past = file.last_key + '\0';
  const rocksdb::Slice begin(file.first_key);
  const rocksdb::Slice end(past);
  const rocksdb::RangePtr range(&begin, &end);
  rocksdb::DeleteFilesInRanges(instance->db(), family, &range, 1,
                               /*include_end=*/false)
      .PermitUncheckedError();
  database.impl_->ForgetFiles();
}

}  // namespace ckptree::kv
