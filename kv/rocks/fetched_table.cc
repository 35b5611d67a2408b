// SPDX-License-Identifier: Apache-2.0

#include "kv/rocks/fetched_table.h"

#include <utility>

#include "base/status_macros.h"
#include "kv/files/file_system_of.h"
#include "kv/files/status.h"
#include "kv/rocks/guard.h"
#include "kv/rocks/rocksdb_options.h"
#include "rocksdb/env.h"
#include "rocksdb/iterator.h"
#include "rocksdb/options.h"
#include "rocksdb/sst_file_reader.h"
#include "rocksdb/table_properties.h"

namespace ckptree::kv {

struct FetchedTable::Reader {
  Reader(const Options& options, schema::Space space)
      : env(rocksdb::NewCompositeEnv(
            FileSystemOf(Guarded(options, Guard::kReader, nullptr)))),
        table(FileOptionsOf(space, env.get(), /*map=*/false)) {}

  std::shared_ptr<const void> hold;  // Goes behind the file.
  const std::unique_ptr<rocksdb::Env> env;
  rocksdb::SstFileReader table;
};

FetchedTable::FetchedTable(const Options& options, schema::Space space)
    : reader_(std::make_unique<Reader>(options, space)) {}

FetchedTable::~FetchedTable() = default;

absl::Status FetchedTable::Open(const std::string& path,
                                std::shared_ptr<const void> hold) {
  reader_->hold = std::move(hold);
  return ToStatus(reader_->table.Open(path), path);
}

std::unique_ptr<rocksdb::Iterator> FetchedTable::Entries() {
  rocksdb::ReadOptions read;
  read.fill_cache = false;
  return std::unique_ptr<rocksdb::Iterator>(reader_->table.NewIterator(read));
}

absl::StatusOr<std::string> FetchedTable::Get(std::string_view key,
                                              const std::string& name) {
  const std::unique_ptr<rocksdb::Iterator> entry = Entries();
  entry->Seek(key);
  CKPTREE_RETURN_IF_ERROR(ToStatus(entry->status(), name));
  if (!entry->Valid() || entry->key() != key) {
    return absl::NotFoundError("it is missing");
  }
  return entry->value().ToString();
}

std::uint64_t FetchedTable::count() const {
  const auto properties = reader_->table.GetTableProperties();
  return properties == nullptr ? 0 : properties->num_entries;
}

}  // namespace ckptree::kv
