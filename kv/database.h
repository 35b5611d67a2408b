// SPDX-License-Identifier: Apache-2.0

// The wall: bytes in, bytes out, absl::Status. No RocksDB type in any header.

#ifndef CKPTREE_KV_DATABASE_H_
#define CKPTREE_KV_DATABASE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/digest.h"
#include "kv/array_block.h"
#include "kv/commit_kind.h"
#include "kv/iterator.h"
#include "kv/options.h"
#include "kv/rewrite_filter.h"
#include "kv/segment_writer.h"
#include "kv/value.h"
#include "kv/write_batch.h"
#include "schema/spaces.h"

namespace ckptree::kv {

// What must be true of a key for a commit to happen.
struct Precondition {
  schema::Space space = schema::Space::kRecords;
  std::string key;
  std::optional<std::string> expected;  // Nothing: the key must be absent.
};

enum class Outcome {
  kCommitted,  // Durable and acknowledged.
  kConflict,   // A precondition did not hold; nothing was written.
  kFenced,     // The store is no longer ours (lock, fork, moved); nothing was
               // written.
  kFailed,     // Not committed, and never will be. health() says whether the
               // handle still works.
  kUnknown,    // A write or sync failed: the commit may or may not be there.
               // The handle is dead; close and reopen to learn which.
};

struct CommitResult {
  Outcome outcome = Outcome::kFailed;
  std::uint64_t ordinal = 0;  // Where committed.
  absl::Status status;        // OK where committed; says why otherwise.
};

struct CommitRequest {
  CommitKind kind = CommitKind::kSave;
  std::uint64_t version = 0;  // Of a save; raises the version ceiling.
  WriteBatch batch;
  // Content-addressed records that `batch` refers to and that would make it too
  // large: commits of their own before it. Nothing refers to them should the
  // last one not happen.
  std::vector<WriteBatch> before;
  std::vector<Precondition> preconditions;
};

// A file of `leaves` or `chunks` that is part of the database.
struct LiveFile {
  schema::Space space = schema::Space::kChunks;
  bool copy = false;  // Of the second copy of `leaves`.
  std::string path;
  std::string first_key;
  std::string last_key;
  std::uint64_t bytes = 0;    // As the MANIFEST says.
  std::uint64_t entries = 0;  // 0 where it was not read since the open.
  bool whole = true;          // On disk with that size.
  // It is elsewhere alone: `path` is the name that it has there.
  bool far = false;
};

// What open found; given to the check of step 5.
struct OpenReport {
  std::array<std::uint8_t, 16> uuid{};  // As the journal says.
  std::uint64_t incarnation = 0;
  std::uint64_t ordinal = 0;          // Of the newest commit.
  bool copied = false;                // From another directory.
  std::uint64_t highest_version = 0;  // Ever used.
  std::vector<std::string> warnings;  // Of damage; what is not said is whole.
  // Those of `warnings` that an open for writing makes good.
  std::vector<std::string> mended;
  std::vector<std::string> notes;  // What is odd, and hurts nothing.
  // Where this open made the index anew: keys of `chunks` whose records it took
  // along though their checksum does not say that they are whole.
  std::vector<std::string> unproven;
  // Not OK: acknowledged commits are missing, or may be. The store can be read,
  // but nobody can say what is the latest.
  absl::Status lost;
};

// One store directory:
//   journal/ (the commits)  db/ (RocksDB: the index of the journal's rows, and
//   segments)  staging/ (segments being built)  LOCK
//   CREATING (until Create has finished)
//
// Thread-safe, but for Close(). After fork() every call in the child returns
// kFailedPrecondition; the child's destructor does nothing.
//
// Destroy iterators and values first.
class Database {
 public:
  // Looks at an opened database before anything may change it; an error refuses
  // the open. `database` answers reads only.
  using CheckFn = absl::FunctionRef<absl::Status(const Database& database,
                                                 const OpenReport& report)>;

  // Makes a store in `directory`, which must be absent, empty or left by an
  // interrupted Create; kAlreadyExists where it is a store, kInvalidArgument
  // where it holds anything else. (records, store_key) = store_value is in the
  // first commit, `batch` joins it. `uuid` has 16 bytes.
  static absl::StatusOr<std::unique_ptr<Database>> Create(
      const std::string& directory, const Options& options,
      std::string_view uuid, std::string_view store_key,
      std::string_view store_value, WriteBatch batch);

  // Nothing is changed before `check` returned OK, but that a damaged index is
  // made anew: the journal has its rows.
  //
  // kNotFound: no store there, or one whose creation was not finished.
  // kFailedPrecondition: links in the directory, or a store of an engine
  // without a journal. kDataLoss: acknowledged commits are missing
  // (kReadWrite), or both index and journal are damaged. kUnavailable: another
  // writer holds it.
  static absl::StatusOr<std::unique_ptr<Database>> Open(
      const std::string& directory, const Options& options, Mode mode,
      CheckFn check);

  ~Database();
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  Mode mode() const;
  const OpenReport& report() const;
  std::string staging_directory() const;  // <store>/staging

  // All its segments are elsewhere (Options::far): a read of a block is a
  // request.
  bool reads_far() const;
  // Whether some are; whether a read of that block is a request.
  bool any_far() const;
  // OK, or why blocks that are elsewhere cannot be looked at now.
  absl::Status FarAnswers() const;
  bool IsFar(schema::Space space, std::string_view key) const;
  // Whether a file here has that record of kChunks, which may be damaged.
  bool IsHere(std::string_view key) const;
  // Until each `true` had its `false`, nothing counts of far segments that was
  // fetched before.
  void DoubtFetched(bool doubt) const;

  // True beside a live writer (kRead only): Refresh() has something to do.
  bool following() const;

  // kRead: sees all commits that were acknowledged before the call, each as a
  // whole; in a shared folder, those that it shows by now. Two small reads
  // where there are none. Views and iterators made before stay valid.
  absl::Status Refresh();
  // kRead: LiveFiles() and LeafCopies() are of the files that there are now,
  // which Refresh() alone does not look for: those that a writer has written
  // anew since are other ones, and no commit says so. One listing of a folder
  // where nothing has changed.
  absl::Status SeeFiles() const;
  // kRead: another number than before where rows may be other ones since.
  std::uint64_t view() const;
  // kRead: which rows of kRecords may be other ones, or gone, or new, in `view`
  // than in an earlier one; nothing where all may. Those before the earlier one
  // are forgotten.
  struct Changes {
    std::uint64_t view = 0;
    std::vector<std::string> keys;  // In no order, some more than once.
  };
  std::optional<Changes> ChangesSince(std::uint64_t view);

  // ---- reading ----

  // Nothing where the key is absent.
  absl::StatusOr<std::optional<std::string>> Get(schema::Space space,
                                                 std::string_view key) const;
  // kNotFound where the key is absent. One copy from the file's block at most.
  absl::StatusOr<Value> Read(schema::Space space, std::string_view key) const;
  // Bytes of an array block, of kChunks or kSmall, from `offset` on, straight
  // from its file: no copy, and NOTHING IS CHECKED. False where that cannot be,
  // for whatever reason: Read() does it, or says what is wrong. REQUIRES: the
  // value has `value_bytes`; false where its bytes are others. `on_piece` is
  // called for all of them, in order, each time some of them have come, while a
  // processor's cache still has them; for some of them where it becomes false.
  using PieceFn = absl::FunctionRef<void(std::span<const std::byte> piece)>;
  bool ReadUnchecked(
      schema::Space space, std::string_view key, std::uint64_t value_bytes,
      std::uint64_t offset, std::span<std::byte> destination,
      PieceFn on_piece = [](std::span<const std::byte>) {}) const;
  // Reads neighbours of kChunks, which stand in ascending order of their keys,
  // with few reads, into `scratch`, and calls `on_block` for each; NOTHING IS
  // CHECKED, as above. Past the page cache where the run is large, little of it
  // is there, and `scratch` is at a page. Returns how many of the first ones
  // that were: fewer than all where they stand far from each other, `scratch`
  // is too small, or one cannot be read like this, 0 where that is the first.
  std::size_t ReadRun(std::span<const ArrayBlock> blocks,
                      std::span<std::byte> scratch, BlockFn on_block) const;
  // A leaf record of kSmall, which once written is never another one, straight
  // from its file; the block that it is in has its checksum. Also one that was
  // deleted since. Nothing where that cannot be, as above.
  std::optional<std::string> ReadWritten(schema::Space space,
                                         std::string_view key) const;
  // The same of several, in their order: calls `on_value` for each that can be
  // given, with its place in `keys`. `value` is valid until it returns, or
  // reads. Of keys that ascend the next one is mostly in the table of the one
  // before, which is not looked for again.
  using WrittenFn =
      absl::FunctionRef<void(std::size_t at, std::string_view value)>;
  void ReadWritten(schema::Space space, std::span<const std::string> keys,
                   WrittenFn on_value) const;
  // The bytes that a value of kChunks has, as the index of its file says.
  // Nothing where that cannot be told, nor of other spaces. REQUIRES: the key
  // is there; of another the bytes of some value.
  std::optional<std::uint64_t> ValueBytes(schema::Space space,
                                          std::string_view key) const;
  // Begins to read what ReadUnchecked() will be asked for; does not wait. Where
  // the value has other bytes than `value_bytes` all of it, if all was asked
  // for.
  void Prefetch(schema::Space space, std::string_view key,
                std::uint64_t value_bytes, std::uint64_t offset,
                std::size_t bytes) const;
  // Zero-copy: the bytes stand in a mapping of the file (spaces kLeaves and
  // kChunks; a copy otherwise). The file's size is checked before it is mapped.
  // A mapped value that has as many bytes as `saved`, where that is given, is
  // compared with its digest, in place of its block's checksum, and damage
  // beside them costs nothing; one of 64 KiB or more once while its file stays
  // mapped, which is until the file goes. kDataLoss where they are others.
  absl::StatusOr<Value> View(schema::Space space, std::string_view key,
                             const Saved* saved = nullptr) const;
  // The last resort for a value that stands in a table and that none of these
  // gives: looks past damage beside it. `accept` is asked about all that it may
  // be, and must know: array bytes by their digest, others, which are only
  // offered under their own key, whether they are whole. kNotFound where
  // nothing is accepted. `spares`: also where the segment is elsewhere, too.
  absl::StatusOr<Value> Search(
      schema::Space space, std::string_view key,
      absl::FunctionRef<bool(std::string_view value)> accept,
      bool spares = true) const;
  // Whether a search of this process for the value of `key` found nothing, in
  // whatever handle of this store.
  bool IsLost(schema::Space space, std::string_view key) const;
  // Whether there is such a value.
  bool HasLost() const;
  // [begin, end); an empty `end` is no bound. `readahead_bytes` 0: the default.
  // Where some segments are elsewhere, of kChunks one segment at a time.
  // kv's own keys, from ff on, are not among the rows of kRecords and kSmall.
  absl::StatusOr<Iterator> Scan(schema::Space space, std::string_view begin,
                                std::string_view end,
                                std::size_t readahead_bytes = 0) const;
  // Without those of the second copy of `leaves`.
  absl::StatusOr<std::vector<LiveFile>> LiveFiles() const;
  // Of the second copy of `leaves` alone: the same records, not always in as
  // many files.
  absl::StatusOr<std::vector<LiveFile>> LeafCopies() const;
  // Of all files of the database and the journal.
  absl::StatusOr<std::uint64_t> FileBytes() const;
  // Of these, without those of the journal that are written now, or kept for a
  // full disk: they grow and go by themselves.
  absl::StatusOr<std::uint64_t> SettledFileBytes() const;
  // Records in the file.
  absl::StatusOr<std::uint64_t> CountEntries(const LiveFile& file) const;
  // Whether the file is as a SegmentWriter made it, so that another database
  // may Adopt() it; false of one that was written again.
  absl::StatusOr<bool> IsAsBuilt(const LiveFile& file) const;
  // Reads past every cache and checks every block of the file: `verify`.
  // kDataLoss naming the file at the first block that fails its checksum.
  absl::Status CheckFile(const LiveFile& file) const;
  // For a file of `leaves` that CheckFile() found whole: kDataLoss where a
  // record of it is not in the second copy as well, byte for byte.
  absl::Status CheckLeafCopies(const LiveFile& file) const;

  // Reads all of journal/, also what an open does not need: one line for each
  // damage that its other copy, or the index, makes good; `ragged`: what a
  // crash may have left, which is no damage. Where there is a writer only the
  // file of all rows.
  // kPermissionDenied where this user may not read some of it.
  absl::StatusOr<std::vector<std::string>> CheckJournal(
      std::vector<std::string>* ragged) const;
  // Damage of a table of rows that a read met and that the journal made good:
  // the index is to be made anew. Empty: none was met.
  std::string IndexDamage() const;

  // ---- writing ----

  // Folders in <store>/staging, one per attempt; a name is one component. One
  // that starts with "v<decimal>" keeps that version from being used again.
  absl::Status MakeStaging(std::string_view name);
  // The file that holds the room of a flush is the database's, and not listed.
  absl::StatusOr<std::vector<std::string>> ListStaging() const;
  // With all that is in it; OK where it is gone.
  absl::Status RemoveStaging(std::string_view name);

  // Takes all `segments` in, atomically, by renaming. Nothing refers to them
  // yet. On error none is in; the files stay where they are.
  absl::Status Adopt(const std::vector<StagedSegment>& segments);

  // One atomic, chained, durable batch; one at a time under a lock.
  CommitResult Commit(CommitRequest request);

  // Runs `work`, which reads, while no commit is made: what it sees is of the
  // newest one, whose ordinal it is given. Commits wait for it.
  absl::Status BetweenCommits(
      absl::FunctionRef<absl::Status(std::uint64_t ordinal)> work);

  // Makes every commit so far durable in two places: before what it made dead
  // is dropped.
  absl::Status Secure();

  // Writes the file of all rows anew; older files of the journal, damaged ones
  // among them, go.
  absl::Status WriteRows();

  // Gives back the bytes of deleted rows of `small` in the index.
  absl::Status CompactSmall();

  // [begin, end) of keys; an empty `end` is no bound.
  struct Range {
    std::string begin;
    std::string end;
  };
  // Removes every file of `space` that lies wholly in one of the ranges, and
  // adds their number to `dropped` (may be null). REQUIRES: what made them dead
  // is committed, and Secure() since.
  absl::Status Drop(schema::Space space, const std::vector<Range>& ranges,
                    std::uint64_t* dropped = nullptr);

  // Writes `files` of `space`, neighbours in key order, again as one file with
  // the records that `rewrite` (called in this thread) lets through, some of
  // them with another value, and removes them; none where nothing is kept.
  // REQUIRES: what made records dead is committed, and Secure() since. Returns
  // the new file's bytes. An error leaves the files as they were, and the
  // handle alive but where the MANIFEST could not be written; kDataLoss: a file
  // is damaged.
  absl::StatusOr<std::uint64_t> Rewrite(schema::Space space,
                                        const std::vector<LiveFile>& files,
                                        RewriteFn rewrite);

  // Of the newest commit: made here, or seen by the last Refresh().
  std::uint64_t newest_ordinal() const;
  // kRead: false where the writer has not said yet that the newest commit seen
  // here is durable: its sync may go on, or fail. Those before it are.
  bool newest_is_durable() const;
  // Of the open for writing that it was made in: each one has a higher number.
  std::uint64_t session() const;

  // Makes the second copy of leaf records where a file of `leaves` has none,
  // and drops copies of records that `leaves` lacks: in a store that an older
  // engine made, or after a crash between the two. A file that is damaged gets
  // none.
  absl::Status MendLeafCopies();

  // The dead-handle or background error, or OK.
  absl::Status health() const;
  // Makes the handle dead: memory ran out behind a commit, before all that this
  // process knows of the store was made to fit it. Never throws.
  void Abandon() const;

  // Bytes free for the store's owner on its file system.
  absl::StatusOr<std::uint64_t> FreeBytes() const;

  // Waits for background work and closes; further calls give
  // kFailedPrecondition. The destructor does the same.
  absl::Status Close();

 private:
  friend struct DatabasePeer;  // kv/testing.
  struct Impl;
  absl::StatusOr<Value> ReadOnce(schema::Space space,
                                 std::string_view key) const;
  explicit Database(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_DATABASE_H_
