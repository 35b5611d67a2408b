// SPDX-License-Identifier: Apache-2.0

// For which leaves, and in which steps, a condition held.

#ifndef CKPTREE_TOOLS_VERBS_LEAF_SEARCH_H_
#define CKPTREE_TOOLS_VERBS_LEAF_SEARCH_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ckptree/history.h"
#include "ckptree/store.h"
#include "tools/line/target.h"
#include "tools/output/expression.h"
#include "tools/output/table.h"
#include "tools/verbs/aligned_steps.h"
#include "tools/verbs/leaf_in_steps.h"

namespace ckptree::tools {

// The advice of an error in a condition.
inline constexpr std::string_view kWhereHint =
    "`ckptree help where` shows what a condition is";

// True of what every leaf, or every step, has under this name, which is without
// kBefore: a metric of that name is `metrics.NAME`.
bool IsOwnName(std::string_view name);

// True of what an array has by its statistics alone; kBefore may be before it.
bool IsStatistic(std::string_view name);

// A search through steps, the older first. A step is not opened where its own
// record says that nothing in it can be found; of others only what differs from
// the step before is read, where that is little. The first that is opened is
// read by pieces, and steps of which much differs side by side, unless they are
// too many. Confined to one thread, but for found().
class LeafSearch {
 public:
  // A leaf; of a condition that says nothing of leaves the steps (no key).
  struct Found {
    std::string key;
    std::int64_t first = 0;
    std::int64_t last = 0;
    std::uint64_t steps = 0;
    std::optional<Statistics> at_first;
  };

  // Of leaves that match any of `globs`; of all where there are none.
  LeafSearch(Expression condition, std::vector<std::string> globs);

  // False where the condition says nothing of leaves.
  bool of_leaves() const { return of_leaves_; }

  // Sets out to look at `steps`, which are of one branch, by number. To be
  // called once; both outlive it. `earlier`, which does too, is the one before
  // the first of them: it is not looked at itself; null where there is none.
  // With `settle` rows are to be as they will be at the end as soon as that can
  // be; else they are to be found soon, wherever they end. kInvalidArgument:
  // the condition has a name that there is not.
  absl::Status Begin(const Store& store, const std::vector<StepInfo>& steps,
                     bool settle = false, const StepInfo* earlier = nullptr);

  // Looks at the next step, or at the next leaves of one. False: those were
  // all. kInvalidArgument: the condition asks what it may not. kCancelled
  // by Ctrl-C.
  absl::StatusOr<bool> More();

  // How many of the steps that were looked at were still there.
  std::uint64_t looked() const { return looked_; }
  // In the order in which they were found. Any thread may look at them while
  // none is in More().
  const std::vector<Found>& found() const { return found_; }
  // How many of found(), the first ones, are as they will be at the end. Where
  // there is one, looked() is as well.
  std::size_t settled() const {
    return next_ == steps_.size() ? found_.size() : 0;
  }

 private:
  using Values = std::vector<Json>;  // Of names_.

  // A leaf as it is in the step that was loaded last.
  struct Leaf {
    LeafInfo info;
    std::optional<Statistics> statistics;
    Values values;
    Values before;              // As they were until `changed`; may be empty.
    std::uint64_t changed = 0;  // The turn that gave it other values,
    std::uint64_t seen = 0;     // and the first in which it was there.
    bool there = false;
    bool holds = false;
    std::size_t found = kNone;  // In found_.
  };
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);

  absl::Status Bind();
  // What the condition asks of a step.
  std::map<std::string, Json, std::less<>> StepValues(
      const StepInfo& info, const StepInfo* before) const;
  // Of a few leaves, all that they were in the steps at once: without opening
  // one. Whatever is wrong, the steps say it.
  void LoadHistories();
  void LoadFromHistories(const StepInfo& info);
  bool CannotHold(const StepInfo& info) const;
  absl::Status LookAt(const StepInfo& info);
  // True where nothing that was read before matters to the next step.
  bool StandsAlone() const;
  absl::Status LookAtPiece();
  void EndPieces();

  // leaf_search_aligned.cc: steps that are read side by side.
  struct Turn {
    const StepInfo* info;
    bool asked = false;    // Else it is but the one before.
    bool briefly = false;  // It is asked for its first leaves alone.
    std::map<std::string, Json, std::less<>> values = {};  // step_values_.
  };
  // None where they are better read one after the other.
  std::vector<Turn> TurnsToAlign();
  absl::Status Align();
  absl::Status LookAtRange();
  // Of the rows from `found_before` on those that stand behind rows of ranges
  // to come.
  void SetAside(std::size_t found_before);
  void EndRanges();

  // Nothing: it was removed since.
  absl::StatusOr<std::optional<Step>> Open(const StepInfo& info) const;
  // The leaves of a step. False: it was removed since.
  absl::StatusOr<bool> Load(const StepInfo& info);
  absl::StatusOr<std::vector<LeafInfo>> Wanted(const Step& step) const;
  absl::Status LoadAll(const Step& step);
  // They are all leaves that there are.
  absl::Status Replace(const Step& step, std::vector<LeafInfo> infos);
  absl::Status LoadChanges(const Step& step);
  bool IsWanted(const LeafInfo& leaf) const;
  // Ties that stay are what they are tied to, under their own names.
  absl::Status EraseOthers(const Step& step,
                           std::vector<LeafInfo>* leaves) const;
  void AddValues(const LeafInfo& leaf, const LeafDetail* detail,
                 Values* values) const;
  template <typename Info>
  void Put(Info&& info, const LeafDetail* detail);
  void Remove(std::string_view name);
  // `step` may be null where there are histories.
  absl::Status AskLeaves(const StepInfo& info, const Step* step);
  // Asks the condition of those for which ask(leaf) is true, by several
  // threads, which may change that leaf.
  template <typename Ask>
  absl::Status SetHolds(std::span<Leaf> leaves, const Ask& ask) const;
  // Adds the rows of those of `leaves` for which it holds, in their order.
  absl::Status HitAll(const StepInfo& info, const Step* step,
                      std::span<Leaf> leaves);
  // Null: of a step alone.
  absl::StatusOr<bool> Holds(const Values* values, const Values* before) const;
  void Hit(const StepInfo& info, std::string_view key, std::size_t* found);

  Expression condition_;
  const std::vector<std::string> globs_;
  const std::vector<Path> named_;  // By globs_, where they are no patterns.
  bool of_leaves_ = false;
  bool of_steps_ = false;           // It has names of steps,
  bool of_before_ = false;          // of the step before,
  bool needs_details_ = false;      // and of what the records of leaves say.
  std::vector<std::string> names_;  // Of leaves, without "prev.".
  std::vector<std::string> step_names_;
  std::map<std::string, Json, std::less<>> step_values_;

  const Store* store_ = nullptr;
  std::span<const StepInfo> steps_;
  const StepInfo* earlier_ = nullptr;  // Than all of these.
  std::size_t next_ = 0;               // Of steps_.
  // That was there and looked at last, or earlier_.
  const StepInfo* before_ = nullptr;
  bool before_is_loaded_ = false;

  // Of before_, which is step_ then, while some of it is to be read.
  std::optional<SubtreePieces> pieces_;

  // While steps are read side by side.
  std::vector<Turn> turns_;
  std::vector<Step> opened_;  // For each of these.
  std::optional<AlignedSteps> aligned_;
  struct Later {
    Found found;
    std::uint64_t seen;  // The turn of its leaf, as Leaf::seen.
  };
  std::vector<Later> later_;

  struct History {
    std::string name;
    LeafInSteps found;
    std::size_t at = 0;  // The step that was looked at last.
  };
  std::vector<History> histories_;  // Of named_; none: steps are opened.

  // What is loaded. A turn is a step that was.
  std::optional<Step> step_;
  std::uint64_t turn_ = 0;
  std::uint64_t asked_turn_ = 0;
  std::uint64_t changed_since_ = 0;  // Leaves, in steps after step_.
  std::uint64_t leaf_count_ = 0;     // Of step_, whether wanted or not.
  std::vector<Leaf> leaves_;         // In the order in which they were seen.
  std::unordered_map<std::string, std::size_t> places_;
  std::size_t next_place_ = 0;  // Where what is put next likely is.

  std::vector<Found> found_;
  std::size_t steps_found_ = kNone;
  std::uint64_t looked_ = 0;
};

}  // namespace ckptree::tools

#endif  // CKPTREE_TOOLS_VERBS_LEAF_SEARCH_H_
