// The wall: bytes in, bytes out, absl::Status. No RocksDB type in any header.

#ifndef CKPTREE_KV_DATABASE_H_
#define CKPTREE_KV_DATABASE_H_

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
#include "kv/commit_log.h"
#include "kv/head.h"
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
  bool small = false;         // See CommitRecord::small.
  WriteBatch batch;
  // Content-addressed records that `batch` refers to and that would make it too
  // large: written, unsynced, before it. Nothing refers to them should the
  // commit not happen.
  std::vector<WriteBatch> before;
  std::vector<Precondition> preconditions;
};

// A file of `leaves` or `chunks` that is part of the database.
struct LiveFile {
  schema::Space space = schema::Space::kChunks;
  std::string path;
  std::string first_key;
  std::string last_key;
  std::uint64_t bytes = 0;    // As the MANIFEST says.
  std::uint64_t entries = 0;  // 0 where it was not read since the open.
  bool whole = true;          // On disk with that size.
};

// What open found; given to the check of step 4.
struct OpenReport {
  HeadSlot head;
  bool head_missing = false;
  std::uint64_t ordinal = 0;      // Of the newest commit in the log.
  bool ahead_by_one = false;      // One commit after HEAD: accepted.
  bool copied = false;            // Another directory than HEAD names.
  std::uint64_t highest_version = 0;  // In HEAD's ceiling and in any key of a
                                      // live file or name in staging.
  // The commits (small_safe, newest], oldest first, chained: those whose blocks
  // in `small` may have been lost with the log.
  std::vector<CommitRecord> recent;
  std::vector<std::string> warnings;  // Of damage.
  std::vector<std::string> notes;     // What is odd, and hurts nothing.
  // Read-write is refused, only reading allowed, because of this.
  absl::Status read_only_because;
};

// One store directory:
//   HEAD  LOCK  db/ (RocksDB)  staging/ (segments being built)
//   CREATING (while Create has not finished)
//
// Thread-safe, but for Close(). After fork() every call in the child returns
// kFailedPrecondition; the child's destructor does nothing.
//
// Destroy iterators and values first.
class Database {
 public:
  // Looks at an opened database before anything may change it; an error refuses
  // the open. `database` answers reads only.
  using CheckFn =
      absl::FunctionRef<absl::Status(const Database& database,
                                     const OpenReport& report)>;

  // Makes a store in `directory`, which must be absent, empty or left by an
  // interrupted Create; kAlreadyExists where it is a store, kInvalidArgument
  // where it holds anything else. The first record written is (records,
  // store_key) = store_value, synced, before anything else (rocksdb.md part 3).
  // `uuid` has 16 bytes. `batch` joins the first commit.
  static absl::StatusOr<std::unique_ptr<Database>> Create(
      const std::string& directory, const Options& options,
      std::string_view uuid, std::string_view store_key,
      std::string_view store_value, WriteBatch batch);

  // Opens in the order of design.md part 6, rule 4: lock -> directory sane ->
  // read-only open -> HEAD and chain -> `check` -> read-write open. Nothing is
  // changed before `check` returned OK.
  //
  // kNotFound: no store there, or one whose creation was not finished.
  // kFailedPrecondition: links in the directory, or HEAD gone or more than one
  // commit behind in kReadWrite (kRead opens, with a warning). kDataLoss:
  // commits that HEAD acknowledged are missing, or the chain is broken; says
  // which ordinals.
  // kUnavailable: another writer holds it.
  static absl::StatusOr<std::unique_ptr<Database>> Open(
      const std::string& directory, const Options& options, Mode mode,
      CheckFn check);

  ~Database();
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  Mode mode() const;
  const OpenReport& report() const;
  std::string staging_directory() const;  // <store>/staging

  // True beside a live writer (kRead only): Refresh() has something to do.
  bool following() const;

  // kRead: opens anew where HEAD says that something is new, or a writer came
  // or went. To see no half of a step: list the steps, Refresh(), then read what
  // was listed. kDataLoss where the store stays behind its HEAD. Views and
  // iterators made before stay valid.
  absl::Status Refresh();

  // ---- reading ----

  // Nothing where the key is absent.
  absl::StatusOr<std::optional<std::string>> Get(schema::Space space,
                                                 std::string_view key) const;
  // kNotFound where the key is absent. One copy from the file's block at most.
  absl::StatusOr<Value> Read(schema::Space space, std::string_view key) const;
  // Bytes of a value of kChunks from `offset` on, straight from its file: no
  // copy, and NOTHING IS CHECKED. False where that cannot be, for whatever
  // reason: Read() does it, or says what is wrong.
  bool ReadUnchecked(schema::Space space, std::string_view key,
                     std::uint64_t offset,
                     std::span<std::byte> destination) const;
  // Begins to read what ReadUnchecked() will be asked for; does not wait.
  void Prefetch(schema::Space space, std::string_view key, std::uint64_t offset,
                std::size_t bytes) const;
  // Zero-copy: the bytes stand in a mapping of the file (spaces kLeaves and
  // kChunks; a copy otherwise). The file's size is checked before it is mapped.
  absl::StatusOr<Value> View(schema::Space space, std::string_view key) const;
  // [begin, end); an empty `end` is no bound. `readahead_bytes` 0: the default.
  absl::StatusOr<Iterator> Scan(schema::Space space, std::string_view begin,
                                std::string_view end,
                                std::size_t readahead_bytes = 0) const;
  // Reads past every cache and checks every block of the file: `verify`.
  absl::StatusOr<std::vector<LiveFile>> LiveFiles() const;
  // Of all files of the database.
  absl::StatusOr<std::uint64_t> FileBytes() const;
  // Records in the file.
  absl::StatusOr<std::uint64_t> CountEntries(const LiveFile& file) const;
  // kDataLoss naming the file at the first block that fails its checksum.
  absl::Status CheckFile(const LiveFile& file) const;

  // ---- writing ----

  // Folders in <store>/staging, one per attempt; a name is one component. One
  // that starts with "v<decimal>" keeps that version from being used again.
  absl::Status MakeStaging(std::string_view name);
  absl::StatusOr<std::vector<std::string>> ListStaging() const;
  // With all that is in it; OK where it is gone.
  absl::Status RemoveStaging(std::string_view name);

  // Takes all `segments` in, atomically, by renaming. Nothing refers to them
  // yet. On error none is in; the files stay where they are.
  absl::Status Adopt(const std::vector<StagedSegment>& segments);

  // One atomic, chained, durable batch; one at a time under a lock. Fills in
  // ordinal and previous hash, writes the batch synced, then HEAD.
  CommitResult Commit(CommitRequest request);

  // Flushes `records` (and `small`), so that nothing the log alone held can be
  // lost: before Drop.
  absl::Status Flush();

  // [begin, end) of keys; an empty `end` is no bound.
  struct Range {
    std::string begin;
    std::string end;
  };
  // Removes every file of `space` that lies wholly in one of the ranges, and adds
  // their number to `dropped` (may be null).
  // REQUIRES: what made them dead is committed and flushed.
  absl::Status Drop(schema::Space space, const std::vector<Range>& ranges,
                    std::uint64_t* dropped = nullptr);

  // Writes `files` of `space`, neighbours in key order, again as one file with
  // the records that `keep` (called in this thread) lets through, and removes
  // them; none where nothing is kept. REQUIRES: what made records dead is
  // committed and flushed. Returns the new file's bytes. An error leaves the
  // files as they were, and the handle alive but where the MANIFEST could not be
  // written; kDataLoss: a file is damaged.
  absl::StatusOr<std::uint64_t> Rewrite(schema::Space space,
                                        const std::vector<LiveFile>& files,
                                        KeepFn keep);

  // Newest commit up to which everything in `small` has left the log.
  std::uint64_t small_safe() const;

  // The dead-handle or background error, or OK.
  absl::Status health() const;

  // Bytes free for the store's owner on its file system.
  absl::StatusOr<std::uint64_t> FreeBytes() const;

  // Waits for background work and closes; further calls give
  // kFailedPrecondition. The destructor does the same.
  absl::Status Close();

 private:
  struct Impl;
  explicit Database(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_DATABASE_H_
