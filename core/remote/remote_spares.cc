// SPDX-License-Identifier: Apache-2.0

#include "core/remote/remote_spares.h"

#include <filesystem>
#include <functional>
#include <iterator>
#include <string>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "base/status_macros.h"
#include "core/remote/remote_objects.h"
#include "core/remote/segment_upload.h"
#include "kv/conditional_put.h"
#include "kv/monotonic.h"
#include "kv/store_directory.h"
#include "schema/keys.h"
#include "schema/spaces.h"

namespace ckptree::internal {
namespace {

constexpr char kStaging[] = "spare";
// A restore asks for each block by itself, and must not wait for each.
constexpr absl::Duration kBetweenTries = absl::Minutes(1);

std::string NameOf(const schema::RemoteLiving& living) {
  return schema::DescribeKey(schema::Space::kRecords,
                             schema::SegmentKey(living.segment.segment));
}

}  // namespace

void RemoteSpares::Know(const schema::RemoteLiving& living) {
  const schema::RemoteSegment& segment = living.segment;
  if (segment.segment.space != schema::Space::kChunks) return;
  schema::RemoteLiving& known =
      known_[schema::SegmentHeaderKey(segment.segment)];
  known.era = living.era;
  known.segment.segment = segment.segment;
  known.segment.attempt = segment.attempt;
  known.segment.bytes = segment.bytes;
  known.segment.digest = segment.digest;
}

void RemoteSpares::Begin(kv::Database* database, const std::string& uuid,
                         const Logger* logger, const LivingSegments& all) {
  const absl::MutexLock lock(&mutex_);
  database_ = database;
  uuid_ = uuid;
  logger_ = logger;
  for (const auto& [key, living] : all) Know(living);
}

void RemoteSpares::Follow(const LivingSegments& all,
                          const std::vector<schema::RemoteRow>& rows) {
  const absl::MutexLock lock(&mutex_);
  for (const schema::RemoteRow& row : rows) {
    if (row.space != schema::Space::kRecords) continue;
    const auto fields = schema::DecodeSegmentKey(row.key);
    if (!fields.has_value()) continue;
    if (const auto found = all.find(row.key); found != all.end()) {
      Know(found->second);
    } else {
      known_.erase(schema::SegmentHeaderKey(*fields));
    }
  }
}

void RemoteSpares::Note(const schema::RemoteLiving& living,
                        const absl::Status& fetched) {
  const absl::MutexLock lock(&mutex_);
  if (!fetched.ok()) {
    failed_[living.segment.attempt] = {
        fetched, absl::IsDataLoss(fetched)
                     ? absl::InfiniteFuture()
                     : kv::MonotonicNow() + kBetweenTries};
  }
  if (!told_.insert(living.segment.attempt).second) return;
  if (fetched.ok()) {
    logger_->Log(
        LogSeverity::kWarning, "remote",
        absl::StrFormat("a part of %s cannot be read in %s, and is "
                        "read in %s: `ckptree verify` names the file",
                        NameOf(living), directory_, store_->address()));
    return;
  }
  logger_->Log(LogSeverity::kError, "remote",
               absl::StrFormat("a part of %s cannot be read in %s, nor is it "
                               "in %s: %s",
                               NameOf(living), directory_, store_->address(),
                               fetched.message()));
}

absl::StatusOr<kv::SpareSegments::Copy> RemoteSpares::Fetch(
    std::string_view key) {
  schema::RemoteLiving living;
  kv::Database* database = nullptr;
  std::string uuid;
  Copy copy;
  {
    const absl::MutexLock lock(&mutex_);
    const auto none = [] { return absl::NotFoundError("it was not shipped"); };
    const auto after = known_.upper_bound(key);
    if (after == known_.begin()) return none();
    living = std::prev(after)->second;
    copy.first_key = std::prev(after)->first;
    copy.last_key = schema::SegmentTableKey(living.segment.segment);
    if (key > copy.last_key) return none();
    if (const auto failed = failed_.find(living.segment.attempt);
        failed != failed_.end() && kv::MonotonicNow() < failed->second.until) {
      return failed->second.why;
    }
    database = database_;
    uuid = uuid_;
  }
  CKPTREE_RETURN_IF_ERROR(database->MakeStaging(kStaging));
  copy.path = kv::Join(kv::Join(database->staging_directory(), kStaging),
                       kv::NewWriteId() + ".sst");
  const absl::Status fetched =
      DownloadSegment(living.segment, living.era, uuid, copy.path, *store_,
                      /*cancelled=*/{});
  if (!fetched.ok()) {
    std::error_code error;
    std::filesystem::remove(copy.path, error);
  }
  Note(living, fetched);
  CKPTREE_RETURN_IF_ERROR(fetched);
  return copy;
}

}  // namespace ckptree::internal
