// SPDX-License-Identifier: Apache-2.0

// Segments that a directory lost, out of the object store that it ships to.

#ifndef CKPTREE_CORE_REMOTE_FETCH_BACK_H_
#define CKPTREE_CORE_REMOTE_FETCH_BACK_H_

#include <cstddef>
#include <cstdint>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/remote/mirror.h"
#include "kv/database.h"
#include "kv/object_store.h"

namespace ckptree::internal {

struct FetchedBack {
  std::size_t segments = 0;
  std::uint64_t bytes = 0;
  // Of those that stay away: why, one line each.
  std::vector<std::string> failed;
};

// Fetches one, and takes it in, as below.
absl::Status FetchSegment(kv::Database* database,
                          const schema::RemoteLiving& living,
                          const std::string& uuid, kv::ObjectStore& store,
                          const std::stop_token& cancelled);

// Fetches each segment that a row of `database` names and of which no file here
// has all, where `living`, what was uploaded to the store `uuid`, has it; it is
// compared with its digest before anything of it counts. What is left of its
// file goes first, and a crash between the two leaves it missing, as it was.
// Where one fails the others are fetched. REQUIRES: nobody else writes.
absl::StatusOr<FetchedBack> FetchMissing(kv::Database* database,
                                         const LivingSegments& living,
                                         const std::string& uuid,
                                         kv::ObjectStore& store,
                                         const std::stop_token& cancelled);

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_REMOTE_FETCH_BACK_H_
