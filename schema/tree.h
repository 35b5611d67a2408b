// SPDX-License-Identifier: Apache-2.0

// The structure of a part: which leaves and nodes there are, and of what kind.

#ifndef CKPTREE_SCHEMA_TREE_H_
#define CKPTREE_SCHEMA_TREE_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/digest.h"
#include "ckptree/dtype.h"
#include "ckptree/entry_kind.h"

namespace ckptree::schema {

struct TreeEntry {
  std::string path;  // Path::Encode()
  EntryKind kind = EntryKind::kArray;
  DType dtype = DType::kNone;       // Arrays only.
  bool packed = false;              // Arrays of a sub-byte type.
  std::vector<std::int64_t> shape;  // Of the whole array; arrays only.
  std::string tag;                  // E.g. "prng:threefry2x32"; may be empty.
  std::string tie_to;               // kTie: the encoded path of a leaf.

  friend bool operator==(const TreeEntry&, const TreeEntry&) = default;
};

// An entry, and the path that it has in place of its own.
struct NamedEntry {
  std::string_view path;
  const TreeEntry* entry = nullptr;
};

// Entries strictly ascending by encoded path. The ordinal of a leaf is its
// position among the leaves.
struct TreePage {
  std::vector<TreeEntry> entries;
};

struct TreePageRef {
  base::Digest digest;              // Of the page's stored bytes.
  std::string first_path;           // Of its first entry.
  std::uint32_t first_ordinal = 0;  // Leaves in the pages before it.
  std::uint32_t entry_count = 0;
};

// Its digest, of its stored bytes, names the tree.
struct TreeRoot {
  std::uint32_t leaf_count = 0;
  std::uint32_t entry_count = 0;
  std::vector<TreePageRef> pages;
};

std::string EncodeTreePage(const TreePage& page);
std::string EncodePageOf(std::span<const NamedEntry> entries);
absl::StatusOr<TreePage> DecodeTreePage(std::string_view bytes);
std::string EncodeTreeRoot(const TreeRoot& root);
absl::StatusOr<TreeRoot> DecodeTreeRoot(std::string_view bytes);

// A tree ready to store: pages of at most kLeavesPerTreePage entries.
struct EncodedTree {
  base::Digest digest;
  std::string root;                                         // TreeKey(digest)
  std::vector<std::pair<base::Digest, std::string>> pages;  // TreePageKey(...)
};

// kInvalidArgument, naming the paths in text form, where entries are not
// ascending, two are equal, a leaf or tie has entries below it, a tie's target
// is missing or no leaf, a path or shape breaks a limit, or an entry has fields
// that its kind does not allow.
absl::StatusOr<EncodedTree> EncodeTreeOf(std::span<const NamedEntry> entries);
absl::StatusOr<EncodedTree> EncodeTree(const std::vector<TreeEntry>& entries);

// All entries of a tree. kDataLoss where a page that the root names is missing,
// or is not what the root says of it.
absl::StatusOr<std::vector<TreeEntry>> DecodeTree(const EncodedTree& tree);

}  // namespace ckptree::schema

#endif  // CKPTREE_SCHEMA_TREE_H_
