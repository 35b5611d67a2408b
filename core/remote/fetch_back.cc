// SPDX-License-Identifier: Apache-2.0

#include "core/remote/fetch_back.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "core/remote/segment_upload.h"
#include "core/version/open_check.h"
#include "kv/segment_writer.h"
#include "kv/store_directory.h"
#include "schema/keys.h"

namespace ckptree::internal {
namespace {

constexpr char kFetchedStaging[] = "fetched-back";

}  // namespace

absl::Status FetchSegment(kv::Database* database,
                          const schema::RemoteLiving& living,
                          const std::string& uuid, kv::ObjectStore& store,
                          const std::stop_token& cancelled) {
  const schema::SegmentKeyFields& fields = living.segment.segment;
  CKPTREE_RETURN_IF_ERROR(database->MakeStaging(kFetchedStaging));
  kv::StagedSegment segment;
  segment.space = fields.space;
  segment.path = kv::Join(
      kv::Join(database->staging_directory(), kFetchedStaging), "segment.sst");
  segment.first_key = schema::SegmentHeaderKey(fields);
  segment.last_key = schema::SegmentTableKey(fields);
  segment.file_bytes = living.segment.bytes;
  absl::Status status = DownloadSegment(living.segment, living.era, uuid,
                                        segment.path, store, cancelled);
  if (status.ok()) {
    // Files never overlap.
    status = database->Drop(fields.space,
                            {{segment.first_key, segment.last_key + '\0'}});
  }
  if (status.ok()) status = database->Adopt({segment});
  const absl::Status removed = database->RemoveStaging(kFetchedStaging);
  return status.ok() ? removed : status;
}

absl::StatusOr<FetchedBack> FetchMissing(kv::Database* database,
                                         const LivingSegments& living,
                                         const std::string& uuid,
                                         kv::ObjectStore& store,
                                         const std::stop_token& cancelled) {
  FetchedBack fetched;
  CKPTREE_ASSIGN_OR_RETURN(const std::vector<std::string> missing,
                           MissingSegments(*database));
  for (const std::string& row_key : missing) {
    if (cancelled.stop_requested()) break;
    const auto there = living.find(row_key);
    absl::Status status =
        there == living.end()
            ? absl::NotFoundError("it was not shipped")
            : FetchSegment(database, there->second, uuid, store, cancelled);
    if (status.ok()) {
      ++fetched.segments;
      fetched.bytes += there->second.segment.bytes;
      continue;
    }
    fetched.failed.push_back(absl::StrFormat(
        "%s: %s", schema::DescribeKey(schema::Space::kRecords, row_key),
        status.message()));
  }
  return fetched;
}

}  // namespace ckptree::internal
