// SPDX-License-Identifier: Apache-2.0

// The chain as the rows of a store say it.

#ifndef CKPTREE_CORE_COLLECT_CHAIN_ROWS_H_
#define CKPTREE_CORE_COLLECT_CHAIN_ROWS_H_

#include <cstdint>
#include <map>
#include <span>

#include "absl/status/statusor.h"
#include "core/collect/chain.h"
#include "core/version/step_rows.h"
#include "kv/database.h"

namespace ckptree::internal {

// By version; each knows what its dead list says, the version before it and the
// branch, and nothing of its step yet.
using ChainLinks = std::map<std::uint64_t, ChainLink>;

// All of these are kDataLoss where a row is damaged that says how versions hang
// together; the message names it.

absl::StatusOr<ChainLinks> ReadChainLinks(const kv::Database& database);

// `steps` are all that have a row, which is read no second time.
absl::StatusOr<Chain> ReadChain(const kv::Database& database,
                                absl::StatusOr<ChainLinks> links,
                                std::span<const StepRecordPtr> steps);

// All of it from the rows.
absl::StatusOr<Chain> ReadChain(const kv::Database& database);

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_COLLECT_CHAIN_ROWS_H_
