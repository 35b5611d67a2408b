// SPDX-License-Identifier: Apache-2.0

// What steps of a branch need together, worked out from dead lists.

#ifndef CKPTREE_CORE_POLICY_PRICE_H_
#define CKPTREE_CORE_POLICY_PRICE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "absl/status/statusor.h"
#include "kv/database.h"
#include "schema/dead_list.h"

namespace ckptree::internal {

// A step of the list that is priced.
struct PricedStep {
  std::uint64_t version = 0;
  bool fixed = false;  // It stays, whatever it costs.
};

// The newest version of the branch, which may not be stored yet.
struct PriceHead {
  std::uint64_t version = 0;  // 0: there is none.
  schema::DeadList dead;
  // Of all blocks that it refers to, by the version that wrote them.
  std::map<std::uint64_t, std::uint64_t> bytes;
};

// How many of the first `steps` must go for the fixed ones and the rest to need
// at most `bytes`; all but the last at most. A block lives from the version
// that wrote it to the one before the version whose dead list names it, and is
// needed by whatever step is between. The bytes are those on the disk: of coded
// blocks what they take, about.
absl::StatusOr<std::size_t> OldestBeyond(const kv::Database& database,
                                         const PriceHead& head,
                                         const std::vector<PricedStep>& steps,
                                         std::uint64_t bytes);

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_POLICY_PRICE_H_
