// SPDX-License-Identifier: Apache-2.0

// The writer of the journal: two copies, one sync a commit.

#ifndef CKPTREE_KV_JOURNAL_WRITER_H_
#define CKPTREE_KV_JOURNAL_WRITER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "kv/journal/preface.h"
#include "kv/journal/reader.h"
#include "kv/journal/record.h"
#include "kv/options.h"

namespace ckptree::kv {

// A file of the first copy; a larger record gets a larger one.
inline constexpr std::uint64_t kJournalFileBytes = std::uint64_t{4} << 20;
// At its end, for commits that free something: they work on a full disk.
inline constexpr std::uint64_t kJournalReserveBytes = std::uint64_t{1} << 20;

// Append(), Rotate() and Close() are called by one thread at a time;
// SyncSecond() and PrepareNext() by any.
class JournalWriter {
 public:
  struct Start {
    Preface preface;               // But for copy and file.
    ChainPoint tip;                // What the first record follows.
    std::uint64_t file = 1;        // Number of the first file.
    std::uint64_t file_bytes = 0;  // 0: kJournalFileBytes.
    // The first file is as small as a few removals allow; saves are refused.
    bool least = false;
    std::uint64_t first_file_bytes = 0;  // 0: as the others.
  };
  // Makes both copies of a new file in <directory>/journal, which exists. Its
  // first record is a copy of `last` where that is given: it may have been in
  // the page cache alone. All of it is durable then, and the tip is noted.
  static absl::StatusOr<std::unique_ptr<JournalWriter>> Create(
      const Options& options, const std::string& directory, Start start,
      const JournalRecord* last);

  ~JournalWriter();
  JournalWriter(const JournalWriter&) = delete;
  JournalWriter& operator=(const JournalWriter&) = delete;

  struct Commit {
    CommitKind kind = CommitKind::kSave;
    std::uint64_t version = 0;
    std::int64_t time_ns = 0;
    bool frees = false;  // May use what is kept for a full disk.
  };
  enum class Result {
    kDurable,  // In the first copy, synced.
    kFailed,   // Surely not there; the journal goes on.
    kUnknown,  // Perhaps there: nothing may follow.
  };
  struct Appended {
    Result result = Result::kFailed;
    absl::Status status;
    ChainPoint point;
  };
  // One record behind the last. A failure of the second copy is only a
  // warning: second_copy() says so until the next file.
  Appended Append(const Commit& commit, const EncodedBatch& batch);

  // Notes the last acknowledged commit; synced with the second copy.
  void NoteTip();

  // Makes what the second copy holds durable, and the note.
  absl::Status SyncSecond();
  // OK while the second copies have all that the first ones have, but for
  // commits that Covered() was told of.
  absl::Status second_copy() const;
  // The same of the current file: not OK where the last record is in a alone.
  absl::Status CurrentSecond() const;
  // Rows up to this ordinal have another second home.
  void Covered(std::uint64_t ordinal);

  // Makes the next file ahead, so that no commit has to. OK where it is there.
  absl::Status PrepareNext();

  ChainPoint tip() const { return tip_; }
  std::uint64_t file() const { return file_; }
  std::uint64_t version_ceiling() const { return version_ceiling_; }
  std::uint64_t session() const { return start_.preface.session; }
  // Of records and blocks written since the start, padding counted.
  std::uint64_t bytes_written() const { return bytes_written_; }

  // Seals both copies, syncs them, and takes back what was made ahead.
  absl::Status Close();

 private:
  struct Files;
  struct Note;
  JournalWriter(const Options& options, const std::string& directory,
                Start start);

  std::string PathOf(Copy copy, std::uint64_t file) const;
  absl::StatusOr<std::unique_ptr<Files>> Make(std::uint64_t file,
                                              std::uint64_t bytes);
  absl::Status Rotate(std::uint64_t record_bytes);
  std::string PrefaceOf(Copy copy) const;
  RecordHeader NextHeader(const Commit& commit,
                          const EncodedBatch& batch) const;

  const Options options_;
  const std::string directory_;  // <store>/journal
  const Start start_;
  ChainPoint tip_;
  std::uint64_t version_ceiling_ = 0;
  std::uint64_t file_ = 0;
  ChainPoint follows_;          // Of the current file.
  std::uint64_t a_offset_ = 0;  // Where the next record goes; 0: the preface
  std::uint64_t b_offset_ = 0;  // first.
  std::uint64_t bytes_written_ = 0;
  bool dead_ = false;  // A sync or write of the first copy failed, or threw.
  std::unique_ptr<Files> files_;
  std::unique_ptr<Note> note_;  // Set by Create().

  // Before mutex_; held over I/O: one maker, one syncer at a time.
  absl::Mutex making_;
  absl::Mutex syncing_;
  mutable absl::Mutex mutex_;
  std::unique_ptr<Files> next_ ABSL_GUARDED_BY(mutex_);
  bool note_unsynced_ ABSL_GUARDED_BY(mutex_) = false;
  // Second copies that are complete and not synced yet, the current one last.
  std::vector<std::shared_ptr<void>> unsynced_ ABSL_GUARDED_BY(mutex_);
  absl::Status second_copy_ ABSL_GUARDED_BY(mutex_);  // Of the current file.
  // The same of an earlier one, with commits up to broken_upto_.
  absl::Status broken_ ABSL_GUARDED_BY(mutex_);
  std::uint64_t broken_upto_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_JOURNAL_WRITER_H_
