// SPDX-License-Identifier: Apache-2.0

// The policies of the branches of a store, applied to what its catalog lists.

#ifndef CKPTREE_CORE_POLICY_RETENTION_H_
#define CKPTREE_CORE_POLICY_RETENTION_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "ckptree/policy.h"
#include "ckptree/preservation.h"
#include "core/policy/price.h"
#include "core/process/arena.h"
#include "core/version/catalog.h"
#include "core/version/kept_versions.h"
#include "kv/database.h"

namespace ckptree::internal {

// As policies see it; the metrics are those of `record`.
PolicyStep PolicyStepOf(const schema::StepRecord& record);

// kInvalidArgument, naming both: the rule is of health, which is not known of
// what is saved without `statistics`. `name`: the option that has it.
absl::Status CheckHealthIsKnown(std::string_view name,
                                const Preservation& policy, bool statistics);

// Whether `policy` may be set for what is saved: Check(), CheckHealthIsKnown(),
// and kInvalidArgument, naming the rule, where an interval is negative, and
// where of some run it keeps nothing but for the newest step, which stays in
// any case.
absl::Status CheckSettable(std::string_view name, const Preservation& policy,
                           bool statistics);

// Thread-safe.
class Retention {
 public:
  // `statistics`: false where saves record none.
  Retention(const kv::Database* database, const Catalog* catalog, Arena* arena,
            bool statistics)
      : database_(*database),
        catalog_(*catalog),
        arena_(*arena),
        statistics_(statistics) {}

  // CheckHealthIsKnown() and CheckSettable() of a policy of this store.
  absl::Status CheckHealth(const Preservation& policy) const {
    return CheckHealthIsKnown("the policy", policy, statistics_);
  }
  absl::Status CheckSettable(const Preservation& policy) const {
    return internal::CheckSettable("the policy", policy, statistics_);
  }

  // The branch's policy is stored; its functions stand behind its text from now
  // on.
  void Remember(std::uint32_t branch, const Preservation& policy);

  // What is stored of the branch's policy.
  PolicyInfo Of(std::uint32_t branch) const;

  // The steps that a new one is to be judged with, and what became of them.
  struct Verdict {
    std::vector<StepRecordPtr> removed;  // Ascending by number.
    bool keeps_new = true;               // False: it is not to be committed.
  };
  // What the commit of `fresh`, whose number no other listed step has any more,
  // removes; never the newest step of the branch. `fresh` itself is kept where
  // it is the newest, where it is to `stay`, and where the policy keeps it. An
  // error: nothing is to be removed. `head` is asked by a Budget alone.
  // `without_later`: as if there were no steps after it.
  absl::StatusOr<Verdict> Decide(
      StepRecordPtr fresh, bool stay, bool without_later,
      const std::function<absl::StatusOr<PriceHead>()>& head) const;

  // What `policy` says of the steps there are; the newest stays in any case.
  absl::StatusOr<std::vector<PolicyVerdict>> Judge(
      std::uint32_t branch, const Preservation& policy) const;

  // Which versions a disk keeps that keeps of each branch, judged for itself,
  // what `policy` says: in any case its newest step, which a resume reads, and
  // its tip, which the next save is compared with, also where that is removed.
  // A pin or a tag keeps a step from being removed, not on the disk. After an
  // error everything is to be kept. REQUIRES, for a Budget: nothing is
  // collected in the meantime.
  absl::StatusOr<KeptVersions> KeptOnDisk(const Preservation& policy) const;

 private:
  // As PreservationContext has it, by what is stored of the branch.
  absl::StatusOr<std::size_t> StoredBeyond(std::uint32_t branch,
                                           const std::vector<PricedStep>& steps,
                                           std::uint64_t bytes) const;

  const kv::Database& database_;
  const Catalog& catalog_;
  Arena& arena_;
  const bool statistics_;
  mutable absl::Mutex mu_;
  // By branch and text. What was parsed once, or came with functions.
  mutable std::map<std::pair<std::uint32_t, std::string>, Preservation> known_
      ABSL_GUARDED_BY(mu_);
};

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_POLICY_RETENTION_H_
