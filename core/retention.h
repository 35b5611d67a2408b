// The policies of the lines of a store, applied to what its catalog lists.

#ifndef CKPTREE_CORE_RETENTION_H_
#define CKPTREE_CORE_RETENTION_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "ckptree/policy.h"
#include "ckptree/preservation.h"
#include "core/catalog.h"
#include "core/price.h"
#include "kv/database.h"
#include "tbb/task_arena.h"

namespace ckptree::internal {

// As policies see it; the metrics are those of `record`.
PolicyStep PolicyStepOf(const schema::StepRecord& record);

// Thread-safe.
class Retention {
 public:
  Retention(const kv::Database* database, const Catalog* catalog,
            tbb::task_arena* arena)
      : database_(*database), catalog_(*catalog), arena_(*arena) {}

  // The line's policy is stored; its functions stand behind its text from now
  // on.
  void Remember(std::uint32_t line, const Preservation& policy);

  // What is stored of the line's policy.
  PolicyInfo Of(std::uint32_t line) const;

  // The steps that a new one is to be judged with, and what became of them.
  struct Verdict {
    std::vector<StepRecordPtr> victims;  // Ascending by number.
    bool drops_new = false;
  };
  // What the commit of `fresh`, whose number no other listed step has any more,
  // removes; not the step itself where it is to `stay`. An error: nothing is to
  // be removed. `head` is asked by a Budget alone.
  absl::StatusOr<Verdict> Decide(
      StepRecordPtr fresh, bool stay,
      const std::function<absl::StatusOr<PriceHead>()>& head) const;

  // What `policy` says of the steps there are.
  absl::StatusOr<std::vector<PolicyVerdict>> Judge(
      std::uint32_t line, const Preservation& policy) const;

 private:
  const kv::Database& database_;
  const Catalog& catalog_;
  tbb::task_arena& arena_;
  mutable absl::Mutex mu_;
  // By line and text. What was parsed once, or came with functions.
  mutable std::map<std::pair<std::uint32_t, std::string>, Preservation> known_
      ABSL_GUARDED_BY(mu_);
};

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_RETENTION_H_
