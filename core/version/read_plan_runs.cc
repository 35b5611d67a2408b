// SPDX-License-Identifier: Apache-2.0

// Hot path: per small leaf. Blocks of them that stand behind each other are
// read with one read.

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "core/version/block_payload.h"
#include "core/version/read_plan.h"
#include "kv/array_block.h"
#include "kv/segment_writer.h"
#include "schema/leaf_record.h"

namespace ckptree::internal {
namespace {

// What is worth a read past the page cache.
constexpr std::uint64_t kWorthARun = kv::SegmentWriter::kLargeValue;
// A block of this size is worth a read of its own.
constexpr std::uint64_t kSmallBlock = kWorthARun / 4;
constexpr std::size_t kRunPage = kv::SegmentWriter::kLargeAlignment;
// A run, its last block, and what stands between blocks.
constexpr std::size_t kRunScratch = kWorthARun + 2 * kSmallBlock;

// Of segments that are elsewhere: what is worth a request, whatever its blocks
// are, and what stands between them.
constexpr std::uint64_t kFarRun = std::uint64_t{12} << 20;
constexpr std::size_t kFarScratch = kFarRun + (std::size_t{1} << 20);

// A page of `memory` that is `bytes` long, and grown to that.
std::span<std::byte> RunMemory(std::size_t bytes,
                               std::vector<std::byte>* memory) {
  if (memory->size() < bytes + kRunPage) memory->resize(bytes + kRunPage);
  const auto at = reinterpret_cast<std::uintptr_t>(memory->data());
  return std::span(*memory).subspan((kRunPage - at % kRunPage) % kRunPage,
                                    bytes);
}

}  // namespace

void ReadPlan::Take(ReadPlan* other) {
  const absl::MutexLock lock(&taking_);
  const auto names = static_cast<std::uint32_t>(names_.size());
  const auto scatters = static_cast<std::int32_t>(scatters_.size());
  for (Slice& slice : other->slices_) {
    slice.name += names;
    if (slice.scatter >= 0) slice.scatter += scatters;
  }
  const auto append = [](auto* from, auto* to) {
    to->insert(to->end(), std::make_move_iterator(from->begin()),
               std::make_move_iterator(from->end()));
    from->clear();
  };
  append(&other->names_, &names_);
  append(&other->slices_, &slices_);
  append(&other->scattered_, &scattered_);
  append(&other->scatters_, &scatters_);
}

absl::Status ReadPlan::RunSmall(bool asks) {
  const std::vector<Block> blocks = Blocks();
  far_ = AnyFar(blocks);
  std::vector<Slice> rest;
  for (const std::span<const Block> run : Runs(blocks)) {
    if (run.front().front().ref.block_length > kSmallBlock) {
      for (const Block block : run) {
        rest.insert(rest.end(), block.begin(), block.end());
      }
      continue;
    }
    if (asks) {
      absl::Status status = Ask();
      status.Update(Tell());
      if (!status.ok()) return status;
    }
    absl::Status status = ReadRun(run, &small_scratch_);
    if (!status.ok()) return status;
  }
  slices_ = std::move(rest);
  // Messages name what is left.
  if (slices_.empty()) names_.clear();
  return absl::OkStatus();
}

bool ReadPlan::AnyFar(std::span<const Block> blocks) const {
  if (database_.reads_far() || !database_.any_far()) {
    return database_.reads_far();
  }
  return std::any_of(blocks.begin(), blocks.end(), [this](Block block) {
    const schema::ChunkRef& ref = block.front().ref;
    return ref.place == schema::Space::kChunks &&
           database_.IsFar(ref.place, ChunkKey(ref));
  });
}

std::vector<std::span<const ReadPlan::Block>> ReadPlan::Runs(
    std::span<const Block> blocks) const {
  // Most of it is asked for, and all of it is small.
  const auto may_join = [far = far_](Block block) {
    const schema::ChunkRef& ref = block.front().ref;
    if (ref.place != schema::Space::kChunks ||
        ref.block_length > (far ? kFarRun : kSmallBlock)) {
      return false;
    }
    const std::uint64_t wanted = BytesOf(block);
    const auto [begin, end] = Extent(block);
    return 4 * (end - begin) >= 3 * std::uint64_t{ref.block_length} &&
           2 * wanted >= ref.block_length;
  };
  std::vector<std::span<const Block>> runs;
  std::size_t first = 0;
  std::uint64_t bytes = 0;  // Of a run that goes on; 0: none does.
  for (std::size_t b = 0; b < blocks.size(); ++b) {
    const schema::ChunkRef& ref = blocks[b].front().ref;
    const bool joins = may_join(blocks[b]);
    if (bytes > 0) {
      const schema::ChunkRef& before = blocks[b - 1].front().ref;
      const bool full =
          far_ ? bytes + ref.block_length > kFarRun : bytes >= kWorthARun;
      if (!joins || full || before.version != ref.version ||
          before.part != ref.part) {
        runs.push_back(blocks.subspan(first, b - first));
        bytes = 0;
      }
    }
    if (bytes == 0) first = b;
    if (joins) {
      bytes += ref.block_length;
    } else {
      runs.push_back(blocks.subspan(b, 1));
    }
  }
  if (bytes > 0) runs.push_back(blocks.subspan(first));
  return runs;
}

absl::Status ReadPlan::ReadRun(std::span<const Block> blocks,
                               Scratch* scratch) {
  if (blocks.size() == 1) return ReadBlock(blocks.front(), scratch);
  std::vector<kv::ArrayBlock> wanted;
  wanted.reserve(blocks.size());
  for (const Block block : blocks) {
    const schema::ChunkRef& ref = block.front().ref;
    std::string key = ChunkKey(ref);
    // Coded ones are looked at here only where that saves a request.
    const std::uint64_t bytes =
        far_ ? database_.ValueBytes(ref.place, key).value_or(ref.block_length)
             : ref.block_length;
    wanted.push_back({std::move(key), bytes});
  }
  const std::span<std::byte> memory =
      RunMemory(far_ ? kFarScratch : kRunScratch, &scratch->run);
  std::vector<Block> alone;  // What did not come like this.
  for (std::size_t done = 0; done < blocks.size();) {
    const std::size_t read =
        database_.ReadRun(std::span(wanted).subspan(done), memory,
                          [&](std::size_t i, std::span<const std::byte> value) {
                            const Block block = blocks[done + i];
                            if (!DeliverRead(block, value, scratch)) {
                              alone.push_back(block);
                              return;
                            }
                            CountDone(BytesOf(block));
                            CountRead(value.size());
                          });
    if (read == 0) alone.push_back(blocks[done]);
    done += read == 0 ? 1 : read;
  }
  for (const Block block : alone) {
    if (absl::Status status = ReadBlock(block, scratch); !status.ok()) {
      return status;
    }
  }
  return absl::OkStatus();
}

bool ReadPlan::DeliverRead(Block block, std::span<const std::byte> value,
                           Scratch* scratch) const {
  if (value.size() == block.front().ref.block_length) {
    return DeliverChecked(block, value.data(), 0);
  }
  return DeliverWholeCoded(
      block, {reinterpret_cast<const char*>(value.data()), value.size()},
      scratch);
}

bool ReadPlan::DeliverChecked(std::span<const Slice> slices,
                              const std::byte* read,
                              std::uint64_t begin) const {
  const schema::ChunkRef* checked = nullptr;  // One for several boxes.
  for (const Slice& slice : slices) {
    const std::byte* const bytes = read + (slice.ref.offset - begin);
    if (slice.scatter >= 0 && (checked == nullptr || *checked != slice.ref)) {
      if (!IsSaved(slice.ref, bytes)) return false;
      checked = &slice.ref;
    }
    Deliver(slice, bytes);
    // After the copy: what the caller gets is what was checked.
    if (slice.scatter < 0 && !IsSaved(slice.ref, slice.destination)) {
      return false;
    }
  }
  return true;
}

}  // namespace ckptree::internal
