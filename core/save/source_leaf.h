// SPDX-License-Identifier: Apache-2.0

// A leaf of a step that is being put together, as the caller gave it.

#ifndef CKPTREE_CORE_SAVE_SOURCE_LEAF_H_
#define CKPTREE_CORE_SAVE_SOURCE_LEAF_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "ckptree/tensor.h"
#include "schema/leaf_record.h"
#include "schema/tree.h"

namespace ckptree::internal {

// How memory is read that is not dense.
struct SourceAccess {
  std::vector<std::int64_t> strides;  // Bytes; empty: dense.
  CopyFn copy;
};

// One box of an array, as the caller gave it.
struct SourceBox {
  const schema::Box* box = nullptr;  // In the whole array; its chunks decided.
  const std::byte* data = nullptr;
  const SourceAccess* access = nullptr;  // Null: dense.
  bool borrow = false;

  // True where every chunk is one run of bytes at `data`.
  bool dense() const { return access == nullptr; }
  // Empty: row-major, without gaps.
  std::span<const std::int64_t> strides() const {
    if (access == nullptr) return {};
    return access->strides;
  }
};

// How a leaf is stored when it is written.
enum class LeafForm : std::uint8_t {
  kInline,   // In its record: at most kMaxInlineBytes.
  kPacked,   // With its neighbours in one chunk.
  kChunked,  // In chunks of its own.
};

inline constexpr std::uint32_t kNoLeaf = 0xffffffff;

// What many leaves have in common.
struct LeafType {
  schema::TreeEntry entry;  // Without a path.
  schema::Box whole;        // Of an array that is one box, cut by the rule.
  std::uint64_t bytes = 0;  // Of such an array.
};

// Refers to what the content keeps: there may be a million of them, so none has
// memory of its own.
struct SourceLeaf {
  std::string_view path;  // Path::Encode()
  const LeafType* of_type = nullptr;
  std::uint64_t byte_length = 0;
  // The bytes of a leaf that is no array, or that is in its record and staged.
  const char* bytes = nullptr;
  SourceBox only;                   // Of an array with one box.
  const SourceBox* many = nullptr;  // Of one with several.
  std::uint32_t box_count = 0;      // 0: no array.
  // Which leaf is its rounded copy, with the same chunks (PairRoundedCopies()).
  std::uint32_t copy = kNoLeaf;
  LeafForm form = LeafForm::kInline;
  bool by_box = false;  // Its box was given, be it the whole.
  bool is_copy = false;

  // Its path is empty here.
  const schema::TreeEntry& entry() const { return of_type->entry; }
  std::string_view value() const { return {bytes, byte_length}; }
  std::span<const SourceBox> boxes() const {
    return {many == nullptr ? &only : many, box_count};
  }
  // REQUIRES: an array.
  const schema::Box& box(std::size_t b) const { return *boxes()[b].box; }
  // True where one box is all of it, or it is no array.
  bool is_whole() const {
    return box_count == 0 ||
           (box_count == 1 && only.box->shape == entry().shape);
  }
};

// Texts and values, each where it was put until all go.
class KeptBytes {
 public:
  std::string_view Keep(std::string_view bytes);
  // The same of what is worth no copy.
  std::string_view Keep(std::string&& bytes);

 private:
  std::deque<std::string> blocks_;  // None is ever moved.
  char* free_ = nullptr;
  std::size_t left_ = 0;
};

// What the leaves of a content refer to. Not changed once the content is made.
struct LeafStorage {
  KeptBytes bytes;
  std::deque<LeafType> types;
  std::deque<schema::Box> boxes;
  std::deque<SourceAccess> accesses;
  std::deque<std::vector<SourceBox>> many;
};

// Finds the one type that leaves have in common. Confined to one thread.
class LeafTypes {
 public:
  // `storage` keeps them, and outlives this.
  LeafTypes(std::int64_t chunk_bytes, LeafStorage* storage)
      : chunk_bytes_(chunk_bytes), storage_(storage) {}

  // REQUIRES: ArrayBytes() has a value for an array, and `bytes` is that; the
  // entry has no path.
  const LeafType* Of(schema::TreeEntry entry, std::uint64_t bytes);

 private:
  struct Same {
    std::size_t operator()(const LeafType* type) const;
    bool operator()(const LeafType* a, const LeafType* b) const {
      return a->entry == b->entry;
    }
  };

  const std::int64_t chunk_bytes_;
  LeafStorage* const storage_;
  std::unordered_set<const LeafType*, Same, Same> known_;
};

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_SAVE_SOURCE_LEAF_H_
