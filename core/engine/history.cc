// SPDX-License-Identifier: Apache-2.0

#include "ckptree/history.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "core/engine/step_difference.h"
#include "core/engine/subtree.h"
#include "core/process/guarded_call.h"

namespace ckptree {
namespace {

bool SameType(const LeafInfo& a, const LeafInfo& b) {
  return a.kind == b.kind && a.dtype == b.dtype && a.packed == b.packed &&
         a.shape == b.shape && a.tag == b.tag;
}

// Digests depend on how an array is cut.
bool CutAlike(const LeafDetail& a, const LeafDetail& b) {
  if (a.chunk_shape != b.chunk_shape || a.boxes.size() != b.boxes.size()) {
    return false;
  }
  for (std::size_t i = 0; i < a.boxes.size(); ++i) {
    if (a.boxes[i].start != b.boxes[i].start ||
        a.boxes[i].shape != b.boxes[i].shape) {
      return false;
    }
  }
  return true;
}

// Of two leaves of the same type.
absl::StatusOr<bool> SameValue(const Step& in_a, const LeafInfo& a,
                               const LeafDetail& a_detail, const Step& in_b,
                               const LeafInfo& b, const LeafDetail& b_detail) {
  if (a_detail.digest == b_detail.digest) return true;
  if (a_detail.bytes != b_detail.bytes) return false;
  if (CutAlike(a_detail, b_detail)) return false;
  CKPTREE_ASSIGN_OR_RETURN(const LeafValue a_value, in_a.Value(a.path));
  CKPTREE_ASSIGN_OR_RETURN(const LeafValue b_value, in_b.Value(b.path));
  return a_value.bytes == b_value.bytes;
}

// None stands where a leaf could: a value, though without a record.
bool IsNone(const LeafInfo& info) { return info.kind == EntryKind::kNone; }

bool HasValue(const LeafInfo& info) { return internal::HasValue(info.kind); }

// The leaf that holds the value of `info`, with its own name and path.
absl::StatusOr<LeafInfo> HolderOf(const Step& step, LeafInfo info) {
  if (!info.tie_to.has_value()) return info;
  CKPTREE_ASSIGN_OR_RETURN(LeafInfo holder, step.Holder(info));
  holder.name = std::move(info.name);
  holder.path = std::move(info.path);
  holder.tie_to = std::move(info.tie_to);
  return holder;
}

struct Leaves {
  std::vector<LeafInfo> infos;
  std::vector<LeafDetail> details;
};

// `infos` are leaves, ties and None, with their details.
absl::StatusOr<Leaves> WithDetails(const Step& step,
                                   std::vector<LeafInfo> infos) {
  Leaves leaves;
  leaves.infos.reserve(infos.size());
  bool tied = false;
  for (const LeafInfo& info : infos) tied = tied || info.tie_to.has_value();
  if (!tied) {
    leaves.infos = std::move(infos);
    CKPTREE_ASSIGN_OR_RETURN(leaves.details, step.Details(leaves.infos));
    return leaves;
  }
  std::vector<LeafInfo> asked;  // Where the values are.
  for (LeafInfo& info : infos) {
    CKPTREE_ASSIGN_OR_RETURN(LeafInfo held, HolderOf(step, std::move(info)));
    LeafInfo at = held;
    if (held.tie_to.has_value()) at.path = *held.tie_to;
    asked.push_back(std::move(at));
    leaves.infos.push_back(std::move(held));
  }
  CKPTREE_ASSIGN_OR_RETURN(leaves.details, step.Details(asked));
  return leaves;
}

// All leaves, ties and None, in tree order.
absl::StatusOr<Leaves> LeavesOf(const Step& step, std::string_view glob) {
  CKPTREE_ASSIGN_OR_RETURN(std::vector<LeafInfo> leaves, step.Leaves(glob));
  std::erase_if(leaves, [](const LeafInfo& info) { return !HasValue(info); });
  return WithDetails(step, std::move(leaves));
}

}  // namespace

std::string_view Name(LeafChange::Kind kind) {
  switch (kind) {
    case LeafChange::Kind::kAdded:
      return "added";
    case LeafChange::Kind::kRemoved:
      return "removed";
    case LeafChange::Kind::kChanged:
      return "changed";
    case LeafChange::Kind::kRetyped:
      return "retyped";
  }
  return "unknown";
}

namespace {

// kNotFound of a path that no step has; kInvalidArgument where the last one
// that there is has leaves below it.
absl::Status NoLeaf(const std::optional<Step>& last, const Path& path) {
  const std::string name = path.Text();
  if (last.has_value()) {
    CKPTREE_ASSIGN_OR_RETURN(const std::vector<LeafInfo> leaves,
                             last->Leaves());
    const std::size_t below = internal::LeavesBelow(leaves, path).size();
    if (below > 0) {
      return absl::InvalidArgumentError(
          absl::StrFormat("%s is no leaf: it is a subtree of %d %s", name,
                          below, below == 1 ? "leaf" : "leaves"));
    }
  }
  return absl::NotFoundError(
      absl::StrFormat("none of these steps has %s", name));
}

// Adds what `step` has, or makes the last entry, which is that of `before`,
// longer by it.
absl::Status AddEntry(HistoryEntry entry, const std::optional<Step>& before,
                      const Step& step, std::vector<HistoryEntry>* entries) {
  bool same = before.has_value() && SameType(entries->back().leaf, entry.leaf);
  if (same) {
    const HistoryEntry& last = entries->back();
    CKPTREE_ASSIGN_OR_RETURN(same, SameValue(*before, last.leaf, last.detail,
                                             step, entry.leaf, entry.detail));
  }
  if (same) {
    entries->back().last_step = entry.last_step;
    ++entries->back().steps;
  } else {
    entries->push_back(std::move(entry));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<HistoryEntry>> HistoryOf(
    const Store& store, const Path& path, const HistoryOptions& options) {
  std::optional<Step> without;
  CKPTREE_ASSIGN_OR_RETURN(const std::vector<StepInfo> steps,
                           store.Steps(options.branch));
  const std::string encoded = path.Encode();
  std::vector<HistoryEntry> entries;
  std::optional<Step> before;  // The step before, where it had the leaf.
  std::optional<internal::StepReader::RecordName> record;  // Of that one.
  for (const StepInfo& info : steps) {
    if (info.step < options.first || info.step > options.last) continue;
    if (options.cancelled && options.cancelled()) {
      return absl::CancelledError("the history was stopped");
    }
    absl::StatusOr<Step> step =
        store.OpenStep(AtStep(info.step, options.branch));
    if (IsStepGone(step.status())) continue;  // Removed since.
    CKPTREE_RETURN_IF_ERROR(step.status());
    const internal::StepReader& reader = internal::StepInside::Of(*step);
    const auto last_record = std::exchange(record, reader.RecordOf(encoded));
    const bool same_tree = before.has_value() && record.has_value() &&
                           last_record.has_value() &&
                           record->tree == last_record->tree;
    if (same_tree && *record == *last_record) {
      entries.back().last_step = info.step;
      ++entries.back().steps;
      before = *std::move(step);
      continue;
    }
    if (same_tree) {
      HistoryEntry entry;
      entry.first_step = entry.last_step = info.step;
      entry.begun = info.begun;
      entry.leaf = entries.back().leaf;
      CKPTREE_ASSIGN_OR_RETURN(entry.detail, reader.DetailOf(*record));
      CKPTREE_RETURN_IF_ERROR(
          AddEntry(std::move(entry), before, *step, &entries));
      before = *std::move(step);
      continue;
    }
    CKPTREE_ASSIGN_OR_RETURN(const std::optional<LeafInfo> found,
                             step->Find(path));
    if (!found.has_value()) {
      before.reset();
      if (entries.empty()) without = *std::move(step);
      continue;
    }
    if (!HasValue(*found)) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "%s is no leaf: it is a node with leaves below it", found->name));
    }
    HistoryEntry entry;
    entry.first_step = entry.last_step = info.step;
    entry.begun = info.begun;
    CKPTREE_ASSIGN_OR_RETURN(entry.leaf, HolderOf(*step, *found));
    if (!IsNone(entry.leaf)) {
      CKPTREE_ASSIGN_OR_RETURN(entry.detail,
                               step->Detail(found->tie_to.value_or(path)));
    }
    CKPTREE_RETURN_IF_ERROR(
        AddEntry(std::move(entry), before, *step, &entries));
    before = *std::move(step);
  }
  if (entries.empty()) return NoLeaf(without, path);
  return entries;
}

}  // namespace

absl::StatusOr<std::vector<HistoryEntry>> History(
    const Store& store, PathRef ref, const HistoryOptions& options) {
  std::optional<Path> parsed;
  CKPTREE_ASSIGN_OR_RETURN(const Path* const path, ref.Get(&parsed));
  return internal::GuardedResult("the history of a leaf", [&] {
    return HistoryOf(store, *path, options);
  });
}

absl::StatusOr<DiffReport> Diff(const Step& before, const Step& after,
                                std::string_view glob) {
  CKPTREE_ASSIGN_OR_RETURN(
      internal::MaybeDifferent found,
      internal::FindMaybeDifferent(internal::StepInside::Of(before),
                                   internal::StepInside::Of(after), glob));
  CKPTREE_ASSIGN_OR_RETURN(Leaves a,
                           WithDetails(before, std::move(found.before)));
  CKPTREE_ASSIGN_OR_RETURN(Leaves b,
                           WithDetails(after, std::move(found.after)));
  DiffReport report;
  report.same = found.same;
  // Both are in tree order, which is that of encoded paths.
  std::size_t i = 0;
  std::size_t j = 0;
  while (i < a.infos.size() || j < b.infos.size()) {
    int order = 0;
    if (i == a.infos.size() || j == b.infos.size()) {
      order = i == a.infos.size() ? 1 : -1;
    } else {
      order = a.infos[i].path.Encode().compare(b.infos[j].path.Encode());
    }
    LeafChange change;
    if (order == 0) {
      change.kind = LeafChange::Kind::kRetyped;
      if (SameType(a.infos[i], b.infos[j])) {
        change.kind = LeafChange::Kind::kChanged;
        CKPTREE_ASSIGN_OR_RETURN(
            const bool same, SameValue(before, a.infos[i], a.details[i], after,
                                       b.infos[j], b.details[j]));
        if (same) {
          report.same += IsNone(a.infos[i]) ? 0 : 1;
          ++i;
          ++j;
          continue;
        }
      }
    } else {
      change.kind =
          order < 0 ? LeafChange::Kind::kRemoved : LeafChange::Kind::kAdded;
    }
    change.name = order <= 0 ? a.infos[i].name : b.infos[j].name;
    if (order <= 0) {
      change.before = std::move(a.infos[i]);
      change.before_detail = std::move(a.details[i++]);
    }
    if (order >= 0) {
      change.after = std::move(b.infos[j]);
      change.after_detail = std::move(b.details[j++]);
    }
    report.changes.push_back(std::move(change));
  }
  return report;
}

absl::StatusOr<std::vector<BlameEntry>> Blame(const Store& store,
                                              const Step& step,
                                              std::string_view glob) {
  std::set<std::uint64_t> listed;
  CKPTREE_ASSIGN_OR_RETURN(const std::vector<BranchInfo> branches,
                           store.Branches());
  for (const BranchInfo& branch : branches) {
    CKPTREE_ASSIGN_OR_RETURN(const std::vector<StepInfo> steps,
                             store.Steps(branch.name));
    for (const StepInfo& info : steps) listed.insert(info.version);
  }
  CKPTREE_ASSIGN_OR_RETURN(Leaves leaves, LeavesOf(step, glob));
  std::vector<BlameEntry> entries;
  for (std::size_t i = 0; i < leaves.infos.size(); ++i) {
    if (IsNone(leaves.infos[i])) continue;  // No record says since when.
    BlameEntry entry;
    entry.leaf = std::move(leaves.infos[i]);
    entry.detail = std::move(leaves.details[i]);
    entry.listed = listed.contains(entry.detail.since_version);
    entries.push_back(std::move(entry));
  }
  return entries;
}

}  // namespace ckptree
