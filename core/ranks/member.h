// SPDX-License-Identifier: Apache-2.0

// Another rank than 0 of a group that meets in the store's folder, or in its
// remote.

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
#include "core/ranks/coordinator_mail.h"
#include "core/ranks/heartbeat.h"
#include "core/ranks/mailbox.h"
#include "core/ranks/rank_remote.h"
#include "core/save/failed_saves.h"
#include "core/save/save.h"
#include "core/save/stager.h"
#include "kv/file_watch.h"
#include "kv/monotonic.h"
#include "schema/rank_message.h"

namespace ckptree::internal {

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
  // Pauses of the one that listens.
  Backoff HearingBackoff();
  // To the coordinator; an error says that this rank cannot go on.
  absl::Status Notice(const std::string& topic, const absl::Status& status);
  // As CoordinatorMail::Describe().
  std::string DescribeCoordinator() const;

  absl::Status WaitIdle(absl::Duration timeout);
  // Waits for the saves there are, then says that no more comes.
  void Close();

 private:
  // Where it meets the others, and where it builds.
  struct Places {
    std::shared_ptr<MailPlace> mail;
    std::shared_ptr<RankRemote> remote;  // The same; null in a shared folder.
    std::string staging;
  };
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
         Places places, std::uint64_t nonce, std::unique_ptr<MailWriter> mail,
         CoordinatorMail coordinator);

  void Loop();
  absl::Status Run(const Job& job, std::uint64_t* version);
  absl::StatusOr<schema::RankPlan> AwaitPlan(const Job& job);
  Count& CountOf(std::int64_t step) ABSL_EXCLUSIVE_LOCKS_REQUIRED(counts_mu_);
  // The call of the coordinator's that this rank's next for `step` belongs to.
  StepCall NextCall(std::int64_t step);
  // It has ended here.
  void EndCall(const StepCall& call);
  void SayFailed(const StepCall& call, const absl::Status& why);
  Backoff WorkingBackoff();
  // What cannot be written now goes out later.
  void Post(const schema::RankMail& mail);
  // An error where the coordinator will not come to that call any more.
  absl::Status CheckOrder(const StepCall& call, absl::Time begun,
                          std::uint64_t settled) const;
  // `handed`: the coordinator may have the part, even after an error.
  absl::Status Build(const Job& job, const schema::RankPlan& plan,
                     bool* handed);
  // Of a part that was built, and handed over or not, on a disk of its own.
  void RemoveBuilt(const schema::RankPlan& plan);
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
  const Places places_;
  const std::unique_ptr<MailWriter> mail_writer_;
  MailWriter& mail_;
  CoordinatorMail coordinator_;  // Of the working thread, after Meet().
  // For the working thread; nothing where nothing wakes it.
  std::optional<kv::FileWatch> watch_;
  // Of the coordinator, before this process was welcome.
  const std::map<std::int64_t, std::uint32_t> before_;
  absl::Mutex counts_mu_;
  std::map<std::int64_t, Count> counts_ ABSL_GUARDED_BY(counts_mu_);
  Heartbeat heartbeat_;  // While it works on a step.
  // Records of the mailbox before the last handoff; of the working thread.
  std::uint64_t handed_at_ = 0;
  FailedSaves failed_;
  Stager stager_;

  // As coordinator_, of who asks what was told.
  mutable absl::Mutex hearing_mu_;
  CoordinatorMail hearing_ ABSL_GUARDED_BY(hearing_mu_);
  std::optional<kv::FileWatch> hearing_watch_;
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
