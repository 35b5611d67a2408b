// SPDX-License-Identifier: Apache-2.0

// A value that RocksDB cannot give any more.

#ifndef CKPTREE_KV_ROCKS_TABLE_SEARCH_H_
#define CKPTREE_KV_ROCKS_TABLE_SEARCH_H_

#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "kv/options.h"
#include "kv/rocks/instance.h"
#include "schema/spaces.h"

namespace ckptree::kv {

// True for bytes that are the ones that were saved.
using AcceptFn = absl::FunctionRef<bool(std::string_view value)>;

// Looks through the tables themselves, past damage of a block's head or trailer
// and of a table's index, properties and footer. A table is read once, from end
// to end, and what stands where in it is remembered.
//
// Thread-safe.
class TableSearch {
 public:
  // Tables are read below `options`, damaged or not: RocksDB does not see them.
  explicit TableSearch(const Options& options) : options_(options) {}

  // Asks `accept` about all that may be the value of `key`, the likeliest
  // first. kNotFound: none was.
  absl::StatusOr<std::string> Find(const Instance& instance,
                                   schema::Space space, std::string_view key,
                                   AcceptFn accept);

  // The set of live files changed.
  void Forget();

 private:
  struct Table;
  std::shared_ptr<const Table> Open(const std::string& path,
                                    schema::Space space);

  const Options options_;
  absl::Mutex mutex_;
  std::unordered_map<std::string, std::shared_ptr<const Table>> tables_
      ABSL_GUARDED_BY(mutex_);
};

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_ROCKS_TABLE_SEARCH_H_
