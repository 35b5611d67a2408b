// SPDX-License-Identifier: Apache-2.0

// How a rank meets the coordinator of its job.

#ifndef CKPTREE_CORE_RANKS_MEETING_H_
#define CKPTREE_CORE_RANKS_MEETING_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "ckptree/ranks.h"
#include "core/ranks/coordinator_mail.h"
#include "core/ranks/mailbox.h"
#include "core/ranks/rank_remote.h"
#include "core/ranks/refusal.h"
#include "kv/object_store.h"
#include "kv/options.h"

namespace ckptree::internal {

// Where ranks of `options` meet that share a folder: below the store in
// `directory`.
std::unique_ptr<MailFolder> FolderOf(const kv::Options& kv_options,
                                     const std::string& directory,
                                     const std::string& job);

// Confined to one thread. The options must outlive it.
class Meeting {
 public:
  // `file_system`: see kv::Options.
  Meeting(std::string directory, const RankOptions& options,
          const std::shared_ptr<void>& file_system);

  // At most so long a rank waits behind the time that the coordinator has for
  // all to come: what that says of who did not come is the error of all ranks,
  // and takes a look at their mailboxes, and a shared folder its time to show
  // it. As long as open_deadline, within these.
  static constexpr absl::Duration kLeastGrace = absl::Seconds(5);
  static constexpr absl::Duration kMostGrace = absl::Seconds(30);

  // Once a coordinator is there that has as many ranks. What a run of before
  // left is waited out: it says nothing any more. What rank 0 was refused the
  // store for since this process began is the error, with its code.
  absl::StatusOr<CoordinatorMail> FindCoordinator();

  // The coordinator's word for the process that wrote `hello`; false where it
  // was started again in the meantime. A coordinator that was found has counted
  // open_deadline from no later than then: while it says something a rank waits
  // as long, and the grace; else open_deadline of its own.
  absl::StatusOr<bool> AwaitWelcome(std::uint64_t nonce,
                                    CoordinatorMail* mail) const;

  // Where it was found.
  const std::shared_ptr<MailPlace>& place() const { return place_; }
  // The same where ranks share no folder; else null.
  const std::shared_ptr<RankRemote>& remote() const { return remote_; }
  const kv::Options& kv_options() const { return kv_options_; }

 private:
  // Of ranks that share no folder: of the newest coordinator, where one was
  // there. Nothing is in place() before.
  absl::Status FindPlace();
  absl::Status Refused();
  absl::Status CheckOpen(const schema::RankMail& open) const;
  absl::Status Late(const CoordinatorMail* mail) const;
  // Whether the word of that coordinator is waited for no more.
  bool IsOver(const CoordinatorMail& mail) const;
  // ", but job run-7", where others have been here.
  std::string OtherJobs() const;
  bool cancelled() const;

  const std::string directory_;
  const RankOptions& options_;
  const absl::Time end_;
  absl::Time found_;  // When the coordinator was.
  kv::Options kv_options_;
  std::shared_ptr<kv::ObjectStore> store_;
  std::string uuid_;  // Of the store that was found there.
  RefusalWatch refusals_;
  std::shared_ptr<MailPlace> place_;
  std::shared_ptr<RankRemote> remote_;
};

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_RANKS_MEETING_H_
