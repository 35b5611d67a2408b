// SPDX-License-Identifier: Apache-2.0

// Why rank 0 was refused the store, told to the ranks that wait for it. It has
// no mailbox then: those are in the store.

#ifndef CKPTREE_CORE_RANKS_REFUSAL_H_
#define CKPTREE_CORE_RANKS_REFUSAL_H_

#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "ckptree/ranks.h"
#include "kv/object_store.h"
#include "kv/options.h"
#include "schema/rank_message.h"

namespace ckptree::internal {

// Rank 0 says it: in a file beside the directory, or, where ranks share no
// folder, in an object of the store that is at the address. What cannot be
// said is not: the others wait for open_deadline then.
void TellRefusal(const std::string& directory, const RankOptions& options,
                 const kv::Options& kv_options, const absl::Status& why);

// Rank 0 has the store by now.
void ForgetRefusal(const std::string& directory, const kv::Options& kv_options);

// One rank looks for it while it waits. Confined to one thread. The options
// must outlive it.
class RefusalWatch {
 public:
  RefusalWatch(const std::string& directory, const RankOptions& options);

  // An error: rank 0 was refused the store in this start of the job, and says
  // so with its own code. `store`, of `uuid`: where ranks meet that share no
  // folder; null where nothing is known of it yet.
  absl::Status Look(const kv::Options& kv_options, kv::ObjectStore* store,
                    const std::string& uuid);

  // "; rank 0 was refused it before: ..." of what the last look found and did
  // not count; empty: it found nothing.
  std::string Before() const;

 private:
  const std::string file_;
  const std::string heard_key_;
  const RankOptions& options_;
  // What was told before is of another start.
  const absl::Time since_;
  std::optional<schema::RankMail> before_;
};

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_RANKS_REFUSAL_H_
