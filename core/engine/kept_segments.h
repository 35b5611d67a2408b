// SPDX-License-Identifier: Apache-2.0

// The segments that steps need which a policy keeps on the disk.

#ifndef CKPTREE_CORE_ENGINE_KEPT_SEGMENTS_H_
#define CKPTREE_CORE_ENGINE_KEPT_SEGMENTS_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "ckptree/preservation.h"
#include "core/policy/retention.h"
#include "core/version/catalog.h"
#include "kv/database.h"

namespace ckptree::internal {

// By the records of these steps, which no save changes: those of each step are
// read once. Exact, whatever the branches are.
//
// Confined to one thread at a time. What it is made of outlives it.
class KeptSegments {
 public:
  KeptSegments(const kv::Database* database, const Catalog* catalog,
               const Retention* retention, Preservation policy)
      : database_(*database),
        catalog_(*catalog),
        retention_(*retention),
        policy_(std::move(policy)) {}

  // The keys of the rows of segments of chunks: of the steps of each branch
  // that the policy keeps there, pinned and tagged ones and the newest among
  // them. An error: nobody knows which.
  absl::StatusOr<std::set<std::string>> Find();

 private:
  absl::StatusOr<std::set<std::string>> SegmentsOf(
      const schema::StepRecord& record) const;

  const kv::Database& database_;
  const Catalog& catalog_;
  const Retention& retention_;
  const Preservation policy_;
  std::map<std::uint64_t, std::set<std::string>> known_;  // By version.
};

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_ENGINE_KEPT_SEGMENTS_H_
