// SPDX-License-Identifier: Apache-2.0

// What a step that is being put together holds: the leaves with the caller's
// memory, checked and in tree order.

#ifndef CKPTREE_CORE_SAVE_STEP_CONTENT_H_
#define CKPTREE_CORE_SAVE_STEP_CONTENT_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mapped_vector.h"
#include "ckptree/save.h"
#include "ckptree/tensor.h"
#include "core/save/source_leaf.h"
#include "schema/step_record.h"
#include "schema/tree.h"

namespace ckptree::internal {

// The finished content of one part of a save.
struct StepContent {
  base::MappedVector<SourceLeaf> leaves;  // In the order of their ordinals.
  std::shared_ptr<LeafStorage> storage;
  // Of the entries of the leaves, of nodes and ties. Never null.
  std::shared_ptr<const schema::EncodedTree> tree;
  std::vector<std::pair<std::string, schema::ItemKind>> items;
  std::vector<std::pair<std::string, double>> metrics;
  std::string custom_metadata;
  std::vector<std::pair<std::string, std::string>> lineage;  // The caller's.
  std::string note;
  std::uint64_t bytes = 0;
  // Of a rank: see schema::PartLayout.
  std::string replicated;
  // Paths of what all ranks have alike, leaves and ties, and others save.
  std::vector<std::string> saved_elsewhere;
  // Path and target of other ties to what this rank does not save.
  std::vector<std::pair<std::string, std::string>> ties_elsewhere;
};

// Collects leaves and nodes in any order. Confined to one thread.
class ContentBuilder {
 public:
  explicit ContentBuilder(std::size_t chunk_bytes)
      : chunk_bytes_(chunk_bytes),
        types_(static_cast<std::int64_t>(chunk_bytes), storage_.get()) {}

  // What is put comes from a stored step, and what an older engine took is
  // taken again: text that is not JSON, arrays with holes.
  void TakeAsStored() { as_stored_ = true; }
  bool as_stored() const { return as_stored_; }
  bool has_entries() const { return !leaves_.empty() || !nodes_.empty(); }

  // What is put is what rank `rank` of `world` has. Values that were put whole
  // are the same on all ranks, and one rank saves each; but for those at or
  // below what SetPerRank() named.
  void SetRank(std::uint32_t rank, std::uint32_t world) {
    rank_ = rank;
    world_ = world;
  }
  bool of_rank() const { return world_ != 0; }
  std::uint32_t rank() const { return rank_; }
  void SetPerRank(const Path& subtree) {
    per_rank_.push_back(subtree.Encode());
  }

  absl::Status AddTensor(const Path& path, Tensor tensor, Ownership ownership);
  absl::Status AddValue(const Path& path, EntryKind kind, std::string bytes,
                        std::string tag);
  absl::Status AddNode(const Path& path, EntryKind kind, std::string tag);
  absl::Status AddTie(const Path& path, const Path& target);
  absl::Status SetItem(std::string_view name, schema::ItemKind kind);
  absl::Status SetMetric(std::string_view name, double value);
  absl::Status SetCustomMetadata(std::string json);
  absl::Status SetNote(std::string_view text);
  absl::Status SetLineage(std::string_view name, std::string text);

  // Sorts, merges the boxes of a leaf, encodes the tree. kInvalidArgument
  // naming the path: given twice, boxes that overlap or disagree, a leaf below
  // a leaf, a tie to nothing, a limit.
  absl::StatusOr<StepContent> Finish() &&;

 private:
  // Leaves to the other ranks what they save.
  void KeepOwn(StepContent* content);
  // Merges boxes of one leaf, which follow each other.
  absl::Status MergeBoxes();
  absl::Status AddBoxTo(SourceLeaf* first, const SourceLeaf& second);
  // Whether the metrics there are, `more_metrics` with `more_bytes` of names,
  // and this note have room in the record of a step.
  absl::Status CheckSaid(std::size_t more_metrics, std::size_t more_bytes,
                         std::string_view note) const;

  const std::size_t chunk_bytes_;
  bool as_stored_ = false;
  std::uint32_t rank_ = 0;
  std::uint32_t world_ = 0;  // 0: one process saves the step.
  std::vector<std::string> per_rank_;
  base::MappedVector<SourceLeaf> leaves_;
  std::vector<schema::TreeEntry> nodes_;
  // Paths of the first `known_nodes_` of them, for those who put ties.
  std::unordered_set<std::string> node_paths_;
  std::size_t known_nodes_ = 0;
  std::shared_ptr<LeafStorage> storage_ = std::make_shared<LeafStorage>();
  LeafTypes types_;
  // Of the last dense array given as a whole, and of the last value: most have
  // the type of their neighbour.
  const LeafType* last_ = nullptr;
  const LeafType* last_value_ = nullptr;
  std::string encoded_;  // Scratch.
  StepContent content_;
};

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_SAVE_STEP_CONTENT_H_
