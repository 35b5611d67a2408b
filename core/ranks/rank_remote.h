// SPDX-License-Identifier: Apache-2.0

// Where ranks meet that share no folder: objects of their remote.

#ifndef CKPTREE_CORE_RANKS_RANK_REMOTE_H_
#define CKPTREE_CORE_RANKS_RANK_REMOTE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/ranks/mailbox.h"
#include "core/ranks/message_calls.h"
#include "kv/object_store.h"

namespace ckptree::internal {

// Each look is a request.
inline constexpr MailPace kPaceOfRequests = {
    .beat = absl::Seconds(5),
    .shortest = absl::Milliseconds(5),
    .longest = absl::Milliseconds(500),
    .building = absl::Seconds(2),
    .place = absl::Seconds(5),
    .at_once = 16,
};

// The objects of a job in one era of a store, that of the coordinator's open.
// Names begin with the era, so that nothing of a run before is met, and what it
// sends late is in nobody's way: the cleaner knows it by its era.
//
//   UUID/attempt/open-JOB/ERA                that there is such a coordinator
//   UUID/attempt/job-JOB/ERA/box/BOX/NUMBER  records of mailboxes
//   UUID/attempt/job-JOB/ERA/rank/BOX        that a rank has a mailbox
//   UUID/attempt/job-JOB/ERA/part/...        what is too large for a record
//
// Rank 0 that has no era, as it was refused the store, says so in
//
//   UUID/attempt/refused-JOB/1               which each later era may delete
//
// Thread-safe.
class RankRemote : public MailPlace {
 public:
  // `uuid`: 16 bytes; `deadline`: of its ranks.
  RankRemote(std::shared_ptr<kv::ObjectStore> store, std::string uuid,
             std::string job, std::uint64_t era,
             absl::Duration deadline = absl::InfiniteDuration());

  // Of the newest coordinator of that job; nothing: none was there.
  static absl::StatusOr<std::optional<std::uint64_t>> NewestEra(
      kv::ObjectStore& store, const std::string& uuid, const std::string& job);

  static std::string RefusalName(std::string_view uuid, const std::string& job);

  kv::ObjectStore& store() const { return *store_; }
  const std::string& uuid() const { return uuid_; }
  std::uint64_t era() const { return era_; }
  // Of the handoff of one part.
  std::string PartName(std::string_view attempt, std::uint32_t rank,
                       std::uint64_t nonce) const;

  absl::Status Make() override { return absl::OkStatus(); }
  std::unique_ptr<MailSink> Write(const std::string& box) override;
  std::unique_ptr<MailSource> Read(const std::string& box) override;
  absl::StatusOr<std::vector<std::string>> List() override;
  std::string Watched(const std::string& /*box*/) const override { return ""; }
  const MailPace& pace() const override { return kPaceOfRequests; }

 private:
  const std::shared_ptr<kv::ObjectStore> store_;
  const std::shared_ptr<MessageCalls> calls_;
  const std::string uuid_;
  const std::string job_;
  const std::uint64_t era_;
  const std::string above_;  // UUID/attempt/job-JOB/ERA/
};

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_RANKS_RANK_REMOTE_H_
