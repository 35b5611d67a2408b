// SPDX-License-Identifier: Apache-2.0

// Rank 0 of a group that meets in the store's folder, or in its remote.

#ifndef CKPTREE_CORE_RANKS_COORDINATOR_H_
#define CKPTREE_CORE_RANKS_COORDINATOR_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "ckptree/ranks.h"
#include "core/engine/engine.h"
#include "core/ranks/coordinator_mail.h"
#include "core/ranks/heartbeat.h"
#include "core/ranks/mailbox.h"
#include "core/ranks/rank_remote.h"
#include "core/save/part_writer.h"
#include "core/save/save.h"
#include "schema/rank_message.h"

namespace ckptree::internal {

// Thread-safe, but for Meet().
class Coordinator {
 public:
  // `engine` is open for writing, and outlives this. `remote`: where ranks
  // meet that share no folder, of the era of the engine; else null.
  Coordinator(Engine* engine, const RankOptions& options,
              std::shared_ptr<RankRemote> remote);

  // Until every rank is there, and said that it could open the store.
  absl::Status Meet();

  // The parts of all ranks, this one's own among them: a body of Save::gather.
  absl::StatusOr<std::vector<PartResult>> Gather(
      const StepCall& call, Save* save, const schema::RankPlan& plan,
      const std::function<absl::Status()>& check);

  // Between these the others hear that it is there.
  void Begin() { heartbeat_.Begin(); }
  void End() { heartbeat_.End(); }
  // Tells all ranks how the call ended; `ordinal` is of the store's newest
  // commit by then.
  void Settle(const StepCall& call, const absl::Status& outcome,
              std::uint64_t ordinal);

  // What rank 0 failed with; where it commits nothing more, with what to do
  // about it.
  absl::Status WithAdvice(const absl::Status& status) const;

  // Tells all ranks, and waits for none of them; `told` is of kTold. An error:
  // the disk is full, say, and they are told later.
  absl::Status Tell(const schema::RankMail& told);
  // Whether a rank sent a notice of that topic; or the first error that one
  // sent. Reads what came since, unless that was done a moment ago: of
  // thousands of ranks it takes a while.
  absl::StatusOr<bool> Noticed(const std::string& topic);

  // Says that no more comes.
  void Close();

 private:
  // A process that is, or wants to be, a rank.
  struct Peer {
    std::uint32_t rank = 0;
    std::uint64_t nonce = 0;
    std::unique_ptr<MailSource> reader;
    std::string host = {};
    std::uint32_t pid = 0;
    bool welcome = false;
    bool closed = false;  // It says nothing more.
    absl::Time heard = {};
    // The step that it came to last.
    std::optional<std::int64_t> in_call_for = {};
    // Of its calls the steps that are not settled.
    std::deque<std::int64_t> begun = {};
  };
  struct Answer {
    std::string token;  // Empty: none yet.
    absl::Status failed;
  };

  // Whether all ranks are there, and were told so; where it is `late`, or one
  // of them cannot go on, they are told that.
  absl::StatusOr<bool> Met(bool late);
  // What the opening fails with, by the numbers of the ranks.
  absl::Status Missing(std::vector<std::string> missing,
                       std::vector<std::string> gave_up) const;
  // While no step is saved: a rank that was started again wants to be welcome.
  void LookAround();
  Backoff NewBackoff();
  absl::Duration Beat() const;
  // Reads all mailboxes. With `look`, or a while after it did so last, also
  // for new ones.
  absl::Status Poll(bool look) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Take(const schema::RankMail& mail, Peer* peer)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Why that process cannot be the rank that it wants to be; or OK.
  absl::Status Judge(const schema::RankMail& hello) const
      ABSL_SHARED_LOCKS_REQUIRED(mu_);
  void Welcome(const Peer& peer, const absl::Status& status);
  // "rank 3 of 8 (pid 4711 on h3, last heard of 2 s ago)"; or not `heard`.
  std::string Describe(std::uint32_t rank, bool heard = true) const
      ABSL_SHARED_LOCKS_REQUIRED(mu_);
  // An error names a rank that has said something since, and that it saves a
  // later step, while it has not begun this call.
  absl::Status HavePassed(const StepCall& call, absl::Time since) const
      ABSL_SHARED_LOCKS_REQUIRED(mu_);
  // An error names the ranks that will not hand over, as all their processes
  // have closed.
  absl::Status HaveClosed(const StepCall& call) const
      ABSL_SHARED_LOCKS_REQUIRED(mu_);
  absl::Status Waited(const StepCall& call, absl::Time since) const
      ABSL_SHARED_LOCKS_REQUIRED(mu_);

  Engine* const engine_;
  const RankOptions options_;
  const std::shared_ptr<RankRemote> remote_;
  const std::shared_ptr<MailPlace> place_;  // The same, or a folder.
  const std::uint64_t nonce_;
  MailWriter mail_;
  // Of the folder, once it is there; nothing where nothing shows a change.
  std::optional<kv::FileWatch> watch_;

  mutable absl::Mutex mu_;
  bool met_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status refused_ ABSL_GUARDED_BY(mu_);  // Why nobody can go on.
  // Why a process cannot be the rank that it says; the others may go on.
  absl::Status turned_away_ ABSL_GUARDED_BY(mu_);
  absl::Time looked_ ABSL_GUARDED_BY(mu_);
  std::vector<Peer> peers_ ABSL_GUARDED_BY(mu_);
  // Calls that are not settled, and what each rank said of them.
  std::map<StepCall, std::map<std::uint32_t, Answer>> calls_
      ABSL_GUARDED_BY(mu_);
  // The newest settled call of each step: later mail of it is stale.
  std::map<std::int64_t, std::uint32_t> settled_ ABSL_GUARDED_BY(mu_);
  std::map<StepCall, std::vector<std::uint64_t>> taken_ ABSL_GUARDED_BY(mu_);
  absl::Time next_look_ ABSL_GUARDED_BY(mu_) =
      absl::InfinitePast();  // For notices.
  // The first error of a topic, or OK: a notice came.
  std::map<std::string, absl::Status> notices_ ABSL_GUARDED_BY(mu_);

  Heartbeat heartbeat_;  // While it has calls to save; uses all of these.
};

// The options that must be the same on all ranks, as text.
std::string TextOf(const SaveOptions& options);

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_RANKS_COORDINATOR_H_
