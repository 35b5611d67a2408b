// SPDX-License-Identifier: Apache-2.0

// Reads chunks and compares them with their digests and statistics.

#ifndef CKPTREE_CORE_VERIFY_CHUNK_CHECK_H_
#define CKPTREE_CORE_VERIFY_CHUNK_CHECK_H_

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/verify/verify_walk.h"
#include "kv/database.h"

namespace ckptree::internal {

struct ChunkCheckOptions {
  // Only chunks of versions above this one: the base's were checked with it.
  std::uint64_t above = 0;
  bool statistics = false;  // Recompute them as well.
  // Whether those that are elsewhere are read, too: asked once the first of
  // them is met, on the thread that calls. Null: they are.
  std::function<bool()> far = {};
  // Where the object store that one is in does not answer: OK goes on with the
  // others. One call at a time. Null: that ends it.
  std::function<absl::Status(const absl::Status& why)> on_silence = {};
  // Called before blocks are read, with the key of one in `chunks`: makes what
  // follows ready, and returns the first key that is not; empty: all are. Null:
  // nothing. An error stops it.
  std::function<absl::StatusOr<std::string>(std::string_view key)> reach = {};
  // Called between blocks, on the thread that calls, with the bytes that were
  // read so far: an error stops it. Null: nothing.
  std::function<absl::Status(std::uint64_t bytes)> between = {};
};

// Checks every slice that the leaves of `part` refer to, each block read once,
// in parallel (runs in a TBB arena). Adds to the report's counts; damage goes
// to `damage`, which no other call may use until this one returns.
absl::Status CheckChunks(const kv::Database& database, const BasePart& part,
                         const ChunkCheckOptions& options, VerifyReport* report,
                         Damage* damage);

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_VERIFY_CHUNK_CHECK_H_
