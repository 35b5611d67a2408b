// SPDX-License-Identifier: Apache-2.0

// A manager that decides for several ranks, or is told what was decided.

#ifndef CKPTREE_CORE_MANAGE_MANAGER_RANKS_H_
#define CKPTREE_CORE_MANAGE_MANAGER_RANKS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "ckptree/save_decision.h"
#include "core/ranks/group.h"
#include "core/ranks/rank_topic.h"

namespace ckptree::internal {

// Which steps rank 0 has to be asked about: all others are not saved, which
// every rank knows by itself. As text of rank 0 it is the same on all of them.
struct AskedSteps {
  bool all = false;         // By a clock, a function, or what is going on.
  bool first = false;       // While there is no step.
  bool preemption = false;  // A preemption may come at any step.
  std::vector<std::int64_t> intervals;
  std::vector<std::int64_t> steps;

  std::string Encode() const;
  static absl::StatusOr<AskedSteps> Decode(std::string_view bytes);

  friend bool operator==(const AskedSteps&, const AskedSteps&) = default;
};

// `watches`: rank 0 is told of preemptions by a signal.
AskedSteps AskedStepsOf(const SaveDecision& decision, bool watches);

// What the managers of all ranks know alike: it changes by what rank 0 tells,
// and so at the same call on each of them.
//
// Thread-safe, but for Meet().
class ManagerRanks {
 public:
  using Cancelled = std::function<bool()>;

  explicit ManagerRanks(std::shared_ptr<GroupRank> group);

  GroupRank& group() const { return topic_.group(); }
  // Whether this is rank 0.
  bool decides() const { return topic_.tells(); }

  // Before all else, on each rank. Rank 0 tells the others `asked`, or why it
  // has no manager; another rank that has none (`own`) tells rank 0.
  absl::Status Meet(const absl::Status& own, const AskedSteps& asked);

  // False: the step is not saved, on any rank.
  bool MustAsk(std::int64_t step) const;

  // What a decision on rank 0 came to.
  struct Decision {
    bool yes = false;
    bool begun = false;  // There is a step by now, saved or in flight.
  };
  enum class Waits { kWhileAsked, kAlways };
  // What rank 0 decides on that call, on every rank: `decide` is called there,
  // and not elsewhere. False without an answer where a rank that waited learns
  // that nobody is asked about that step, but not where it `waits` always.
  // Errors are those of rank 0, or RankTopic::Hear()'s with kUnavailable in
  // place of kDeadlineExceeded. `told`, which may be null: the error is rank
  // 0's.
  absl::StatusOr<bool> Ask(std::string_view call, std::int64_t step,
                           Waits waits, const Cancelled& cancelled,
                           absl::FunctionRef<absl::StatusOr<Decision>()> decide,
                           bool* told = nullptr);

  // A preemption came to this rank. Rank 0 tells all of them at a decision.
  void NotePreemption();
  // This manager has committed a step for it.
  void NoteSavedForPreemption();
  // As all ranks know.
  bool preempted() const;
  // Likewise: it came, and the step in question is to be saved for it.
  bool must_save() const;

 private:
  struct State {
    bool begun = false;
    bool preempted = false;
    bool must_save = false;
  };

  absl::StatusOr<bool> Tell(
      std::string_view call, std::int64_t step,
      absl::FunctionRef<absl::StatusOr<Decision>()> decide);
  // As RankTopic::Hear().
  absl::StatusOr<std::optional<RankTopic::Word>> Hear(
      std::string_view call, std::int64_t step, const Cancelled& cancelled,
      absl::FunctionRef<bool(const RankTopic::Word&)> passed);
  // Whether the word says yes; takes over the state.
  absl::StatusOr<bool> Take(const RankTopic::Word& word);

  RankTopic topic_;
  AskedSteps asked_;  // After Meet() it does not change.

  mutable absl::Mutex mu_;
  State state_ ABSL_GUARDED_BY(mu_);
  bool noted_ ABSL_GUARDED_BY(mu_) = false;  // On this rank.
  bool posted_ ABSL_GUARDED_BY(mu_) = false;
  bool saved_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_MANAGE_MANAGER_RANKS_H_
