// SPDX-License-Identifier: Apache-2.0

#include "ckptree/history.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "core/engine/blame_pieces.h"
#include "core/engine/engine.h"
#include "core/engine/leaf_past.h"
#include "core/engine/leaf_series.h"
#include "core/engine/part_comparison.h"
#include "core/engine/step_difference.h"
#include "core/engine/step_reader.h"
#include "core/engine/store_engine.h"
#include "core/engine/subtree.h"
#include "core/engine/tied_leaves.h"
#include "core/process/guarded_call.h"

namespace ckptree {
namespace {

bool SameType(const LeafInfo& a, const LeafInfo& b) {
  return a.kind == b.kind && a.dtype == b.dtype && a.packed == b.packed &&
         a.shape == b.shape && a.tag == b.tag;
}

// Whether the digests of two leaves of the same type do not tell.
bool MustReadValues(const LeafDetail& a, const LeafDetail& b) {
  return a.digest != b.digest && a.bytes == b.bytes &&
         !internal::CutAlike(a, b);
}

// Of two leaves of the same type, both of which are read.
absl::StatusOr<bool> HaveOneValue(const Step& in_a, const LeafInfo& a,
                                  const Step& in_b, const LeafInfo& b) {
  CKPTREE_ASSIGN_OR_RETURN(const LeafValue a_value, in_a.Value(a.path));
  CKPTREE_ASSIGN_OR_RETURN(const LeafValue b_value, in_b.Value(b.path));
  return a_value.bytes == b_value.bytes;
}

// The same, of which the records tell mostly.
absl::StatusOr<bool> SameValue(const Step& in_a, const LeafInfo& a,
                               const LeafDetail& a_detail, const Step& in_b,
                               const LeafInfo& b, const LeafDetail& b_detail) {
  if (!MustReadValues(a_detail, b_detail)) {
    return a_detail.digest == b_detail.digest;
  }
  return HaveOneValue(in_a, a, in_b, b);
}

// None stands where a leaf could: a value, though without a record.
bool IsNone(const LeafInfo& info) { return info.kind == EntryKind::kNone; }

bool HasValue(const LeafInfo& info) { return internal::HasValue(info.kind); }

struct Leaves {
  std::vector<LeafInfo> infos;
  std::vector<LeafDetail> details;
};

// `infos` are leaves, ties and None, with their details.
absl::StatusOr<Leaves> WithDetails(const Step& step,
                                   std::vector<LeafInfo> infos) {
  CKPTREE_RETURN_IF_ERROR(internal::FollowTies(step, &infos));
  CKPTREE_ASSIGN_OR_RETURN(std::vector<LeafDetail> details,
                           internal::DetailsOf(step, infos));
  return Leaves{std::move(infos), std::move(details)};
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
absl::Status NoLeaf(const Step* last, const Path& path) {
  const std::string name = path.Text();
  if (last != nullptr) {
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

// A step that is opened when it is asked for: that one, and not another one
// that was saved in its place since. The store outlives it.
class LateStep {
 public:
  LateStep(const Store& store, internal::StepRecordPtr record)
      : store_(&store), record_(std::move(record)) {}

  // IsStepGone() where it was removed since it was listed.
  absl::StatusOr<const Step*> Get() {
    if (!step_.has_value()) {
      CKPTREE_ASSIGN_OR_RETURN(
          std::unique_ptr<internal::StepReader> reader,
          internal::StepReader::Open(internal::StoreEngine::Shared(*store_),
                                     record_));
      step_ = internal::StepInside::Make(std::move(reader));
    }
    return &*step_;
  }

 private:
  const Store* store_;
  internal::StepRecordPtr record_;
  std::optional<Step> step_;
};

// What a history asks of its entries, of both kinds.
const LeafInfo& LeafOf(const HistoryEntry& entry) { return entry.leaf; }
const LeafInfo& LeafOf(const internal::PastValue& value) { return *value.leaf; }

bool HaveOneDigest(const HistoryEntry& a, const HistoryEntry& b) {
  return a.detail.digest == b.detail.digest;
}
bool HaveOneDigest(const internal::PastValue& a, const internal::PastValue& b) {
  return a.digest == b.digest;
}

bool MustReadValues(const HistoryEntry& a, const HistoryEntry& b) {
  return MustReadValues(a.detail, b.detail);
}
bool MustReadValues(const internal::PastValue& a,
                    const internal::PastValue& b) {
  return a.digest != b.digest && a.bytes == b.bytes &&
         (a.cut != b.cut || a.cut == internal::kCutByLength);
}

void Describe(LeafDetail detail, HistoryEntry* entry) {
  entry->detail = std::move(detail);
}

// The history of one leaf as it grows, step by step.
template <typename Entry>
class Entries {
 public:
  using Place = typename internal::LeafSeries<Entry>::Place;

  // `room` is what the entries are kept in. Each that stands in it is given to
  // Look(), in their order, or nothing but what does not stand in it.
  Entries(const Store& store, const Path& path, const HistoryOptions& options,
          std::vector<Entry> room)
      : store_(store),
        path_(path),
        encoded_(path.Encode()),
        options_(options),
        entries_(std::move(room)) {}

  absl::Status Look(const internal::StepRecordPtr& of, const Place& place) {
    const schema::StepRecord& record = *of;
    LateStep step(store_, of);
    if (place.kind == internal::LeafKnown::kAbsent) {
      last_place_ = {};
      Leave(std::move(step));
      return absl::OkStatus();
    }
    if (place.kind == internal::LeafKnown::kLeaf) {
      if (before_.has_value() && last_place_.info == place.info &&
          last_place_.entry == place.entry) {
        Extend(record, std::move(step));
        return absl::OkStatus();
      }
      last_place_ = place;
      last_record_.reset();
      return Add(std::move(*place.entry), std::move(step));
    }
    last_place_ = {};
    return LookInto(record, std::move(step));
  }

  // To be called once. In `leaves` is what the entries point to then.
  absl::StatusOr<std::vector<Entry>> Finish(
      std::vector<std::unique_ptr<const LeafInfo>>* leaves) {
    if (count_ > 0) {
      *leaves = std::move(leaves_);
      entries_.erase(entries_.begin() + static_cast<std::ptrdiff_t>(count_),
                     entries_.end());
      return std::move(entries_);
    }
    if (!without_.has_value()) return NoLeaf(nullptr, path_);
    CKPTREE_ASSIGN_OR_RETURN(const Step* const last, without_->Get());
    return NoLeaf(last, path_);
  }

 private:
  static Entry NewEntry(const schema::StepRecord& record) {
    Entry entry;
    entry.first_step = entry.last_step = record.step;
    entry.begun = absl::FromUnixNanos(record.begun_ns);
    return entry;
  }

  void Leave(LateStep step) {
    before_.reset();
    last_record_.reset();
    if (count_ == 0) without_ = std::move(step);
  }

  Entry& last() { return entries_[count_ - 1]; }

  // Entries are large: one that stands in its place already is not moved.
  void Keep(Entry&& entry) {
    if (count_ == entries_.size()) {
      entries_.push_back(std::move(entry));
    } else if (&entries_[count_] != &entry) {
      entries_[count_] = std::move(entry);
    }
    ++count_;
  }

  static void KeepLeaf(LeafInfo leaf, HistoryEntry* entry) {
    entry->leaf = std::move(leaf);
  }
  void KeepLeaf(LeafInfo leaf, internal::PastValue* value) {
    leaves_.push_back(std::make_unique<const LeafInfo>(std::move(leaf)));
    value->leaf = leaves_.back().get();
  }

  void Extend(const schema::StepRecord& record, LateStep step) {
    last().last_step = record.step;
    ++last().steps;
    before_ = std::move(step);
  }

  // What the step says when it is opened.
  absl::Status LookInto(const schema::StepRecord& record, LateStep late) {
    const absl::StatusOr<const Step*> opened = late.Get();
    if (IsStepGone(opened.status())) return absl::OkStatus();  // Removed since.
    CKPTREE_RETURN_IF_ERROR(opened.status());
    const Step& step = **opened;
    const auto last_record = std::exchange(
        last_record_, internal::StepInside::Of(step).RecordOf(encoded_));
    const bool same_tree = before_.has_value() && last_record_.has_value() &&
                           last_record.has_value() &&
                           last_record_->tree == last_record->tree;
    if (same_tree && *last_record_ == *last_record) {
      Extend(record, std::move(late));
      return absl::OkStatus();
    }
    Entry entry = NewEntry(record);
    if (same_tree) {
      entry.leaf = last().leaf;
      CKPTREE_ASSIGN_OR_RETURN(
          LeafDetail detail,
          internal::StepInside::Of(step).DetailOf(*last_record_));
      Describe(std::move(detail), &entry);
      return Add(std::move(entry), std::move(late));
    }
    CKPTREE_ASSIGN_OR_RETURN(const std::optional<LeafInfo> found,
                             step.Find(path_));
    if (!found.has_value()) {
      Leave(std::move(late));
      return absl::OkStatus();
    }
    if (!HasValue(*found)) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "%s is no leaf: it is of kind %s", found->name, Name(found->kind)));
    }
    CKPTREE_ASSIGN_OR_RETURN(LeafInfo leaf, internal::HolderOf(step, *found));
    KeepLeaf(std::move(leaf), &entry);
    if (!IsNone(LeafOf(entry))) {
      CKPTREE_ASSIGN_OR_RETURN(LeafDetail detail,
                               step.Detail(found->tie_to.value_or(path_)));
      Describe(std::move(detail), &entry);
    }
    return Add(std::move(entry), std::move(late));
  }

  // Whether `leaf` of `step` is the value of the step before.
  absl::StatusOr<bool> HaveOne(const LeafInfo& leaf, LateStep* step) {
    CKPTREE_ASSIGN_OR_RETURN(const Step* const a, before_->Get());
    CKPTREE_ASSIGN_OR_RETURN(const Step* const b, step->Get());
    return HaveOneValue(*a, LeafOf(last()), *b, leaf);
  }

  // Adds what `step` has, or makes the last entry, which is that of the step
  // before, longer by it.
  absl::Status Add(Entry&& entry, LateStep step) {
    bool same = before_.has_value() && SameType(LeafOf(last()), LeafOf(entry));
    if (same) {
      if (MustReadValues(last(), entry)) {
        const absl::StatusOr<bool> one = HaveOne(LeafOf(entry), &step);
        // Of one that was removed since nobody can say.
        if (!IsStepGone(one.status())) CKPTREE_RETURN_IF_ERROR(one.status());
        same = one.value_or(false);
      } else {
        same = HaveOneDigest(last(), entry);
      }
    }
    if (same) {
      last().last_step = entry.last_step;
      ++last().steps;
    } else {
      Keep(std::move(entry));
    }
    before_ = std::move(step);
    return absl::OkStatus();
  }

  const Store& store_;
  const Path& path_;
  const std::string encoded_;
  const HistoryOptions& options_;
  std::vector<Entry> entries_;
  std::vector<std::unique_ptr<const LeafInfo>> leaves_;  // Of some of them.
  std::size_t count_ = 0;           // Of these are the history so far.
  std::optional<LateStep> before_;  // The step before, if it had the leaf,
  Place last_place_;                // and where, by the series,
  // or by the step itself.
  std::optional<internal::StepReader::RecordName> last_record_;
  std::optional<LateStep> without_;  // The last one, where none had it.
};

// The entries, and the leaves that some kinds of them point to.
template <typename Entry>
struct Told {
  std::vector<Entry> entries;
  std::vector<std::unique_ptr<const LeafInfo>> leaves;
  std::vector<internal::StepRecordPtr> steps;
};

template <typename Entry>
absl::StatusOr<Told<Entry>> HistoryOf(const Store& store, const Path& path,
                                      const HistoryOptions& options) {
  internal::Engine& engine = internal::StoreEngine::Of(store);
  CKPTREE_RETURN_IF_ERROR(engine.CheckUsable());
  CKPTREE_RETURN_IF_ERROR(engine.catalog().CheckListed());
  CKPTREE_ASSIGN_OR_RETURN(const std::uint32_t branch,
                           engine.catalog().FindBranch(options.branch));
  std::vector<internal::StepRecordPtr> steps = engine.catalog().Steps(branch);
  std::erase_if(steps, [&](const internal::StepRecordPtr& step) {
    return step->step < options.first || step->step > options.last;
  });
  internal::LeafSeries<Entry> series(&engine, steps, path, options.cancelled);
  // Where a step must be opened, more entries may come than the series has.
  std::vector<Entry> room;
  if (series.complete()) {
    room = series.TakeEntries();
  } else {
    room.reserve(series.entries());
  }
  Entries<Entry> entries(store, path, options, std::move(room));
  for (std::size_t i = 0; i < steps.size(); ++i) {
    if (options.cancelled && options.cancelled()) {
      return absl::CancelledError("the history was stopped");
    }
    CKPTREE_RETURN_IF_ERROR(entries.Look(steps[i], series.at(i)));
  }
  Told<Entry> told;
  CKPTREE_ASSIGN_OR_RETURN(told.entries, entries.Finish(&told.leaves));
  auto infos = series.TakeInfos();
  std::move(infos.begin(), infos.end(), std::back_inserter(told.leaves));
  told.steps = std::move(steps);
  return told;
}

}  // namespace

absl::StatusOr<std::vector<HistoryEntry>> History(
    const Store& store, PathRef ref, const HistoryOptions& options) {
  std::optional<Path> parsed;
  CKPTREE_ASSIGN_OR_RETURN(const Path* const path, ref.Get(&parsed));
  return internal::GuardedResult(
      "the history of a leaf",
      [&]() -> absl::StatusOr<std::vector<HistoryEntry>> {
        CKPTREE_ASSIGN_OR_RETURN(
            Told<HistoryEntry> told,
            HistoryOf<HistoryEntry>(store, *path, options));
        return std::move(told.entries);
      });
}

namespace internal {

absl::StatusOr<LeafPast> PastOf(const Store& store, const Path& path,
                                const HistoryOptions& options) {
  return GuardedResult(
      "the history of a leaf", [&]() -> absl::StatusOr<LeafPast> {
        CKPTREE_ASSIGN_OR_RETURN(Told<PastValue> told,
                                 HistoryOf<PastValue>(store, path, options));
        return LeafPast{std::move(told.entries), std::move(told.leaves),
                        std::move(told.steps)};
      });
}

}  // namespace internal

absl::StatusOr<DiffReport> Diff(const Step& before, const Step& after,
                                std::string_view glob) {
  return internal::GuardedResult("Diff", [&]() -> absl::StatusOr<DiffReport> {
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
    report.changes.reserve(std::max(a.infos.size(), b.infos.size()));
    // Both are in tree order, which is that of encoded paths.
    std::size_t i = 0;
    std::size_t j = 0;
    while (i < a.infos.size() || j < b.infos.size()) {
      int order = 0;
      if (i == a.infos.size() || j == b.infos.size()) {
        order = i == a.infos.size() ? 1 : -1;
      } else if (a.infos[i].path != b.infos[j].path) {
        order = a.infos[i].path.Encode().compare(b.infos[j].path.Encode());
      }
      LeafChange change;
      if (order == 0) {
        change.kind = LeafChange::Kind::kRetyped;
        if (SameType(a.infos[i], b.infos[j])) {
          change.kind = LeafChange::Kind::kChanged;
          CKPTREE_ASSIGN_OR_RETURN(const bool same,
                                   SameValue(before, a.infos[i], a.details[i],
                                             after, b.infos[j], b.details[j]));
          if (same) {
            // Of a tie the kind is that of its value.
            const bool leaf = !IsNone(a.infos[i]) && !a.infos[i].tie_to;
            report.same += leaf ? 1 : 0;
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
  });
}

namespace internal {

absl::StatusOr<BranchByVersion> ListedVersions(const Store& store) {
  BranchByVersion listed;
  CKPTREE_ASSIGN_OR_RETURN(const std::vector<BranchInfo> branches,
                           store.Branches());
  for (const BranchInfo& branch : branches) {
    const absl::StatusOr<std::vector<StepInfo>> steps =
        store.Steps(branch.name);
    if (absl::IsNotFound(steps.status())) continue;  // It was dropped since.
    CKPTREE_RETURN_IF_ERROR(steps.status());
    for (const StepInfo& info : *steps) listed[info.version] = info.branch;
  }
  return listed;
}

absl::StatusOr<std::vector<BlameEntry>> BlameOf(const Step& step,
                                                std::vector<LeafInfo> infos,
                                                const BranchByVersion& listed) {
  // No record says of None since when.
  std::erase_if(infos, [](const LeafInfo& info) {
    return !HasValue(info.kind) || IsNone(info);
  });
  CKPTREE_ASSIGN_OR_RETURN(Leaves leaves, WithDetails(step, std::move(infos)));
  std::vector<BlameEntry> entries;
  entries.reserve(leaves.infos.size());
  for (std::size_t i = 0; i < leaves.infos.size(); ++i) {
    BlameEntry& entry = entries.emplace_back();
    entry.leaf = std::move(leaves.infos[i]);
    entry.detail = std::move(leaves.details[i]);
    const auto since = listed.find(entry.detail.since_version);
    entry.listed = since != listed.end();
    if (entry.listed) entry.branch = since->second;
  }
  return entries;
}

}  // namespace internal

absl::StatusOr<std::vector<BlameEntry>> Blame(const Store& store,
                                              const Step& step,
                                              std::string_view glob) {
  return internal::GuardedResult(
      "Blame", [&]() -> absl::StatusOr<std::vector<BlameEntry>> {
        CKPTREE_ASSIGN_OR_RETURN(const internal::BranchByVersion listed,
                                 internal::ListedVersions(store));
        CKPTREE_ASSIGN_OR_RETURN(std::vector<LeafInfo> leaves,
                                 step.Leaves(glob));
        return internal::BlameOf(step, std::move(leaves), listed);
      });
}

}  // namespace ckptree
