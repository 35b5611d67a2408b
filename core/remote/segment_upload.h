// SPDX-License-Identifier: Apache-2.0

// Segments of a store as objects.

#ifndef CKPTREE_CORE_REMOTE_SEGMENT_UPLOAD_H_
#define CKPTREE_CORE_REMOTE_SEGMENT_UPLOAD_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kv/database.h"
#include "kv/object_store.h"
#include "kv/options.h"
#include "schema/keys.h"
#include "schema/remote_record.h"

namespace ckptree::internal {

// How long a transfer of so many bytes may take: a minute, and one more for
// each 64 MiB.
kv::Call CallFor(std::uint64_t bytes, std::stop_token cancelled);

// Uploads the segment of `database` under its name of `era`. The file goes as
// it is where it is as it was built; one that was written again since is built
// once more, with the blocks that are left, in a folder of staging. kAborted:
// the segment is gone, or was written again since: look at its row again.
absl::StatusOr<schema::RemoteSegment> UploadSegment(
    kv::Database& database, const kv::Options& options,
    const std::vector<kv::LiveFile>& files,
    const schema::SegmentKeyFields& segment, std::uint64_t era,
    const std::string& uuid, kv::ObjectStore& store, std::stop_token cancelled);

// The same of a segment that no database has yet: `path` is its file, whole and
// as it was built. kAborted: it is not called that any more.
absl::StatusOr<schema::RemoteSegment> UploadStaged(
    const kv::Options& options, const std::string& path,
    const schema::SegmentKeyFields& segment, std::uint64_t era,
    const std::string& uuid, kv::ObjectStore& store, std::stop_token cancelled);

// Reads it, some requests at a time, and calls `take` with all bytes in order;
// kDataLoss where it is not what the commit says. An error of `take` ends it.
absl::Status ReadSegment(
    const schema::RemoteSegment& segment, std::uint64_t era,
    const std::string& uuid, kv::ObjectStore& store, std::stop_token cancelled,
    absl::FunctionRef<absl::Status(std::span<const std::byte> bytes)> take);

// The same, to compare it alone.
absl::Status CompareSegment(const schema::RemoteLiving& living,
                            const std::string& uuid, kv::ObjectStore& store,
                            std::stop_token cancelled);

// Downloads it to `path`, synced; errors as those of ReadSegment(), and those
// of the disk here, which `disk` has, too, unless it is null.
absl::Status DownloadSegment(const schema::RemoteSegment& segment,
                             std::uint64_t era, const std::string& uuid,
                             const std::string& path, kv::ObjectStore& store,
                             std::stop_token cancelled,
                             absl::Status* disk = nullptr);

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_REMOTE_SEGMENT_UPLOAD_H_
