// SPDX-License-Identifier: Apache-2.0

// A table that was fetched from elsewhere, open by itself.

#ifndef CKPTREE_KV_ROCKS_FETCHED_TABLE_H_
#define CKPTREE_KV_ROCKS_FETCHED_TABLE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kv/options.h"
#include "schema/spaces.h"

namespace rocksdb {
class Iterator;
}  // namespace rocksdb

namespace ckptree::kv {

// Open() first, once; thread-safe then. Its file may be removed while it is
// open.
class FetchedTable {
 public:
  FetchedTable(const Options& options, schema::Space space);
  ~FetchedTable();

  // `hold` is kept as long as the file is open.
  absl::Status Open(const std::string& path,
                    std::shared_ptr<const void> hold = nullptr);
  std::unique_ptr<rocksdb::Iterator> Entries();
  // kNotFound: it is absent. `name` is for people.
  absl::StatusOr<std::string> Get(std::string_view key,
                                  const std::string& name);
  std::uint64_t count() const;

 private:
  struct Reader;
  const std::unique_ptr<Reader> reader_;
};

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_ROCKS_FETCHED_TABLE_H_
