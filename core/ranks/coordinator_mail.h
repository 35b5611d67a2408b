// SPDX-License-Identifier: Apache-2.0

// What a rank reads of the coordinator's mailbox.

#ifndef CKPTREE_CORE_RANKS_COORDINATOR_MAIL_H_
#define CKPTREE_CORE_RANKS_COORDINATOR_MAIL_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "core/ranks/mailbox.h"
#include "kv/monotonic.h"
#include "schema/rank_message.h"

namespace ckptree::internal {

// A call that saves a step: the how-manieth of its process for that step.
using StepCall = std::pair<std::int64_t, std::uint32_t>;

// Confined to one thread at a time.
class CoordinatorMail {
 public:
  // What is told stays until it is taken, where it `keeps_told`; all else goes
  // by itself.
  explicit CoordinatorMail(MailPlace* place, bool keeps_told = false)
      : reader_(place->Read(kCoordinatorBox)),
        look_again_(place->pace().place),
        keeps_told_(keeps_told),
        heard_(kv::MonotonicNow()) {}

  // Takes in what came. kUnavailable where the coordinator said that it ends,
  // or another one has its place.
  absl::Status Poll();

  // Of the newest coordinator; nothing before it was seen.
  const std::optional<schema::RankMail>& open() const { return open_; }
  // The nonce of the process that reads. What came before its welcome is not
  // for it.
  void SetOwn(std::uint64_t nonce) { own_ = nonce; }
  // By step, its newest call before that which was for others.
  const std::map<std::int64_t, std::uint32_t>& before() const {
    return before_;
  }
  // Of the calls for that step that it planned or settled; 0: none.
  std::uint32_t newest(std::int64_t step) const;
  // What it said to the process of that nonce.
  const schema::RankMail* WelcomeOf(std::uint64_t nonce) const;
  const schema::RankMail* PlanOf(const StepCall& call) const;
  const schema::RankMail* OutcomeOf(const StepCall& call) const;
  // The call that it saves now, as far as it said so; how many ended.
  const std::optional<StepCall>& working() const { return working_; }
  std::uint64_t settled() const { return settled_; }
  // What was told of that topic and not taken yet, in its order.
  std::deque<schema::RankMail> TakeTold(const std::string& topic);
  absl::Time heard() const { return heard_; }
  // It wrote something while this process looked on: it is there.
  bool alive() const { return alive_; }
  // "the coordinator (pid 4711 on h0, last heard of 2 s ago)".
  std::string Describe() const;

 private:
  std::unique_ptr<MailSource> reader_;
  absl::Duration look_again_;  // Whether another one has its place.
  bool keeps_told_;
  std::optional<schema::RankMail> open_;
  std::uint64_t own_ = 0;
  std::map<std::int64_t, std::uint32_t> newest_;
  std::map<std::int64_t, std::uint32_t> before_;
  std::map<std::uint64_t, schema::RankMail> welcomes_;
  // The newest few.
  std::map<StepCall, schema::RankMail> plans_;
  std::map<StepCall, schema::RankMail> outcomes_;
  std::deque<StepCall> order_;  // Of the outcomes.
  std::optional<StepCall> working_;
  std::uint64_t settled_ = 0;
  // The newest few of each topic.
  std::map<std::string, std::deque<schema::RankMail>> told_;
  absl::Time heard_;
  absl::Time looked_ = kv::MonotonicNow();
  bool closed_ = false;
  bool alive_ = false;
  bool polled_ = false;  // Its first records were seen.
};

// A status as it is told between processes.
absl::Status StatusOf(const schema::RankMail& mail);

// kUnavailable: it has ended, or another one has its place.
absl::Status CoordinatorGone();
// kFailedPrecondition: it saves `step`, and not that of this rank.
absl::Status OutOfOrder(std::int64_t step);

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_RANKS_COORDINATOR_MAIL_H_
