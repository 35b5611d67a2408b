// SPDX-License-Identifier: Apache-2.0

// Blocks that cannot be read any more.

#ifndef CKPTREE_KV_ROCKS_LOST_BLOCKS_H_
#define CKPTREE_KV_ROCKS_LOST_BLOCKS_H_

#include <atomic>
#include <cstddef>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "schema/spaces.h"

namespace ckptree::kv {

// Those of a store that this process has met: a save must not refer to them
// again. Who reads may have opened the store for itself, and closed it since,
// so they are of the process, by the device and inode of the directory. Where
// another store has that inode since, its saves write some blocks again.
//
// Thread-safe.
class LostBlocks {
 public:
  // A new one where the directory cannot be looked at.
  static std::shared_ptr<LostBlocks> Of(const std::string& directory);

  void Add(schema::Space space, std::string_view key);
  // True for any where more were met than are kept.
  bool Has(schema::Space space, std::string_view key) const;
  bool empty() const { return !any_.load(std::memory_order_relaxed); }

 private:
  // Some 10 MB.
  static constexpr std::size_t kMost = 1 << 17;

  std::atomic<bool> any_ = false;
  mutable absl::Mutex mu_;
  std::set<std::pair<schema::Space, std::string>> blocks_ ABSL_GUARDED_BY(mu_);
};

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_ROCKS_LOST_BLOCKS_H_
