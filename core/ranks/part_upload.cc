// SPDX-License-Identifier: Apache-2.0

#include "core/ranks/part_upload.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <functional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "base/status_macros.h"
#include "core/process/disk_threads.h"
#include "core/process/guarded_call.h"
#include "core/remote/segment_upload.h"
#include "core/save/block_sink.h"
#include "kv/file_system.h"
#include "schema/keys.h"
#include "schema/segment_record.h"

namespace ckptree::internal {
namespace {

// Segments, each of which is some requests at a time.
constexpr std::size_t kSegmentsAtOnce = 4;

// Calls `one` for each of `count`, some at a time, until one of them fails, or
// `check`; that ends the others, too.
absl::Status ForEachAtOnce(
    std::size_t count, const std::function<absl::Status()>& check,
    absl::FunctionRef<absl::Status(std::size_t i, std::stop_token stop)> one) {
  std::stop_source stop;
  std::atomic<std::size_t> next = 0;
  absl::Mutex mu;
  absl::Status first;
  RunOnDiskThreads(std::min(kSegmentsAtOnce, count), [&] {
    for (std::size_t i = next++; i < count && !stop.stop_requested();
         i = next++) {
      absl::Status status = check();
      if (status.ok()) {
        status = GuardedStatus("moving a segment",
                               [&] { return one(i, stop.get_token()); });
      }
      if (status.ok()) continue;
      const absl::MutexLock lock(&mu);
      if (!stop.stop_requested()) first = status;
      stop.request_stop();
    }
  });
  return first;
}

}  // namespace

absl::StatusOr<std::vector<schema::RemoteLiving>> UploadPart(
    const kv::Options& options, const PartResult& part,
    const RankRemote& remote, const std::function<absl::Status()>& check) {
  std::vector<schema::RemoteLiving> uploaded(part.segments.size());
  CKPTREE_RETURN_IF_ERROR(ForEachAtOnce(
      uploaded.size(), check,
      [&](std::size_t i, std::stop_token stop) -> absl::Status {
        const BuiltSegment& segment = part.segments[i];
        const auto fields = schema::DecodeSegmentKey(segment.row_key);
        if (!fields.has_value()) return absl::InternalError("a segment's key");
        CKPTREE_ASSIGN_OR_RETURN(
            uploaded[i].segment,
            UploadStaged(options, segment.staged.path, *fields, remote.era(),
                         remote.uuid(), remote.store(), std::move(stop)));
        uploaded[i].era = remote.era();
        return absl::OkStatus();
      }));
  return uploaded;
}

absl::Status FetchPart(const kv::Options& options,
                       const schema::PartHandoff& handoff,
                       const std::string& folder, const RankRemote& remote,
                       const std::function<absl::Status()>& check) {
  if (handoff.uploaded.size() != handoff.segments.size()) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "its segments were not uploaded to %s: has that rank the same options?",
        remote.store().address()));
  }
  if (handoff.uploaded.empty()) return absl::OkStatus();
  for (const schema::RemoteLiving& living : handoff.uploaded) {
    if (living.era == remote.era()) continue;
    return absl::FailedPreconditionError(absl::StrFormat(
        "its segments were uploaded in another era of %s: %d, not %d",
        remote.store().address(), living.era, remote.era()));
  }
  CKPTREE_RETURN_IF_ERROR(kv::MakeDirectory(options, folder));
  return ForEachAtOnce(
      handoff.uploaded.size(), check,
      [&](std::size_t i, std::stop_token stop) -> absl::Status {
        const schema::RemoteSegment& segment = handoff.uploaded[i].segment;
        const schema::SegmentKeyFields& fields = segment.segment;
        return DownloadSegment(
            segment, remote.era(), remote.uuid(),
            SegmentPath(folder, fields.space, fields.part, fields.builder),
            remote.store(), std::move(stop));
      });
}

}  // namespace ckptree::internal
