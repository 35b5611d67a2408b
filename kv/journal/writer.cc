// SPDX-License-Identifier: Apache-2.0

#include "kv/journal/writer.h"

#include <algorithm>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "base/digest.h"
#include "base/status_macros.h"
#include "kv/file_system.h"
#include "kv/files/file_system_of.h"
#include "kv/files/status.h"
#include "kv/journal/replay.h"
#include "kv/store_directory.h"
#include "rocksdb/file_system.h"

namespace ckptree::kv {
namespace {

using rocksdb::FileOptions;
using rocksdb::IOOptions;
using rocksdb::IOStatus;

// Of a file that is made where there is no room for more.
constexpr std::uint64_t kLeastBytes = std::uint64_t{64} << 10;
constexpr std::uint64_t kZerosAtOnce = std::uint64_t{1} << 20;

}  // namespace

struct JournalWriter::Files {
  // A second copy that is being written, or waits to be synced.
  struct SecondCopy {
    ~SecondCopy() {
      if (file != nullptr) {
        file->Close(IOOptions(), nullptr).PermitUncheckedError();
      }
    }
    std::unique_ptr<rocksdb::FSWritableFile> file;
    std::string path;
  };

  ~Files() {
    if (a != nullptr) a->Close(IOOptions(), nullptr).PermitUncheckedError();
  }
  std::uint64_t number = 0;
  std::uint64_t bytes = 0;
  std::unique_ptr<rocksdb::FSRandomRWFile> a;
  std::shared_ptr<SecondCopy> b;
};

struct JournalWriter::Note {
  ~Note() {
    if (file != nullptr) {
      file->Close(IOOptions(), nullptr).PermitUncheckedError();
    }
  }
  std::unique_ptr<rocksdb::FSRandomRWFile> file;
};

JournalWriter::JournalWriter(const Options& options,
                             const std::string& directory, Start start)
    : options_(options),
      directory_(Join(directory, kJournalName)),
      start_(std::move(start)),
      tip_(start_.tip),
      version_ceiling_(start_.preface.version_ceiling) {}

JournalWriter::~JournalWriter() = default;

std::string JournalWriter::PathOf(Copy copy, std::uint64_t file) const {
  return Join(directory_, JournalFileName(copy, file));
}

// a first, then b: a file with a second copy is whole.
absl::StatusOr<std::unique_ptr<JournalWriter::Files>> JournalWriter::Make(
    std::uint64_t file, std::uint64_t bytes) {
  const auto fs = FileSystemOf(options_);
  auto files = std::make_unique<Files>();
  files->number = file;
  files->bytes = bytes;
  const std::string a_path = PathOf(Copy::kA, file);
  const std::string b_path = PathOf(Copy::kB, file);
  const auto make = [&]() -> absl::Status {
    std::unique_ptr<rocksdb::FSWritableFile> zeros;
    // Zeros, not a hole: a sync then changes nothing but the bytes.
    CKPTREE_RETURN_IF_ERROR(
        ToStatus(fs->NewWritableFile(a_path, FileOptions(), &zeros, nullptr),
                 "making " + a_path));
    const std::string piece(std::min(bytes, kZerosAtOnce), '\0');
    IOStatus status;
    for (std::uint64_t at = 0; at < bytes && status.ok(); at += piece.size()) {
      status = zeros->Append(
          rocksdb::Slice(piece.data(),
                         std::min<std::uint64_t>(piece.size(), bytes - at)),
          IOOptions(), nullptr);
    }
    if (status.ok()) status = zeros->Sync(IOOptions(), nullptr);
    const IOStatus closed = zeros->Close(IOOptions(), nullptr);
    if (status.ok()) status = closed;
    CKPTREE_RETURN_IF_ERROR(ToStatus(status, "making " + a_path));
    CKPTREE_RETURN_IF_ERROR(
        ToStatus(fs->NewRandomRWFile(a_path, FileOptions(), &files->a, nullptr),
                 "opening " + a_path));
    files->b = std::make_shared<Files::SecondCopy>();
    files->b->path = b_path;
    CKPTREE_RETURN_IF_ERROR(ToStatus(
        fs->NewWritableFile(b_path, FileOptions(), &files->b->file, nullptr),
        "making " + b_path));
    return SyncDirectory(options_, directory_);
  };
  if (absl::Status status = make(); !status.ok()) {
    // Half a pair that nothing was written to: the next try, or open, makes it
    // anew.
    files.reset();
    RemoveFile(options_, b_path).IgnoreError();
    RemoveFile(options_, a_path).IgnoreError();
    return status;
  }
  return files;
}

std::string JournalWriter::PrefaceOf(Copy copy) const {
  Preface preface = start_.preface;
  preface.copy = copy;
  preface.file = file_;
  preface.version_ceiling = version_ceiling_;
  preface.follows = follows_.ordinal;
  preface.follows_hash = follows_.hash;
  preface.time_ns = absl::GetCurrentTimeNanos();
  return EncodePreface(preface);
}

absl::StatusOr<std::unique_ptr<JournalWriter>> JournalWriter::Create(
    const Options& options, const std::string& directory, Start start,
    const JournalRecord* last) {
  std::unique_ptr<JournalWriter> writer(
      new JournalWriter(options, directory, std::move(start)));
  const std::uint64_t least =
      2 * kPrefaceBytes +
      (writer->start_.least ? kLeastBytes : kJournalReserveBytes) +
      (last == nullptr ? 0
                       : ToSectors(kRecordHeaderBytes + last->rows.size() +
                                   last->header.block_bytes));
  const Start& given = writer->start_;
  const std::uint64_t wanted = given.least ? 0
                               : given.first_file_bytes != 0
                                   ? given.first_file_bytes
                               : given.file_bytes != 0 ? given.file_bytes
                                                       : kJournalFileBytes;
  CKPTREE_ASSIGN_OR_RETURN(
      writer->files_,
      writer->Make(writer->start_.file, std::max(ToSectors(least), wanted)));
  Files& files = *writer->files_;
  writer->file_ = files.number;
  writer->follows_ = writer->tip_;

  std::string a = writer->PrefaceOf(Copy::kA);
  std::string b = writer->PrefaceOf(Copy::kB);
  if (last != nullptr) {
    // To the letter: its hash stays what the next record follows.
    const std::string copy = EncodeRecord(last->header, last->rows);
    // Zeros for blocks that nobody has any more: the next record stands where
    // its header says that this one ends.
    a.append(copy).append(WholeBlocks(*last));
    b.append(copy);
  }
  a.resize(ToSectors(a.size()), '\0');
  const std::string a_path = writer->PathOf(Copy::kA, files.number);
  const std::string b_path = files.b->path;
  const auto write = [&]() -> absl::Status {
    CKPTREE_RETURN_IF_ERROR(ToStatus(files.a->Write(0, a, IOOptions(), nullptr),
                                     "writing " + a_path));
    CKPTREE_RETURN_IF_ERROR(
        ToStatus(files.a->Sync(IOOptions(), nullptr), "syncing " + a_path));
    CKPTREE_RETURN_IF_ERROR(
        ToStatus(files.b->file->Append(b, IOOptions(), nullptr),
                 "writing " + files.b->path));
    CKPTREE_RETURN_IF_ERROR(ToStatus(files.b->file->Sync(IOOptions(), nullptr),
                                     "syncing " + files.b->path));
    writer->a_offset_ = a.size();
    writer->b_offset_ = b.size();

    const std::string tip_path = Join(writer->directory_, kTipName);
    const absl::StatusOr<std::uint64_t> size = FileSize(options, tip_path);
    const absl::StatusOr<std::string> note =
        ReadFile(options, tip_path, kPrefaceBytes);
    if (!size.ok() || *size != kPrefaceBytes || !note.ok() ||
        !DecodeTip(*note).has_value()) {
      CKPTREE_RETURN_IF_ERROR(
          WriteFile(options, tip_path, std::string(kPrefaceBytes, '\0')));
      CKPTREE_RETURN_IF_ERROR(SyncDirectory(options, writer->directory_));
    }
    writer->note_ = std::make_unique<Note>();
    CKPTREE_RETURN_IF_ERROR(
        ToStatus(FileSystemOf(options)->NewRandomRWFile(
                     tip_path, FileOptions(), &writer->note_->file, nullptr),
                 "opening " + tip_path));
    // Of a commit that was not noted before a crash: both copies have it now,
    // and without the note the loss of a would be doubt.
    if (writer->tip_.ordinal > 0) writer->NoteTip();
    return absl::OkStatus();
  };
  if (absl::Status status = write(); !status.ok()) {
    // What a failed sync left in the page cache counts for nothing, and what
    // this pair repeats is where it was: the next try makes it anew.
    writer->files_.reset();
    RemoveFile(options, b_path).IgnoreError();
    RemoveFile(options, a_path).IgnoreError();
    return status;
  }
  return writer;
}

RecordHeader JournalWriter::NextHeader(const Commit& commit,
                                       const EncodedBatch& batch) const {
  RecordHeader header;
  header.kind = commit.kind;
  header.file = file_;
  header.session = session();
  header.ordinal = tip_.ordinal + (commit.kind == CommitKind::kSeal ? 0 : 1);
  header.version = commit.version;
  header.version_ceiling = std::max(version_ceiling_, commit.version);
  header.incarnation = start_.preface.incarnation;
  header.time_ns = commit.time_ns;
  header.a_offset = a_offset_ == 0 ? kPrefaceBytes : a_offset_;
  header.b_offset = b_offset_ == 0 ? kPrefaceBytes : b_offset_;
  header.rows_bytes = batch.rows.size();
  header.block_bytes = batch.blocks.size();
  header.previous = tip_.hash;
  return header;
}

absl::Status JournalWriter::Rotate(std::uint64_t record_bytes) {
  const std::uint64_t wanted =
      start_.file_bytes != 0 ? start_.file_bytes : kJournalFileBytes;
  const std::uint64_t least =
      kPrefaceBytes + record_bytes + kJournalReserveBytes;
  const absl::MutexLock making(&making_);
  std::unique_ptr<Files> next;
  {
    const absl::MutexLock lock(&mutex_);
    next = std::move(next_);
  }
  if (next == nullptr || next->bytes < least) {
    const std::uint64_t number = next == nullptr ? file_ + 1 : next->number;
    next.reset();
    CKPTREE_ASSIGN_OR_RETURN(next,
                             Make(number, std::max(wanted, ToSectors(least))));
  }
  files_ = std::move(next);
  file_ = files_->number;
  follows_ = tip_;
  a_offset_ = 0;
  b_offset_ = 0;
  const absl::MutexLock lock(&mutex_);
  if (!second_copy_.ok()) {
    broken_ = second_copy_;
    broken_upto_ = tip_.ordinal;
    second_copy_ = absl::OkStatus();
  }
  return absl::OkStatus();
}

JournalWriter::Appended JournalWriter::Append(const Commit& commit,
                                              const EncodedBatch& batch) {
  if (dead_) {
    return {Result::kFailed,
            absl::FailedPreconditionError("the journal is dead"),
            {}};
  }
  const std::uint64_t record_bytes =
      ToSectors(kRecordHeaderBytes + batch.rows.size() + batch.blocks.size());
  const std::uint64_t at = a_offset_ == 0 ? kPrefaceBytes : a_offset_;
  const std::uint64_t end = at + record_bytes;
  // What frees room may use what was kept for it, where there is no other.
  const bool fits = end + kJournalReserveBytes <= files_->bytes ||
                    (commit.frees && end <= files_->bytes);
  if (end + kJournalReserveBytes > files_->bytes || !CurrentSecond().ok()) {
    const absl::Status rotated = Rotate(record_bytes);
    if (!rotated.ok() && !fits) return {Result::kFailed, rotated, {}};
  }
  const RecordHeader header = NextHeader(commit, batch);
  const std::string record = EncodeRecord(header, batch.rows);
  std::string a;
  a.reserve(kPrefaceBytes + record_bytes);
  if (a_offset_ == 0) a = PrefaceOf(Copy::kA);
  a.append(record).append(batch.blocks);
  a.resize(ToSectors(a.size()), '\0');
  // Until all that is known of the record fits it, where something is thrown,
  // too: nothing may be written in its place, the seal included.
  dead_ = true;
  IOStatus status = files_->a->Write(a_offset_, a, IOOptions(), nullptr);
  if (status.ok()) status = files_->a->Sync(IOOptions(), nullptr);
  if (!status.ok()) {
    return {Result::kUnknown,
            ToStatus(status, "writing " + PathOf(Copy::kA, file_)),
            {}};
  }

  std::string b;
  if (b_offset_ == 0) b = PrefaceOf(Copy::kB);
  b.append(record);
  {
    const absl::MutexLock lock(&mutex_);
    if (second_copy_.ok()) {
      second_copy_ = ToStatus(files_->b->file->Append(b, IOOptions(), nullptr),
                              "writing " + files_->b->path);
      if (unsynced_.empty() || unsynced_.back() != files_->b) {
        unsynced_.push_back(files_->b);
      }
    }
  }
  bytes_written_ += a.size();
  a_offset_ += a.size();
  b_offset_ += b.size();
  version_ceiling_ = header.version_ceiling;
  tip_ = {header.ordinal, base::DigestOf(record)};
  dead_ = false;
  return {Result::kDurable, absl::OkStatus(), tip_};
}

void JournalWriter::NoteTip() {
  const std::string bytes = EncodeTip({.uuid = start_.preface.uuid,
                                       .session = session(),
                                       .file = file_,
                                       .ordinal = tip_.ordinal,
                                       .hash = tip_.hash});
  // A word more about what is durable already.
  note_->file->Write(0, bytes, IOOptions(), nullptr).PermitUncheckedError();
  const absl::MutexLock lock(&mutex_);
  note_unsynced_ = true;
}

absl::Status JournalWriter::SyncSecond() {
  // Held over I/O: who waits for a sync waits for one that another began, too.
  const absl::MutexLock syncing(&syncing_);
  std::vector<std::shared_ptr<void>> unsynced;
  bool note = false;
  absl::Status status;
  {
    const absl::MutexLock lock(&mutex_);
    status = second_copy_.ok() ? broken_ : second_copy_;
    if (status.ok()) unsynced.swap(unsynced_);
    note = std::exchange(note_unsynced_, false);
  }
  // Where something is thrown, too, they are not to count as synced.
  absl::Cleanup thrown = [this, note] {
    const absl::MutexLock lock(&mutex_);
    second_copy_ = absl::Status(absl::StatusCode::kResourceExhausted, "");
    note_unsynced_ = note_unsynced_ || note;
  };
  for (const std::shared_ptr<void>& entry : unsynced) {
    const auto copy = std::static_pointer_cast<Files::SecondCopy>(entry);
    const IOStatus synced = copy->file->Sync(IOOptions(), nullptr);
    if (synced.ok()) continue;
    status = ToStatus(synced, "syncing " + copy->path);
    const absl::MutexLock lock(&mutex_);
    second_copy_ = status;
    break;
  }
  // What the copies have lost is known by it also after a power cut: most of
  // all where there is one copy alone.
  if (note) {
    note_->file->Sync(IOOptions(), nullptr).PermitUncheckedError();
  }
  std::move(thrown).Cancel();
  return status;
}

absl::Status JournalWriter::second_copy() const {
  const absl::MutexLock lock(&mutex_);
  return second_copy_.ok() ? broken_ : second_copy_;
}

absl::Status JournalWriter::CurrentSecond() const {
  const absl::MutexLock lock(&mutex_);
  return second_copy_;
}

void JournalWriter::Covered(std::uint64_t ordinal) {
  const absl::MutexLock lock(&mutex_);
  if (ordinal >= broken_upto_) broken_ = absl::OkStatus();
}

absl::Status JournalWriter::PrepareNext() {
  const absl::MutexLock making(&making_);
  std::uint64_t number = 0;
  {
    const absl::MutexLock lock(&mutex_);
    if (next_ != nullptr) return absl::OkStatus();
    number = file_ + 1;
  }
  CKPTREE_ASSIGN_OR_RETURN(
      std::unique_ptr<Files> made,
      Make(number,
           start_.file_bytes != 0 ? start_.file_bytes : kJournalFileBytes));
  const absl::MutexLock lock(&mutex_);
  next_ = std::move(made);
  return absl::OkStatus();
}

absl::Status JournalWriter::Close() {
  absl::Status status;
  std::unique_ptr<Files> next;
  {
    const absl::MutexLock lock(&mutex_);
    next = std::move(next_);
  }
  if (next != nullptr) {
    // Its second copy first: without it a file is known to be unused.
    const std::uint64_t number = next->number;
    next.reset();
    status.Update(RemoveFile(options_, PathOf(Copy::kB, number)));
    status.Update(RemoveFile(options_, PathOf(Copy::kA, number)));
  }
  if (dead_ || files_ == nullptr) return status;
  const EncodedBatch nothing;
  const std::string seal =
      EncodeRecord(NextHeader({.kind = CommitKind::kSeal}, nothing), "");
  std::string a;
  if (a_offset_ == 0) a = PrefaceOf(Copy::kA);
  a.append(seal);
  a.resize(ToSectors(a.size()), '\0');
  std::string b;
  if (b_offset_ == 0) b = PrefaceOf(Copy::kB);
  b.append(seal);
  IOStatus written = files_->a->Write(a_offset_, a, IOOptions(), nullptr);
  if (written.ok()) written = files_->a->Sync(IOOptions(), nullptr);
  status.Update(ToStatus(written, "sealing " + PathOf(Copy::kA, file_)));
  if (CurrentSecond().ok()) {
    written = files_->b->file->Append(b, IOOptions(), nullptr);
    if (written.ok()) written = files_->b->file->Sync(IOOptions(), nullptr);
    status.Update(ToStatus(written, "sealing " + files_->b->path));
    status.Update(SyncSecond());
  }
  if (!status.ok()) return status;
  note_->file->Sync(IOOptions(), nullptr).PermitUncheckedError();
  const std::uint64_t end = a_offset_ + a.size();
  const std::string a_path = PathOf(Copy::kA, file_);
  files_.reset();
  // Only behind a durable seal: a file that ends without one may be cut. And
  // only where b is whole: what ends so says that of it.
  if (!second_copy().ok()) return status;
  std::unique_ptr<rocksdb::FSWritableFile> ended;
  written = FileSystemOf(options_)->ReopenWritableFile(a_path, FileOptions(),
                                                       &ended, nullptr);
  if (written.ok()) written = ended->Truncate(end, IOOptions(), nullptr);
  if (ended != nullptr) {
    const IOStatus closed = ended->Close(IOOptions(), nullptr);
    if (written.ok()) written = closed;
  }
  status.Update(ToStatus(written, "ending " + a_path));
  status.Update(SyncDirectory(options_, directory_));
  return status;
}

}  // namespace ckptree::kv
