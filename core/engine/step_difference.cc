// SPDX-License-Identifier: Apache-2.0

// Hot path: per leaf.

#include "core/engine/step_difference.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/status_macros.h"
#include "core/engine/part_comparison.h"
#include "core/process/arena.h"
#include "core/version/step_tree.h"
#include "schema/tree.h"

namespace ckptree::internal {
namespace {

using Part = StepReader::Part;

// One thread describes so many leaves.
constexpr std::size_t kEntriesOfTask = 1024;

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
  const auto note = [&paths](const PartComparison::Entry& a,
                             const PartComparison::Entry& b) {
    paths.insert(a.entry != nullptr ? a.entry->path : b.entry->path);
  };
  std::map<std::uint16_t, std::pair<const Part*, const Part*>> parts;
  for (const Part& part : before.parts()) parts[part.part].first = &part;
  for (const Part& part : after.parts()) parts[part.part].second = &part;
  for (const auto& [number, pair] : parts) {
    const auto& [a, b] = pair;
    if (a == nullptr || b == nullptr) {
      CKPTREE_RETURN_IF_ERROR(
          (a == nullptr ? *b : *a)
              .tree->ForEach("", [&note](const StepTree::Entry& e) {
                note({e.entry}, {});
              }));
    } else {
      CKPTREE_RETURN_IF_ERROR(
          PartComparison({before, *a}, {after, *b}).Run(note));
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
  engine.arena().execute(
      [&] { ForEachRange(of.size(), kEntriesOfTask, make); });
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
    PartComparison comparison({before, before.parts()[0]},
                              {after, after.parts()[0]});
    CKPTREE_RETURN_IF_ERROR(comparison.Run(
        [&](const PartComparison::Entry& a, const PartComparison::Entry& b) {
          if (a.entry != nullptr) in_before.push_back(a.entry);
          if (b.entry != nullptr) in_after.push_back(b.entry);
        }));
    found.same = comparison.same();
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
