// SPDX-License-Identifier: Apache-2.0

#include "core/version/step_tree.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "ckptree/dtype.h"
#include "schema/keys.h"

namespace ckptree::internal {
namespace {

// A content-addressed record; kDataLoss unless its bytes are the digest's.
absl::StatusOr<std::string> ReadAddressed(const kv::Database& database,
                                          const char* what,
                                          const std::string& key,
                                          const base::Digest& digest) {
  CKPTREE_ASSIGN_OR_RETURN(std::optional<std::string> bytes,
                           database.Get(schema::Space::kRecords, key));
  if (!bytes.has_value()) {
    return absl::DataLossError(
        absl::StrFormat("%s %s is missing", what, digest.Hex()));
  }
  if (base::DigestOf(*bytes) != digest) {
    return absl::DataLossError(absl::StrFormat(
        "%s %s: the stored bytes have another digest", what, digest.Hex()));
  }
  return *std::move(bytes);
}

std::vector<std::uint32_t> ArrayBytesOf(const schema::TreePage& page) {
  constexpr std::int64_t kMost = std::numeric_limits<std::uint32_t>::max();
  std::vector<std::uint32_t> bytes;
  bytes.reserve(page.entries.size());
  for (const schema::TreeEntry& entry : page.entries) {
    if (!IsLeaf(entry.kind)) continue;
    bytes.push_back(
        entry.kind == EntryKind::kArray
            ? static_cast<std::uint32_t>(std::min(
                  kMost, ArrayBytes(entry.dtype, entry.packed, entry.shape)
                             .value_or(kMost)))
            : 0);
  }
  return bytes;
}

}  // namespace

StepTree::StepTree(const kv::Database& database, const base::Digest& digest,
                   schema::TreeRoot root)
    : database_(database),
      digest_(digest),
      root_(std::move(root)),
      pages_(root_.pages.size()) {}

absl::StatusOr<std::shared_ptr<const StepTree>> StepTree::Open(
    const kv::Database& database, const base::Digest& digest) {
  CKPTREE_ASSIGN_OR_RETURN(
      const std::string bytes,
      ReadAddressed(database, "tree", schema::TreeKey(digest), digest));
  CKPTREE_ASSIGN_OR_RETURN(schema::TreeRoot root,
                           schema::DecodeTreeRoot(bytes));
  return std::shared_ptr<const StepTree>(
      new StepTree(database, digest, std::move(root)));
}

absl::StatusOr<std::shared_ptr<const StepTree::Page>> StepTree::LoadPage(
    std::size_t index) const {
  {
    absl::MutexLock lock(&mu_);
    if (pages_[index] != nullptr) return pages_[index];
  }
  const schema::TreePageRef& ref = root_.pages[index];
  CKPTREE_ASSIGN_OR_RETURN(
      const std::string bytes,
      ReadAddressed(database_, "tree page", schema::TreePageKey(ref.digest),
                    ref.digest));
  CKPTREE_ASSIGN_OR_RETURN(schema::TreePage decoded,
                           schema::DecodeTreePage(bytes));
  auto page = std::make_shared<Page>();
  page->leaves_before.reserve(decoded.entries.size() + 1);
  std::uint32_t leaves = 0;
  for (const schema::TreeEntry& entry : decoded.entries) {
    page->leaves_before.push_back(leaves);
    leaves += IsLeaf(entry.kind) ? 1 : 0;
  }
  page->leaves_before.push_back(leaves);
  if (root_.pages.size() == 1) {
    page->array_bytes = ArrayBytesOf(decoded);
    page->proved_places =
        PackPlaces(PackLayout::Kind::kProved, page->array_bytes);
  }
  if (decoded.entries.size() != ref.entry_count ||
      leaves != LeavesOfPage(index) || decoded.entries.empty() ||
      decoded.entries.front().path != ref.first_path) {
    return absl::DataLossError(
        absl::StrFormat("tree page %s is not what tree %s says of it",
                        ref.digest.Hex(), digest_.Hex()));
  }
  page->page = std::make_shared<const schema::TreePage>(std::move(decoded));
  absl::MutexLock lock(&mu_);
  pages_[index] = page;
  return page;
}

std::uint32_t StepTree::LeavesOfPage(std::size_t index) const {
  const std::uint32_t end = index + 1 < root_.pages.size()
                                ? root_.pages[index + 1].first_ordinal
                                : root_.leaf_count;
  return end - root_.pages[index].first_ordinal;
}

std::size_t StepTree::PageOf(std::string_view path) const {
  const auto it =
      std::upper_bound(root_.pages.begin(), root_.pages.end(), path,
                       [](std::string_view p, const schema::TreePageRef& ref) {
                         return p < ref.first_path;
                       });
  return it == root_.pages.begin()
             ? 0
             : static_cast<std::size_t>(it - root_.pages.begin()) - 1;
}

absl::StatusOr<std::optional<StepTree::Entry>> StepTree::Find(
    std::string_view path) const {
  if (root_.pages.empty()) return std::optional<Entry>();
  const std::size_t index = PageOf(path);
  CKPTREE_ASSIGN_OR_RETURN(const std::shared_ptr<const Page> page,
                           LoadPage(index));
  const auto& entries = page->page->entries;
  const auto it =
      std::lower_bound(entries.begin(), entries.end(), path,
                       [](const schema::TreeEntry& entry, std::string_view p) {
                         return entry.path < p;
                       });
  if (it == entries.end() || it->path != path) return std::optional<Entry>();
  const auto at = static_cast<std::size_t>(it - entries.begin());
  return std::optional<Entry>(
      Entry{page->page, &*it,
            root_.pages[index].first_ordinal + page->leaves_before[at]});
}

absl::Status StepTree::ForEach(std::string_view prefix,
                               absl::FunctionRef<void(const Entry&)> fn) const {
  if (root_.pages.empty()) return absl::OkStatus();
  for (std::size_t index = PageOf(prefix); index < root_.pages.size();
       ++index) {
    CKPTREE_ASSIGN_OR_RETURN(const std::shared_ptr<const Page> page,
                             LoadPage(index));
    const auto& entries = page->page->entries;
    for (std::size_t i = 0; i < entries.size(); ++i) {
      const std::string_view path = entries[i].path;
      if (path < prefix) continue;
      if (!path.starts_with(prefix)) return absl::OkStatus();
      fn(Entry{page->page, &entries[i],
               root_.pages[index].first_ordinal + page->leaves_before[i]});
    }
  }
  return absl::OkStatus();
}

absl::Status StepTree::ForEachOfPage(
    std::size_t index, absl::FunctionRef<void(const Entry&)> fn) const {
  CKPTREE_ASSIGN_OR_RETURN(const std::shared_ptr<const Page> page,
                           LoadPage(index));
  const auto& entries = page->page->entries;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    fn(Entry{page->page, &entries[i],
             root_.pages[index].first_ordinal + page->leaves_before[i]});
  }
  return absl::OkStatus();
}

absl::StatusOr<schema::EncodedTree> ReadEncodedTree(
    const kv::Database& database, const base::Digest& digest) {
  schema::EncodedTree tree;
  tree.digest = digest;
  CKPTREE_ASSIGN_OR_RETURN(
      tree.root,
      ReadAddressed(database, "tree", schema::TreeKey(digest), digest));
  CKPTREE_ASSIGN_OR_RETURN(const schema::TreeRoot root,
                           schema::DecodeTreeRoot(tree.root));
  for (const schema::TreePageRef& ref : root.pages) {
    CKPTREE_ASSIGN_OR_RETURN(
        std::string page,
        ReadAddressed(database, "tree page", schema::TreePageKey(ref.digest),
                      ref.digest));
    tree.pages.emplace_back(ref.digest, std::move(page));
  }
  return tree;
}

}  // namespace ckptree::internal
