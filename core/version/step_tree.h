// SPDX-License-Identifier: Apache-2.0

// The tree of one part of a step, read page by page as it is asked.

#ifndef CKPTREE_CORE_VERSION_STEP_TREE_H_
#define CKPTREE_CORE_VERSION_STEP_TREE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "core/version/pack_places.h"
#include "kv/database.h"
#include "schema/tree.h"

namespace ckptree::internal {

// Immutable on disk, so pages that were read are kept. Thread-safe. The
// database outlives it.
class StepTree {
 public:
  // An entry and, of leaves, its ordinal.
  struct Entry {
    std::shared_ptr<const schema::TreePage> page;  // Keeps `entry` alive.
    const schema::TreeEntry* entry = nullptr;
    std::uint32_t ordinal = 0;
  };

  // kDataLoss where the tree is missing or its bytes are not its digest's.
  static absl::StatusOr<std::shared_ptr<const StepTree>> Open(
      const kv::Database& database, const base::Digest& digest);

  const base::Digest& digest() const { return digest_; }
  std::uint32_t leaf_count() const { return root_.leaf_count; }
  std::uint32_t entry_count() const { return root_.entry_count; }
  const schema::TreeRoot& root() const { return root_; }

  // Nothing where there is no such path.
  absl::StatusOr<std::optional<Entry>> Find(std::string_view path) const;

  // How many pages there are; calls `fn` for each entry of one, in order.
  std::size_t page_count() const { return root_.pages.size(); }
  absl::Status ForEachOfPage(std::size_t index,
                             absl::FunctionRef<void(const Entry&)> fn) const;

  // Calls `fn` for each entry whose path begins with `prefix`, in order.
  absl::Status ForEach(std::string_view prefix,
                       absl::FunctionRef<void(const Entry&)> fn) const;

  struct Page {
    std::shared_ptr<const schema::TreePage> page;
    // Leaves before each entry of the page, and in all of it.
    std::vector<std::uint32_t> leaves_before;
    // Of a tree of one page, which has the leaves that are asked for alone: of
    // each array its bytes, or the most there can be; 0 of other leaves.
    std::vector<std::uint32_t> array_bytes;
    PackPlaces proved_places;  // Of those; with proofs.
  };
  // REQUIRES: index < root().pages.size().
  absl::StatusOr<std::shared_ptr<const Page>> LoadPage(std::size_t index) const;
  // Leaves of that page, without reading it.
  std::uint32_t LeavesOfPage(std::size_t index) const;

 private:
  StepTree(const kv::Database& database, const base::Digest& digest,
           schema::TreeRoot root);
  // The page that holds `path` if any does.
  std::size_t PageOf(std::string_view path) const;

  const kv::Database& database_;
  const base::Digest digest_;
  const schema::TreeRoot root_;

  mutable absl::Mutex mu_;
  mutable std::vector<std::shared_ptr<const Page>> pages_ ABSL_GUARDED_BY(mu_);
};

// A tree as it is stored. kDataLoss where it is missing, or its bytes are not
// its digest's.
absl::StatusOr<schema::EncodedTree> ReadEncodedTree(
    const kv::Database& database, const base::Digest& digest);

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_VERSION_STEP_TREE_H_
