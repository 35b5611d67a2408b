// SPDX-License-Identifier: Apache-2.0

// A segment that is fetched whole to be read: into a file, or into memory where
// the disk here takes none.

#ifndef CKPTREE_CORE_REMOTE_FETCHED_COPY_H_
#define CKPTREE_CORE_REMOTE_FETCHED_COPY_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kv/far_segments.h"
#include "kv/object_store.h"
#include "schema/remote_record.h"

namespace ckptree::internal {

// Of all copies in memory that this process has at a time.
inline constexpr std::uint64_t kMostCopiesInMemory = std::uint64_t{256} << 20;

// `path` is of a file that is not there; it goes once it is open. What the disk
// does not take is in memory, and has another path; where it is too much for
// that the error names the folder, and says what to do. All else is as
// DownloadSegment() has it. Nothing is left of what failed.
absl::StatusOr<kv::FarSegments::Copy> FetchCopy(
    const schema::RemoteLiving& living, const std::string& uuid,
    const std::string& path, kv::ObjectStore& store);

// That nothing can be kept in a folder of the cache, and what to do.
absl::Status NoRoomInCache(const std::string& folder, const absl::Status& why);

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_REMOTE_FETCHED_COPY_H_
