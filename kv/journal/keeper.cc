// SPDX-License-Identifier: Apache-2.0

#include "kv/journal/keeper.h"

#include <algorithm>
#include <new>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "base/guarded_result.h"
#include "base/status_macros.h"
#include "kv/file_system.h"
#include "kv/journal/reserve.h"
#include "kv/monotonic.h"
#include "kv/store_directory.h"
#include "kv/timed_wait.h"

namespace ckptree::kv {
namespace {

constexpr absl::Duration kSyncEvery = absl::Seconds(1);
constexpr absl::Duration kTryAgainAfter = absl::Seconds(5);
// Of records and their blocks behind the file of all rows, and behind the last
// flush of the index: what a reader or an open reads.
constexpr std::uint64_t kMostBehind = std::uint64_t{16} << 20;
// The index is flushed here alone, and not by RocksDB, which would end the
// handle where a full disk has no room for it. So the tables of small saves
// have this size.
constexpr std::uint64_t kFlushBytes = std::uint64_t{8} << 20;
// A closed store keeps at most this.
constexpr std::uint64_t kMostWhenClosed = std::uint64_t{8} << 20;
// And so many files, as each open looks into all of them; more where the file
// of all rows is so large that it takes longer to write it again.
constexpr std::uint64_t kMostFilesWhenClosed = 64;
constexpr std::uint64_t kRowsBytesOfFile = std::uint64_t{4} << 20;
// Of the first file of a session: most commands make one commit.
constexpr std::uint64_t kFirstFileBytes =
    kJournalReserveBytes + (std::uint64_t{256} << 10);

}  // namespace

JournalKeeper::JournalKeeper(KeeperContext context)
    : last_(std::exchange(context.last, std::nullopt)),
      context_(std::move(context)) {
  const absl::MutexLock lock(&mutex_);
  rows_ = context_.rows;
  bytes_since_rows_ = context_.journal_bytes;
  older_files_ = context_.journal_files;
  unsealed_ = last_.has_value() && !context_.sealed;
  mend_ = context_.mend || unsealed_;
}

JournalKeeper::~JournalKeeper() = default;

std::uint64_t JournalKeeper::file() const {
  const absl::MutexLock lock(&mutex_);
  return file_;
}

void JournalKeeper::Warn(const absl::Status& status) const {
  if (status.ok() || !context_.options.log) return;
  const auto text = status.message().empty() ? "no memory" : status.message();
  try {
    context_.options.log(Severity::kWarning,
                         absl::StrCat("the journal: ", text));
  } catch (const std::bad_alloc&) {
  }
}

absl::Status JournalKeeper::Begin() {
  const absl::MutexLock lock(&appending_);
  return BeginLocked();
}

absl::Status JournalKeeper::BeginLocked() {
  if (writer_ != nullptr) {
    // There may have been no thread to be had.
    const absl::MutexLock lock(&mutex_);
    StartThread();
    return absl::OkStatus();
  }
  JournalWriter::Start start;
  start.preface = context_.preface;
  start.tip = context_.tip;
  start.file = context_.next_file;
  start.file_bytes = context_.options.journal_file_bytes;
  start.first_file_bytes =
      start.file_bytes != 0 ? start.file_bytes : kFirstFileBytes;
  const JournalRecord* const last = last_.has_value() ? &*last_ : nullptr;
  const auto create = [&] {
    return JournalWriter::Create(context_.options, context_.directory, start,
                                 last);
  };
  absl::StatusOr<std::unique_ptr<JournalWriter>> made = create();
  if (absl::IsResourceExhausted(made.status()) &&
      GiveReserve(context_.options, context_.directory)) {
    made = create();
  }
  if (absl::IsResourceExhausted(made.status())) {
    // What is removed needs no more; it makes room.
    start.least = true;
    made = create();
  }
  CKPTREE_RETURN_IF_ERROR(made.status());
  // What a killed process left may be in the page cache alone, and what follows
  // is built on its second copy, too.
  if (last_.has_value()) {
    CKPTREE_RETURN_IF_ERROR(SyncFile(
        context_.options, Join(Join(context_.directory, kJournalName),
                               JournalFileName(Copy::kB, last_->file))));
  }
  writer_ = *std::move(made);
  last_.reset();  // It holds the bytes of both its files.
  const absl::MutexLock lock(&mutex_);
  file_ = writer_->file();
  begun_ = true;
  StartThread();
  return absl::OkStatus();
}

void JournalKeeper::StartThread() {
  if (!begun_ || !ready_ || stopping_ || thread_.joinable()) return;
  thread_ = std::thread([this] { Loop(); });
}

void JournalKeeper::Ready() {
  const absl::MutexLock lock(&mutex_);
  ready_ = true;
  StartThread();
}

JournalWriter::Appended JournalKeeper::Append(
    const JournalWriter::Commit& commit, const EncodedBatch& batch) {
  const absl::MutexLock lock(&appending_);
  if (absl::Status status = BeginLocked(); !status.ok()) {
    return {JournalWriter::Result::kFailed, std::move(status), {}};
  }
  const std::uint64_t before = writer_->bytes_written();
  JournalWriter::Appended done = writer_->Append(commit, batch);
  if (done.result != JournalWriter::Result::kDurable) return done;
  const std::uint64_t bytes = writer_->bytes_written() - before;
  const absl::Status second = writer_->second_copy();
  const absl::MutexLock state(&mutex_);
  if (!second.ok() && !mend_) {
    Warn(second);
    mend_ = true;
  }
  if (file_ != writer_->file()) bytes_in_file_ = 0;
  file_ = writer_->file();
  bytes_in_file_ += bytes;
  bytes_since_rows_ += bytes;
  bytes_since_flush_ += bytes;
  NoteUnsynced();
  return done;
}

void JournalKeeper::Acknowledged() {
  bool is_alone = false;
  {
    const absl::MutexLock lock(&appending_);
    is_alone = !writer_->CurrentSecond().ok();
  }
  // As on a full disk, where the flush gives the reserve up.
  if (is_alone) Warn(context_.flush());
  const absl::MutexLock lock(&appending_);
  writer_->NoteTip();
  // The note is synced with the second copy, which may have been since.
  const absl::MutexLock state(&mutex_);
  NoteUnsynced();
}

void JournalKeeper::NoteUnsynced() {
  if (unsynced_since_ == absl::InfiniteFuture()) {
    unsynced_since_ = MonotonicNow();
  }
}

ChainPoint JournalKeeper::tip() const {
  const absl::MutexLock lock(&appending_);
  return writer_ == nullptr ? context_.tip : writer_->tip();
}

absl::Status JournalKeeper::Secure() {
  JournalWriter* writer = nullptr;
  {
    const absl::MutexLock lock(&appending_);
    CKPTREE_RETURN_IF_ERROR(BeginLocked());
    writer = writer_.get();
  }
  bool index_is_second = false;
  {
    const absl::MutexLock lock(&mutex_);
    unsynced_since_ = absl::InfiniteFuture();
    index_is_second = mend_ || unsealed_;
  }
  // Where a second copy failed, or a crash may have kept it short, the index is
  // the second place.
  if (writer->SyncSecond().ok() && !index_is_second) return absl::OkStatus();
  return context_.flush();
}

std::uint64_t JournalKeeper::RowsLimit() const {
  const std::uint64_t most = context_.options.journal_rows_bytes != 0
                                 ? context_.options.journal_rows_bytes
                                 : kMostBehind;
  return std::max(most, rows_.bytes);
}

bool JournalKeeper::IsBehind() const {
  return mend_ || bytes_since_rows_ > kMostWhenClosed ||
         older_files_ >=
             std::max(kMostFilesWhenClosed, rows_.bytes / kRowsBytesOfFile);
}

bool JournalKeeper::HasWork() const {
  if (stopping_ || WantsFlush()) return true;
  return (RowsAreDue() || WantsNext()) && MonotonicNow() >= not_before_;
}

bool JournalKeeper::HasWorkOrCommit() const {
  return unsynced_since_ != absl::InfiniteFuture() || HasWork();
}

absl::Time JournalKeeper::Due() const {
  const std::int64_t every = context_.options.journal_sync_ms;
  absl::Time due =
      unsynced_since_ + (every == 0 ? kSyncEvery : absl::Milliseconds(every));
  const absl::Time now = MonotonicNow();
  for (const absl::Time again : {not_before_, flush_not_before_}) {
    if (again > now) due = std::min(due, again);
  }
  return due;
}

// Only the first commit behind a sync wakes the thread, for then it is known
// when the next one is due; those behind it cost what they did.
void JournalKeeper::WaitForWork() {
  while (!HasWork()) {
    const bool idle = unsynced_since_ == absl::InfiniteFuture();
    const absl::Time due = Due();
    if (due <= MonotonicNow()) return;
    AwaitUntil(mutex_,
               absl::Condition(this, idle ? &JournalKeeper::HasWorkOrCommit
                                          : &JournalKeeper::HasWork),
               due);
  }
}

bool JournalKeeper::RowsAreDue() const {
  return mend_ || bytes_since_rows_ > RowsLimit();
}

bool JournalKeeper::WantsFlush() const {
  return bytes_since_flush_ > kFlushBytes &&
         MonotonicNow() >= flush_not_before_;
}

bool JournalKeeper::HasRoom() const {
  const absl::Time now = MonotonicNow();
  return !thread_.joinable() || stopping_ ||
         ((bytes_since_rows_ <= 2 * RowsLimit() || now < not_before_) &&
          (bytes_since_flush_ <= 2 * kMostBehind || now < flush_not_before_));
}

void JournalKeeper::WaitForRoom() {
  const absl::MutexLock lock(&mutex_);
  mutex_.Await(absl::Condition(this, &JournalKeeper::HasRoom));
}

bool JournalKeeper::WantsNext() const {
  return bytes_in_file_ > kFirstFileBytes / 10 && prepared_after_ != file_;
}

absl::Status JournalKeeper::Do(Work* work) {
  JournalWriter* writer = nullptr;
  {
    const absl::MutexLock lock(&appending_);
    writer = writer_.get();
  }
  absl::Status status;
  if (work->reserve) {
    status.Update(MakeReserve(context_.options, context_.directory,
                              /*smaller=*/false));
  }
  if (work->prepare) {
    std::uint64_t file = 0;
    {
      const absl::MutexLock lock(&mutex_);
      file = file_;
    }
    status.Update(writer->PrepareNext());
    const absl::MutexLock lock(&mutex_);
    if (status.ok()) prepared_after_ = file;
  }
  if (work->sync) {
    const absl::Status second = writer->SyncSecond();
    status.Update(second);
    work->sync = false;
    const absl::MutexLock lock(&mutex_);
    if (!second.ok()) {
      // What was acknowledged stands in the first copy alone, until the index
      // and the rows have it, too.
      mend_ = true;
      work->rows = true;
    }
  }
  absl::Status rows;
  if (work->rows) {
    const absl::MutexLock one(&writing_rows_);
    bool due = false;  // Somebody else may have written them since.
    {
      const absl::MutexLock lock(&mutex_);
      due = RowsAreDue();
    }
    if (due) rows = WriteRowsLocked();
    status.Update(rows);
  }
  // It is a part of WriteRows(), and needs less room than the rest of it.
  if (work->flush && (!work->rows || !rows.ok())) {
    const absl::Status flushed = context_.flush();
    status.Update(flushed);
    const absl::MutexLock lock(&mutex_);
    if (flushed.ok()) {
      bytes_since_flush_ = 0;
    } else {
      flush_not_before_ = MonotonicNow() + kTryAgainAfter;
    }
  }
  return status;
}

// Nothing that is thrown gets past the thread.
absl::Status JournalKeeper::DoGuarded(Work* work) {
  return base::GuardedStatus("keeping it", [&] { return Do(work); });
}

void JournalKeeper::Loop() {
  Work first = {.reserve = true};
  DoGuarded(&first).IgnoreError();  // Not worth a word.
  while (true) {
    Work work;
    {
      const absl::MutexLock lock(&mutex_);
      WaitForWork();
      if (stopping_) return;
      work.sync = std::exchange(unsynced_since_, absl::InfiniteFuture()) !=
                  absl::InfiniteFuture();
      work.flush = WantsFlush();
      if (MonotonicNow() >= not_before_) {
        work.rows = RowsAreDue();
        work.prepare = WantsNext();
      }
    }
    const absl::Status status = DoGuarded(&work);
    if (!status.ok()) {
      Warn(status);
      const absl::MutexLock lock(&mutex_);
      not_before_ = MonotonicNow() + kTryAgainAfter;
      // Also where it was thrown, before it was noted, or not even begun.
      if (work.flush) flush_not_before_ = not_before_;
      if (work.sync) NoteUnsynced();
    }
  }
}

absl::Status JournalKeeper::MergeInto(const JournalContent& journal,
                                      const ChainPoint& as_of,
                                      const RowsHead& head) {
  RowsFile file;
  {
    const absl::MutexLock lock(&mutex_);
    file = rows_;
  }
  std::unique_ptr<RowsReader> base;
  if (file.ordinal > 0) {
    CKPTREE_ASSIGN_OR_RETURN(base,
                             RowsReader::Open(context_.options, file.path));
  }
  // Rows of a commit that the journal does not have would hide one that was
  // made in its place.
  if (base != nullptr &&
      (file.ordinal > as_of.ordinal ||
       (file.ordinal == as_of.ordinal && base->head().hash != as_of.hash))) {
    return absl::DataLossError("the file of all rows is of another chain");
  }
  CKPTREE_ASSIGN_OR_RETURN(const RowChanges changes,
                           ChangesOf(journal, file.ordinal, as_of.ordinal));
  if (as_of.ordinal > file.ordinal) {
    if (journal.records.at(as_of.ordinal).hash != as_of.hash ||
        (base != nullptr &&
         journal.records.at(file.ordinal + 1).header.previous !=
             base->head().hash)) {
      return absl::DataLossError("the journal is of another chain");
    }
  }
  CKPTREE_ASSIGN_OR_RETURN(
      const std::unique_ptr<RowsWriter> rows,
      RowsWriter::Create(context_.options,
                         Join(context_.directory, kJournalName), head));
  CKPTREE_RETURN_IF_ERROR(MergeRows(base.get(), changes, rows.get()));
  return rows->Finish();
}

absl::Status JournalKeeper::ScanInto(RowsHead head, ChainPoint* as_of) {
  std::unique_ptr<RowsWriter> rows;
  const std::string journal = Join(context_.directory, kJournalName);
  CKPTREE_RETURN_IF_ERROR(context_.scan(
      [&](const ChainPoint& point) -> absl::Status {
        *as_of = point;
        head.ordinal = point.ordinal;
        head.hash = point.hash;
        CKPTREE_ASSIGN_OR_RETURN(
            rows, RowsWriter::Create(context_.options, journal, head));
        return absl::OkStatus();
      },
      [&rows](const RowKey& key, const RowValue& value) {
        return rows->Add(key, value);
      }));
  return rows->Finish();
}

absl::Status JournalKeeper::WriteRows() {
  const absl::MutexLock one(&writing_rows_);
  return WriteRowsLocked();
}

absl::Status JournalKeeper::WriteRowsLocked() {
  JournalWriter* writer = nullptr;
  ChainPoint as_of;
  std::uint64_t file = 0;
  std::uint64_t bytes = 0;
  std::uint64_t ceiling = 0;
  bool is_written = false;  // By a try whose later steps failed.
  {
    const absl::MutexLock lock(&appending_);
    CKPTREE_RETURN_IF_ERROR(BeginLocked());
    writer = writer_.get();
    as_of = writer_->tip();
    file = writer_->file();
    ceiling = writer_->version_ceiling();
    const absl::MutexLock state(&mutex_);
    bytes = bytes_since_rows_;
    is_written = rows_written_ == as_of;
  }
  RowsHead head;
  head.uuid = context_.preface.uuid;
  head.ordinal = as_of.ordinal;
  head.hash = as_of.hash;
  head.incarnation = context_.preface.incarnation;
  head.version_ceiling = ceiling;
  // Before rows of a commit have their name it is in two places: else they
  // could outlive it.
  if (!writer->SyncSecond().ok()) CKPTREE_RETURN_IF_ERROR(context_.flush());
  // It is being written to; what is behind `as_of` does not matter.
  const absl::StatusOr<JournalContent> journal =
      ReadJournal(context_.options, context_.directory, 1,
                  /*beside_writer=*/true);
  absl::Status merged = is_written ? absl::OkStatus() : journal.status();
  if (merged.ok() && !is_written) {
    merged = MergeInto(*journal, as_of, head);
    if (absl::IsResourceExhausted(merged) && DropOlderRows()) {
      merged = MergeInto(*journal, as_of, head);
    }
  }
  if (absl::IsDataLoss(merged) || absl::IsNotFound(merged)) {
    // What the journal has lost the index still has; rows that stood among the
    // files of a damaged one, too.
    Warn(merged);
    merged = ScanInto(head, &as_of);
  }
  CKPTREE_RETURN_IF_ERROR(merged);
  RowsFile kept;
  kept.ordinal = as_of.ordinal;
  kept.path =
      Join(Join(context_.directory, kJournalName), RowsFileName(as_of.ordinal));
  CKPTREE_ASSIGN_OR_RETURN(kept.bytes, FileSize(context_.options, kept.path));
  // It has all that the one before has, whose room may be what the rest lacks;
  // and a try after this one goes on from it.
  CKPTREE_RETURN_IF_ERROR(DropRowsBut(kept.ordinal));
  {
    const absl::MutexLock state(&mutex_);
    rows_ = kept;
    rows_written_ = as_of;
  }
  // Blocks of array bytes are in the index alone from here on.
  CKPTREE_RETURN_IF_ERROR(context_.flush());
  if (journal.ok()) {
    CKPTREE_RETURN_IF_ERROR(context_.keep_blocks(BlocksIn(*journal)));
  }
  writer->Covered(as_of.ordinal);
  // Where a second copy failed, what it lacks is in the rows and in the index.
  Warn(writer->SyncSecond());
  CKPTREE_RETURN_IF_ERROR(DropFiles(file));
  const absl::MutexLock state(&mutex_);
  bytes_since_rows_ -= bytes;
  older_files_ = 0;
  bytes_since_flush_ = 0;
  mend_ = false;
  unsealed_ = false;
  return absl::OkStatus();
}

absl::Status JournalKeeper::DropFiles(std::uint64_t below) {
  const std::string journal = Join(context_.directory, kJournalName);
  CKPTREE_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                           ListDirectory(context_.options, journal));
  std::set<std::uint64_t> numbers;
  for (const std::string& name : names) {
    const auto id = ParseJournalFileName(name);
    if (id.has_value() && id->file < below) numbers.insert(id->file);
  }
  // The oldest first, so that no gap is left in what a crash keeps; of each the
  // second copy first, for a file without one is known to be unused.
  for (const std::uint64_t number : numbers) {
    for (const Copy copy : {Copy::kB, Copy::kA}) {
      CKPTREE_RETURN_IF_ERROR(RemoveFile(
          context_.options, Join(journal, JournalFileName(copy, number))));
    }
  }
  return SyncDirectory(context_.options, journal);
}

absl::Status JournalKeeper::DropRowsBut(std::uint64_t kept) {
  const std::string journal = Join(context_.directory, kJournalName);
  CKPTREE_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                           ListDirectory(context_.options, journal));
  for (const std::string& name : names) {
    const auto ordinal = OrdinalOfRowsFile(name);
    if (ordinal.has_value() && *ordinal != kept) {
      CKPTREE_RETURN_IF_ERROR(
          RemoveFile(context_.options, Join(journal, name)));
    }
  }
  return absl::OkStatus();
}

bool JournalKeeper::DropOlderRows() {
  RowsFile newest;
  {
    const absl::MutexLock lock(&mutex_);
    newest = rows_;
  }
  const absl::StatusOr<std::vector<std::string>> names =
      ListDirectory(context_.options, Join(context_.directory, kJournalName));
  const bool any =
      names.ok() && std::ranges::any_of(*names, [&](const std::string& name) {
        const auto ordinal = OrdinalOfRowsFile(name);
        return ordinal.has_value() && *ordinal < newest.ordinal;
      });
  if (!any) return false;
  return CheckRowsFile(context_.options, newest.path).ok() &&
         DropRowsBut(newest.ordinal).ok();
}

absl::Status JournalKeeper::Close(bool flushed) {
  {
    const absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  if (thread_.joinable()) thread_.join();
  bool behind = false;
  {
    const absl::MutexLock lock(&mutex_);
    behind = begun_ && flushed && IsBehind();
  }
  // Not needed to be whole: the next open does it.
  if (behind) Warn(WriteRows());
  const absl::MutexLock lock(&appending_);
  if (writer_ == nullptr) return absl::OkStatus();
  absl::Status status = writer_->Close();
  writer_.reset();
  return status;
}

}  // namespace ckptree::kv
