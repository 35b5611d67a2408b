// Database::Commit. The steps:
//
//   1. The handle is alive and the store still ours.
//   2. The preconditions hold.
//   3. `before`, unsynced: the log keeps order, so step 4 syncs them too.
//   4. One batch with the commit record, synced.
//   5. HEAD. Now the commit is acknowledged.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "kv/commit_chain.h"
#include "kv/commit_log.h"
#include "kv/database.h"
#include "kv/database_impl.h"
#include "kv/hash.h"
#include "kv/head.h"
#include "kv/instance.h"
#include "kv/status.h"
#include "rocksdb/db.h"
#include "rocksdb/options.h"
#include "rocksdb/write_batch.h"
#include "schema/spaces.h"

namespace ckptree::kv {
namespace {

// Far above every batch the engine makes; RocksDB's own lengths are 32 bits.
constexpr std::size_t kMaxBatchBytes = std::size_t{256} << 20;
// Records trimmed by one commit, so that no commit pays for many.
constexpr std::uint64_t kMaxTrimmed = 8;

CommitResult Failed(Outcome outcome, absl::Status status) {
  return {.outcome = outcome, .ordinal = 0, .status = std::move(status)};
}

absl::Status Validate(const WriteBatch& batch) {
  if (batch.bytes() > kMaxBatchBytes) {
    return absl::InvalidArgumentError(
        absl::StrFormat("a batch has %d bytes; at most %d are possible",
                        batch.bytes(), kMaxBatchBytes));
  }
  for (const WriteBatch::Operation& operation : batch.operations()) {
    if (operation.space != schema::Space::kRecords &&
        operation.space != schema::Space::kSmall) {
      return absl::InvalidArgumentError(
          "a batch writes to `records` and `small` only");
    }
    if (operation.space == schema::Space::kRecords &&
        operation.key.starts_with(
            static_cast<char>(schema::Row::kCommit))) {
      return absl::InvalidArgumentError("commit records are kv's own");
    }
  }
  return absl::OkStatus();
}

absl::Status Validate(const CommitRequest& request) {
  if (absl::Status status = Validate(request.batch); !status.ok()) {
    return status;
  }
  for (const WriteBatch& batch : request.before) {
    if (absl::Status status = Validate(batch); !status.ok()) return status;
  }
  return absl::OkStatus();
}

rocksdb::Status Fill(const Instance& instance, const WriteBatch& from,
                     rocksdb::WriteBatch* to) {
  for (const WriteBatch::Operation& operation : from.operations()) {
    rocksdb::ColumnFamilyHandle* const family =
        instance.family(operation.space);
    const rocksdb::Status status =
        operation.value.has_value()
            ? to->Put(family, operation.key, *operation.value)
            : to->Delete(family, operation.key);
    if (!status.ok()) return status;
  }
  return rocksdb::Status::OK();
}

absl::StatusOr<bool> Holds(const Instance& instance,
                           const Precondition& precondition) {
  const absl::StatusOr<std::optional<std::string>> found =
      instance.Get(precondition.space, precondition.key);
  if (!found.ok()) return found.status();
  return *found == precondition.expected;
}

}  // namespace

CommitResult Database::Impl::WriteCommit(Instance& writer,
                                         CommitRequest request,
                                         std::string* record_bytes) {
  // Step 3.
  rocksdb::WriteOptions unsynced;
  for (const WriteBatch& before : request.before) {
    rocksdb::WriteBatch batch;
    rocksdb::Status status = Fill(writer, before, &batch);
    if (status.ok()) status = writer.db()->Write(unsynced, &batch);
    if (!status.ok()) {
      watcher->Fail(ToStatus(status, "writing before a commit failed"));
      // The commit record was not written, so the commit is surely not there.
      return Failed(Outcome::kFailed, watcher->health());
    }
  }

  // Step 4.
  CommitRecord record;
  record.ordinal = tip.ordinal + 1;
  record.kind = request.kind;
  record.version = request.version;
  record.small = request.small;
  record.small_safe = watcher->small_safe();
  record.previous = tip.hash;
  record.batch = HashOfBatch(request.batch);
  record.engine = CKPTREE_VERSION;
  *record_bytes = EncodeCommitRecord(record);

  rocksdb::WriteBatch batch(request.batch.bytes() + 4096);
  rocksdb::ColumnFamilyHandle* const records =
      writer.family(schema::Space::kRecords);
  rocksdb::Status filled = Fill(writer, request.batch, &batch);
  if (filled.ok()) {
    filled = batch.Put(records, CommitRecordKey(record.ordinal), *record_bytes);
  }
  const std::uint64_t flushed = watcher->flushed();
  std::uint64_t oldest = oldest_ordinal;
  for (std::uint64_t i = 0; i < kMaxTrimmed && filled.ok() &&
                            oldest + kKeptCommits <= flushed;
       ++i) {
    filled = batch.Delete(records, CommitRecordKey(oldest++));
  }
  if (!filled.ok()) {
    return Failed(Outcome::kFailed, ToStatus(filled, "building the batch"));
  }

  // The watcher must know before a flush can carry the batch away.
  watcher->Expect(record.ordinal, record.small,
                  writer.db()->GetLatestSequenceNumber() + 1);
  rocksdb::WriteOptions synced;
  synced.sync = true;
  const rocksdb::Status written = writer.db()->Write(synced, &batch);
  if (!written.ok()) {
    watcher->Fail(
        ToStatus(written,
                 absl::StrFormat(
                     "commit %d: writing failed, it may or may not be there",
                     record.ordinal)));
    return Failed(Outcome::kUnknown, watcher->health());
  }
  tip = {.ordinal = record.ordinal, .hash = HashOf(*record_bytes)};
  oldest_ordinal = oldest;
  return {.outcome = Outcome::kCommitted,
          .ordinal = record.ordinal,
          .status = absl::OkStatus()};
}

CommitResult Database::Commit(CommitRequest request) {
  Impl& impl = *impl_;
  if (absl::Status status = impl.mark.Check(); !status.ok()) {
    return Failed(Outcome::kFenced, std::move(status));
  }
  if (absl::Status status = Validate(request); !status.ok()) {
    return Failed(Outcome::kFailed, std::move(status));
  }
  // Held over I/O: commits are one after the other, in the order of the chain.
  const absl::MutexLock lock(&impl.commit_mutex);

  // Step 1.
  const absl::StatusOr<std::shared_ptr<Instance>> instance = impl.Writing();
  if (!instance.ok()) return Failed(Outcome::kFailed, instance.status());
  if (absl::Status status = impl.lock->Check(); !status.ok()) {
    return Failed(Outcome::kFenced, std::move(status));
  }

  // Step 2.
  for (const Precondition& precondition : request.preconditions) {
    const absl::StatusOr<bool> holds = Holds(**instance, precondition);
    if (!holds.ok()) return Failed(Outcome::kFailed, holds.status());
    if (!*holds) {
      return Failed(Outcome::kConflict,
                    absl::AbortedError("a precondition does not hold"));
    }
  }

  const std::uint64_t version = request.version;
  std::string record;
  CommitResult result =
      impl.WriteCommit(**instance, std::move(request), &record);
  if (result.outcome != Outcome::kCommitted) return result;

  // Step 5.
  HeadSlot slot = impl.head->slot();
  slot.ordinal = impl.tip.ordinal;
  slot.hash = impl.tip.hash;
  slot.version_ceiling = std::max(slot.version_ceiling, version);
  const absl::Status acknowledged = impl.head->Write(slot);
  if (!acknowledged.ok()) {
    impl.watcher->Fail(absl::Status(
        acknowledged.code(),
        absl::StrFormat("commit %d: acknowledging it failed: %s",
                        result.ordinal, acknowledged.message())));
    return Failed(Outcome::kUnknown, impl.watcher->health());
  }
  return result;
}

}  // namespace ckptree::kv
