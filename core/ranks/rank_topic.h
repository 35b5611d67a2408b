// SPDX-License-Identifier: Apache-2.0

// What all ranks of a group have to know alike: the coordinator says it.

#ifndef CKPTREE_CORE_RANKS_RANK_TOPIC_H_
#define CKPTREE_CORE_RANKS_RANK_TOPIC_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "core/ranks/group.h"
#include "schema/rank_message.h"

namespace ckptree::internal {

// One row of questions, which all ranks ask in the same order: the coordinator
// decides, tells, and waits for nobody; the others wait for its word. A rank
// that leaves a question out goes on with the next one that it asks.
//
// Thread-safe.
class RankTopic {
 public:
  // The coordinator's answer to `call` for `step`: an error, or bytes.
  struct Word {
    std::string call;
    std::int64_t step = 0;
    absl::Status status;
    std::string body;
  };

  // `name` is the same on all ranks, and no other topic's.
  RankTopic(std::shared_ptr<GroupRank> group, std::string name)
      : group_(std::move(group)), name_(std::move(name)) {}

  GroupRank& group() const { return *group_; }
  // Whether this is the coordinator.
  bool tells() const { return group_->ends().coordinator != nullptr; }

  // REQUIRES: tells().
  absl::Status Tell(const Word& word);

  // REQUIRES: not tells(). The word of that call. What was told before it and
  // not asked here is left out; where that is of the same step or one before,
  // `passed` sees it while this waits, and says whether to wait on: nothing is
  // returned where not.
  // kDeadlineExceeded: it did not come, and the coordinator was silent for so
  // long; kUnavailable: the coordinator is gone; kCancelled: `cancelled` (which
  // may be null, and is asked on this thread) said so.
  absl::StatusOr<std::optional<Word>> Hear(
      std::string_view call, std::int64_t step,
      const std::function<bool()>& cancelled,
      absl::FunctionRef<bool(const Word&)> passed);

  // For the coordinator: something came to this rank, or it cannot go on.
  // REQUIRES: not tells().
  absl::Status Notice(const absl::Status& status);
  // Whether any rank sent one; its error, where it has one. REQUIRES: tells().
  absl::StatusOr<bool> Noticed();

 private:
  const std::shared_ptr<GroupRank> group_;
  const std::string name_;

  absl::Mutex mu_;
  std::deque<schema::RankMail> told_ ABSL_GUARDED_BY(mu_);  // Not asked yet.
};

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_RANKS_RANK_TOPIC_H_
