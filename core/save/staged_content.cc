// SPDX-License-Identifier: Apache-2.0

// Hot path: per chunk.

#include "core/save/staged_content.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "ckptree/dtype.h"
#include "ckptree/path.h"
#include "core/array/stream_copy.h"
#include "core/process/guarded_call.h"

namespace ckptree::internal {
namespace {

// Runs of small leaves are copied and compared this many bytes at a time.
constexpr std::uint64_t kRunBytes = 1 << 20;

std::int64_t ElementBytes(const SourceLeaf& leaf) {
  return leaf.entry().packed ? 1 : (BitWidth(leaf.entry().dtype) + 7) / 8;
}

std::int64_t BytesOfElements(const SourceLeaf& leaf, std::int64_t elements) {
  if (!leaf.entry().packed) return elements * ElementBytes(leaf);
  return (elements * BitWidth(leaf.entry().dtype) + 7) / 8;
}

constexpr std::uint64_t Align64(std::uint64_t n) { return (n + 63) / 64 * 64; }

bool IsFetched(const SourceBox& box) {
  return !box.dense() && box.access->copy != nullptr;
}

// Calls the leaf's copy function; its failure names the leaf.
absl::Status CallCopy(const SourceLeaf& leaf, const SourceBox& box,
                      std::uint64_t offset, std::span<std::byte> destination) {
  const absl::Status status = GuardedStatus(
      "the function", [&] { return box.access->copy(offset, destination); });
  if (status.ok()) return status;
  return absl::Status(
      status.code(),
      absl::StrFormat("%s: its copy function failed: %s",
                      Path::Decode(leaf.path).value_or(Path()).Text(),
                      status.message()));
}

// Fills `destination` with the whole of the leaf's only box.
absl::Status FetchWhole(const SourceLeaf& leaf,
                        std::span<std::byte> destination) {
  if (destination.empty()) return absl::OkStatus();
  if (leaf.box_count == 0) {
    std::memcpy(destination.data(), leaf.bytes, destination.size());
    return absl::OkStatus();
  }
  const SourceBox& box = leaf.boxes().front();
  if (box.dense()) {
    std::memcpy(destination.data(), box.data, destination.size());
    return absl::OkStatus();
  }
  if (box.access->copy) return CallCopy(leaf, box, 0, destination);
  Gather(box.data, box.strides(), box.box->shape, ElementBytes(leaf),
         destination.data());
  return absl::OkStatus();
}

}  // namespace

StagedContent::StagedContent(StepContent content, std::size_t chunk_bytes,
                             StagingPool* pool, std::function<void()> staged,
                             std::function<void()> copied)
    : content_(std::move(content)),
      chunk_bytes_(chunk_bytes),
      pool_(pool),
      staged_(std::move(staged)),
      copied_(std::move(copied)),
      first_grid_(content_.leaves.size(), 0),
      run_offset_(content_.leaves.size(), 0) {
  struct Plan {
    Piece piece;
    bool borrowed;
    bool caller;
    bool fetched;
  };
  std::vector<Plan> plans;
  for (std::uint32_t i = 0; i < content_.leaves.size(); ++i) {
    const SourceLeaf& leaf = content_.leaves[i];
    if (leaf.form == LeafForm::kInline) continue;
    if (leaf.form == LeafForm::kPacked) {
      const bool borrowed = leaf.box_count == 0 || leaf.boxes()[0].borrow;
      const bool caller = leaf.box_count != 0;
      const bool fetched = caller && IsFetched(leaf.boxes()[0]);
      const std::uint64_t bytes = Align64(leaf.byte_length);
      if (!plans.empty() && plans.back().piece.run &&
          plans.back().borrowed == borrowed &&
          plans.back().piece.leaf_end == i &&
          plans.back().piece.bytes + bytes <= kRunBytes) {
        run_offset_[i] = plans.back().piece.bytes;
        plans.back().piece.bytes += bytes;
        plans.back().piece.leaf_end = i + 1;
        plans.back().caller |= caller;
        plans.back().fetched |= fetched;
      } else {
        plans.push_back(
            {{i, i + 1, 0, 0, bytes, true}, borrowed, caller, fetched});
      }
      continue;
    }
    first_grid_[i] = static_cast<std::uint32_t>(grids_.size());
    for (std::uint32_t b = 0; b < leaf.box_count; ++b) {
      const ChunkGrid& grid = grids_.emplace_back(leaf.box(b));
      for (std::int64_t cell = 0; cell < grid.count(); ++cell) {
        const auto bytes = static_cast<std::uint64_t>(
            BytesOfElements(leaf, grid.cell_elements(cell)));
        plans.push_back({{i, i + 1, b, cell, bytes, false},
                         leaf.boxes()[b].borrow,
                         true,
                         IsFetched(leaf.boxes()[b])});
      }
    }
    if (leaf.box_count == 0) {
      for (std::uint64_t at = 0; at < leaf.byte_length; at += chunk_bytes_) {
        const std::uint64_t bytes =
            std::min<std::uint64_t>(chunk_bytes_, leaf.byte_length - at);
        plans.push_back(
            {{i, i + 1, 0, static_cast<std::int64_t>(at / chunk_bytes_), bytes,
              false},
             true,
             false,
             false});
      }
    }
  }
  std::vector<std::size_t> order(plans.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto is_copy = [&](std::size_t at) {
    return content_.leaves[plans[at].piece.leaf].is_copy;
  };
  if (std::any_of(order.begin(), order.end(), is_copy)) {
    std::vector<std::size_t> first_of(content_.leaves.size());
    for (std::size_t at = plans.size(); at-- > 0;) {
      first_of[plans[at].piece.leaf] = at;
    }
    order.clear();
    for (std::size_t at = 0; at < plans.size(); ++at) {
      if (is_copy(at)) continue;
      order.push_back(at);
      Piece& piece = plans[at].piece;
      const std::uint32_t copy = content_.leaves[piece.leaf].copy;
      if (piece.run || copy == kNoLeaf) continue;
      const std::size_t copy_at = first_of[copy] + (at - first_of[piece.leaf]);
      piece.copy_follows = true;
      plans[copy_at].piece.is_copy = true;
      order.push_back(copy_at);
    }
  }
  pieces_ = std::vector<Slot>(plans.size());
  std::int64_t waiting = 1, uncopied = 1;  // Released by StageInline().
  for (std::size_t i = 0; i < plans.size(); ++i) {
    const Plan& plan = plans[order[i]];
    pieces_[i].piece = plan.piece;
    pieces_[i].needs_caller = plan.caller;
    pieces_[i].stage = plan.caller && !plan.borrowed;
    pieces_[i].fetched = plan.fetched;
    fetched_count_ += pieces_[i].stage && plan.fetched ? 1 : 0;
    waiting += plan.caller ? 1 : 0;
    uncopied += pieces_[i].stage ? 1 : 0;
  }
  waiting_.store(waiting);
  uncopied_.store(uncopied);
}

std::int64_t StagedContent::chunk_count(std::uint32_t leaf_index) const {
  const SourceLeaf& leaf = content_.leaves[leaf_index];
  // Values that are no arrays are cut linearly.
  if (leaf.box_count == 0) {
    return static_cast<std::int64_t>((leaf.byte_length + chunk_bytes_ - 1) /
                                     chunk_bytes_);
  }
  std::int64_t count = 0;
  for (std::uint32_t b = 0; b < leaf.box_count; ++b) {
    count += grid(leaf_index, b).count();
  }
  return count;
}

absl::Status StagedContent::StageInline() {
  const auto is_staged_here = [](const SourceLeaf& leaf) {
    return leaf.form == LeafForm::kInline && leaf.box_count != 0;
  };
  std::size_t bytes = 0;
  for (const SourceLeaf& leaf : content_.leaves) {
    if (is_staged_here(leaf)) bytes += leaf.byte_length;
  }
  inline_values_.resize(bytes);
  std::span<char> free(inline_values_);
  for (SourceLeaf& leaf : content_.leaves) {
    if (!is_staged_here(leaf)) continue;
    const std::span<char> value = free.first(leaf.byte_length);
    CKPTREE_RETURN_IF_ERROR(FetchWhole(leaf, std::as_writable_bytes(value)));
    leaf.bytes = value.data();
    free = free.subspan(value.size());
  }
  CountDown(&uncopied_, abandoned_, copied_);
  CountDown(&waiting_, abandoned_, staged_);
  return absl::OkStatus();
}

void StagedContent::StageFew(std::uint64_t most) {
  std::uint64_t bytes = 0;
  for (const Slot& slot : pieces_) {
    if (slot.stage) bytes += slot.piece.bytes;
    if (bytes > most) return;
  }
  for (const SourceLeaf& leaf : content_.leaves) {
    for (const SourceBox& box : leaf.boxes()) {
      if (IsFetched(box)) return;
    }
  }
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    if (!Stage(i).value_or(false)) return;
  }
}

void StagedContent::CountDown(std::atomic<std::int64_t>* waiting,
                              const std::atomic<bool>& abandoned,
                              const std::function<void()>& none_left) {
  // Who counts to zero sees what was set before any other counted.
  if (waiting->fetch_sub(1) == 1 && !abandoned.load()) none_left();
}

absl::Status StagedContent::FetchChunk(const SourceLeaf& leaf,
                                       const Piece& piece,
                                       std::span<std::byte> destination) {
  if (destination.empty()) return absl::OkStatus();
  if (leaf.box_count == 0) {
    std::memcpy(
        destination.data(),
        leaf.bytes + static_cast<std::size_t>(piece.cell) * chunk_bytes_,
        destination.size());
    return absl::OkStatus();
  }
  const SourceBox& box = leaf.boxes()[piece.box];
  const ChunkGrid& chunks = grid(piece.leaf, piece.box);
  const std::int64_t offset =
      BytesOfElements(leaf, chunks.offset_elements(piece.cell));
  if (IsFetched(box)) {
    return CallCopy(leaf, box, static_cast<std::uint64_t>(offset), destination);
  }
  if (box.dense() && chunks.contiguous()) {
    StreamCopy(destination.data(), box.data + offset, destination.size());
    return absl::OkStatus();
  }
  const ChunkGrid::Cell cell = chunks.cell(piece.cell);
  CopyBox(box.data,
          {.start = box.box->start,
           .shape = box.box->shape,
           .byte_strides = box.strides()},
          destination.data(), {.start = cell.start, .shape = cell.shape},
          cell.start, cell.shape, ElementBytes(leaf));
  return absl::OkStatus();
}

absl::Status StagedContent::CopyPiece(const Slot& slot,
                                      std::span<std::byte> destination) {
  const Piece& piece = slot.piece;
  if (!piece.run) {
    return FetchChunk(content_.leaves[piece.leaf], piece, destination);
  }
  for (std::uint32_t i = piece.leaf; i < piece.leaf_end; ++i) {
    const SourceLeaf& leaf = content_.leaves[i];
    CKPTREE_RETURN_IF_ERROR(FetchWhole(
        leaf, destination.subspan(run_offset_[i], leaf.byte_length)));
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> StagedContent::Stage(std::size_t index) {
  Slot& slot = pieces_[index];
  if (!slot.stage || !IsIdle(slot)) return true;
  std::optional<StagingPool::Lease> lease = pool_->TryAcquire(slot.piece.bytes);
  if (!lease.has_value()) return false;
  CKPTREE_RETURN_IF_ERROR(StageInto(&slot, *std::move(lease)));
  return true;
}

absl::Status StagedContent::StageFetched(std::size_t index) {
  Slot& slot = pieces_[index];
  if (!slot.stage || !IsIdle(slot)) return absl::OkStatus();
  CKPTREE_ASSIGN_OR_RETURN(
      StagingPool::Lease lease,
      pool_->Acquire(slot.piece.bytes, absl::InfiniteFuture(), &abandoned_));
  return StageInto(&slot, std::move(lease));
}

absl::Status StagedContent::StageInto(Slot* slot, StagingPool::Lease lease) {
  std::uint8_t idle = kIdle;
  if (!slot->state.compare_exchange_strong(idle, kCopying)) {
    return absl::OkStatus();
  }
  // Who takes the slot waits for the copy, also for one that found no memory.
  const absl::Status status =
      GuardedStatus("copying", [&] { return CopyPiece(*slot, lease.bytes()); });
  if (status.ok()) {
    slot->lease = std::move(lease);
    staged_bytes_.fetch_add(slot->piece.bytes, std::memory_order_relaxed);
  }
  {
    absl::MutexLock lock(&copying_mu_);
    slot->state.store(status.ok() ? kCopied : kIdle);
  }
  if (status.ok()) CallerFree(slot);
  return status;
}

void StagedContent::Take(std::size_t index) {
  Slot& slot = pieces_[index];
  std::uint8_t idle = kIdle;
  if (slot.state.compare_exchange_strong(idle, kTaken)) return;
  absl::MutexLock lock(&copying_mu_);
  copying_mu_.Await(absl::Condition(
      +[](Slot* s) { return s->state.load() != kCopying; }, &slot));
  slot.state.store(kTaken);
}

absl::Status StagedContent::FetchTaken(std::size_t index) {
  Slot& slot = pieces_[index];
  if (!slot.stage || !slot.fetched || slot.lease) return absl::OkStatus();
  std::optional<StagingPool::Lease> lease = pool_->TryAcquire(slot.piece.bytes);
  if (!lease.has_value()) return absl::OkStatus();
  CKPTREE_RETURN_IF_ERROR(CopyPiece(slot, lease->bytes()));
  slot.lease = *std::move(lease);
  staged_bytes_.fetch_add(slot.piece.bytes, std::memory_order_relaxed);
  CallerFree(&slot);
  return absl::OkStatus();
}

absl::StatusOr<std::span<const std::byte>> StagedContent::Bytes(
    std::size_t index, std::uint32_t leaf_index,
    std::vector<std::byte>* scratch) {
  const Slot& slot = pieces_[index];
  const Piece& piece = slot.piece;
  const SourceLeaf& leaf = content_.leaves[leaf_index];
  const std::uint64_t size = piece.run ? leaf.byte_length : piece.bytes;
  if (slot.lease) {
    return slot.lease.bytes().subspan(piece.run ? run_offset_[leaf_index] : 0,
                                      size);
  }
  if (leaf.box_count == 0) {
    return std::as_bytes(std::span(leaf.value()))
        .subspan(
            piece.run ? 0 : static_cast<std::size_t>(piece.cell) * chunk_bytes_,
            size);
  }
  const SourceBox& box = leaf.boxes()[piece.box];
  if (box.dense()) {
    if (piece.run) return std::span(box.data, size);
    const ChunkGrid& chunks = grid(leaf_index, piece.box);
    if (chunks.contiguous()) {
      return std::span(
          box.data + BytesOfElements(leaf, chunks.offset_elements(piece.cell)),
          size);
    }
  }
  if (scratch->size() < size) scratch->resize(size);
  const std::span<std::byte> out(scratch->data(), size);
  CKPTREE_RETURN_IF_ERROR(piece.run ? FetchWhole(leaf, out)
                                    : FetchChunk(leaf, piece, out));
  return out;
}

void StagedContent::CallerFree(Slot* slot) {
  if (!slot->needs_caller.exchange(false)) return;
  if (slot->stage) CountDown(&uncopied_, abandoned_, copied_);
  CountDown(&waiting_, abandoned_, staged_);
}

void StagedContent::Release(std::size_t index) {
  Slot& slot = pieces_[index];
  slot.lease.Release();
  slot.state.store(kDone);
  CallerFree(&slot);
}

void StagedContent::Abandon() {
  abandoned_.store(true);
  pool_->WakeCancelled();
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    if (pieces_[i].state.load() == kDone) continue;
    Take(i);
    Release(i);
  }
}

}  // namespace ckptree::internal
