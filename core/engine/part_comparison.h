// SPDX-License-Identifier: Apache-2.0

// Two trees of one part, walked side by side: in which leaves they may differ.

#ifndef CKPTREE_CORE_ENGINE_PART_COMPARISON_H_
#define CKPTREE_CORE_ENGINE_PART_COMPARISON_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "ckptree/entry_kind.h"
#include "core/engine/step_reader.h"
#include "core/version/step_tree.h"
#include "schema/leaf_map.h"
#include "schema/tree.h"

namespace ckptree::internal {

// True where a leaf, a tie or None stands there.
bool HasValue(EntryKind kind);

// One part of a step.
struct PartOfStep {
  const StepReader& step;
  const StepReader::Part& part;
};

// Reads no leaf record, and of the trees the pages alone in which something may
// differ. The steps outlive it. Confined to one thread.
class PartComparison {
 public:
  // As it stands in one of the trees, which keep the pages that were read.
  struct Entry {
    const schema::TreeEntry* entry = nullptr;  // Null: it is not in this tree.
    std::uint32_t ordinal = 0;                 // Of a leaf.
  };
  // Called with what may differ; nodes are left out.
  using OnDifferent =
      absl::FunctionRef<void(const Entry& before, const Entry& after)>;

  // REQUIRES: both have the same number, and their steps are of one engine.
  PartComparison(const PartOfStep& before, const PartOfStep& after)
      : a_(before), b_(after) {}

  bool AtEnd() const { return a_.AtEnd() && b_.AtEnd(); }
  // Compares the next entry, or the next page where both trees have it and it
  // is nothing but leaves. Errors name the step. REQUIRES: !AtEnd().
  absl::Status Next(OnDifferent fn);
  // All that are left.
  absl::Status Run(OnDifferent fn);

  // Leaves so far that share their record.
  std::uint64_t same() const { return same_; }

 private:
  // An entry of a tree, read when it is looked at.
  class Side {
   public:
    explicit Side(const PartOfStep& of)
        : step_(of.step), tree_(*of.part.tree), runs_(of.part.map.runs()) {}

    bool AtEnd() const { return page_ == tree_.root().pages.size(); }
    bool AtPage() const { return entry_ == 0; }
    const schema::TreePageRef& ref() const { return tree_.root().pages[page_]; }
    std::uint32_t leaves() const { return tree_.LeavesOfPage(page_); }
    bool OnlyLeaves() const { return ref().entry_count == leaves(); }

    absl::Status Load();
    // REQUIRES: Load().
    Entry entry() const {
      return {&loaded_->page->entries[entry_],
              ref().first_ordinal + loaded_->leaves_before[entry_]};
    }
    // The same of a page of leaves alone. REQUIRES: Load().
    const schema::TreeEntry* leaf(std::uint32_t leaf) const {
      return &loaded_->page->entries[leaf];
    }

    // The record of that leaf, and of those that follow it in its run. They are
    // asked for in ascending order.
    schema::MapRun RecordOf(std::uint32_t ordinal);

    void Next() {
      if (++entry_ == ref().entry_count) NextPage();
    }
    void NextPage() {
      ++page_;
      entry_ = 0;
      loaded_.reset();
    }

   private:
    const StepReader& step_;
    const StepTree& tree_;
    const std::vector<schema::MapRun>& runs_;
    std::size_t run_ = 0;
    std::size_t page_ = 0;
    std::size_t entry_ = 0;
    std::shared_ptr<const StepTree::Page> loaded_;
  };

  absl::Status ComparePage(OnDifferent fn);
  absl::Status CompareEntry(OnDifferent fn);

  Side a_;
  Side b_;
  std::uint64_t same_ = 0;
};

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_ENGINE_PART_COMPARISON_H_
