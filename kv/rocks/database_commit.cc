// SPDX-License-Identifier: Apache-2.0

// Database::Commit. The steps:
//
//   1. The handle is alive and the store still ours.
//   2. The preconditions hold.
//   3. `before`, each a commit of its own.
//   4. One record, synced in the first copy of the journal, then in the second.
//   5. The index, in memory, then the note of the tip. Now it is acknowledged.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "base/digest.h"
#include "base/status_macros.h"
#include "kv/database.h"
#include "kv/files/status.h"
#include "kv/journal/keeper.h"
#include "kv/journal/record.h"
#include "kv/journal/reserve.h"
#include "kv/journal/writer.h"
#include "kv/near_rows.h"
#include "kv/rocks/caught_db.h"
#include "kv/rocks/database_impl.h"
#include "kv/rocks/instance.h"
#include "kv/rocks/marker.h"
#include "kv/wall_clock.h"
#include "rocksdb/db.h"
#include "rocksdb/iterator.h"
#include "rocksdb/options.h"
#include "rocksdb/slice.h"
#include "rocksdb/write_batch.h"
#include "schema/spaces.h"

namespace ckptree::kv {
namespace {

// Of a flush, beside the rows themselves: MANIFEST, footers, blocks half full.
constexpr std::uint64_t kFlushExtraBytes = std::uint64_t{256} << 10;
// Far above every batch the engine makes; lengths of values are 32 bits.
constexpr std::size_t kMaxBatchBytes = std::size_t{256} << 20;

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
    if (operation.key >= kEndOfRows) {
      return absl::InvalidArgumentError("keys from ff on are kv's own");
    }
  }
  return absl::OkStatus();
}

absl::Status Validate(const CommitRequest& request) {
  CKPTREE_RETURN_IF_ERROR(Validate(request.batch));
  for (const WriteBatch& batch : request.before) {
    CKPTREE_RETURN_IF_ERROR(Validate(batch));
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> Holds(const Database& database,
                           const Precondition& precondition) {
  CKPTREE_ASSIGN_OR_RETURN(const std::optional<std::string> found,
                           database.Get(precondition.space, precondition.key));
  return found == precondition.expected;
}

// All of them. A collection has one for each version that goes.
absl::StatusOr<bool> Hold(const Database& database,
                          const std::vector<Precondition>& preconditions) {
  constexpr std::size_t kMany = 8;
  std::vector<const Precondition*> near;
  for (const Precondition& precondition : preconditions) {
    if (precondition.space == schema::Space::kRecords &&
        preconditions.size() >= kMany) {
      near.push_back(&precondition);
      continue;
    }
    CKPTREE_ASSIGN_OR_RETURN(const bool holds, Holds(database, precondition));
    if (!holds) return false;
  }
  std::ranges::sort(near, {}, &Precondition::key);
  NearRows rows(database);
  for (const Precondition* precondition : near) {
    CKPTREE_ASSIGN_OR_RETURN(const std::optional<std::string_view> found,
                             rows.Find(precondition->key));
    if (found != precondition->expected) return false;
  }
  return true;
}

// What gives room back goes on where there is none.
bool Frees(CommitKind kind) {
  return kind != CommitKind::kSave && kind != CommitKind::kAhead &&
         kind != CommitKind::kCreate;
}

}  // namespace

CommitResult Database::Impl::WriteCommit(Instance& writer, CommitKind kind,
                                         std::uint64_t version,
                                         const WriteBatch& batch) {
  // The index would end the process behind the record.
  if (absl::Status clock = CheckClock(); !clock.ok()) {
    return Failed(Outcome::kFailed, std::move(clock));
  }
  if (!IsMemoryToWrite()) {
    return Failed(Outcome::kFailed, absl::ResourceExhaustedError(
                                        "there is no memory for a commit"));
  }
  EncodedBatch encoded = EncodeBatch(batch);
  std::vector<IndexChange> changes;
  changes.reserve(batch.operations().size());
  for (const WriteBatch::Operation& operation : batch.operations()) {
    changes.push_back({operation.space, operation.key, operation.value});
  }
  // Step 4. What is thrown from here on leaves a record that the rows in memory
  // lack: a later commit would hide that from the next open.
  absl::Cleanup abandon = [this] { watcher->Abandon(); };
  const JournalWriter::Appended appended =
      keeper->Append({.kind = kind,
                      .version = version,
                      .time_ns = absl::GetCurrentTimeNanos(),
                      .frees = Frees(kind)},
                     encoded);
  encoded = {};
  if (appended.result == JournalWriter::Result::kFailed) {
    std::move(abandon).Cancel();
    return Failed(Outcome::kFailed, appended.status);
  }
  if (appended.result == JournalWriter::Result::kUnknown) {
    watcher->Fail(
        absl::Status(appended.status.code(),
                     absl::StrFormat("a commit may or may not be there: %s",
                                     appended.status.message())));
    return Failed(Outcome::kUnknown, watcher->health());
  }
  // Step 5.
  const absl::Status applied = ApplyToIndex(writer, changes, appended.point);
  if (!applied.ok()) {
    watcher->Fail(absl::Status(
        applied.code(),
        absl::StrFormat("commit %d is durable, but not to be seen before the "
                        "store is opened again: %s",
                        appended.point.ordinal, applied.message())));
    return Failed(Outcome::kUnknown, watcher->health());
  }
  AddToOverlay(batch);
  keeper->Acknowledged();
  newest_ordinal = appended.point.ordinal;
  if (options.on_commit) {
    options.on_commit(appended.point.ordinal, version, batch);
  }
  std::move(abandon).Cancel();
  return {.outcome = Outcome::kCommitted,
          .ordinal = appended.point.ordinal,
          .status = absl::OkStatus()};
}

void Database::Impl::AddToOverlay(const WriteBatch& batch) {
  const absl::MutexLock hold(&instance_mutex);
  // Only where a read met a damaged index: then rows are in memory.
  if (overlay == nullptr) return;
  Overlay::Changes changes;
  for (const WriteBatch::Operation& operation : batch.operations()) {
    changes[{operation.space, operation.key}] = operation.value;
  }
  overlay = overlay->With(std::move(changes));
}

CommitResult Database::Commit(CommitRequest request) {
  Impl& impl = *impl_;
  if (absl::Status status = impl.mark.Check(); !status.ok()) {
    return Failed(Outcome::kFenced, std::move(status));
  }
  if (absl::Status status = Validate(request); !status.ok()) {
    return Failed(Outcome::kFailed, std::move(status));
  }
  if (impl.writable.load()) impl.keeper->WaitForRoom();
  // Held over I/O: commits are one after the other, in the order of the chain.
  const absl::MutexLock lock(&impl.commit_mutex);

  // Step 1.
  const absl::StatusOr<std::shared_ptr<Instance>> instance = impl.Writing();
  if (!instance.ok()) return Failed(Outcome::kFailed, instance.status());
  if (absl::Status status = impl.lock->Check(); !status.ok()) {
    return Failed(Outcome::kFenced, std::move(status));
  }

  // Step 2.
  const absl::StatusOr<bool> hold = Hold(*this, request.preconditions);
  if (!hold.ok()) return Failed(Outcome::kFailed, hold.status());
  if (!*hold) {
    return Failed(Outcome::kConflict,
                  absl::AbortedError("a precondition does not hold"));
  }

  // Step 3.
  for (const WriteBatch& before : request.before) {
    CommitResult ahead =
        impl.WriteCommit(**instance, CommitKind::kAhead, 0, before);
    if (ahead.outcome != Outcome::kCommitted) return ahead;
  }
  try {
    return impl.WriteCommit(**instance, request.kind, request.version,
                            request.batch);
  } catch (const std::bad_alloc&) {
    if (impl.watcher->health().ok()) throw;
    return Failed(Outcome::kUnknown, impl.watcher->health());
  }
}

absl::Status Database::BetweenCommits(
    absl::FunctionRef<absl::Status(std::uint64_t ordinal)> work) {
  Impl& impl = *impl_;
  CKPTREE_RETURN_IF_ERROR(impl.mark.Check());
  // Held over I/O: what `work` reads is of one commit.
  const absl::MutexLock lock(&impl.commit_mutex);
  return work(impl.newest_ordinal);
}

absl::Status Database::Secure() {
  Impl& impl = *impl_;
  CKPTREE_RETURN_IF_ERROR(impl.mark.Check());
  CKPTREE_RETURN_IF_ERROR(impl.Writing().status());
  CKPTREE_RETURN_IF_ERROR(impl.lock->Check());
  return impl.keeper->Secure();
}

absl::Status Database::WriteRows() {
  Impl& impl = *impl_;
  CKPTREE_RETURN_IF_ERROR(impl.mark.Check());
  CKPTREE_RETURN_IF_ERROR(impl.Writing().status());
  CKPTREE_RETURN_IF_ERROR(impl.lock->Check());
  return impl.keeper->WriteRows();
}

absl::Status Database::Impl::CheckRoom(std::uint64_t wanted,
                                       std::string_view what) const {
  // Where nobody can say, the disk will.
  const auto free = [this] { return FreeBytes().value_or(~std::uint64_t{0}); };
  if (free() >= wanted) return absl::OkStatus();
  if (GiveReserve(writer_options, directory) && free() >= wanted) {
    return absl::OkStatus();
  }
  return absl::ResourceExhaustedError(
      absl::StrFormat("%d bytes are free in %s, and %s may take %d", free(),
                      directory, what, wanted));
}

absl::Status Database::Impl::FlushIndex() {
  CKPTREE_ASSIGN_OR_RETURN(const std::shared_ptr<Instance> open, Writing());
  CKPTREE_RETURN_IF_ERROR(CheckClock());
  const absl::MutexLock one(&flush_mutex);
  for (const schema::Space space :
       {schema::Space::kRecords, schema::Space::kSmall}) {
    CKPTREE_RETURN_IF_ERROR(FlushSpace(*open, space));
  }
  return absl::OkStatus();
}

absl::Status Database::Impl::FlushSpace(Instance& open, schema::Space space) {
  std::uint64_t rows = 0;
  std::uint64_t bytes = 0;
  open.db()->GetIntProperty(open.family(space),
                            rocksdb::DB::Properties::kNumEntriesActiveMemTable,
                            &rows);
  open.db()->GetIntProperty(open.family(space),
                            rocksdb::DB::Properties::kCurSizeAllMemTables,
                            &bytes);
  bytes += kFlushExtraBytes;
  CKPTREE_RETURN_IF_ERROR(CheckRoom(bytes, "writing the index"));
  if (rows > 0) {
    const auto hold = [&] { return flush_room->Hold(writer_options, bytes); };
    absl::Status held = hold();
    if (!held.ok() && GiveReserve(writer_options, directory)) held = hold();
    CKPTREE_RETURN_IF_ERROR(held);
  }
  const absl::Status flushed =
      ToStatus(open.db()->Flush(rocksdb::FlushOptions(), open.family(space)),
               "writing the index");
  flush_room->LetGo(writer_options);
  return flushed;
}

absl::Status Database::Impl::KeepBlocks(const JournalBlocks& blocks) {
  CKPTREE_ASSIGN_OR_RETURN(const std::shared_ptr<Instance> open, Writing());
  rocksdb::ColumnFamilyHandle* const small =
      open->family(schema::Space::kSmall);
  rocksdb::ReadOptions reading;
  reading.fill_cache = false;
  // Its row is there, and not these bytes.
  const auto is_damaged = [&](const std::string& key,
                              std::string_view bytes) -> absl::StatusOr<bool> {
    rocksdb::PinnableSlice found;
    const rocksdb::Status status = open->db()->Get(reading, small, key, &found);
    if (status.IsMemoryLimit()) return ToReadStatus(status, "reading a block");
    return !status.IsNotFound() &&
           !(status.ok() && found.ToStringView() == bytes);
  };
  std::vector<std::string> damaged;
  std::size_t batch_bytes = 1024;
  for (const auto& [key, bytes] : blocks.whole) {
    CKPTREE_ASSIGN_OR_RETURN(const bool is, is_damaged(key, bytes));
    if (!is) continue;
    damaged.push_back(key);
    batch_bytes += RowBytesInBatch(key, bytes);
  }
  if (damaged.empty()) return absl::OkStatus();
  NoteIndexDamage(absl::StrFormat("blocks of version %d cannot be read",
                                  VersionOfKey(damaged.front())));
  CKPTREE_RETURN_IF_ERROR(CheckClock());
  rocksdb::WriteBatch batch(batch_bytes);
  {
    // Held over I/O: what a commit removes in between must stay removed.
    const absl::MutexLock hold(&commit_mutex);
    for (const std::string& key : damaged) {
      const std::string_view bytes = blocks.whole.at(key);
      CKPTREE_ASSIGN_OR_RETURN(const bool is, is_damaged(key, bytes));
      if (!is) continue;
      CKPTREE_RETURN_IF_ERROR(ToStatus(
          batch.Put(small, key, rocksdb::Slice(bytes.data(), bytes.size())),
          "writing a block again"));
    }
    rocksdb::WriteOptions writing;
    writing.disableWAL = true;
    CKPTREE_RETURN_IF_ERROR(
        ToStatus(open->db()->Write(writing, &batch), "writing blocks again"));
  }
  return FlushIndex();
}

absl::Status Database::Impl::ScanIndex(
    absl::FunctionRef<absl::Status(const ChainPoint&)> begin,
    absl::FunctionRef<absl::Status(const RowKey&, const RowValue&)> sink) {
  // Held over I/O: the rows are those of one commit.
  const absl::MutexLock hold(&commit_mutex);
  CKPTREE_ASSIGN_OR_RETURN(const std::shared_ptr<Instance> open, Reading());
  // The last commit may not be in the index of a handle that is dead.
  CKPTREE_RETURN_IF_ERROR(watcher->health());
  CKPTREE_RETURN_IF_ERROR(begin(keeper->tip()));
  for (const schema::Space space :
       {schema::Space::kRecords, schema::Space::kSmall}) {
    rocksdb::ReadOptions scanning;
    scanning.fill_cache = false;
    const rocksdb::Slice end(kEndOfRows);
    scanning.iterate_upper_bound = &end;
    const std::unique_ptr<rocksdb::Iterator> scan(
        open->db()->NewIterator(scanning, open->family(space)));
    for (scan->SeekToFirst(); scan->Valid(); scan->Next()) {
      const RowKey key{space, scan->key().ToString()};
      const std::string_view value = scan->value().ToStringView();
      CKPTREE_RETURN_IF_ERROR(
          IsBlockKey(key)
              ? sink(key, BlockName{value.size(), base::DigestOf(value)})
              : sink(key, std::string(value)));
    }
    CKPTREE_RETURN_IF_ERROR(ToStatus(scan->status(), "reading the index"));
  }
  return absl::OkStatus();
}

}  // namespace ckptree::kv
