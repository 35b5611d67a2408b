// SPDX-License-Identifier: Apache-2.0

// The rows of an index whose MANIFEST is lost.

#ifndef CKPTREE_KV_ROCKS_ROW_TABLES_H_
#define CKPTREE_KV_ROCKS_ROW_TABLES_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "kv/options.h"
#include "kv/rocks/instance.h"
#include "kv/salvage.h"

namespace ckptree::kv {

// Makes a database in `folder`, which must not exist, of the tables of rows
// that are in `db_directory`, by a second name each, and opens it
// (Role::kForensic). RocksDB gives each key what was written to it last, in
// whatever table that is. Nothing tells whether a table is missing, or is one
// that a compaction had replaced: rows may be missing, and removed ones be
// back.
//
// Nothing of `db_directory` is changed. kNotFound: no table of rows is there.
//
// Source: rocksdb::RepairDB, of tables alone.
absl::StatusOr<std::shared_ptr<Instance>> OpenRowTables(
    const Options& options, const std::string& db_directory,
    const std::string& folder, SegmentSpaceFn space_of);

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_ROCKS_ROW_TABLES_H_
