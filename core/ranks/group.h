// SPDX-License-Identifier: Apache-2.0

#ifndef CKPTREE_CORE_RANKS_GROUP_H_
#define CKPTREE_CORE_RANKS_GROUP_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "ckptree/ranks.h"
#include "ckptree/save.h"
#include "ckptree/store.h"
#include "core/ranks/coordinator.h"
#include "core/ranks/member.h"

namespace ckptree::internal {

// Whom the steps of this process go to: one of the two.
struct GroupEnds {
  std::shared_ptr<Coordinator> coordinator;
  std::shared_ptr<Member> member;
};

// An open group, as a RankGroup and the managers over it share it.
//
// Thread-safe, but for Close().
class GroupRank {
 public:
  GroupRank(Store opened, GroupEnds ends, const RankOptions& options)
      : store_(std::move(opened)), ends_(std::move(ends)), options_(options) {}

  // As those of RankGroup.
  StepBuilder Begin(std::int64_t step, const SaveOptions& options);
  absl::Status Flush(absl::Duration timeout);
  absl::Status Close();

  // In place of Begin(): the step fails on all ranks, because of `why`.
  void GiveUp(std::int64_t step, const absl::Status& why);

  Store& store() { return store_; }
  const GroupEnds& ends() const { return ends_; }
  const RankOptions& options() const { return options_; }
  // The how-manieth manager over it there is, in this process.
  int NextManager();

 private:
  StepCall NextCall(std::int64_t step);

  Store store_;
  GroupEnds ends_;
  const RankOptions options_;
  bool closed_ = false;

  absl::Mutex mu_;
  std::map<std::int64_t, std::uint32_t> calls_ ABSL_GUARDED_BY(mu_);
  int managers_ ABSL_GUARDED_BY(mu_) = 0;
};

// RankGroup::Open() over a file system of the caller's (see kv::Options): for
// tests.
struct RankGroupPeer {
  static absl::StatusOr<RankGroup> Open(const std::string& directory,
                                        const RankOptions& options,
                                        std::shared_ptr<void> file_system);
  // REQUIRES: not moved from.
  static std::shared_ptr<GroupRank> Shared(const RankGroup& group);
};

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_RANKS_GROUP_H_
