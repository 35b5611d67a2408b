// SPDX-License-Identifier: Apache-2.0

// What a save is compared with: one part of the tip of its branch, in columns.

#ifndef CKPTREE_CORE_VERSION_COMPACT_PART_H_
#define CKPTREE_CORE_VERSION_COMPACT_PART_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "base/digest.h"
#include "schema/dead_list.h"
#include "schema/leaf_map.h"
#include "schema/leaf_record.h"
#include "schema/step_record.h"
#include "schema/tree.h"

namespace ckptree::internal {

// The version and the step at which a value last changed.
struct Since {
  std::uint64_t version = 0;
  std::int64_t step = 0;

  friend auto operator<=>(const Since&, const Since&) = default;
};

// Of a leaf that is in its record, or in one chunk with its neighbours, and
// whole, it has some 40 bytes: what a save asks is whether the value still is
// the one of the digest, and where it stands if so. The record itself, which
// says more, can be made of that and of the value. Of any other leaf it has the
// record, which saves share while it does not change.
//
// Immutable once made.
class CompactPart {
 public:
  // A block that small leaves stand in.
  struct PackBlock {
    schema::Space place = schema::Space::kChunks;
    std::uint16_t part = 0;
    std::uint32_t n = 0;
    std::uint64_t version = 0;
    std::uint32_t bytes = 0;

    schema::Block block() const {
      return {schema::BlockKind::kChunk, place, version, n, bytes};
    }
  };
  // How many elements of a leaf are no numbers.
  struct Nonfinite {
    std::uint32_t ordinal = 0;
    std::uint64_t nan = 0;
    std::uint64_t inf = 0;
  };

  const base::Digest& tree_digest() const { return tree_->digest; }
  const std::shared_ptr<const schema::EncodedTree>& tree() const {
    return tree_;
  }
  const schema::LeafMap& map() const { return map_; }
  std::size_t size() const { return leaves_.size(); }

  // REQUIRES of all below: ordinal < size().

  // schema::ValueDigest() of the record.
  const base::Digest& value(std::size_t ordinal) const {
    return leaves_[ordinal].value;
  }
  const Since& since(std::size_t ordinal) const {
    return since_[leaves_[ordinal].since];
  }
  // False of those with a record, too.
  bool is_inline(std::size_t ordinal) const;
  // Null of a leaf that has no record here.
  const schema::LeafRecord* record(std::size_t ordinal) const;
  // Where the chunk stands whose digest is `digest`. REQUIRES: neither inline
  // nor with a record.
  schema::ChunkRef Reference(std::size_t ordinal,
                             const base::Digest& digest) const;

  const std::vector<PackBlock>& blocks() const { return blocks_; }
  // Of the leaves that have a record here.
  const std::vector<std::shared_ptr<const schema::LeafRecord>>& records()
      const {
    return records_;
  }
  // Ascending by ordinal; leaves without such elements are not there.
  const std::vector<Nonfinite>& nonfinite() const { return nonfinite_; }
  // Whether it has a NaN or an Inf is not known: it has no statistics.
  bool is_unknown(std::size_t ordinal) const {
    return ordinal < unknown_.size() && unknown_[ordinal];
  }
  std::uint32_t record_bytes(std::size_t ordinal) const {
    return leaves_[ordinal].record_bytes;
  }

  std::uint64_t logical_bytes() const { return logical_bytes_; }
  // As stored, of all leaf records.
  std::uint64_t all_record_bytes() const { return all_record_bytes_; }
  // Map bytes written since all leaf records were written together.
  std::uint64_t map_bytes() const { return map_bytes_; }

  // What it takes in memory, without records that other parts share.
  std::size_t MemoryBytes() const;

 private:
  friend class CompactPartBuilder;

  struct Leaf {
    base::Digest value;
    std::uint32_t since = 0;   // Index.
    std::uint32_t block = 0;   // Index, or one of the two below.
    std::uint32_t offset = 0;  // In the block; or which record.
    std::uint32_t length = 0;  // Of the value; 0 of one with a record.
    std::uint32_t record_bytes = 0;
  };
  static constexpr std::uint32_t kInline = 0xffffffff;
  static constexpr std::uint32_t kHasRecord = 0xfffffffe;

  std::shared_ptr<const schema::EncodedTree> tree_;
  schema::LeafMap map_;
  std::vector<Leaf> leaves_;
  std::vector<Since> since_;
  std::vector<PackBlock> blocks_;
  std::vector<std::shared_ptr<const schema::LeafRecord>> records_;
  std::vector<Nonfinite> nonfinite_;
  std::vector<bool> unknown_;  // By ordinal, up to the last one that is.
  std::uint64_t logical_bytes_ = 0;
  std::uint64_t all_record_bytes_ = 0;
  std::uint64_t map_bytes_ = 0;
};

// True where a leaf of this form is kept without its record. `whole`: it has no
// boxes, or one that is all of the array.
bool IsCompact(bool is_inline, bool whole, std::uint64_t byte_length,
               std::span<const schema::ChunkRef> chunks);

// Puts a part together, leaf by leaf in tree order. Confined to one thread.
class CompactPartBuilder {
 public:
  // `from`: the part whose leaves Keep() takes; may be null, and outlives this.
  CompactPartBuilder(const CompactPart* from, std::size_t leaves);

  // A leaf of `from`, as it is.
  void Keep(std::uint32_t ordinal, const schema::MapRun& at);

  // A leaf whose record stands at `at`; one run of one leaf.
  struct NewLeaf {
    schema::MapRun at;
    base::Digest value;
    Since since;
    std::uint64_t byte_length = 0;
    std::uint32_t record_bytes = 0;
    std::uint64_t nan = 0;
    std::uint64_t inf = 0;
    bool unknown = false;  // See CompactPart::is_unknown().
    // Of IsCompact() leaves that are not inline.
    const schema::ChunkRef* chunk = nullptr;
    // Of all that are not IsCompact().
    std::shared_ptr<const schema::LeafRecord> record;
  };
  void Add(NewLeaf leaf);

  std::size_t size() const { return part_->leaves_.size(); }

  std::shared_ptr<const CompactPart> Finish(
      std::shared_ptr<const schema::EncodedTree> tree, std::uint64_t map_bytes);
  const schema::LeafMap& map() const { return part_->map_; }

 private:
  std::uint32_t SinceIndex(const Since& since);
  std::uint32_t BlockIndex(const CompactPart::PackBlock& block);
  // Of the leaf that comes next.
  void AddNonfinite(std::uint64_t nan, std::uint64_t inf);
  void AddUnknown();
  void Append(const CompactPart::Leaf& leaf, const schema::MapRun& at);

  const CompactPart* const from_;
  std::shared_ptr<CompactPart> part_;
  // Index here by index in `from`.
  std::vector<std::uint32_t> since_of_;
  std::vector<std::uint32_t> block_of_;
  std::map<Since, std::uint32_t> known_since_;
  std::map<schema::Block, std::uint32_t> known_blocks_;
  std::uint32_t last_since_ = 0;
  std::uint32_t last_block_ = 0;
};

// Every block that `part` refers to: its records and their chunks, ascending.
std::vector<schema::Block> BlocksOfPart(const CompactPart& part);

// The blocks of `base` that `next` does not refer to; none without a base.
// Exact for the part alone, as a block never leaves its part.
std::vector<schema::BlockRun> DeadBlocks(const CompactPart* base,
                                         const CompactPart& next);

// The tip of a branch. Version 0 has no parts.
struct BaseState {
  std::uint64_t version = 0;
  std::map<std::uint16_t, schema::PartRecord> table;  // All parts, by number.
  // Those that were read: all of them, or, where other processes compare their
  // parts with it, none.
  std::map<std::uint16_t, std::shared_ptr<const CompactPart>> parts;
};

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_VERSION_COMPACT_PART_H_
