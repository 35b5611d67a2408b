// SPDX-License-Identifier: Apache-2.0

// Which segments of chunks the disk of a store that ships keeps: the others
// leave it, and are read in the object store.

#ifndef CKPTREE_CORE_REMOTE_LOCAL_KEEP_H_
#define CKPTREE_CORE_REMOTE_LOCAL_KEEP_H_

#include <cstdint>
#include <functional>
#include <set>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/process/logger.h"
#include "core/remote/far_rows.h"
#include "core/remote/mirror.h"
#include "core/version/kept_versions.h"
#include "kv/database.h"
#include "kv/object_store.h"

namespace ckptree::internal {

// The versions of steps that are to be read from the disk.
using KeptVersionsFn = std::function<absl::StatusOr<KeptVersions>()>;

// A far row of a segment of which there is a file, too, which a crash or an
// error left, goes: the file counts. One that cannot be read stays. REQUIRES:
// nobody else writes. Returns how many went.
absl::StatusOr<int> ForgetFarThatAreHere(kv::Database* database);

// Of the segments that are elsewhere alone one at another address than
// `address`; empty: there is none.
absl::StatusOr<std::string> FarElsewhere(const kv::Database& database,
                                         const std::string& address);

// The rules are those of tests/remote/keep_model.py, by its letters.
//
// Confined to the thread that ships.
class LocalKeep {
 public:
  struct Context {  // All outlive it.
    kv::Database* database = nullptr;
    FarRows* far_rows = nullptr;
    kv::ObjectStore* store = nullptr;
    const Logger* logger = nullptr;
    std::string uuid = {};
    // What nobody needs in the object store stays there for so long.
    absl::Duration grace;
    KeptVersionsFn kept = {};
    // Runs `work` while nobody else looks at files or takes some away.
    std::function<void(absl::FunctionRef<void()> work)> alone = {};
    // OK: this one is the writer still, as the end of the chain says now.
    std::function<absl::Status(const kv::Call& call)> look = {};
  };
  explicit LocalKeep(Context context);

  // Lets go what no step needs that is kept here, and brings back what one
  // needs. `living` is what commits list that are known to be in the chain
  // (rule a); of the segments whose row keys are in `lost` the object is gone.
  // The rows of those that it finds gone, or other than they were, go to
  // `found_lost`. REQUIRES: what is in the object store was listed in this open
  // (rule b). What it does not get done is done in the next round.
  absl::Status Run(const LivingSegments& living,
                   const std::set<std::string>& lost,
                   const std::stop_token& stop,
                   std::vector<std::string>* found_lost);

  // When the next round is worth it, of kv::MonotonicNow().
  absl::Time next() const { return next_; }

 private:
  struct File;
  absl::Status LetGo(std::vector<File> files, const LivingSegments& living,
                     const std::stop_token& stop,
                     std::vector<std::string>* found_lost);
  absl::Status Drop(const std::vector<File>& files,
                    const LivingSegments& living, absl::Time looked);
  absl::Status BringBack(const std::vector<schema::SegmentKeyFields>& segments,
                         const std::stop_token& stop);

  const Context context_;
  absl::Time next_ = absl::InfinitePast();
};

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_REMOTE_LOCAL_KEEP_H_
