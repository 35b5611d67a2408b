// SPDX-License-Identifier: Apache-2.0

// Rows of steps: all of them, or those that somebody asks for.

#ifndef CKPTREE_CORE_VERSION_STEP_ROWS_H_
#define CKPTREE_CORE_VERSION_STEP_ROWS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/process/arena.h"
#include "kv/database.h"
#include "kv/iterator.h"
#include "schema/keys.h"
#include "schema/step_record.h"

namespace ckptree::internal {

using StepRecordPtr = std::shared_ptr<const schema::StepRecord>;
using StepsByNumber = std::map<std::int64_t, StepRecordPtr>;
using StepsByBranch = std::map<std::uint32_t, StepsByNumber>;

// The step whose row is `value`, under the key with `fields`. kDataLoss where
// it does not decode.
absl::StatusOr<StepRecordPtr> StepIn(
    const std::optional<schema::StepKeyFields>& fields, std::string_view value);

// The rows of steps as of the moment of Open(). To decode all of a long run
// takes a hundred times as long as to open its store, and most who open one ask
// for the newest steps alone, or for one.
//
// Confined to one thread at a time. Goes before the database.
class StepRows {
 public:
  static absl::StatusOr<StepRows> Open(const kv::Database& database);

  // Null: there is no such step. Not OK: ReadAll() tells what is wrong.
  absl::StatusOr<StepRecordPtr> Find(std::uint32_t branch, std::int64_t step);

  // The `count` steps of a branch with the highest numbers, ascending; fewer
  // where there are fewer. Not OK: as Find().
  absl::StatusOr<std::vector<StepRecordPtr>> Newest(std::uint32_t branch,
                                                    std::size_t count);

  // Rows that do not decode, by their keys: of each branch the highest number.
  using BadRows = std::map<std::uint32_t, std::int64_t>;

  // All rows. Those that do not decode are left out, and are among the
  // problems. Not OK: some were not seen. Where there are many it spreads over
  // `arena`, or over the one it is called in where that is null, and begins
  // there no other work.
  absl::Status ReadAll(std::vector<std::string>* problems, StepsByBranch* steps,
                       BadRows* bad, Arena* arena);

 private:
  explicit StepRows(kv::Iterator scan) : scan_(std::move(scan)) {}

  // Moves to the first step of `branch` from `step` on, and says which it is.
  absl::StatusOr<std::optional<std::int64_t>> Seek(std::uint32_t branch,
                                                   std::int64_t step);
  // The highest number, given the lowest one.
  absl::StatusOr<std::int64_t> Last(std::uint32_t branch, std::int64_t first);

  kv::Iterator scan_;
};

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_VERSION_STEP_ROWS_H_
