// SPDX-License-Identifier: Apache-2.0

// History() for those who show it: a table of ten thousand values.

#ifndef CKPTREE_CORE_ENGINE_LEAF_PAST_H_
#define CKPTREE_CORE_ENGINE_LEAF_PAST_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/digest.h"
#include "ckptree/history.h"
#include "ckptree/path.h"
#include "ckptree/statistics.h"
#include "ckptree/step.h"
#include "ckptree/store.h"
#include "core/version/step_rows.h"
#include "schema/leaf_record.h"

namespace ckptree::internal {

// A HistoryEntry without what no table says, and so without memory of its own.
struct PastValue {
  std::int64_t first_step = 0;
  std::int64_t last_step = 0;
  std::uint64_t steps = 1;
  absl::Time begun = absl::UnixEpoch();
  const LeafInfo* leaf = nullptr;  // Many values share it. Never null.
  // The others as in LeafDetail.
  std::uint64_t bytes = 0;
  std::int64_t since_step = 0;
  std::optional<base::Digest> digest;  // Nothing of None.
  std::optional<Statistics> statistics;
  // Of how it is cut into boxes and chunks, or kCutByLength.
  std::uint64_t cut = 0;
};

// A value that is no array, in chunks of a length that is that of its store:
// equal ones need not be cut alike.
inline constexpr std::uint64_t kCutByLength = ~std::uint64_t{0};

// Set what a value is, but for its steps and its leaf.
void Describe(const schema::LeafRecord& record, PastValue* value);
void Describe(const LeafDetail& detail, PastValue* value);

struct LeafPast {
  std::vector<PastValue> values;
  std::vector<std::unique_ptr<const LeafInfo>> leaves;  // Of `values`.
  // Who keeps them keeps the store from freeing them one by one.
  std::vector<StepRecordPtr> steps;
};

// The same values as History() gives, and the same errors.
absl::StatusOr<LeafPast> PastOf(const Store& store, const Path& path,
                                const HistoryOptions& options);

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_ENGINE_LEAF_PAST_H_
