// SPDX-License-Identifier: Apache-2.0

// The cases; each prints its figures beside their ceiling and returns false
// where a guarded figure is beyond its floor.

#ifndef CKPTREE_BENCH_CASES_H_
#define CKPTREE_BENCH_CASES_H_

#include "bench/measure.h"

namespace ckptree::bench {

// 2 GiB in 128 arrays, everything changed: beside raw O_DIRECT writes.
bool FullSave(const Settings& settings);
// The same state, 1 % of its chunks changed: beside one XXH3-128 pass and a raw
// write of the changed bytes.
bool Incremental(const Settings& settings);
// 100 000 leaves of 4 KiB: save, and restore from an aged store.
bool SmallLeaves(const Settings& settings);
// What save, restore, verify and collection of 512 MiB take in memory beside
// the caller's arrays, and what a store keeps of each of 100 000 and 1 M
// leaves.
bool Memory(const Settings& settings);
// What its processes do; the exit code.
int MemoryAlone(const char* what, const char* path, const char* size,
                const char* answer);
// 10 000 steps of 64 KiB: the commit at the start and the end, open, log.
bool ManySteps(const Settings& settings);
// 100 000 steps of one leaf of 4 KiB: open, list, the history of the leaf.
bool LongRun(const Settings& settings);
// A memory-bound loop on one core while 1 GiB is saved, beside the loop alone.
bool TrainingBeside(const Settings& settings);
// Save, restore and verify of 1 GiB with 1 to 16 threads.
bool Processors(const Settings& settings);
// One leaf of 4 KiB by name, of 1 000 steps of 200: read before; for the first
// time, beside O_DIRECT reads of as much; and by a process of its own.
bool Query(const Settings& settings);
// What that process does; its exit code.
int QueryAlone(const char* path, const char* step, const char* leaf);

// 2 GiB in 128 arrays: out of files that are not in the page cache, beside
// O_DIRECT reads, into memory that was touched before and into fresh memory.
bool RestoreCold(const Settings& settings);
// The same out of the page cache, beside a copy of as much.
bool RestoreWarm(const Settings& settings);
// The same without a copy: views of all arrays, each chunk checked before.
bool Views(const Settings& settings);

// 20 steps of 256 MiB, everything changed: delete and collect, keeping the last
// three and every tenth; beside rm of equal files and a sync.
bool CollectWhole(const Settings& settings);
// Steps of which half is still needed: what is written beside what lives.
bool CollectShared(const Settings& settings);
// A save of 16 MiB while files are written again, beside one on an idle store.
bool SaveBesideCollection(const Settings& settings);
// 10 000 saves of 64 KiB of which three are kept.
bool KeepThree(const Settings& settings);
// 10 000 saves of 64 KiB under the manager, of which it keeps three, beside a
// loop of write, fsync, rename and unlink; and its decision over 10 000 steps.
bool ManagerLoop(const Settings& settings);
// A step of 100 000 leaves, deleted and collected.
bool DeleteManyLeaves(const Settings& settings);

// The state of a small training in mixed precision, coded: its ratio, the coder
// on one core, and saves of it to a disk of 0.5 GB/s and to this one, plain and
// coded.
bool Space(const Settings& settings);

// Every verb of the command, as processes of their own, on a run of 10 000
// steps of 400 leaves and on a step of 100 000; the stores are kept beside the
// directory, as `.stores`. And how soon `log -f` runs the command of an alert.
bool Command(const Settings& settings);

// The commit of 1024 ranks' parts, in one process.
bool RanksCommit(const Settings& settings);
// The open of a step of 64 parts, of 10 000 pieces each.
bool RanksOpen(const Settings& settings);

// Of a store in an object store, whose server is in the environment: 512 MiB
// saved and restored, beside raw requests of as much.
bool RemoteLarge(const Settings& settings);
// Saves of 64 KiB, beside one raw PUT, and what a change of 1 % uploads.
bool RemoteSmall(const Settings& settings);
// An open of 10 000 steps, a look at what is new, one leaf.
bool RemoteOpen(const Settings& settings);
// A local save while the ones before are shipped, beside one of a store alone.
bool RemoteBeside(const Settings& settings);

}  // namespace ckptree::bench

#endif  // CKPTREE_BENCH_CASES_H_
