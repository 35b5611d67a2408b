// SPDX-License-Identifier: Apache-2.0

// Another rank than 0 of a group that meets in the store's folder.

#ifndef CKPTREE_CORE_RANKS_MEMBER_H_
#define CKPTREE_CORE_RANKS_MEMBER_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "ckptree/ranks.h"
#include "core/engine/engine.h"
#include "core/ranks/coordinator.h"
#include "core/ranks/heartbeat.h"
#include "core/ranks/mailbox.h"
#include "core/save/failed_saves.h"
#include "core/save/save.h"
#include "core/save/stager.h"
#include "kv/file_watch.h"
#include "kv/monotonic.h"
#include "schema/rank_message.h"

namespace ckptree::internal {

// What a rank reads of the coordinator's mailbox. Confined to one thread at a
// time.
class CoordinatorMail {
 public:
  // What is told stays until it is taken, where it `keeps_told`; all else goes
  // by itself.
  CoordinatorMail(const kv::Options& kv_options, const MailFolder& folder,
                  bool keeps_told = false)
      : reader_(kv_options, folder.Coordinator()),
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
  MailReader reader_;
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

// kUnavailable: it has ended, or another one has its place.
absl::Status CoordinatorGone();
// kFailedPrecondition: it saves `step`, and not that of this rank.
absl::Status OutOfOrder(std::int64_t step);

// Thread-safe, but for Meet().
class Member {
 public:
  // Waits for the coordinator, then opens the store to read, and waits for the
  // coordinator's word that all ranks are there. `file_system`: see
  // kv::Options.
  static absl::StatusOr<std::unique_ptr<Member>> Meet(
      const std::string& directory, const RankOptions& options,
      const std::shared_ptr<void>& file_system);
  // Close().
  ~Member();

  const std::shared_ptr<Engine>& engine() const { return engine_; }
  FailedSaves& failed() { return failed_; }

  // Saves its part, after those that were submitted before. Waits for room.
  // False after Close().
  bool Submit(const std::shared_ptr<Save>& save);
  // Tells the coordinator that this rank makes no call for that step this time.
  void Refuse(std::int64_t step, const absl::Status& why);

  // What the coordinator told of a topic and nobody took yet is added to
  // `told`. kUnavailable, as CoordinatorMail::Poll(), beside what it told
  // before. `heard`: when it said something last.
  absl::Status Listen(const std::string& topic,
                      std::deque<schema::RankMail>* told, absl::Time* heard);
  // Wakes who listens.
  kv::FileWatch& watch() { return hearing_watch_; }
  // To the coordinator; an error says that this rank cannot go on.
  absl::Status Notice(const std::string& topic, const absl::Status& status);
  // As CoordinatorMail::Describe().
  std::string DescribeCoordinator() const;

  absl::Status WaitIdle(absl::Duration timeout);
  // Waits for the saves there are, then says that no more comes.
  void Close();

 private:
  struct Job {
    std::shared_ptr<Save> save;
    StepCall call;  // As the coordinator counts; at its turn.
  };
  // How this rank's calls for a step are counted: as the coordinator's, that
  // they meet. Each process counts by itself, but for what it has missed.
  struct Count {
    std::uint32_t next = 1;
    // A call of this rank waited for the coordinator's in vain, which was told
    // that it fails.
    bool gave_up = false;
  };

  Member(std::shared_ptr<Engine> engine, const RankOptions& options,
         MailFolder folder, std::uint64_t nonce, CoordinatorMail mail);

  void Loop();
  absl::Status Run(const Job& job, std::uint64_t* version);
  absl::StatusOr<schema::RankPlan> AwaitPlan(const Job& job);
  Count& CountOf(std::int64_t step) ABSL_EXCLUSIVE_LOCKS_REQUIRED(counts_mu_);
  // The call of the coordinator's that this rank's next for `step` belongs to.
  StepCall NextCall(std::int64_t step);
  // It has ended here.
  void EndCall(const StepCall& call);
  void SayFailed(const StepCall& call, const absl::Status& why);
  // What cannot be written now goes out later.
  void Post(const schema::RankMail& mail);
  // An error where the coordinator will not come to that call any more.
  absl::Status CheckOrder(const StepCall& call, absl::Time begun,
                          std::uint64_t settled) const;
  // `handed`: the coordinator may have the part, even after an error.
  absl::Status Build(const Job& job, const schema::RankPlan& plan,
                     bool* handed);
  absl::Status AwaitOutcome(const Job& job, const schema::RankPlan& plan);
  // The outcome, where nobody told it.
  absl::Status AskStore(const schema::RankPlan& plan, const absl::Status& why);
  // How the call ended, where that was told.
  std::optional<absl::Status> Told(const StepCall& call) const;

  bool HasWork() const ABSL_SHARED_LOCKS_REQUIRED(mu_) {
    return closing_ || !queue_.empty();
  }
  bool HasRoom() const ABSL_SHARED_LOCKS_REQUIRED(mu_) {
    return closing_ ||
           submitted_ - ended_ < static_cast<std::uint64_t>(
                                     engine_->options().max_saves_in_flight);
  }

  const std::shared_ptr<Engine> engine_;
  const RankOptions options_;
  const std::uint64_t nonce_;
  MailWriter mail_;
  CoordinatorMail coordinator_;  // Of the working thread, after Meet().
  kv::FileWatch watch_;          // For the working thread.
  // Of the coordinator, before this process was welcome.
  const std::map<std::int64_t, std::uint32_t> before_;
  absl::Mutex counts_mu_;
  std::map<std::int64_t, Count> counts_ ABSL_GUARDED_BY(counts_mu_);
  Heartbeat heartbeat_;  // While it works on a step.
  FailedSaves failed_;
  Stager stager_;

  // As coordinator_, of who asks what was told.
  mutable absl::Mutex hearing_mu_;
  CoordinatorMail hearing_ ABSL_GUARDED_BY(hearing_mu_);
  kv::FileWatch hearing_watch_;
  const std::uint64_t met_;  // The nonce of the coordinator that was met.

  absl::Mutex mu_;
  bool closing_ ABSL_GUARDED_BY(mu_) = false;
  std::deque<Job> queue_ ABSL_GUARDED_BY(mu_);
  std::uint64_t submitted_ ABSL_GUARDED_BY(mu_) = 0;
  std::uint64_t ended_ ABSL_GUARDED_BY(mu_) = 0;

  std::thread thread_;
};

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_RANKS_MEMBER_H_
