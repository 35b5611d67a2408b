// SPDX-License-Identifier: Apache-2.0

#include "core/verify/chunk_check.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "base/status_macros.h"
#include "core/array/chunk_grid.h"
#include "core/array/leaf_statistics.h"
#include "core/process/arena.h"
#include "core/process/first_error.h"
#include "core/process/out_of_reach.h"
#include "core/version/block_payload.h"
#include "schema/keys.h"

namespace ckptree::internal {
namespace {

struct Slice {
  const schema::ChunkRef* ref;
  const BaseLeaf* leaf;
  const schema::TreeEntry* entry;
  std::size_t chunk;
};

std::optional<std::int64_t> ElementsOf(const Slice& slice) {
  std::size_t first = 0;
  for (const schema::Box& box : slice.leaf->record.boxes) {
    const ChunkGrid grid(box);
    const auto count = static_cast<std::size_t>(grid.count());
    if (slice.chunk < first + count) {
      return grid.cell_elements(static_cast<std::int64_t>(slice.chunk - first));
    }
    first += count;
  }
  return std::nullopt;
}

}  // namespace

absl::Status CheckChunks(const kv::Database& database, const BasePart& part,
                         const ChunkCheckOptions& options, VerifyReport* report,
                         Damage* damage) {
  std::vector<Slice> slices;
  std::size_t ordinal = 0;
  for (const schema::TreeEntry& entry : *part.entries) {
    if (!IsLeaf(entry.kind)) continue;
    const BaseLeaf* leaf = part.leaves[ordinal++].get();
    if (leaf == nullptr) continue;
    for (std::size_t c = 0; c < leaf->record.chunks.size(); ++c) {
      const schema::ChunkRef& ref = leaf->record.chunks[c];
      if (ref.version <= options.above) continue;
      if (options.far && database.IsFar(ref.place, ChunkKey(ref)) &&
          !options.far()) {
        continue;
      }
      slices.push_back({&ref, leaf, &entry, c});
    }
  }
  const auto order = [](const Slice& s) {
    return std::tie(s.ref->place, s.ref->version, s.ref->part, s.ref->n);
  };
  std::sort(
      slices.begin(), slices.end(),
      [&order](const Slice& a, const Slice& b) { return order(a) < order(b); });
  std::vector<std::pair<std::size_t, std::size_t>> blocks;
  for (std::size_t i = 0; i < slices.size();) {
    std::size_t end = i + 1;
    while (end < slices.size() && order(slices[end]) == order(slices[i])) ++end;
    blocks.emplace_back(i, end);
    i = end;
  }
  const auto key_of = [&](const std::pair<std::size_t, std::size_t>& block) {
    return ChunkKey(*slices[block.first].ref);
  };
  // Behind the blocks that may be read together, from this one on.
  const auto reached = [&](std::size_t begin) -> absl::StatusOr<std::size_t> {
    const auto place = [&](std::size_t b) {
      return slices[blocks[b].first].ref->place;
    };
    std::string next;  // The first key that is not ready; empty: all are.
    if (options.reach && place(begin) == schema::Space::kChunks) {
      CKPTREE_ASSIGN_OR_RETURN(next, options.reach(key_of(blocks[begin])));
    }
    std::size_t end = begin + 1;
    while (end < blocks.size() && place(end) == place(begin) &&
           (next.empty() || key_of(blocks[end]) < next)) {
      ++end;
    }
    return end;
  };
  absl::Mutex mu;
  FirstError stopped;
  std::atomic<std::uint64_t> read = 0;
  const std::thread::id here = std::this_thread::get_id();
  const auto check_block = [&](std::size_t b) {
    if (stopped.any()) return;
    if (options.between && std::this_thread::get_id() == here) {
      const absl::Status go_on = options.between(read.load());
      stopped.Note(go_on);
      if (!go_on.ok()) return;
    }
    const auto [begin, end] = blocks[b];
    const schema::ChunkRef& ref = *slices[begin].ref;
    const std::string key = key_of(blocks[b]);
    const std::string where = schema::DescribeKey(ref.place, key);
    const auto bad = [&](const schema::ChunkRef& of, std::string_view what) {
      absl::MutexLock lock(&mu);
      damage->AddSlice(ChunkBlock(of), of.offset,
                       absl::StrFormat("%s: %s", where, what));
    };
    absl::StatusOr<BlockPayload> payload = ReadPayload(database, ref);
    std::uint64_t bytes = 0;
    for (std::size_t i = begin; i < end; ++i) {
      const Slice& slice = slices[i];
      const auto check = [&]() -> absl::StatusOr<std::string_view> {
        if (!payload.ok()) return payload.status();
        return CheckedSlice(*slice.ref, payload->view());
      };
      auto found = check();
      if (!found.ok()) {
        // As a read does, but for what is elsewhere, too: that is no word on
        // this disk. Where it stands twice, the database tells of the damage.
        auto other = SearchBlock(database, *slice.ref, found.status(),
                                 /*spares=*/false);
        if (other.ok()) {
          payload = std::move(other);
          found = check();
        }
      }
      if (OutOfReach(found.status()).has_value()) {
        absl::MutexLock lock(&mu);
        stopped.Note(options.on_silence ? options.on_silence(found.status())
                                        : found.status());
        return;
      }
      if (!found.ok()) {
        const absl::string_view why = found.status().message();
        bad(*slice.ref, absl::IsNotFound(found.status())
                            ? std::string_view("the chunk is missing")
                            : std::string_view(why.data(), why.size()));
        continue;
      }
      bytes = payload->view().size();
      const auto& known = slice.leaf->record.statistics;
      if (!options.statistics || slice.chunk >= known.size()) continue;
      const Statistics now = ComputeStatistics(
          slice.entry->dtype, slice.entry->packed,
          std::as_bytes(std::span(*found)), ElementsOf(slice));
      if (!(now == known[slice.chunk])) {
        bad(*slice.ref, "its statistics are not those of its bytes");
      }
    }
    read.fetch_add(bytes);
    absl::MutexLock lock(&mu);
    report->bytes += bytes;
    report->chunks += bytes > 0 ? 1 : 0;
  };
  for (std::size_t begin = 0; begin < blocks.size() && !stopped.any();) {
    CKPTREE_ASSIGN_OR_RETURN(const std::size_t end, reached(begin));
    ForEach(begin, end, check_block);
    begin = end;
  }
  return stopped.status();
}

}  // namespace ckptree::internal
