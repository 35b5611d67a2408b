// SPDX-License-Identifier: Apache-2.0

// Collection: the bytes that no step needs any more are freed.
//
// Deleting a step makes it invisible at once and frees nothing by itself. A
// collection finds the blocks that only deleted steps needed, drops the files
// in which nothing else is left, and writes files again in which much is dead.
// A store that is open for writing does that in the background
// (StoreOptions::collect); Store::Collect() does it now.

#ifndef CKPTREE_COLLECT_H_
#define CKPTREE_COLLECT_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace ckptree {

// How far a collection is.
struct CollectProgress {
  std::uint64_t versions_done = 0;
  std::uint64_t versions_total = 0;
  std::uint64_t bytes_freed = 0;
  std::uint64_t bytes_written = 0;  // Of files written again.
};

struct CollectOptions {
  // Files in which this fraction of the bytes is dead are written again without
  // them; 0: every file with a dead byte; 1: none, and no small ones are
  // merged. Files without a living byte are dropped in any case, at no cost.
  double min_dead_fraction = 0.25;

  // Also writes files again in which arrays of any step but the newest would
  // take a twentieth less coded (see Coding::kPlanes): for steps that are kept
  // for long, once. Each such file is read and written once; a sample of it
  // says whether it is worth it. A collection that was stopped goes on where it
  // was.
  bool pack = false;

  // Bound of the bytes that rewriting reads; 0: none.
  std::uint64_t bytes_per_second = 0;

  // Asked between versions and between files, on the thread of the call; true
  // stops with kCancelled. What was freed by then stays freed. Neither of these
  // functions may call the store, which holds other collections back.
  std::function<bool()> cancelled = {};
  std::function<void(const CollectProgress&)> on_progress = {};
};

// A step that was deleted or overwritten, and whose bytes cannot go yet: a
// reader has it open, two branches go on from it, or the step after it is
// still compared with it.
struct KeptVersion {
  std::int64_t step = 0;
  std::uint64_t version = 0;
  std::string why = {};
};

// What one collection did.
struct CollectReport {
  // Saves of deleted and overwritten steps whose last byte is accounted for.
  std::uint64_t versions = 0;
  std::uint64_t blocks_freed = 0;  // That nothing refers to any more.
  std::uint64_t bytes_freed = 0;   // Of these, on this disk.
  // Of those of arrays that had left it (StoreOptions::local_keep): the remote
  // alone gets them back. Not known where another process collected.
  std::uint64_t far_bytes_freed = 0;
  // Of bytes_freed, still in files that hold other bytes; about right. A
  // collection that writes such files again (min_dead_fraction) gives them
  // back.
  std::uint64_t bytes_left = 0;
  std::uint64_t files_dropped = 0;  // Without a living byte.
  std::uint64_t files_rewritten = 0;
  std::uint64_t bytes_written = 0;  // By rewriting.
  std::uint64_t files_packed = 0;   // Of those rewritten: CollectOptions::pack.
  // Of all files of the database and the journal, but for what the journal
  // writes now and keeps for a full disk, which comes and goes by itself.
  std::uint64_t file_bytes_before = 0;
  std::uint64_t file_bytes_after = 0;
  std::vector<KeptVersion> kept = {};     // For a later collection.
  std::vector<std::string> damaged = {};  // Files left alone, and why.
  // What would have freed more and found no room on the disk, which writing
  // living bytes again takes first; a later collection does it.
  std::vector<std::string> no_room = {};
};

}  // namespace ckptree

#endif  // CKPTREE_COLLECT_H_
