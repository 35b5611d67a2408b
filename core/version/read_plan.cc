// SPDX-License-Identifier: Apache-2.0

// Hot path: per chunk.

#include "core/version/read_plan.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <new>
#include <thread>
#include <tuple>
#include <utility>

#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "base/status_text.h"
#include "ckptree/dtype.h"
#include "core/array/chunk_grid.h"
#include "core/process/arena.h"
#include "core/process/disk_threads.h"
#include "core/process/first_error.h"
#include "core/process/guarded_call.h"
#include "core/version/block_payload.h"
#include "core/version/fresh_pages.h"
#include "schema/keys.h"
#include "schema/segment_record.h"

namespace ckptree::internal {
namespace {

auto BlockOrder(const schema::ChunkRef& ref) {
  return std::tie(ref.place, ref.version, ref.part, ref.n);
}

// Reads of this many blocks in flight keep a disk busy: on fewer processors,
// too, since threads beyond them do nothing but wait for it.
constexpr std::size_t kReadsAtOnce = 8;
constexpr std::uint64_t kWorthDiskThreads = 16 << 20;
// Requests at once where blocks are elsewhere.
constexpr std::size_t kFarReadsAtOnce = 16;
// Of all threads: what falls into its place by pieces is read there first.
constexpr std::uint64_t kScratchBytes = 32 << 20;

// From here on a chunk is hashed as it comes, piece by piece: the cache of a
// processor does not keep all of it.
constexpr std::size_t kWorthPieces = std::size_t{512} << 10;

// About a chunk.
constexpr std::size_t kPagesAtOnce = std::size_t{4} << 20;

}  // namespace

absl::Status ReadPlan::AddValue(const Path& path,
                                const schema::LeafRecord& record,
                                std::span<std::byte> destination) {
  if (destination.size() != record.byte_length) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s has %d bytes, the destination %d", path.Text(),
                        record.byte_length, destination.size()));
  }
  if (record.is_inline) {
    if (record.inline_value.size() != record.byte_length) {
      return absl::DataLossError(
          absl::StrFormat("%s: its record contradicts itself", path.Text()));
    }
    if (!destination.empty()) {
      std::memcpy(destination.data(), record.inline_value.data(),
                  destination.size());
    }
    CountInline(destination.size());
    return absl::OkStatus();
  }
  names_.push_back(&path);
  std::uint64_t at = 0;
  for (std::size_t c = 0; c < record.chunks.size(); ++c) {
    const schema::ChunkRef& ref = record.chunks[c];
    if (at + ref.length > destination.size()) break;
    slices_.push_back({ref, destination.data() + at, -1,
                       static_cast<std::uint32_t>(names_.size() - 1),
                       static_cast<std::uint32_t>(c)});
    at += ref.length;
  }
  if (at != destination.size()) {
    return absl::DataLossError(
        absl::StrFormat("%s: its chunks do not make up its %d bytes",
                        path.Text(), record.byte_length));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::int64_t> ReadPlan::AddArray(
    const Path& path, const schema::TreeEntry& entry,
    const schema::LeafRecord& record, const BoxSpec& box,
    std::span<std::byte> destination) {
  const std::int64_t elements = ElementCount(box.shape).value_or(0);
  if (record.is_inline) {
    // An inline array is whole.
    const auto bytes = ArrayBytes(entry.dtype, entry.packed, entry.shape);
    if (!bytes.has_value() ||
        record.inline_value.size() != static_cast<std::uint64_t>(*bytes)) {
      return absl::DataLossError(
          absl::StrFormat("%s: its record has %d bytes, its shape another "
                          "number",
                          path.Text(), record.inline_value.size()));
    }
    CountInline(destination.size());
    if (elements == 0) return 0;
    if (entry.packed) {
      std::memcpy(destination.data(), record.inline_value.data(),
                  destination.size());
      return elements;
    }
    const std::vector<std::int64_t> zeros(entry.shape.size(), 0);
    CopyBox(reinterpret_cast<const std::byte*>(record.inline_value.data()),
            {.start = zeros, .shape = entry.shape}, destination.data(),
            {.start = box.start, .shape = box.shape}, box.start, box.shape,
            (BitWidth(entry.dtype) + 7) / 8);
    return elements;
  }
  if (elements == 0) return 0;

  names_.push_back(&path);
  const auto name_index = static_cast<std::uint32_t>(names_.size() - 1);
  const std::int64_t element_bytes =
      entry.packed ? 1 : (BitWidth(entry.dtype) + 7) / 8;
  std::int64_t found = 0;
  std::size_t first_chunk = 0;
  bool scattered = false;
  for (const schema::Box& stored : record.boxes) {
    if (stored.start.size() != entry.shape.size() ||
        !CheckBox(stored.start, stored.shape, entry.shape).ok()) {
      return absl::DataLossError(absl::StrFormat(
          "%s: a box of its record is not in its shape", path.Text()));
    }
    const ChunkGrid grid(stored);
    if (first_chunk + static_cast<std::size_t>(grid.count()) >
        record.chunks.size()) {
      return absl::DataLossError(
          absl::StrFormat("%s: its record has too few chunks", path.Text()));
    }
    absl::Status bad;
    grid.ForEachOverlap(box.start, box.shape, [&](std::int64_t index) {
      const auto chunk = first_chunk + static_cast<std::size_t>(index);
      const schema::ChunkRef& ref = record.chunks[chunk];
      const std::int64_t in_cell = grid.cell_elements(index);
      const auto cell_bytes = static_cast<std::uint64_t>(
          entry.packed ? (in_cell * BitWidth(entry.dtype) + 7) / 8
                       : in_cell * element_bytes);
      if (ref.length != cell_bytes) {
        bad = absl::DataLossError(
            absl::StrFormat("%s: chunk %d has %d bytes, its box %d",
                            path.Text(), chunk, ref.length, cell_bytes));
        return;
      }
      Slice slice{ref, nullptr, -1, name_index,
                  static_cast<std::uint32_t>(chunk)};
      const bool whole = stored.start == box.start && stored.shape == box.shape;
      if (whole && grid.contiguous()) {
        const std::int64_t offset = grid.offset_elements(index);
        slice.destination = destination.data() +
                            (entry.packed ? offset * BitWidth(entry.dtype) / 8
                                          : offset * element_bytes);
        found += in_cell;
      } else if (entry.packed) {
        bad = absl::DataLossError(absl::StrFormat(
            "%s: a packed array whose record has it in pieces", path.Text()));
        return;
      } else {
        ChunkGrid::Cell cell = grid.cell(index);
        Scatter scatter;
        scatter.start.resize(cell.start.size());
        scatter.shape.resize(cell.start.size());
        std::int64_t shared = 1;
        for (std::size_t d = 0; d < cell.start.size(); ++d) {
          scatter.start[d] = std::max(cell.start[d], box.start[d]);
          scatter.shape[d] = std::min(cell.start[d] + cell.shape[d],
                                      box.start[d] + box.shape[d]) -
                             scatter.start[d];
          shared *= scatter.shape[d];
        }
        found += shared;
        scatter.cell_start = std::move(cell.start);
        scatter.cell_shape = std::move(cell.shape);
        scatter.box_start = box.start;
        scatter.box_shape = box.shape;
        scatter.element_bytes = element_bytes;
        slice.destination = destination.data();
        scattered = true;
        slice.scatter = static_cast<std::int32_t>(scatters_.size());
        scatters_.push_back(std::move(scatter));
      }
      slices_.push_back(std::move(slice));
    });
    CKPTREE_RETURN_IF_ERROR(bad);
    first_chunk += static_cast<std::size_t>(grid.count());
  }
  if (scattered) NoteScattered(destination);
  return found;
}

std::string ReadPlan::Describe(const Slice& slice) const {
  return absl::StrFormat(
      "%s, chunk %d (%s)", names_[slice.name]->Text(), slice.chunk,
      schema::DescribeKey(slice.ref.place, ChunkKey(slice.ref)));
}

std::pair<std::uint64_t, std::uint64_t> ReadPlan::Extent(
    std::span<const Slice> slices) {
  std::uint64_t begin = slices.front().ref.offset;
  std::uint64_t end = begin;
  for (const Slice& slice : slices) {
    begin = std::min<std::uint64_t>(begin, slice.ref.offset);
    end = std::max(end, std::uint64_t{slice.ref.offset} + slice.ref.length);
  }
  return {begin, end};
}

void ReadPlan::Deliver(const Slice& slice, const std::byte* bytes) const {
  if (slice.scatter < 0) {
    std::memcpy(slice.destination, bytes, slice.ref.length);
    return;
  }
  const Scatter& s = scatters_[static_cast<std::size_t>(slice.scatter)];
  CopyBox(bytes, {.start = s.cell_start, .shape = s.cell_shape},
          slice.destination, {.start = s.box_start, .shape = s.box_shape},
          s.start, s.shape, s.element_bytes);
}

absl::Status ReadPlan::Place(const Slice& slice, std::string_view value) {
  if (slice.scatter >= 0) {
    CKPTREE_ASSIGN_OR_RETURN(const std::string_view bytes,
                             CheckedSlice(slice.ref, value));
    Deliver(slice, reinterpret_cast<const std::byte*>(bytes.data()));
    return absl::OkStatus();
  }
  CKPTREE_ASSIGN_OR_RETURN(const std::string_view bytes,
                           SliceOf(slice.ref, value));
  Deliver(slice, reinterpret_cast<const std::byte*>(bytes.data()));
  // After the copy: what the caller gets is what was checked.
  if (!IsSaved(slice.ref, slice.destination)) {
    return absl::DataLossError("the bytes are not those that were saved");
  }
  return absl::OkStatus();
}

bool ReadPlan::IsSaved(const schema::ChunkRef& ref, const std::byte* bytes) {
  return base::DigestOf(std::span(bytes, ref.length)) == ref.digest;
}

bool ReadPlan::ReadAndCheck(const std::string& key, const schema::ChunkRef& ref,
                            std::span<std::byte> to) const {
  return database_.ReadUnchecked(ref.place, key, ref.block_length, ref.offset,
                                 to) &&
         IsSaved(ref, to.data());
}

bool ReadPlan::ReadInPieces(const std::string& key, const schema::ChunkRef& ref,
                            std::span<std::byte> to) const {
  base::DigestStream digest;
  return database_.ReadUnchecked(ref.place, key, ref.block_length, ref.offset,
                                 to,
                                 [&digest](std::span<const std::byte> piece) {
                                   digest.Update(piece);
                                 }) &&
         digest.Finish() == ref.digest;
}

bool ReadPlan::ReadStraight(std::span<const Slice> slices, Scratch* scratch) {
  const schema::ChunkRef& first = slices.front().ref;
  const auto [begin, end] = Extent(slices);
  std::uint64_t wanted = 0;
  bool in_runs = true;
  for (const Slice& slice : slices) {
    const schema::ChunkRef& ref = slice.ref;
    wanted += ref.length;
    in_runs = in_runs && slice.scatter < 0;
  }
  const std::string key = ChunkKey(first);
  // One chunk for its own leaf, or a few leaves of a pack.
  if (in_runs && (slices.size() == 1 || 4 * wanted < end - begin)) {
    for (const Slice& slice : slices) {
      const std::span<std::byte> to(slice.destination, slice.ref.length);
      // After the copy: what the caller gets is what was checked.
      if (!(to.size() < kWorthPieces ? ReadAndCheck(key, slice.ref, to)
                                     : ReadInPieces(key, slice.ref, to))) {
        return false;
      }
    }
    CountRead(wanted);
    return true;
  }
  std::vector<std::byte>& read = scratch->bytes;
  if (read.size() < end - begin) read.resize(end - begin);
  if (!database_.ReadUnchecked(first.place, key, first.block_length, begin,
                               std::span(read).first(end - begin))) {
    return false;
  }
  if (!DeliverChecked(slices, read.data(), begin)) return false;
  CountRead(end - begin);
  return true;
}

std::uint64_t ReadPlan::BytesOf(std::span<const Slice> slices) {
  std::uint64_t bytes = 0;
  for (const Slice& slice : slices) bytes += slice.ref.length;
  return bytes;
}

absl::Status ReadPlan::Ask() const {
  if (!options_.cancelled) return absl::OkStatus();
  return GuardedStatus("function 'cancelled'", [this] {
    return options_.cancelled() ? absl::CancelledError("the read was stopped")
                                : absl::OkStatus();
  });
}

absl::Status ReadPlan::Tell() const {
  if (!options_.on_progress) return absl::OkStatus();
  const ReadPlan& all = whole_ == nullptr ? *this : *whole_;
  return GuardedCall("on_progress", [this, &all] {
    options_.on_progress(all.done_.load(std::memory_order_relaxed),
                         all.total_.load(std::memory_order_relaxed));
  });
}

absl::Status ReadPlan::ReadBlock(std::span<const Slice> slices,
                                 Scratch* scratch) {
  absl::Status status = DeliverBlock(slices, scratch);
  CountDone(BytesOf(slices));
  return status;
}

absl::Status ReadPlan::DeliverBlock(std::span<const Slice> slices,
                                    Scratch* scratch) {
  const Slice& first = slices.front();
  if (ReadStraight(slices, scratch) ||
      (first.ref.place == schema::Space::kChunks &&
       ReadCoded(slices, scratch))) {
    return absl::OkStatus();
  }
  const absl::StatusOr<BlockPayload> payload =
      ReadPayload(database_, first.ref);
  if (payload.ok()) {
    CountRead(payload->view().size());
  }
  for (const Slice& slice : slices) {
    const absl::Status status =
        payload.ok() ? Place(slice, payload->view()) : payload.status();
    if (status.ok()) continue;
    // Of a block with a damaged byte all but the leaf that it is in is whole.
    const absl::StatusOr<BlockPayload> found =
        SearchBlock(database_, slice.ref, status);
    if (found.ok() && Place(slice, found->view()).ok()) continue;
    return base::WithText(
        status,
        absl::IsNotFound(status) ? absl::StatusCode::kDataLoss : status.code(),
        absl::StrFormat("%s: %s", Describe(slice), status.message()));
  }
  return absl::OkStatus();
}

void ReadPlan::Prefetch(std::span<const Slice> slices) const {
  const schema::ChunkRef& first = slices.front().ref;
  const auto [begin, end] = Extent(slices);
  database_.Prefetch(first.place, ChunkKey(first), first.block_length, begin,
                     end - begin);
}

void ReadPlan::CountDone(std::uint64_t bytes) {
  (whole_ == nullptr ? done_ : whole_->done_)
      .fetch_add(bytes, std::memory_order_relaxed);
}

void ReadPlan::CountRead(std::uint64_t bytes) {
  (whole_ == nullptr ? bytes_read_ : whole_->bytes_read_)
      .fetch_add(bytes, std::memory_order_relaxed);
}

void ReadPlan::CountInline(std::uint64_t bytes) {
  // It was expected as if it stood in a chunk.
  if (whole_ == nullptr) return;
  whole_->total_.fetch_sub(bytes, std::memory_order_relaxed);
}

void ReadPlan::Sort() {
  const auto before = [](const Slice& a, const Slice& b) {
    return BlockOrder(a.ref) < BlockOrder(b.ref);
  };
  // A step that one save wrote is read in the order that it was written in.
  if (!std::is_sorted(slices_.begin(), slices_.end(), before)) {
    std::sort(slices_.begin(), slices_.end(), before);
  }
}

std::vector<ReadPlan::Block> ReadPlan::Blocks() {
  Sort();
  std::vector<Block> blocks;
  for (std::size_t i = 0; i < slices_.size();) {
    std::size_t end = i + 1;
    while (end < slices_.size() &&
           BlockOrder(slices_[end].ref) == BlockOrder(slices_[i].ref)) {
      ++end;
    }
    blocks.push_back(std::span(slices_).subspan(i, end - i));
    i = end;
  }
  return blocks;
}

absl::Status ReadPlan::RunHere() {
  const std::vector<Block> blocks = Blocks();
  total_ = BytesOf(slices_);
  Scratch scratch;
  far_ = AnyFar(blocks);
  if (far_) {
    for (const std::span<const Block> run : Runs(blocks)) {
      CKPTREE_RETURN_IF_ERROR(Ask());
      CKPTREE_RETURN_IF_ERROR(ReadRun(run, &scratch));
    }
    return Tell();
  }
  for (std::size_t b = 0; b < blocks.size(); ++b) {
    CKPTREE_RETURN_IF_ERROR(Ask());
    if (b + 1 < blocks.size()) Prefetch(blocks[b + 1]);
    CKPTREE_RETURN_IF_ERROR(ReadBlock(blocks[b], &scratch));
  }
  return Tell();
}

absl::Status ReadPlan::Run(int asked) {
  const std::vector<Block> blocks = Blocks();
  if (total_.load() == 0) total_ = BytesOf(slices_);
  far_ = AnyFar(blocks);
  CKPTREE_RETURN_IF_ERROR(Ask());
  CKPTREE_RETURN_IF_ERROR(Tell());
  if (blocks.size() == 1) {
    Scratch scratch;
    CKPTREE_RETURN_IF_ERROR(ReadBlock(blocks.front(), &scratch));
    return Tell();
  }
  FirstError error;
  const std::thread::id asking = std::this_thread::get_id();
  const auto read = [&](std::span<const Block> run, Scratch* scratch) {
    if (error.any()) return;
    if (std::this_thread::get_id() == asking) {
      absl::Status status = Ask();
      status.Update(Tell());
      error.Note(status);
      if (!status.ok()) return;
    }
    error.Note(ReadRun(run, scratch));
  };
  if (std::size_t threads = DiskThreads(asked); threads > 1 || far_) {
    const std::vector<std::span<const Block>> runs = Runs(blocks);
    if (far_) {
      threads =
          std::min(runs.size(), asked > 0 ? static_cast<std::size_t>(asked)
                                          : kFarReadsAtOnce);
    }
    FreshPages pages(Destinations(runs));
    std::atomic<std::size_t> next = 0;
    std::atomic<bool> ahead = false;
    RunOnDiskThreads(threads, [&] {
      try {
        Scratch scratch;
        // The disk reads while one of them makes pages; who asked tells how far
        // it is.
        if (std::this_thread::get_id() != asking && !ahead.exchange(true)) {
          pages.MakeAhead(next, error);
        }
        while (true) {
          const std::size_t r = next.fetch_add(1, std::memory_order_relaxed);
          if (r >= runs.size() || error.any()) return;
          // A run is large enough to wait for.
          if (r + threads < runs.size() && runs[r + threads].size() == 1) {
            Prefetch(runs[r + threads].front());
          }
          pages.Make(r);
          read(runs[r], &scratch);
        }
      } catch (const std::bad_alloc&) {
        error.Note(absl::ResourceExhaustedError("no memory to read into"));
      }
    });
    return error.any() ? error.status() : Tell();
  }
  ForEachRange(blocks.size(), 1, [&](std::size_t begin, std::size_t end) {
    Scratch scratch;
    for (std::size_t b = begin; b < end; ++b) {
      read(std::span(blocks).subspan(b, 1), &scratch);
    }
  });
  return error.any() ? error.status() : Tell();
}

void ReadPlan::NoteScattered(std::span<std::byte> destination) {
  for (std::size_t at = 0; at < destination.size(); at += kPagesAtOnce) {
    scattered_.push_back(destination.subspan(
        at, std::min(kPagesAtOnce, destination.size() - at)));
  }
}

std::size_t ReadPlan::SmallReaders(std::uint64_t bytes, int asked) {
  const std::size_t processors = ThreadsHere();
  if (bytes < kWorthDiskThreads) return processors;
  return asked != 0 ? static_cast<std::size_t>(asked)
                    : std::max(processors, kReadsAtOnce);
}

std::vector<std::span<std::byte>> ReadPlan::Destinations(
    std::span<const std::span<const Block>> runs) const {
  std::vector<std::span<std::byte>> destinations;
  std::size_t scattered = 0;
  for (const std::span<const Block> run : runs) {
    std::span<std::byte>& destination = destinations.emplace_back();
    if (run.size() != 1) continue;  // Small ones, by way of a scratch.
    const Block slices = run.front();
    const Slice& slice = slices.front();
    if (slice.scatter < 0 && slices.size() == 1) {
      destination = {slice.destination, slice.ref.length};
    } else if (slice.scatter >= 0 && scattered < scattered_.size()) {
      destination = scattered_[scattered++];
    }
  }
  return destinations;
}

std::size_t ReadPlan::DiskThreads(int asked) const {
  const std::size_t processors = ThreadsHere();
  const std::size_t most = SmallReaders(kWorthDiskThreads, asked);
  std::uint64_t bytes = 0;
  std::uint64_t largest = 1;
  for (const Slice& slice : slices_) {
    bytes += slice.ref.length;
    largest = std::max<std::uint64_t>(largest, slice.ref.length);
  }
  if (bytes < kWorthDiskThreads) return 1;
  return std::clamp<std::size_t>(kScratchBytes / largest,
                                 std::min(processors, most), most);
}

}  // namespace ckptree::internal
