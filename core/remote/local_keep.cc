// SPDX-License-Identifier: Apache-2.0

#include "core/remote/local_keep.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <ctime>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "core/process/applying.h"
#include "core/process/commit_status.h"
#include "core/remote/fetch_back.h"
#include "core/remote/needed_segments.h"
#include "core/remote/segment_upload.h"
#include "core/version/row_scan.h"
#include "core/version/store_features.h"
#include "kv/monotonic.h"
#include "kv/object_store.h"
#include "schema/keys.h"
#include "schema/remote_record.h"
#include "schema/spaces.h"

namespace ckptree::internal {
namespace {

using schema::Space;

// Of one look at the chain: what is compared behind it has to be read within
// the grace time.
constexpr std::size_t kFilesOfLook = 64;
constexpr std::uint64_t kBytesOfLook = std::uint64_t{1} << 30;
constexpr absl::Duration kLookTime = absl::Minutes(1);
// A round reads rows of all segments and dead lists: it is a small part of the
// time of the thread that ships.
constexpr int kPauseOfRound = 20;

// Counts while the machine sleeps, as the clock of the object store does.
absl::Time BootNow() {
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  return absl::TimeFromTimespec(now);
}

absl::Status CommitRows(kv::Database* database, kv::CommitRequest request) {
  request.kind = kv::CommitKind::kCollect;
  const kv::CommitResult result = database->Commit(std::move(request));
  // A collection was faster: the next round sees what it left.
  return CommitStatus(result, "which segments are elsewhere");
}

}  // namespace

absl::StatusOr<int> ForgetFarThatAreHere(kv::Database* database) {
  std::vector<std::string> keys;
  CKPTREE_RETURN_IF_ERROR(
      ScanRows(*database, schema::Row::kFar,
               [&](std::string_view key, std::string_view) -> absl::Status {
                 const auto fields = schema::DecodeFarKey(key);
                 // By its last record: a file is there as a whole, or not at
                 // all.
                 if (fields.has_value() &&
                     database->IsHere(schema::SegmentTableKey(*fields))) {
                   keys.emplace_back(key);
                 }
                 return absl::OkStatus();
               }));
  if (keys.empty()) return 0;
  kv::CommitRequest request;
  for (const std::string& key : keys) {
    request.batch.Delete(Space::kRecords, key);
  }
  CKPTREE_RETURN_IF_ERROR(CommitRows(database, std::move(request)));
  return static_cast<int>(keys.size());
}

absl::StatusOr<std::string> FarElsewhere(const kv::Database& database,
                                         const std::string& address) {
  std::string elsewhere;
  CKPTREE_RETURN_IF_ERROR(ScanRows(
      database, schema::Row::kFar,
      [&](std::string_view key, std::string_view value) -> absl::Status {
        const absl::StatusOr<schema::FarSegment> far =
            schema::DecodeFarSegment(value);
        if (!far.ok()) {
          return absl::DataLossError(absl::StrFormat(
              "%s: %s", schema::DescribeKey(Space::kRecords, key),
              far.status().message()));
        }
        if (kv::PlainAddress(far->address) != address) {
          elsewhere = far->address;
        }
        return absl::OkStatus();
      }));
  return elsewhere;
}

// What is in one file goes together.
struct LocalKeep::File {
  kv::LiveFile file;
  std::vector<schema::SegmentKeyFields> segments;
  bool stays = false;
};

LocalKeep::LocalKeep(Context context) : context_(std::move(context)) {}

absl::Status LocalKeep::Run(const LivingSegments& living,
                            const std::set<std::string>& lost,
                            const std::stop_token& stop,
                            std::vector<std::string>* found_lost) {
  const absl::Time begun = kv::MonotonicNow();
  CKPTREE_ASSIGN_OR_RETURN(const KeptVersions kept, context_.kept());
  // Before the lists: a row of a save since is in none of them.
  CKPTREE_ASSIGN_OR_RETURN(std::vector<ChunkSegment> segments,
                           ListChunkSegments(*context_.database));
  CKPTREE_ASSIGN_OR_RETURN(
      const SegmentNeeds needs,
      ReadSegmentNeeds(*context_.database, std::move(segments)));
  const std::vector<bool> needed = needs.NeededBy(kept);
  CKPTREE_ASSIGN_OR_RETURN(const std::vector<kv::LiveFile> live,
                           SortedLiveFiles(*context_.database));
  std::map<const kv::LiveFile*, File> files;
  std::vector<schema::SegmentKeyFields> wanted;
  for (std::size_t i = 0; i < needed.size(); ++i) {
    const ChunkSegment& segment = needs.segments()[i];
    const kv::LiveFile* const live_file = FileOfSegment(live, segment.key);
    if (live_file == nullptr) continue;
    if (live_file->far) {
      if (needed[i]) wanted.push_back(segment.key);
      continue;
    }
    File& file = files[live_file];
    file.file = *live_file;
    const std::string key = schema::SegmentKey(segment.key);
    file.stays |= needed[i] || !live_file->whole || segment.row.damaged ||
                  !living.contains(key) || lost.contains(key);
    file.segments.push_back(segment.key);
  }
  next_ = kv::MonotonicNow() + kPauseOfRound * (kv::MonotonicNow() - begun);
  absl::Status status = BringBack(wanted, stop);
  std::vector<File> some;
  std::uint64_t bytes = 0;
  const auto let_go = [&] {
    if (!some.empty() && !stop.stop_requested()) {
      status.Update(LetGo(std::move(some), living, stop, found_lost));
    }
    some.clear();
    bytes = 0;
  };
  for (auto& [live_file, file] : files) {
    if (file.stays) continue;
    bytes += file.file.bytes;
    some.push_back(std::move(file));
    if (some.size() == kFilesOfLook || bytes >= kBytesOfLook) let_go();
    if (!status.ok()) return status;
  }
  let_go();
  return status;
}

absl::Status LocalKeep::BringBack(
    const std::vector<schema::SegmentKeyFields>& segments,
    const std::stop_token& stop) {
  int back = 0;
  for (const schema::SegmentKeyFields& fields : segments) {
    if (stop.stop_requested()) break;
    CKPTREE_ASSIGN_OR_RETURN(
        const std::optional<std::string> value,
        context_.database->Get(Space::kRecords, schema::FarKey(fields)));
    if (!value.has_value()) continue;  // Collected since.
    CKPTREE_ASSIGN_OR_RETURN(const schema::FarSegment far,
                             schema::DecodeFarSegment(*value));
    absl::Status status;
    context_.alone([&] {
      status = FetchSegment(context_.database, far.living, context_.uuid,
                            *context_.store, stop);
      if (!status.ok()) return;
      // Where this is not reached an open finds the file, and does it.
      kv::CommitRequest request;
      request.batch.Delete(Space::kRecords, schema::FarKey(fields));
      request.preconditions.push_back(
          {Space::kRecords, schema::FarKey(fields), *value});
      status = CommitRows(context_.database, std::move(request));
      const Applying applying(*context_.database);
      context_.far_rows->Load();
    });
    // What is gone there, or damaged, keeps nothing else away.
    if (absl::IsDataLoss(status) || absl::IsNotFound(status)) {
      context_.logger->Log(
          LogSeverity::kError, "remote",
          absl::StrFormat(
              "%s is to be kept here, and does not come back from "
              "%s: %s",
              schema::DescribeKey(Space::kRecords, schema::SegmentKey(fields)),
              context_.store->address(), status.message()));
      continue;
    }
    if (!absl::IsAborted(status)) CKPTREE_RETURN_IF_ERROR(status);
    ++back;
  }
  if (back > 0) {
    context_.logger->Log(
        LogSeverity::kInfo, "remote",
        absl::StrFormat("%d segments came back to the disk from %s", back,
                        context_.store->address()));
  }
  return absl::OkStatus();
}

absl::Status LocalKeep::LetGo(std::vector<File> files,
                              const LivingSegments& living,
                              const std::stop_token& stop,
                              std::vector<std::string>* found_lost) {
  const absl::Time looked = BootNow();
  CKPTREE_RETURN_IF_ERROR(
      context_.look(kv::Call::Within(kLookTime, stop)));  // Rule c.
  for (File& file : files) {
    for (const schema::SegmentKeyFields& segment : file.segments) {
      const std::string key = schema::SegmentKey(segment);
      const schema::RemoteLiving& newest = living.at(key);
      const absl::Status read =
          CompareSegment(newest, context_.uuid, *context_.store, stop);
      if (absl::IsDataLoss(read)) {  // Rule d.
        found_lost->push_back(key);
        file.stays = true;
        continue;
      }
      CKPTREE_RETURN_IF_ERROR(read);
    }
  }
  std::erase_if(files, [](const File& file) { return file.stays; });
  if (files.empty()) return absl::OkStatus();
  CKPTREE_RETURN_IF_ERROR(AddFeature(context_.database, kRemoteFeature));
  absl::Status status;
  context_.alone([&] { status = Drop(files, living, looked); });
  return status;
}

absl::Status LocalKeep::Drop(const std::vector<File>& files,
                             const LivingSegments& living, absl::Time looked) {
  const std::string& address = context_.store->address();
  kv::CommitRequest request;
  for (const File& file : files) {
    for (const schema::SegmentKeyFields& segment : file.segments) {
      const std::string key = schema::SegmentKey(segment);
      CKPTREE_ASSIGN_OR_RETURN(std::optional<std::string> row,
                               context_.database->Get(Space::kRecords, key));
      // Collected since: the next round sees what is left.
      if (!row.has_value()) return absl::OkStatus();
      request.batch.Put(
          Space::kRecords, schema::FarKey(segment),
          schema::EncodeFarSegment({living.at(key), address}));  // Rule e.
      request.preconditions.push_back({Space::kRecords, key, std::move(row)});
    }
  }
  const absl::Status committed =
      CommitRows(context_.database, std::move(request));
  if (absl::IsAborted(committed)) return absl::OkStatus();
  CKPTREE_RETURN_IF_ERROR(committed);
  {
    const Applying applying(*context_.database);
    context_.far_rows->Load();
  }
  CKPTREE_RETURN_IF_ERROR(context_.database->Secure());  // Rule f.
  // What somebody removed since the look is deleted there the grace time later;
  // half of it is left for the drop and what clocks differ by.
  if (BootNow() - looked >= context_.grace / 2) return absl::OkStatus();
  std::vector<kv::Database::Range> ranges;
  std::uint64_t bytes = 0;
  std::size_t segments = 0;
  for (const File& file : files) {
    ranges.push_back({file.file.first_key, file.file.last_key + '\0'});
    bytes += file.file.bytes;
    segments += file.segments.size();
  }
  CKPTREE_RETURN_IF_ERROR(context_.database->Drop(Space::kChunks, ranges));
  context_.logger->Log(
      LogSeverity::kInfo, "remote",
      absl::StrFormat("%d segments (%d bytes) that no kept step needs left the "
                      "disk: they are in %s alone",
                      segments, bytes, address));
  return absl::OkStatus();
}

}  // namespace ckptree::internal
