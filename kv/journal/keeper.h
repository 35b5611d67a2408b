// SPDX-License-Identifier: Apache-2.0

// The journal while a store is open for writing.

#ifndef CKPTREE_KV_JOURNAL_KEEPER_H_
#define CKPTREE_KV_JOURNAL_KEEPER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "kv/journal/reader.h"
#include "kv/journal/replay.h"
#include "kv/journal/row.h"
#include "kv/journal/writer.h"
#include "kv/options.h"

namespace ckptree::kv {

struct KeeperContext {
  Options options;
  std::string directory;  // Of the store.
  Preface preface;        // Of this session, but for copy, file and follows.
  ChainPoint tip;
  std::optional<JournalRecord> last;  // The tip's; nothing in a new store.
  std::uint64_t next_file = 1;
  RowsFile rows;
  // First copies that there are, and the bytes in them.
  std::uint64_t journal_files = 0;
  std::uint64_t journal_bytes = 0;
  // Damage was met: all rows are to be written anew, and what is damaged goes.
  bool mend = false;
  bool sealed = false;  // The last session closed the journal.
  // Makes what was applied to the index durable in it.
  std::function<absl::Status()> flush;
  // Before the journal lets these blocks of arrays go: those that the index
  // has, and not whole, are written to it once more.
  std::function<absl::Status(const JournalBlocks&)> keep_blocks;
  // Gives the commit that the index is as of, and then all its rows; nothing is
  // committed in between.
  std::function<absl::Status(
      absl::FunctionRef<absl::Status(const ChainPoint&)> begin,
      absl::FunctionRef<absl::Status(const RowKey&, const RowValue&)> sink)>
      scan;
};

// Appends commits and, in a thread of its own, syncs second copies each second,
// makes files ahead, flushes the index, and writes the file of all rows when
// what is behind the last one has grown: then older files go.
//
// Thread-safe, but for Close().
class JournalKeeper {
 public:
  explicit JournalKeeper(KeeperContext context);
  // REQUIRES: Close() was called, or no thread of this process is there.
  ~JournalKeeper();

  // Makes the first file of this session, where there is none yet: from then on
  // what was read at the open cannot be lost with the page cache.
  absl::Status Begin();

  // The index is open: from now on the thread may work.
  void Ready();

  // Before a commit, and without what the functions of the context lock: waits
  // while the thread is so far behind that the journal would grow beyond twice
  // its bound. A thread whose work fails is not waited for.
  void WaitForRoom();

  JournalWriter::Appended Append(const JournalWriter::Commit& commit,
                                 const EncodedBatch& batch);
  // The commit is in the index, and about to be acknowledged. Where its second
  // copy failed the index is flushed first: it is the second place.
  void Acknowledged();

  // Every commit so far is durable in two places: what it made dead may go.
  absl::Status Secure();

  // The file of all rows, now; older files of the journal go.
  absl::Status WriteRows();

  ChainPoint tip() const;
  // The number of the file that it writes; 0: it has made none.
  std::uint64_t file() const;

  // Ends the thread, seals the journal. `flushed`: the index has everything.
  absl::Status Close(bool flushed);

 private:
  void StartThread() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  struct Work {
    bool reserve = false;
    bool sync = false;     // The second copy.
    bool prepare = false;  // The next files.
    bool rows = false;
    bool flush = false;
  };
  void Loop();
  // `work->sync` is true behind it where that did not come back.
  absl::Status Do(Work* work);
  absl::Status DoGuarded(Work* work);
  // Work, or to stop, that waits for no second.
  bool HasWork() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool HasWorkOrCommit() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // When the second copy is to be synced, or failed work is tried again.
  absl::Time Due() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void NoteUnsynced() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WaitForWork() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool HasRoom() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status BeginLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(appending_);
  absl::Status MergeInto(const JournalContent& journal, const ChainPoint& as_of,
                         const RowsHead& head);
  absl::Status ScanInto(RowsHead head, ChainPoint* as_of);
  absl::Status DropFiles(std::uint64_t below);
  absl::Status DropRowsBut(std::uint64_t kept);
  // Of files of all rows those that a crash left behind a newer one that is
  // whole. True where there were some.
  bool DropOlderRows();
  absl::Status WriteRowsLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(writing_rows_);
  bool RowsAreDue() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool WantsFlush() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The file after the current one is needed and not made yet.
  bool WantsNext() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::uint64_t RowsLimit() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // A closed store would have more behind its rows than it should.
  bool IsBehind() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Warn(const absl::Status& status) const;

  // Begin() needs it once; taken out of the context before that is kept.
  std::optional<JournalRecord> last_ ABSL_GUARDED_BY(appending_);
  const KeeperContext context_;

  // In this order. The first two are held over I/O.
  absl::Mutex writing_rows_;
  mutable absl::Mutex appending_;
  mutable absl::Mutex mutex_;

  std::unique_ptr<JournalWriter> writer_ ABSL_GUARDED_BY(appending_);
  bool begun_ ABSL_GUARDED_BY(mutex_) = false;
  bool ready_ ABSL_GUARDED_BY(mutex_) = false;
  RowsFile rows_ ABSL_GUARDED_BY(mutex_);
  // What the one that this session wrote is as of.
  std::optional<ChainPoint> rows_written_ ABSL_GUARDED_BY(mutex_);
  std::uint64_t bytes_since_rows_ ABSL_GUARDED_BY(mutex_) = 0;
  std::uint64_t older_files_ ABSL_GUARDED_BY(mutex_) = 0;  // Than this session.
  std::uint64_t bytes_since_flush_ ABSL_GUARDED_BY(mutex_) = 0;
  std::uint64_t bytes_in_file_ ABSL_GUARDED_BY(mutex_) = 0;
  std::uint64_t file_ ABSL_GUARDED_BY(mutex_) = 0;
  std::uint64_t prepared_after_ ABSL_GUARDED_BY(mutex_) = 0;
  bool mend_ ABSL_GUARDED_BY(mutex_) = false;
  bool unsealed_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  // These three by MonotonicNow(). When the first commit came that the second
  // copy was not synced with.
  absl::Time unsynced_since_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();
  // Work that failed is not tried again before this.
  absl::Time not_before_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  absl::Time flush_not_before_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  std::thread thread_;
};

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_JOURNAL_KEEPER_H_
