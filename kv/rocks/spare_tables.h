// SPDX-License-Identifier: Apache-2.0

// Reading values of segments that are here, cannot be read, and are elsewhere,
// too.

#ifndef CKPTREE_KV_ROCKS_SPARE_TABLES_H_
#define CKPTREE_KV_ROCKS_SPARE_TABLES_H_

#include <deque>
#include <memory>
#include <string>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "kv/options.h"
#include "kv/rocks/fetched_table.h"

namespace ckptree::kv {

// Thread-safe.
class SpareTables {
 public:
  // Of options.spare.
  explicit SpareTables(const Options& options) : options_(options) {}

  // The value of a key of kChunks, out of its whole segment. kNotFound: it is
  // absent.
  absl::StatusOr<std::string> Get(std::string_view key);

 private:
  struct Opened {
    std::string first_key;
    std::string last_key;
    std::shared_ptr<FetchedTable> table;
  };

  absl::StatusOr<std::shared_ptr<FetchedTable>> TableOf(std::string_view key);

  const Options options_;
  // Held over a fetch: who wants the same segment waits, and finds it.
  absl::Mutex mutex_;
  std::deque<Opened> tables_ ABSL_GUARDED_BY(mutex_);  // Newest last.
};

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_ROCKS_SPARE_TABLES_H_
