// SPDX-License-Identifier: Apache-2.0

// Reading values of segments that are elsewhere.

#ifndef CKPTREE_KV_ROCKS_FAR_TABLES_H_
#define CKPTREE_KV_ROCKS_FAR_TABLES_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "kv/array_block.h"
#include "kv/database.h"
#include "kv/far_segments.h"
#include "kv/journal/cursor.h"
#include "kv/options.h"
#include "kv/rocks/fetched_table.h"
#include "schema/spaces.h"

namespace ckptree::kv {

// A block of `chunks` is one request, since its segment says where it stands;
// so are several that stand behind each other. A segment of leaf records, which
// are small and asked for together, is fetched whole, as is all that nobody
// knows the place of. Methods are as those of Database.
//
// Thread-safe.
class FarTables {
 public:
  explicit FarTables(const Options& options) : options_(options) {}

  bool Has(schema::Space space, std::string_view key) {
    return options_.far->Find(space, key) != nullptr;
  }
  bool Read(std::string_view key, std::uint64_t value_bytes,
            std::uint64_t offset, std::span<std::byte> destination,
            Database::PieceFn on_piece);
  std::size_t ReadRun(std::span<const ArrayBlock> blocks,
                      std::span<std::byte> scratch, BlockFn on_block);
  std::optional<std::uint64_t> ValueBytes(std::string_view key);

  // Its block has its checksum. kNotFound: it is absent.
  absl::StatusOr<std::string> Get(schema::Space space, std::string_view key);
  // The same out of the whole segment, which has its digest.
  absl::StatusOr<std::string> GetFetched(schema::Space space,
                                         std::string_view key);
  // May outlive this. An empty `end` is no bound.
  std::unique_ptr<Cursor> Scan(schema::Space space, std::string_view begin,
                               std::string_view end);

  void DoubtFetched(bool doubt);
  std::vector<LiveFile> LiveFiles();
  absl::Status Check(const LiveFile& file);
  absl::StatusOr<std::uint64_t> CountEntries(const LiveFile& file);

 private:
  using Table = FetchedTable;
  class Scanner;  // Over them.
  // The last ones.
  class Fetched {
   public:
    Fetched(const Options& options, std::shared_ptr<FarSegments> segments)
        : options_(options), segments_(std::move(segments)) {}
    absl::StatusOr<std::shared_ptr<Table>> Open(const FarSegmentPtr& segment);
    // True once for each time that all of it came and was compared.
    bool TakeChecked(const std::string& name);
    // What is open is opened anew.
    void Forget();
    FarSegments& segments() { return *segments_; }

   private:
    const Options options_;
    const std::shared_ptr<FarSegments> segments_;
    absl::Mutex mutex_;
    // By name. Nothing: a thread is at it.
    std::map<std::string, std::shared_ptr<Table>> tables_
        ABSL_GUARDED_BY(mutex_);
    std::vector<std::string> order_ ABSL_GUARDED_BY(mutex_);  // Newest last.
    std::set<std::string> checked_ ABSL_GUARDED_BY(mutex_);
  };

  const Options options_;
  const std::shared_ptr<Fetched> fetched_ =
      std::make_shared<Fetched>(options_, options_.far);
};

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_ROCKS_FAR_TABLES_H_
