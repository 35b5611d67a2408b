// SPDX-License-Identifier: Apache-2.0

// Of a replicator: what is done behind a ship. What nothing needs any more
// goes, there and here, and what is lost there is noticed.

#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/status_macros.h"
#include "core/process/commit_status.h"
#include "core/process/guarded_call.h"
#include "core/remote/cleaner.h"
#include "core/remote/remote_objects.h"
#include "core/remote/replicator.h"
#include "kv/commit_kind.h"
#include "kv/database.h"
#include "schema/keys.h"
#include "schema/remote_record.h"

namespace ckptree::internal {

using schema::RemoteCommit;
using schema::Space;

namespace {

// Of a pass of deletion, which may list all objects.
constexpr absl::Duration kCleanTime = absl::Minutes(10);

}  // namespace

// Of a store that somebody took over nothing leaves the disk: what is deleted
// there then is nobody's word here.
absl::Status Replicator::LookAtEnd(const kv::Call& call) {
  CKPTREE_RETURN_IF_ERROR(ReadOn(call));
  CKPTREE_RETURN_IF_ERROR(chain_->fenced());
  // A folder that was made anew below its mount point has no end, either, but
  // never has what was there before.
  CKPTREE_ASSIGN_OR_RETURN(
      const std::optional<kv::ObjectInfo> opened,
      store_->Head(RemoteCommitName(uuid_, chain_->era()), call));
  if (opened.has_value()) return absl::OkStatus();
  return absl::UnavailableError(absl::StrFormat(
      "%s has no longer what was there when %s was opened: is its file system "
      "mounted? Nothing leaves the disk",
      store_->address(), directory_));
}

void Replicator::LetGo(const std::stop_token& stop) {
  keep_due_ = false;
  if (!cleaner_->looked()) Clean(stop);
  // The list of this open, and no commit of which nobody knows.
  if (!cleaner_->looked() || chain_->pending()) return;
  std::vector<std::string> lost;
  const absl::Status kept = GuardedStatus("local_keep", [&] {
    return local_keep_->Run(index_->segments(), lost_, stop, &lost);
  });
  if (!kept.ok() && !stop.stop_requested()) {
    logger_->Log(LogSeverity::kWarning, "remote", kept);
  }
  NoteLost(lost);
}

// What it does not get done is done later.
void Replicator::Clean(const std::stop_token& stop) {
  const auto warn = [&](const absl::Status& status) {
    if (status.ok() || stop.stop_requested()) return;
    logger_->Log(LogSeverity::kWarning, "remote", status);
  };
  if (!cleaner_->looked()) {
    warn(cleaner_->Look(index_.get(), kv::Call::Within(kCleanTime, stop)));
    NoteLost(cleaner_->TakeLost());
    LookEnded();
    // What is lost comes before what is to go.
    if (backlog() > 0) return;
  }
  // Not by a commit of which nobody knows.
  if (chain_->pending()) return;
  const kv::Call call = kv::Call::Within(kCleanTime, stop);
  warn(cleaner_->Clean(index_.get(), call, [&] { return LookAtEnd(call); }));
}

void Replicator::LookEnded() {
  const absl::MutexLock lock(&mu_);
  looking_ = false;
}

void Replicator::NoteLost(const std::vector<std::string>& lost) {
  std::vector<std::string> here;
  std::vector<std::string> nowhere;
  for (const std::string& key : lost) {
    const auto fields = schema::DecodeSegmentKey(key);
    const bool left = fields.has_value() && fields->space == Space::kChunks &&
                      !database_->IsHere(schema::SegmentTableKey(*fields));
    (left ? nowhere : here).push_back(key);
  }
  if (!nowhere.empty()) {
    logger_->Log(
        LogSeverity::kError, "remote",
        absl::StrFormat("%s: %d segments are gone, or have another size, which "
                        "are not in %s either (%s): what needs them cannot be "
                        "read; `ckptree verify` names it",
                        address(), nowhere.size(), directory_,
                        schema::DescribeKey(Space::kRecords, nowhere.front())));
  }
  if (here.empty()) return;
  {
    const absl::MutexLock lock(&mu_);
    for (const std::string& key : here) {
      lost_.insert(key);
      changed_.emplace(Space::kRecords, key);
    }
  }
  // A ship is of local commits, so one is made, which changes nothing: a job
  // that saves no more would leave the loss to the next one, and so would that.
  kv::CommitRequest request;
  request.kind = kv::CommitKind::kCollect;
  const kv::CommitResult made = database_->Commit(std::move(request));
  const absl::Status committed = CommitStatus(made, "a note of what is lost");
  if (committed.ok()) {
    const absl::MutexLock lock(&mu_);
    again_ = made.ordinal;
  }
  logger_->Log(
      LogSeverity::kError, "remote",
      absl::StrFormat(
          "%s: %d segments that steps need are missing or have "
          "another size (%s): somebody deleted or cut them. They "
          "are uploaded again from %s, %s",
          address(), here.size(),
          schema::DescribeKey(Space::kRecords, here.front()), directory_,
          committed.ok()
              ? "now: closing the store waits for it"
              : absl::StrCat("with the next save: ", committed.message())));
}

}  // namespace ckptree::internal
