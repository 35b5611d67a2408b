// SPDX-License-Identifier: Apache-2.0

// Several processes save one step: the ranks of a job, on one host or many,
// that see the same folder, or the same object store. One commit makes the
// parts of all of them visible, or none. Rank 0, the coordinator, has the store
// open for writing; the others open it to read.
//
// By the folder itself, or the object store (RankOptions::shared_folder), where
// nothing else has to carry messages:
//
//   absl::StatusOr<ckptree::RankGroup> group = ckptree::RankGroup::Open(
//       "/runs/lm", {.rank = rank, .world = world, .job = job});
//   ckptree::StepBuilder step = group->Begin(100);     // On every rank.
//   step.Put("w", {ckptree::DType::kFloat32, {64, 768}, rows, 0, {}, false,
//                  {64 * rank, 0}, {64 * world, 768}});
//   step.PutInt("epoch", 3);                           // One rank saves it.
//   ckptree::SaveHandle save = std::move(step).Commit();
//   absl::Status status = save.WaitCommitted();        // The same on all.
//
// By messages of the caller's own (MPI, sockets, a framework): RankedSave on
// the coordinator; BeginPart() and FinishPart() on every rank, also there.

#ifndef CKPTREE_RANKS_H_
#define CKPTREE_RANKS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "ckptree/export.h"
#include "ckptree/options.h"
#include "ckptree/save.h"
#include "ckptree/store.h"

namespace ckptree {

namespace internal {
struct RankGroupPeer;
}

// ---- By the store's folder ----

struct RankOptions {
  int rank = 0;   // 0: the coordinator.
  int world = 1;  // How many ranks; at most 4096.
  // Names the job, the same on all ranks: letters, digits, '-', '_' and '.', at
  // most 64. A rank that names another is not taken.
  std::string job = "job";
  // How long a rank may say nothing before it counts as lost: the others wait
  // no longer, the step fails on all ranks, and the next one may work again. A
  // rank that copies and writes says so, however long it takes. In a remote:
  // many times what a request takes, which has no more than this, nor than 20
  // seconds.
  absl::Duration deadline = absl::Minutes(5);
  // How long Open() waits for the other ranks, which may start much later. Rank
  // 0 counts from when it has the store, and any other from when it sees rank
  // 0, and then waits up to 30 s more for its word, which names those that did
  // not come: all of them name the same ranks.
  // Where rank 0 is refused the store, the others whose processes had begun by
  // then are told why at once; a later one waits as if it had not come. So do
  // all of ranks that share no folder where rank 0 does not reach store.remote,
  // or there is no store yet: nothing else is between them.
  absl::Duration open_deadline = absl::Minutes(10);
  // Whether all ranks see the folder of the store; the same on all of them.
  // Where they do not, they meet in store.remote: each rank has a directory of
  // its own, which for rank 0 is the store, with all that is saved, and for the
  // others a place beside which they build what they upload. These read the
  // store by its address. `durable` must then be kRemote.
  bool shared_folder = true;
  // How to open the store; `read_only` is decided by the rank, and
  // create_if_missing counts on rank 0. So do take_over and, in a shared
  // folder, `remote`: rank 0 ships what all ranks save. `durable` must be the
  // same on all: where it is kRemote no rank hears of a step before the remote
  // has it.
  StoreOptions store = {};
};

// This process among those that save to a store.
//
// Every rank begins and commits the same steps in the same order, and puts what
// it has: boxes of arrays (Tensor::start), whole values that all ranks have
// alike, of which one rank saves each, and, below StepBuilder::SetPerRank(),
// what is its own. The boxes of all ranks must make up the arrays: a hole, an
// overlap and a value that differs between ranks fail the step, by name; values
// above 64 KiB are compared by type and shape alone. What is said of the step
// (metrics, note, metadata, lineage, item types, its time) counts from rank 0.
// SaveOptions must be the same on all ranks.
//
// The handle's WaitStaged() is about this rank's arrays; WaitCommitted() is the
// outcome of the step, the same on every rank: the first error of any of them
// fails it, with the rank's number. kUnknown: the coordinator was lost before
// it said which, and the store does not tell either.
//
// A lost coordinator: saves of the other ranks end, and every rank has to open
// its group again. A lost rank: the coordinator names it at the deadline, or at
// once where it has closed its group; the same rank may be started again alone,
// and meets the others at their next step.
//
// Threads, crashes and forks as with Store. All ranks need the store's folder,
// and the time that a shared file system takes to show a file; or the remote,
// where each message is a request or two.
class CKPTREE_EXPORT RankGroup {
 public:
  // Opens the store and meets the other ranks; returns on all of them, or fails
  // on all of them: what rank 0 is refused the store for is the error of all,
  // by its code. kDeadlineExceeded names the ranks that did not come, or
  // says that no coordinator was seen. kInvalidArgument: rank, world or job is
  // not possible; kFailedPrecondition: the coordinator has others, or that rank
  // is there already. And what Store::Open() returns.
  static absl::StatusOr<RankGroup> Open(const std::string& directory,
                                        RankOptions options);

  RankGroup(RankGroup&&) noexcept;
  RankGroup& operator=(RankGroup&&) noexcept;
  RankGroup(const RankGroup&) = delete;
  RankGroup& operator=(const RankGroup&) = delete;
  // Close(), whose failure is logged.
  ~RankGroup();

  // As Store::Begin(), on every rank. A builder that is dropped fails the step
  // on all ranks.
  StepBuilder Begin(std::int64_t step, SaveOptions options = {});

  // The open store: to read on every rank, and for all else on rank 0, where
  // Begin() of the store itself is a save of that rank alone. On the others it
  // sees the steps that were committed by the group.
  Store& store();

  int rank() const;
  int world() const;

  // As Store::Flush(), of this rank's saves.
  absl::Status Flush(absl::Duration timeout = absl::InfiniteDuration());
  // Waits for this rank's saves, then closes the store. Does not wait for other
  // ranks, which are told: a step that they save without it is kUnavailable.
  absl::Status Close();

 private:
  friend struct internal::RankGroupPeer;
  struct CKPTREE_LOCAL Impl;
  explicit RankGroup(std::shared_ptr<Impl> impl);
  Impl& impl() const;
  std::shared_ptr<Impl> impl_;  // Also of managers over it.
};

// ---- By the caller's messages ----

struct RankedSaveOptions {
  int world = 1;  // How many parts there will be, of ranks 0 to world - 1.
  // The save fails where it was neither committed nor given up by then: no
  // other save of the store can begin in the meantime.
  absl::Duration deadline = absl::Minutes(30);
};

// The coordinator's side of one step.
//
// Thread-safe, but for moves and destruction. The store must outlive it.
class CKPTREE_EXPORT RankedSave {
 public:
  // Takes its turn among the saves of the store. `about` comes from
  // Store::Begin() and says what is said of the step as a whole (metrics, note,
  // metadata, lineage, items); it holds no leaf: rank 0 builds a part like the
  // others. Waits for the saves before it.
  static absl::StatusOr<RankedSave> Begin(StepBuilder about,
                                          const RankedSaveOptions& options);

  RankedSave(RankedSave&&) noexcept;
  RankedSave& operator=(RankedSave&&) noexcept;
  RankedSave(const RankedSave&) = delete;
  RankedSave& operator=(const RankedSave&) = delete;
  // Fails the save unless it was committed.
  ~RankedSave();

  // For every rank: some 65 bytes to be sent to it as they are.
  const std::string& plan() const;

  // Commits the step from what FinishPart() returned on each rank, in any
  // order. Errors come from the handle: kInvalidArgument names a rank that is
  // missing or there twice, a leaf with a hole, and so on; kFailedPrecondition,
  // a part of another attempt; kDeadlineExceeded. To be called once.
  SaveHandle Commit(std::vector<std::string> parts);

  // Gives the save up; returns its handle, which says `why`.
  SaveHandle Fail(const absl::Status& why);

 private:
  struct CKPTREE_LOCAL Impl;
  explicit RankedSave(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Begins the part of rank `rank`. `store` is any handle on the store in this
// process, mostly one that was opened to read. What is wrong with the plan
// comes out of StepBuilder::status() and FinishPart(). The step is not
// committed to by the builder's own calls, but by FinishPart().
CKPTREE_EXPORT StepBuilder BeginPart(const Store& store, std::string_view plan,
                                     int rank);

// Compares the part with what this rank had in the base, writes what is new,
// and returns what is to be sent to the coordinator (at most 17 KiB). The
// arrays may be changed when it returns. Nothing of it is in the store before
// the coordinator has committed it. kFailedPrecondition: the plan is of another
// store, or was given up.
CKPTREE_EXPORT absl::StatusOr<std::string> FinishPart(StepBuilder part);

}  // namespace ckptree

#endif  // CKPTREE_RANKS_H_
