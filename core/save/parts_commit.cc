// SPDX-License-Identifier: Apache-2.0

// StepWriter: a step that several processes have between them.

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "base/digest.h"
#include "base/status_macros.h"
#include "ckptree/path.h"
#include "core/save/part_union.h"
#include "core/save/split_leaves.h"
#include "core/save/step_writer.h"
#include "core/version/base_loader.h"
#include "core/version/step_tree.h"
#include "schema/limits.h"
#include "schema/rank_message.h"
#include "schema/tree.h"

namespace ckptree::internal {
namespace {

using schema::TreeEntry;

// What a part says that it holds: its tree is there, or stored.
absl::StatusOr<std::vector<TreeEntry>> EntriesOf(const kv::Database& database,
                                                 const PartResult& part) {
  if (!part.tree->root.empty()) return schema::DecodeTree(*part.tree);
  CKPTREE_ASSIGN_OR_RETURN(const schema::EncodedTree tree,
                           ReadEncodedTree(database, part.tree->digest));
  return schema::DecodeTree(tree);
}

// The leaves of which a stored part has less than the whole.
std::vector<schema::BoxedLeaf> BoxesOf(const BasePart& part) {
  std::vector<schema::BoxedLeaf> boxed;
  std::uint32_t ordinal = 0;
  for (const TreeEntry& entry : *part.entries) {
    if (!IsLeaf(entry.kind)) continue;
    const std::vector<schema::Box>& boxes = part.leaves[ordinal]->record.boxes;
    if (!boxes.empty() && (boxes.size() > 1 || boxes[0].shape != entry.shape)) {
      boxed.push_back({ordinal, boxes});
    }
    ++ordinal;
  }
  return boxed;
}

// Whether the base has every tie whose target is in another part. What cannot
// be read is not known.
bool HasTies(const kv::Database& database, const BaseState& base,
             const std::vector<PartResult>& parts) {
  std::vector<std::shared_ptr<const StepTree>> trees;
  const auto is_there = [&](const std::string& path,
                            const std::string& target) {
    if (trees.empty()) {
      for (const auto& [number, part] : base.table) {
        auto tree = StepTree::Open(database, part.tree);
        if (!tree.ok()) return false;
        trees.push_back(*std::move(tree));
      }
    }
    return std::any_of(trees.begin(), trees.end(), [&](const auto& tree) {
      const auto found = tree->Find(path);
      return found.ok() && found->has_value() &&
             (*found)->entry->kind == EntryKind::kTie &&
             (*found)->entry->tie_to == target;
    });
  };
  return std::all_of(parts.begin(), parts.end(), [&](const PartResult& part) {
    return std::all_of(
        part.layout.ties.begin(), part.layout.ties.end(),
        [&](const auto& tie) { return is_there(tie.first, tie.second); });
  });
}

}  // namespace

// Steps 3 and 4 where every part is built by a process of its own.
absl::Status StepWriter::GatherParts(Save* save, Attempt* attempt) {
  attempt->staged = true;
  CKPTREE_RETURN_IF_ERROR(context_.database->MakeStaging(attempt->name));
  schema::RankPlan plan;
  plan.uuid = context_.uuid;
  plan.incarnation = context_.database->report().incarnation;
  plan.session = context_.database->session();
  plan.version = attempt->version;
  plan.base = tip_.version;
  plan.full = tip_.version != 0 && tip_.table.empty();
  plan.step = save->step;
  plan.branch = save->branch;
  plan.branch_created_ns = save->branch_id.created_ns;
  plan.attempt = attempt->name;
  plan.world = save->world;
  plan.options = save->rank_options;
  const std::thread::id self = std::this_thread::get_id();
  const auto check = [this, save, self]() -> absl::Status {
    if (std::this_thread::get_id() == self) ReportProgress(*save, false);
    return save->cancelled() ? absl::CancelledError("it was cancelled")
                             : absl::OkStatus();
  };
  CKPTREE_ASSIGN_OR_RETURN(attempt->parts, save->gather(plan, check));
  std::sort(attempt->parts.begin(), attempt->parts.end(),
            [](const PartResult& a, const PartResult& b) {
              return a.record.part < b.record.part;
            });
  for (std::size_t i = 1; i < attempt->parts.size(); ++i) {
    if (attempt->parts[i].record.part == attempt->parts[i - 1].record.part) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "part %d was built twice", attempt->parts[i].record.part));
    }
  }
  CKPTREE_RETURN_IF_ERROR(CheckParts(*attempt));
  return CountLeaves(attempt);
}

absl::Status StepWriter::LookInto(const PartResult& part,
                                  std::vector<TreeEntry>* entries,
                                  std::vector<schema::BoxedLeaf>* boxed) const {
  if (part.layout.as_base) {
    absl::StatusOr<std::shared_ptr<const BasePart>> base = nullptr;
    context_.arena->execute([&] {
      base = LoadPart(*context_.database, tip_.table.at(part.record.part));
    });
    CKPTREE_RETURN_IF_ERROR(base.status());
    *entries = *(*base)->entries;
    *boxed = BoxesOf(**base);
    return absl::OkStatus();
  }
  *boxed = part.layout.boxed;
  CKPTREE_ASSIGN_OR_RETURN(*entries, EntriesOf(*context_.database, part));
  return absl::OkStatus();
}

absl::Status StepWriter::CountLeaves(Attempt* attempt) {
  std::vector<const schema::SplitLeaves*> split;
  std::uint64_t own = 0;
  for (const PartResult& part : attempt->parts) {
    split.push_back(&part.layout.split);
    own += part.leaf_count;
  }
  std::map<base::Digest, std::shared_ptr<const SplitNames>> known;
  const auto names_of =
      [&](std::size_t i) -> absl::StatusOr<std::shared_ptr<const SplitNames>> {
    const PartResult& part = attempt->parts[i];
    const base::Digest& digest = part.layout.split.names;
    std::shared_ptr<const SplitNames>& names = known[digest];
    if (const auto it = split_names_.find(digest); it != split_names_.end()) {
      return names = it->second;
    }
    std::vector<TreeEntry> entries;
    std::vector<schema::BoxedLeaf> boxed;
    CKPTREE_RETURN_IF_ERROR(LookInto(part, &entries, &boxed));
    names = std::make_shared<const SplitNames>(SplitNamesOf(entries, boxed));
    if (DigestOfNames(*names) == digest) return names;
    return absl::DataLossError(absl::StrFormat(
        "the leaves that rank %d has among others are not those of its part",
        part.record.part));
  };
  CKPTREE_ASSIGN_OR_RETURN(attempt->split, CountSplit(split, names_of));
  split_names_ = std::move(known);
  const std::uint64_t leaves = own + attempt->split.leaves;
  if (leaves <= static_cast<std::uint64_t>(schema::kMaxLeaves)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrFormat("%d leaves of all ranks together: a step has at most %d",
                      leaves, schema::kMaxLeaves));
}

absl::Status StepWriter::CheckParts(const Attempt& attempt) const {
  const std::vector<PartResult>& parts = attempt.parts;
  for (const PartResult& part : parts) {
    if (part.tree->root.empty() && !IsTreeOfBase(part)) {
      return absl::DataLossError(absl::StrFormat(
          "rank %d did not say what its part holds", part.record.part));
    }
  }
  CKPTREE_RETURN_IF_ERROR(CheckReplicated(parts));
  // What was a step is one again where nobody has other paths, boxes or ties.
  const bool as_base =
      parts.size() == tip_.table.size() &&
      std::all_of(parts.begin(), parts.end(), [this](const PartResult& part) {
        return part.layout.as_base && IsTreeOfBase(part);
      });
  if (as_base && HasTies(*context_.database, tip_, parts)) {
    return absl::OkStatus();
  }
  std::vector<PartToUnite> all;
  std::vector<std::vector<TreeEntry>> entries(parts.size());
  std::vector<std::vector<schema::BoxedLeaf>> boxed(parts.size());
  for (std::size_t i = 0; i < parts.size(); ++i) {
    PartToUnite& of = all.emplace_back();
    of.part = parts[i].record.part;
    of.ties = &parts[i].layout.ties;
    CKPTREE_RETURN_IF_ERROR(LookInto(parts[i], &entries[i], &boxed[i]));
    of.entries = &entries[i];
    of.boxed = &boxed[i];
  }
  return CheckUnion(all);
}

// What all ranks have alike is saved by one of them: what another has would be
// lost without a word.
absl::Status StepWriter::CheckReplicated(
    const std::vector<PartResult>& parts) const {
  std::vector<std::pair<std::uint16_t, std::string_view>> ranks;
  for (const PartResult& part : parts) {
    ranks.emplace_back(part.record.part, part.layout.replicated);
  }
  const std::optional<Disagreement> found = CompareReplicated(ranks);
  if (!found.has_value()) return absl::OkStatus();
  // Its name is in the part of the rank that saves it. Where that does not have
  // it, it is in what that saved last, or news of another rank.
  std::string name;
  const auto look = [&](const std::string& path) {
    if (base::ChecksumOf(path) != found->path_checksum) return false;
    name = Path::Decode(path).value_or(Path()).Text();
    return true;
  };
  bool has_its_own = false;  // The rank that does not have it as the others do.
  for (const PartResult& part : parts) {
    for (const std::string& path : part.layout.names) look(path);
    const std::vector<TreeEntry> entries =
        EntriesOf(*context_.database, part).value_or(std::vector<TreeEntry>());
    for (const TreeEntry& entry : entries) {
      if (look(entry.path) &&
          (IsLeaf(entry.kind) || entry.kind == EntryKind::kTie)) {
        has_its_own |= part.record.part == found->second;
      }
    }
  }
  for (auto it = tip_.table.begin(); it != tip_.table.end() && name.empty();
       ++it) {
    const auto tree = StepTree::Open(*context_.database, it->second.tree);
    if (!tree.ok()) continue;
    // Without a page that is damaged it has no name.
    (*tree)
        ->ForEach("",
                  [&look](const StepTree::Entry& at) { look(at.entry->path); })
        .IgnoreError();
  }
  if (name.empty()) {
    name = absl::StrFormat(
        "a leaf whose name did not come (compare what ranks %d and %d put)",
        found->first, found->second);
  }
  constexpr char kAdvice[] =
      "what a rank has for itself is to be said (SetPerRank, per_rank)";
  switch (found->how) {
    case Disagreement::How::kMissing:
      if (has_its_own) {
        return absl::InvalidArgumentError(absl::StrFormat(
            "%s was put whole by rank %d, as what all ranks have alike, and by "
            "rank %d as its own: a box of it, or below what it says is its own "
            "(SetPerRank, per_rank); put it alike on all ranks",
            name, found->first, found->second));
      }
      return absl::InvalidArgumentError(
          absl::StrFormat("%s was put by rank %d and not by rank %d: %s", name,
                          found->first, found->second, kAdvice));
    case Disagreement::How::kEntry:
      return absl::InvalidArgumentError(absl::StrFormat(
          "%s has another kind, type or shape on rank %d than on rank %d", name,
          found->first, found->second));
    case Disagreement::How::kValue:
      break;
  }
  return absl::InvalidArgumentError(
      absl::StrFormat("%s is not the same on ranks %d and %d: %s", name,
                      found->first, found->second, kAdvice));
}

}  // namespace ckptree::internal
