// SPDX-License-Identifier: Apache-2.0

// Hot path: per leaf.

#include "core/engine/step_difference.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "base/status_macros.h"
#include "core/version/step_tree.h"
#include "schema/leaf_map.h"
#include "schema/tree.h"
#include "tbb/blocked_range.h"
#include "tbb/parallel_for.h"
#include "tbb/task_arena.h"

namespace ckptree::internal {
namespace {

using Part = StepReader::Part;

// One thread describes so many leaves.
constexpr std::size_t kEntriesOfTask = 1024;

// Called with an entry that may differ as it is in each of the two trees, or
// null where that has none. Nodes are left out.
using OnDifferent = absl::FunctionRef<void(const schema::TreeEntry* before,
                                           const schema::TreeEntry* after)>;

// One leaf after the other of a map.
class MapCursor {
 public:
  explicit MapCursor(const schema::LeafMap& map) : runs_(map.runs()) {}

  // The run that `ordinal` is in; they are asked for in ascending order.
  const schema::MapRun& At(std::uint32_t ordinal) {
    while (ordinal - runs_[run_].first >= runs_[run_].count) ++run_;
    return runs_[run_];
  }

 private:
  const std::vector<schema::MapRun>& runs_;
  std::size_t run_ = 0;
};

// Walks two trees of one part side by side.
class PartComparison {
 public:
  PartComparison(const Part& before, const Part& after, OnDifferent fn)
      : a_(before), b_(after), fn_(fn) {}

  // Leaves that share their record are counted only.
  absl::Status Run(std::uint64_t* same) {
    same_ = same;
    while (!a_.AtEnd() && !b_.AtEnd()) {
      if (a_.AtPage() && b_.AtPage() && a_.ref().digest == b_.ref().digest &&
          a_.OnlyLeaves() && b_.OnlyLeaves() && a_.leaves() == b_.leaves()) {
        CKPTREE_RETURN_IF_ERROR(ComparePage());
      } else {
        CKPTREE_RETURN_IF_ERROR(CompareEntry());
      }
    }
    for (; !a_.AtEnd(); a_.Next()) {
      CKPTREE_RETURN_IF_ERROR(a_.Load());
      Different(&a_.entry(), nullptr);
    }
    for (; !b_.AtEnd(); b_.Next()) {
      CKPTREE_RETURN_IF_ERROR(b_.Load());
      Different(nullptr, &b_.entry());
    }
    return absl::OkStatus();
  }

 private:
  // An entry of a tree, read when it is looked at.
  class Side {
   public:
    explicit Side(const Part& part) : tree_(*part.tree), map_(part.map) {}

    bool AtEnd() const { return page_ == tree_.root().pages.size(); }
    bool AtPage() const { return entry_ == 0; }
    const schema::TreePageRef& ref() const { return tree_.root().pages[page_]; }
    std::uint32_t leaves() const { return tree_.LeavesOfPage(page_); }
    bool OnlyLeaves() const { return ref().entry_count == leaves(); }

    absl::Status Load() {
      if (loaded_ == nullptr) {
        CKPTREE_ASSIGN_OR_RETURN(loaded_, tree_.LoadPage(page_));
      }
      return absl::OkStatus();
    }
    // REQUIRES of these: Load().
    const schema::TreeEntry& entry() const { return entry(entry_); }
    const schema::TreeEntry& entry(std::size_t index) const {
      return loaded_->page->entries[index];
    }
    // REQUIRES: a leaf.
    schema::MapRun record() { return RecordOf(loaded_->leaves_before[entry_]); }

    // Of that leaf of the page, and those that follow it in its run.
    schema::MapRun RecordOf(std::uint32_t leaf) {
      const std::uint32_t ordinal = ref().first_ordinal + leaf;
      schema::MapRun run = map_.At(ordinal);
      const std::uint32_t skipped = ordinal - run.first;
      run.source += skipped;
      run.count -= skipped;
      return run;
    }

    void Next() {
      if (++entry_ == ref().entry_count) NextPage();
    }
    void NextPage() {
      ++page_;
      entry_ = 0;
      loaded_.reset();
    }

   private:
    const StepTree& tree_;
    MapCursor map_;
    std::size_t page_ = 0;
    std::size_t entry_ = 0;
    std::shared_ptr<const StepTree::Page> loaded_;
  };

  static bool SameRecord(const schema::MapRun& a, const schema::MapRun& b) {
    return a.place == b.place && a.version == b.version && a.source == b.source;
  }

  void Different(const schema::TreeEntry* before,
                 const schema::TreeEntry* after) {
    if (before != nullptr && !HasValue(before->kind)) before = nullptr;
    if (after != nullptr && !HasValue(after->kind)) after = nullptr;
    if (before != nullptr || after != nullptr) fn_(before, after);
  }

  // A page that both trees have and that is nothing but leaves: only the
  // records matter, run by run.
  absl::Status ComparePage() {
    const std::uint32_t leaves = a_.leaves();
    for (std::uint32_t leaf = 0; leaf < leaves;) {
      const schema::MapRun a = a_.RecordOf(leaf);
      const schema::MapRun b = b_.RecordOf(leaf);
      const std::uint32_t end =
          std::min({leaves - leaf, a.count, b.count}) + leaf;
      if (SameRecord(a, b)) {
        *same_ += end - leaf;
        leaf = end;
        continue;
      }
      CKPTREE_RETURN_IF_ERROR(a_.Load());
      for (; leaf < end; ++leaf) Different(&a_.entry(leaf), &a_.entry(leaf));
    }
    a_.NextPage();
    b_.NextPage();
    return absl::OkStatus();
  }

  absl::Status CompareEntry() {
    CKPTREE_RETURN_IF_ERROR(a_.Load());
    CKPTREE_RETURN_IF_ERROR(b_.Load());
    const schema::TreeEntry& a = a_.entry();
    const schema::TreeEntry& b = b_.entry();
    const int order = a.path.compare(b.path);
    if (order != 0) {
      Different(order < 0 ? &a : nullptr, order < 0 ? nullptr : &b);
    } else if (IsLeaf(a.kind) && a == b &&
               SameRecord(a_.record(), b_.record())) {
      ++*same_;
    } else {
      Different(&a, &b);
    }
    if (order <= 0) a_.Next();
    if (order >= 0) b_.Next();
    return absl::OkStatus();
  }

  Side a_;
  Side b_;
  const OnDifferent fn_;
  std::uint64_t* same_ = nullptr;
};

// All leaves, ties and None.
absl::StatusOr<std::vector<LeafInfo>> Values(const StepReader& step,
                                             std::string_view glob) {
  CKPTREE_ASSIGN_OR_RETURN(std::vector<LeafInfo> leaves, step.Leaves(glob));
  std::erase_if(leaves, [](const LeafInfo& i) { return !HasValue(i.kind); });
  return leaves;
}

// The encoded paths of what differs in any part.
absl::StatusOr<std::unordered_set<std::string>> DifferentPaths(
    const StepReader& before, const StepReader& after) {
  std::unordered_set<std::string> paths;
  const auto note = [&paths](const schema::TreeEntry* a,
                             const schema::TreeEntry* b) {
    paths.insert(a != nullptr ? a->path : b->path);
  };
  std::map<std::uint16_t, std::pair<const Part*, const Part*>> parts;
  for (const Part& part : before.parts()) parts[part.part].first = &part;
  for (const Part& part : after.parts()) parts[part.part].second = &part;
  std::uint64_t same = 0;
  for (const auto& [number, pair] : parts) {
    const auto& [a, b] = pair;
    if (a == nullptr || b == nullptr) {
      CKPTREE_RETURN_IF_ERROR(
          (a == nullptr ? *b : *a)
              .tree->ForEach("", [&note](const StepTree::Entry& e) {
                note(e.entry, nullptr);
              }));
    } else {
      CKPTREE_RETURN_IF_ERROR(PartComparison(*a, *b, note).Run(&same));
    }
  }
  return paths;
}

// What the entries say, made by several threads where there are many.
std::vector<LeafInfo> InfosOf(const Engine& engine,
                              std::span<const schema::TreeEntry* const> of) {
  std::vector<LeafInfo> infos(of.size());
  const auto make = [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i != end; ++i) infos[i] = InfoOf(*of[i]);
  };
  if (of.size() <= kEntriesOfTask) {
    make(0, of.size());
    return infos;
  }
  engine.arena().execute([&] {
    tbb::parallel_for(
        tbb::blocked_range<std::size_t>(0, of.size(), kEntriesOfTask),
        [&](const tbb::blocked_range<std::size_t>& range) {
          make(range.begin(), range.end());
        });
  });
  return infos;
}

absl::StatusOr<MaybeDifferent> InOneStore(const StepReader& before,
                                          const StepReader& after,
                                          std::string_view glob) {
  MaybeDifferent found;
  if (glob.empty() && before.parts().size() == 1 && after.parts().size() == 1 &&
      before.parts()[0].part == after.parts()[0].part) {
    // Trees keep the pages that were read.
    std::vector<const schema::TreeEntry*> in_before;
    std::vector<const schema::TreeEntry*> in_after;
    CKPTREE_RETURN_IF_ERROR(PartComparison(before.parts()[0], after.parts()[0],
                                           [&](const schema::TreeEntry* a,
                                               const schema::TreeEntry* b) {
                                             if (a != nullptr)
                                               in_before.push_back(a);
                                             if (b != nullptr)
                                               in_after.push_back(b);
                                           })
                                .Run(&found.same));
    found.before = InfosOf(before.engine(), in_before);
    found.after = InfosOf(after.engine(), in_after);
    return found;
  }
  // Names are matched, or parts are put together: by the list of all.
  CKPTREE_ASSIGN_OR_RETURN(const std::unordered_set<std::string> paths,
                           DifferentPaths(before, after));
  CKPTREE_ASSIGN_OR_RETURN(found.before, Values(before, glob));
  CKPTREE_ASSIGN_OR_RETURN(found.after, Values(after, glob));
  const auto drop = [&paths](std::vector<LeafInfo>* leaves) {
    std::uint64_t dropped = 0;
    std::erase_if(*leaves, [&](const LeafInfo& leaf) {
      if (paths.contains(leaf.path.Encode())) return false;
      if (leaf.is_leaf()) ++dropped;
      return true;
    });
    return dropped;
  };
  found.same = drop(&found.before);
  drop(&found.after);
  return found;
}

}  // namespace

bool HasValue(EntryKind kind) {
  return IsLeaf(kind) || kind == EntryKind::kTie || kind == EntryKind::kNone;
}

absl::StatusOr<MaybeDifferent> FindMaybeDifferent(const StepReader& before,
                                                  const StepReader& after,
                                                  std::string_view glob) {
  CKPTREE_RETURN_IF_ERROR(before.engine().CheckUsable());
  CKPTREE_RETURN_IF_ERROR(after.engine().CheckUsable());
  CKPTREE_RETURN_IF_ERROR(ValidateGlob(glob));
  if (&before.engine() == &after.engine()) {
    absl::StatusOr<MaybeDifferent> found = InOneStore(before, after, glob);
    if (found.ok()) return found;
    // The list of all says of which step it is that something cannot be read.
  }
  MaybeDifferent all;
  CKPTREE_ASSIGN_OR_RETURN(all.before, Values(before, glob));
  CKPTREE_ASSIGN_OR_RETURN(all.after, Values(after, glob));
  return all;
}

}  // namespace ckptree::internal
