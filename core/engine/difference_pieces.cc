// SPDX-License-Identifier: Apache-2.0

// Hot path: per leaf.

#include "core/engine/difference_pieces.h"

#include <algorithm>
#include <deque>
#include <span>
#include <utility>

#include "absl/strings/str_format.h"
#include "base/digest.h"
#include "base/status_macros.h"
#include "core/engine/step_difference.h"
#include "core/engine/step_reader.h"
#include "core/process/arena.h"
#include "core/version/leaf_reader.h"
#include "schema/leaf_record.h"
#include "schema/tree.h"

namespace ckptree::internal {
namespace {

// One thread compares so many leaves.
constexpr std::size_t kLeavesOfRun = 1024;

bool HasType(const LeafInfo& type, const schema::TreeEntry& entry) {
  return type.kind == entry.kind && type.dtype == entry.dtype &&
         type.packed == entry.packed && type.shape == entry.shape &&
         type.tag == entry.tag;
}

bool HaveOneType(const schema::TreeEntry& a, const schema::TreeEntry& b) {
  return &a == &b ||
         (a.kind == b.kind && a.dtype == b.dtype && a.packed == b.packed &&
          a.shape == b.shape && a.tag == b.tag);
}

// What is known of a leaf in one of the steps: of a tie, of the leaf that has
// its value.
struct Held {
  PartComparison::Entry entry;
  bool has_record = false;
  std::uint64_t bytes = 0;
  base::Digest digest;  // Of the value.
  std::optional<Statistics> statistics;
  // How an array is cut: where that stands in HeldLeaves::cuts_.
  std::size_t cut_begin = 0;
  std::size_t cut_end = 0;
};

absl::StatusOr<PartComparison::Entry> FollowTie(
    const Step& step, const PartComparison::Entry& tie) {
  const StepReader& reader = StepInside::Of(step);
  const absl::StatusOr<std::optional<StepTree::Entry>> found =
      reader.parts()[0].tree->Find(tie.entry->tie_to);
  if (!found.ok()) return reader.Annotate(found.status());
  if (found->has_value() && IsLeaf((*found)->entry->kind)) {
    return PartComparison::Entry{(*found)->entry, (*found)->ordinal};
  }
  const LeafInfo info = InfoOf(*tie.entry);
  CKPTREE_RETURN_IF_ERROR(step.Holder(info).status());
  return reader.Annotate(absl::DataLossError(absl::StrFormat(
      "%s is tied to %s, which is no leaf", info.name, info.tie_to->Text())));
}

// Leaves of one step.
class HeldLeaves {
 public:
  explicit HeldLeaves(std::size_t count) { held_.reserve(count); }

  absl::Status Add(const Step& step, const PartComparison::Entry& entry) {
    Held& held = held_.emplace_back();
    held.entry = entry;
    if (entry.entry == nullptr) return absl::OkStatus();
    if (entry.entry->kind == EntryKind::kTie) {
      CKPTREE_ASSIGN_OR_RETURN(held.entry, FollowTie(step, entry));
    }
    held.has_record = IsLeaf(held.entry.entry->kind);
    if (!held.has_record) return absl::OkStatus();
    ordinals_.push_back(held.entry.ordinal);
    places_.push_back(held_.size() - 1);
    return absl::OkStatus();
  }

  absl::Status ReadRecords(const Step& step) {
    const StepReader& reader = StepInside::Of(step);
    const StepReader::Part& part = reader.parts()[0];
    return reader.Annotate(
        VisitRecords(reader.engine().database(), part.part, part.map, ordinals_,
                     [this](std::size_t at, const schema::LeafRecord& record) {
                       Take(record, &held_[places_[at]]);
                     }));
  }

  const Held& operator[](std::size_t i) const { return held_[i]; }
  std::span<const std::int64_t> CutOf(const Held& held) const {
    return std::span(cuts_).subspan(held.cut_begin,
                                    held.cut_end - held.cut_begin);
  }

 private:
  void Take(const schema::LeafRecord& record, Held* held) {
    held->bytes = record.byte_length;
    held->digest = schema::ValueDigest(record);
    for (const Statistics& statistics : record.statistics) {
      if (!held->statistics.has_value()) held->statistics.emplace();
      held->statistics->Merge(statistics);
    }
    held->cut_begin = cuts_.size();
    cuts_.push_back(static_cast<std::int64_t>(record.boxes.size()));
    // What is no array is cut at a length that its store has.
    if (record.boxes.empty() && record.chunks.size() > 1) {
      for (const schema::ChunkRef& ref : record.chunks) {
        cuts_.push_back(static_cast<std::int64_t>(ref.length));
      }
    }
    for (const schema::Box& box : record.boxes) {
      for (const auto* dims : {&box.start, &box.shape, &box.chunk_shape}) {
        cuts_.insert(cuts_.end(), dims->begin(), dims->end());
      }
    }
    held->cut_end = cuts_.size();
  }

  std::vector<Held> held_;
  std::vector<std::uint32_t> ordinals_;
  std::vector<std::size_t> places_;  // Of these in `held_`.
  std::vector<std::int64_t> cuts_;
};

}  // namespace

// Each type once, where leaves near each other share it.
class DifferencePieces::Types {
 public:
  const LeafInfo* Of(const schema::TreeEntry& entry) {
    constexpr std::size_t kNear = 8;
    const std::size_t looked_at = std::min(kNear, types_.size());
    for (std::size_t back = 1; back <= looked_at; ++back) {
      const LeafInfo& type = types_[types_.size() - back];
      if (HasType(type, entry)) return &type;
    }
    return &types_.emplace_back(LeafInfo{.kind = entry.kind,
                                         .dtype = entry.dtype,
                                         .packed = entry.packed,
                                         .shape = entry.shape,
                                         .tag = entry.tag});
  }

  LeafSide SideOf(const Held& held) {
    if (held.entry.entry == nullptr) return LeafSide();
    return {.type = Of(*held.entry.entry),
            .bytes = held.bytes,
            .statistics = held.statistics};
  }

 private:
  std::deque<LeafInfo> types_;  // They stay where they are.
};

struct DifferencePieces::Run {
  std::vector<LeafDifference> differences;
  std::uint64_t same = 0;
  std::unique_ptr<Types> types = std::make_unique<Types>();
  // Of these the records do not tell whether they differ.
  struct ByValue {
    std::size_t difference = 0;
    const schema::TreeEntry* entry = nullptr;
    bool counts = false;  // Among those that are the same, if it is.
  };
  std::vector<ByValue> by_value;
  absl::Status status;
};

DifferencePieces::DifferencePieces(const Step& before, const Step& after)
    : before_(before), after_(after) {
  const StepReader& a = StepInside::Of(before);
  const StepReader& b = StepInside::Of(after);
  if (&a.engine() == &b.engine() && a.parts().size() == 1 &&
      b.parts().size() == 1 && a.parts()[0].part == b.parts()[0].part) {
    walk_.emplace(PartOfStep{a, a.parts()[0]}, PartOfStep{b, b.parts()[0]});
  }
}

DifferencePieces::~DifferencePieces() = default;

absl::StatusOr<bool> DifferencePieces::Next(std::size_t leaves, Runs* runs) {
  if (std::exchange(ended_, true)) return false;  // Until it went well.
  if (!walk_.has_value()) {
    CKPTREE_RETURN_IF_ERROR(TakeWhole(runs));
    return false;
  }
  const Engine& engine = StepInside::Of(before_).engine();
  CKPTREE_RETURN_IF_ERROR(engine.CheckUsable());
  pairs_.clear();
  const std::uint64_t before = walk_->same();
  while (!walk_->AtEnd() && pairs_.size() < leaves) {
    CKPTREE_RETURN_IF_ERROR(walk_->Next(
        [&](const PartComparison::Entry& a, const PartComparison::Entry& b) {
          pairs_.push_back({a, b});
        }));
  }
  same_ += walk_->same() - before;
  std::vector<Run> made((pairs_.size() + kLeavesOfRun - 1) / kLeavesOfRun);
  const auto compare = [&](std::size_t r) {
    made[r].status =
        Compare(r * kLeavesOfRun,
                std::min(pairs_.size(), (r + 1) * kLeavesOfRun), &made[r]);
  };
  if (made.size() == 1) {
    compare(0);  // Not worth waking the arena.
  } else if (!made.empty()) {
    engine.arena().execute([&] { ForEach(0, made.size(), compare); });
  }
  for (Run& run : made) {
    CKPTREE_RETURN_IF_ERROR(run.status);
    CKPTREE_RETURN_IF_ERROR(CompareValues(&run));
    same_ += run.same;
    types_.push_back(std::move(run.types));
    if (!run.differences.empty()) runs->push_back(std::move(run.differences));
  }
  ended_ = walk_->AtEnd();
  return !ended_;
}

absl::Status DifferencePieces::Compare(std::size_t begin, std::size_t end,
                                       Run* run) const {
  const std::span<const Pair> pairs =
      std::span(pairs_).subspan(begin, end - begin);
  HeldLeaves before(pairs.size());
  HeldLeaves after(pairs.size());
  for (const Pair& pair : pairs) {
    CKPTREE_RETURN_IF_ERROR(before.Add(before_, pair.before));
    CKPTREE_RETURN_IF_ERROR(after.Add(after_, pair.after));
  }
  CKPTREE_RETURN_IF_ERROR(before.ReadRecords(before_));
  CKPTREE_RETURN_IF_ERROR(after.ReadRecords(after_));
  run->differences.reserve(pairs.size());
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const Held& a = before[i];
    const Held& b = after[i];
    LeafChange::Kind kind = LeafChange::Kind::kRetyped;
    const schema::TreeEntry* named = pairs[i].before.entry;
    if (a.entry.entry == nullptr) {
      kind = LeafChange::Kind::kAdded;
      named = pairs[i].after.entry;
    } else if (b.entry.entry == nullptr) {
      kind = LeafChange::Kind::kRemoved;
    } else if (HaveOneType(*a.entry.entry, *b.entry.entry)) {
      kind = LeafChange::Kind::kChanged;
      // A tie is another name of a leaf.
      const bool counts = a.has_record && named->kind != EntryKind::kTie;
      // None has no record, and no other value.
      if (a.digest == b.digest) {
        run->same += counts ? 1 : 0;
        continue;
      }
      // Digests depend on how an array is cut.
      if (a.bytes == b.bytes &&
          !std::ranges::equal(before.CutOf(a), after.CutOf(b))) {
        run->by_value.push_back({run->differences.size(), named, counts});
      }
    }
    // What a tree holds was checked when it was decoded.
    run->differences.push_back(
        {.kind = kind,
         .name = Path::Decode(named->path).value_or(Path()).Text(),
         .before = run->types->SideOf(a),
         .after = run->types->SideOf(b)});
  }
  return absl::OkStatus();
}

absl::Status DifferencePieces::CompareValues(Run* run) const {
  // From the last one on: those before it stay where they are.
  for (auto one = run->by_value.rbegin(); one != run->by_value.rend(); ++one) {
    const Path path = Path::Decode(one->entry->path).value_or(Path());
    CKPTREE_ASSIGN_OR_RETURN(const LeafValue a, before_.Value(path));
    CKPTREE_ASSIGN_OR_RETURN(const LeafValue b, after_.Value(path));
    if (a.bytes != b.bytes) continue;
    run->same += one->counts ? 1 : 0;
    run->differences.erase(run->differences.begin() +
                           static_cast<std::ptrdiff_t>(one->difference));
  }
  return absl::OkStatus();
}

absl::Status DifferencePieces::TakeWhole(Runs* runs) {
  CKPTREE_ASSIGN_OR_RETURN(whole_, Diff(before_, after_));
  same_ = whole_.same;
  std::vector<LeafDifference> differences;
  differences.reserve(whole_.changes.size());
  for (LeafChange& change : whole_.changes) {
    const auto side_of = [](const std::optional<LeafInfo>& leaf,
                            std::optional<LeafDetail>* detail) {
      LeafSide side;
      if (!leaf.has_value()) return side;
      side.type = &*leaf;
      side.bytes = (*detail)->bytes;
      side.statistics = (*detail)->statistics;
      detail->reset();  // Nothing else of it is asked for.
      return side;
    };
    differences.push_back(
        {.kind = change.kind,
         .name = std::move(change.name),
         .before = side_of(change.before, &change.before_detail),
         .after = side_of(change.after, &change.after_detail)});
  }
  if (!differences.empty()) runs->push_back(std::move(differences));
  return absl::OkStatus();
}

}  // namespace ckptree::internal
