// SPDX-License-Identifier: Apache-2.0

// The bytes of a save on their way from the caller's memory: copied into the
// pool, or read in place.

#ifndef CKPTREE_CORE_SAVE_STAGED_CONTENT_H_
#define CKPTREE_CORE_SAVE_STAGED_CONTENT_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "core/array/chunk_grid.h"
#include "core/save/staging_pool.h"
#include "core/save/step_content.h"

namespace ckptree::internal {

// Cuts the content of a save into pieces: each chunk of a chunked leaf, behind
// it that of its rounded copy, and runs of neighbouring packed leaves. A piece
// is copied into the pool by Stage(), or, where the pool is full or the caller
// lent the memory, read in place by the save itself. The caller's memory is
// free when no piece needs it.
//
// Stage() and the save's calls may run at once; a piece is handled by one.
class StagedContent {
 public:
  struct Piece {
    std::uint32_t leaf = 0;      // First (or only) leaf.
    std::uint32_t leaf_end = 0;  // One past the last: > leaf + 1 for a run.
    std::uint32_t box = 0;       // Chunks of arrays.
    std::int64_t cell = 0;       // Chunk of the box or of the value.
    std::uint64_t bytes = 0;
    bool run = false;  // A run of packed leaves.
    // Of a pair: the next piece is the rounded copy of this one.
    bool copy_follows = false;
    bool is_copy = false;
  };

  // Copies inline leaves at once. `staged` is called once, when the caller's
  // memory is free; `copied` before it, when what was not lent is. Neither is
  // called by, or after, Abandon(). REQUIRES: `pool` outlives this.
  StagedContent(
      StepContent content, std::size_t chunk_bytes, StagingPool* pool,
      std::function<void()> staged, std::function<void()> copied = [] {});

  // Fetches inline leaves that come from a copy function or strides; the first
  // failure of a copy function. To be called once, before the rest.
  absl::Status StageInline();

  // Copies all on this thread where that is at most `most` bytes and no
  // function has to be called for it: sooner done than another thread wakes up.
  // What the pool has no room for is left.
  void StageFew(std::uint64_t most);

  const StepContent& content() const { return content_; }
  std::size_t piece_count() const { return pieces_.size(); }
  const Piece& piece(std::size_t index) const { return pieces_[index].piece; }

  // Of a chunked leaf.
  std::int64_t chunk_count(std::uint32_t leaf) const;
  // The grid of a box of one.
  const ChunkGrid& grid(std::uint32_t leaf, std::uint32_t box) const {
    return grids_[first_grid_[leaf] + box];
  }

  // Copies piece `index` into the pool unless it is taken, lent or the pool is
  // full. False where the pool is full: stop trying.
  absl::StatusOr<bool> Stage(std::size_t index);

  // Whether a copy function of the caller's is what copies the piece, and how
  // many such pieces are to be copied.
  bool fetched(std::size_t index) const { return pieces_[index].fetched; }
  std::size_t fetched_count() const { return fetched_count_; }

  // The same as Stage() for a fetched piece, and waits for room in the pool:
  // such memory cannot be read in place. kCancelled after Abandon().
  absl::Status StageFetched(std::size_t index);

  // Takes the piece for the save; waits where it is just being copied.
  void Take(std::size_t index);

  // Fetches a taken piece of a copy function's into the pool, unless that has
  // no room: Bytes() then calls the function, each time. To be called by who
  // took it, before Bytes().
  absl::Status FetchTaken(std::size_t index);

  // The row-major bytes of a taken piece's chunk, or of one leaf of its run:
  // in the pool, in the caller's memory, or in `scratch` (grown as needed).
  // Valid until Release(index) and until `scratch` is used again.
  absl::StatusOr<std::span<const std::byte>> Bytes(
      std::size_t index, std::uint32_t leaf, std::vector<std::byte>* scratch);

  // The save is done with a piece that it took.
  void Release(std::size_t index);

  // Gives everything up: leases return, the caller's memory is free. Whoever
  // waits for it is to be told why by the caller.
  void Abandon();

  std::uint64_t staged_bytes() const { return staged_bytes_.load(); }

 private:
  enum State : std::uint8_t { kIdle, kCopying, kCopied, kTaken, kDone };

  struct Slot {
    Piece piece;
    std::atomic<std::uint8_t> state{kIdle};
    std::atomic<bool> needs_caller{false};  // Until copied or released.
    bool stage = false;                     // Worth a copy.
    bool fetched = false;                   // By a copy function.
    StagingPool::Lease lease;
  };

  bool IsIdle(const Slot& slot) const {
    return slot.state.load(std::memory_order_relaxed) == kIdle;
  }
  // Copies it unless it is taken by now.
  absl::Status StageInto(Slot* slot, StagingPool::Lease lease);
  absl::Status CopyPiece(const Slot& slot, std::span<std::byte> destination);
  absl::Status FetchChunk(const SourceLeaf& leaf, const Piece& piece,
                          std::span<std::byte> destination);
  void CallerFree(Slot* slot);
  static void CountDown(std::atomic<std::int64_t>* waiting,
                        const std::atomic<bool>& abandoned,
                        const std::function<void()>& none_left);

  StepContent content_;
  const std::size_t chunk_bytes_;
  StagingPool* const pool_;
  const std::function<void()> staged_;
  const std::function<void()> copied_;
  std::vector<char> inline_values_;
  std::vector<Slot> pieces_;
  std::size_t fetched_count_ = 0;
  std::vector<ChunkGrid> grids_;
  std::vector<std::uint32_t> first_grid_;  // By leaf.
  std::vector<std::uint64_t> run_offset_;  // By leaf: in its run's lease.
  std::atomic<std::int64_t> waiting_{0};   // Pieces that need the caller, + 1.
  std::atomic<std::int64_t> uncopied_{0};  // Of them those not lent, + 1.
  std::atomic<bool> abandoned_{false};
  std::atomic<std::uint64_t> staged_bytes_{0};

  absl::Mutex copying_mu_;  // Only for waiting on a piece being copied.
};

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_SAVE_STAGED_CONTENT_H_
