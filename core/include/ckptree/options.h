// SPDX-License-Identifier: Apache-2.0

// How a store is opened, and what it tells about its work.
//
// Every option has a default that is right for a trainer on one host. Options
// are of the open, not of the store: another open may have others.

#ifndef CKPTREE_OPTIONS_H_
#define CKPTREE_OPTIONS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "ckptree/export.h"
#include "ckptree/preservation.h"

namespace ckptree {

enum class LogSeverity { kInfo, kWarning, kError };

// Called from any thread, one call at a time; must not call back into the store
// that logs. `where` names the part of the engine.
using LogSink = std::function<void(LogSeverity severity, std::string_view where,
                                   std::string_view text)>;

// How far a save is.
struct Progress {
  enum class Phase {
    kQueued,      // Being copied, or behind other saves.
    kWriting,     // Compared with the step before; what is new is written.
    kCommitting,  // Being made durable: too late to cancel.
    kDone,
    kFailed,  // Or cancelled.
  };
  std::int64_t step = 0;
  Phase phase = Phase::kQueued;
  std::uint64_t bytes_total = 0;   // Of all values.
  std::uint64_t bytes_staged = 0;  // Free for the caller again.
  std::uint64_t bytes_compared = 0;
  std::uint64_t bytes_written = 0;    // New bytes handed to the disk.
  std::uint64_t bytes_unchanged = 0;  // Shared with the base.
  std::uint64_t leaves_total = 0;
};

// Memory that staged copies live in, e.g. page-locked memory of a device. The
// functions are called from any thread, several at once, until the store is
// closed; they must not throw, nor call the store.
struct HostAllocator {
  std::function<void*(std::size_t bytes)> allocate = {};  // Null on failure.
  std::function<void(void* memory, std::size_t bytes)> free = {};
};

// How the bytes of new arrays stand on the disk. Whatever is chosen, every
// store reads both: it is of each piece of an array, and changes no value.
enum class Coding {
  kNone,    // As they are in memory.
  kPlanes,  // Coded, without loss, where that saves a twentieth: floating-point
            // numbers then take about a fifth less (bf16 a third; the bf16
            // copy of an fp32 array in the same save nothing). It costs
            // 0.3-0.5 s of a processor a GB, so it makes saves faster where the
            // disk is slow, and slower where it is not.
  kAuto,    // As kPlanes or kNone, by what the threads that wrote the last save
            // did more: wait for the disk, or compute. Begins with kNone.
};

// What it takes for a save to be committed, of a store with a remote. Of saves
// alone: tags, pins, deletions, forks and policies are done when the disk has
// them, and follow there; Store::WaitReplicated() waits for that.
enum class Durable {
  kLocal,   // It is on the disk; the remote gets it behind that.
  kRemote,  // It is in the remote, too. Saves wait for that one by one.
};

struct StoreOptions {
  // Create the store where the directory is absent or has none. What is of
  // others stays there; where that may be checkpoints of another kind (folders
  // and files that are called as steps: 100, step_100) it is an error. Without
  // this, opening such a directory is kNotFound: a mistyped path makes no run.
  bool create_if_missing = false;

  // Open for reading: no lock, safe beside a live trainer. Nothing is written
  // but, in the folder `leases`, a small file that says which steps are open.
  bool read_only = false;

  // How long to wait for another process that has the store open for writing,
  // before kUnavailable: a job that restarts may meet the end of the one
  // before. Who has it open as `brief` is waited for ten seconds in any case.
  absl::Duration lock_wait = absl::ZeroDuration();

  // Of an open for writing that makes a change or two and is closed again, as
  // those of `ckptree tag`, `rm` and `gc`: others that open the store for
  // writing in the meantime wait for it rather than be refused.
  bool brief = false;

  // Threads that hash, write and read, all saves of this store together, and
  // all reads; 0, and more than that: one for each processor that the process
  // may use, by its affinity mask and the quota of its cgroup. While nobody
  // waits for a save it leaves one processor to others, where there are two.
  // A read of 16 MiB and more has that many threads of its own, which mostly
  // wait for the disk; with 0 at least eight. A few threads more, mostly
  // asleep, order the saves and look after the journal.
  int threads = 0;

  // Permission bits of new files, before the umask takes some away:
  // 0600 keeps a store to its owner. Who may read may enter the folders.
  int permissions = 0666;

  // Bound of the memory that copied values wait in; 0: an eighth of the memory
  // that the machine, or the process's cgroup, has, at most 4 GiB. A step that
  // is larger is staged piece by piece, as fast as pieces are written. Beyond
  // it a thread that writes takes one piece of memory of its own where the pool
  // is full and an array has a copy function.
  std::size_t staging_bytes = 0;
  // Staging memory goes back to the system once no save was in flight for
  // this long; absl::InfiniteDuration(): when the store is closed.
  absl::Duration staging_idle = absl::Seconds(10);

  // Saves that are committed to and not yet over: StepBuilder::Commit() of one
  // more waits. A step that was begun before and is not committed yet never
  // makes it wait.
  int max_saves_in_flight = 2;

  // Bytes of the pieces that arrays are cut into: 64 KiB to 16 MiB. A piece is
  // what is compared, written and read as one: small ones find small changes
  // and cost more records.
  std::size_t chunk_bytes = std::size_t{4} << 20;

  // Free the bytes of deleted and overwritten steps in the background, beside
  // saves and readers. Otherwise Store::Collect() does it.
  bool collect = true;
  // Bound of the bytes that the background reads to write files again; 0: none.
  std::uint64_t collect_bytes_per_second = std::uint64_t{256} << 20;

  // Of the arrays that saves write, and of those that collection writes again
  // sixteen saves and more after theirs. CollectOptions::pack codes arrays that
  // are there already. Unset: kPlanes where `remote` is set, as a network is
  // slower than processors code and an object store is paid for by the byte;
  // kNone else.
  std::optional<Coding> coding = std::nullopt;

  // Record statistics (count, NaN, Inf, zeros, min, max, mean, L2) of arrays.
  // Without them it is not known whether a step is healthy: the selector
  // `healthy` does not choose it, and policies that ask for health are refused.
  bool statistics = true;

  // An object store that gets every commit, in their order, behind the disk:
  // s3://bucket/prefix, rados://pool/namespace, or file:///folder of a file
  // system that others see; gs://bucket/prefix where CKPTREE_GS_ENDPOINT is
  // set. Credentials and the endpoint come from the environment, as AWS's own
  // tools and Ceph's have them. A bucket that creates no object conditionally
  // is kFailedPrecondition, and can be read. An open for writing of a directory
  // that is absent or empty fetches the store from there, where it is. One
  // process at a time writes to it: another one that opens it for writing ends
  // that, see `take_over`. Empty: none. Of an open for writing.
  std::string remote = {};
  Durable durable = Durable::kLocal;
  // Open also where another process wrote to the remote less than ten minutes
  // ago and did not close it: its saves fail from then on. Else such an open is
  // kFailedPrecondition. So is one of an address that has lost the object
  // `store`, which this puts back where it is of one store; and of one that has
  // nothing of what the directory shipped there: this ships all again.
  bool take_over = false;
  // How long a save that is durable in the remote, and Close(), wait for it.
  absl::Duration remote_timeout = absl::Minutes(10);

  // How long objects in the remote stay once nothing needs them, by its clock:
  // who reads the store there for longer may meet StepGone; so may who calls
  // Refresh() with a step open that was deleted. They are deleted by
  // whom it is open for writing with a remote.
  absl::Duration remote_grace = absl::Hours(1);

  // Which steps stay on this disk. Arrays that no such step needs leave it once
  // they are in the remote, and are read there: whoever reads them needs its
  // credentials, and a directory is a whole store only with its remote from
  // then on. It is looked at behind each commit that was shipped and by
  // Close(), by the steps of each branch; the newest step of each always stays.
  // A step that is to stay again is fetched back: PreserveAll brings back all.
  // It removes no step: that is for the policy of a branch. A pin or a tag
  // keeps a step from being removed, not on the disk. Unset: nothing leaves,
  // and what has left stays away. kInvalidArgument without a remote, of rules
  // that need functions, and with a remote_grace below a minute.
  std::optional<Preservation> local_keep = std::nullopt;

  // Asked ten times a second, by any thread, while an open, a Refresh(), a read
  // or a Close() waits for an object store: once it says so, these end with
  // kCancelled, and a Close() leaves what was not shipped to the next open. A
  // read asks it before each request, too. One that throws says so, too. Null:
  // never.
  std::function<bool()> cancelled = {};

  HostAllocator host_allocator = {};  // Null: the system's.

  // Null: warnings and errors go to standard error.
  LogSink log = {};

  // Called from one thread, at most ten times a second and at the end of each
  // phase of each save. Null: nothing.
  std::function<void(const Progress&)> on_progress = {};
};

// Counts since the store was opened; none of them is ever reset.
struct Stats {
  std::uint64_t saves_committed = 0;
  std::uint64_t saves_failed = 0;
  std::uint64_t saves_in_flight = 0;
  std::uint64_t bytes_staged = 0;     // Copied from the caller's memory.
  std::uint64_t bytes_hashed = 0;     // Compared with the step before.
  std::uint64_t bytes_written = 0;    // New bytes of values.
  std::uint64_t bytes_unchanged = 0;  // Not written: shared with the base.
  std::uint64_t bytes_coded = 0;      // Of bytes_written: in coded pieces.
  std::uint64_t bytes_coded_to = 0;   // What these take on the disk.
  std::uint64_t bytes_read = 0;       // From chunks, by restores.
  std::uint64_t chunks_written = 0;
  std::uint64_t leaf_records_written = 0;
  std::uint64_t segments_written = 0;
  // Of the threads that order the saves, not of those that work for them.
  double seconds_staging = 0;
  double seconds_comparing_and_writing = 0;
  double seconds_committing = 0;
  std::uint64_t staging_bytes_in_use = 0;
};

// Prometheus text format of `stats`, a line or more for each field.
CKPTREE_EXPORT std::string PrometheusText(const Stats& stats);

}  // namespace ckptree

#endif  // CKPTREE_OPTIONS_H_
