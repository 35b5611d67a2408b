// SPDX-License-Identifier: Apache-2.0

// Of a replicator: what has to be in the object store before a commit is.

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/digest.h"
#include "base/status_macros.h"
#include "core/process/disk_threads.h"
#include "core/process/guarded_call.h"
#include "core/remote/early_uploads.h"
#include "core/remote/remote_objects.h"
#include "core/remote/replicator.h"
#include "core/remote/segment_upload.h"
#include "core/version/open_check.h"
#include "schema/keys.h"
#include "schema/remote_record.h"

namespace ckptree::internal {

using schema::RemoteCommit;
using schema::RemoteRow;

namespace {

// More rows than that stand in objects of their own.
constexpr std::size_t kRowsInCommit = std::size_t{8} << 20;
constexpr std::size_t kRowsInObject = std::size_t{16} << 20;
// Segments, each of which has up to 64 MiB in memory.
constexpr std::size_t kUploadsAtOnce = 4;

std::size_t BytesOfRow(const RemoteRow& row) {
  return row.key.size() + (row.value.has_value() ? row.value->size() : 0) + 16;
}

}  // namespace

void Replicator::Built(const std::string& row_key, const std::string& path) {
  if (early_ != nullptr) early_->Add(row_key, path);
}

// What is lost there is looked for here; where it is not here either, as in a
// directory that was made of what is there, the rest goes on without. One that
// is being written again at this moment waits for the next open.
bool Replicator::IsLostHereToo(const absl::Status& why,
                               const std::string& key) const {
  return lost_.contains(key) && (absl::IsAborted(why) || absl::IsDataLoss(why));
}

void Replicator::NoteUploaded(const std::string& row_key,
                              schema::RemoteSegment segment) {
  const absl::MutexLock lock(&mu_);
  uploaded_[row_key] = std::move(segment);
}

// What is lost there since is uploaded from here.
std::optional<schema::RemoteSegment> Replicator::UploadedBefore(
    const std::string& row_key) const {
  if (lost_.contains(row_key)) return std::nullopt;
  const absl::MutexLock lock(&mu_);
  const auto found = uploaded_.find(row_key);
  if (found == uploaded_.end()) return std::nullopt;
  return found->second;
}

// Rule 6: all of it is answered before the commit is asked for.
absl::Status Replicator::Upload(const Round& round, const std::stop_token& stop,
                                RemoteCommit* commit) {
  if (!round.segments.empty()) {
    CKPTREE_ASSIGN_OR_RETURN(const std::vector<kv::LiveFile> files,
                             SortedLiveFiles(*database_));
    const std::size_t count = round.segments.size();
    const auto key_of = [&round](std::size_t i) {
      return schema::SegmentKey(round.segments[i]);
    };
    std::vector<absl::StatusOr<schema::RemoteSegment>> uploaded(
        count, absl::CancelledError("another segment was not uploaded"));
    std::atomic<std::size_t> next = 0;
    std::atomic<bool> failed = false;
    RunOnDiskThreads(std::min(kUploadsAtOnce, count), [&] {
      for (std::size_t i = next++; i < count && !failed; i = next++) {
        uploaded[i] = GuardedResult(
            "uploading", [&]() -> absl::StatusOr<schema::RemoteSegment> {
              if (auto there = UploadedBefore(key_of(i))) {
                return *std::move(there);
              }
              if (early_ != nullptr) {
                if (auto there = early_->Find(key_of(i), stop)) {
                  return *std::move(there);
                }
              }
              absl::StatusOr<schema::RemoteSegment> sent = UploadSegment(
                  *database_, kv_options_, files, round.segments[i],
                  chain_->era(), uuid_, *store_, stop);
              // Also where the others, or the commit, are not done now.
              if (sent.ok()) NoteUploaded(key_of(i), *sent);
              return sent;
            });
        if (!uploaded[i].ok() &&
            !IsLostHereToo(uploaded[i].status(), key_of(i))) {
          failed = true;
        }
      }
    });
    // What another thread left out says nothing.
    for (std::size_t i = 0; i < count; ++i) {
      const absl::Status& one = uploaded[i].status();
      if (!one.ok() && !absl::IsCancelled(one) &&
          !IsLostHereToo(one, key_of(i))) {
        return one;
      }
    }
    for (std::size_t i = 0; i < count; ++i) {
      if (!uploaded[i].ok() && IsLostHereToo(uploaded[i].status(), key_of(i))) {
        logger_->Log(LogSeverity::kError, "remote", uploaded[i].status());
        continue;
      }
      CKPTREE_RETURN_IF_ERROR(uploaded[i].status());
      commit->segments.push_back(*std::move(uploaded[i]));
    }
  }
  std::size_t bytes = 0;
  for (const RemoteRow& row : round.rows) bytes += BytesOfRow(row);
  if (bytes <= kRowsInCommit) {
    commit->rows = round.rows;
    return absl::OkStatus();
  }
  std::vector<RemoteRow> some;
  std::size_t have = 0;
  const auto put = [&]() -> absl::Status {
    const std::string object = schema::EncodeRemoteRows(some);
    schema::RemoteRowsObject about{NewRemoteId(), object.size(),
                                   base::DigestOf(object)};
    CKPTREE_RETURN_IF_ERROR(
        store_->Put(RemoteRowsName(uuid_, chain_->era(), about),
                    BytesOf(object), CallFor(object.size(), stop)));
    commit->rows_objects.push_back(std::move(about));
    some.clear();
    have = 0;
    return absl::OkStatus();
  };
  for (const RemoteRow& row : round.rows) {
    some.push_back(row);
    have += BytesOfRow(row);
    if (have >= kRowsInObject) CKPTREE_RETURN_IF_ERROR(put());
  }
  return some.empty() ? absl::OkStatus() : put();
}

}  // namespace ckptree::internal
