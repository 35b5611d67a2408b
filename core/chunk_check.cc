#include "core/chunk_check.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "core/chunk_grid.h"
#include "core/leaf_statistics.h"
#include "core/read_plan.h"
#include "schema/keys.h"
#include "tbb/parallel_for.h"

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
    if (!schema::IsLeaf(entry.kind)) continue;
    const BaseLeaf* leaf = part.leaves[ordinal++].get();
    if (leaf == nullptr) continue;
    for (std::size_t c = 0; c < leaf->record.chunks.size(); ++c) {
      const schema::ChunkRef& ref = leaf->record.chunks[c];
      if (ref.version > options.above)
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
  absl::Mutex mu;
  tbb::parallel_for(std::size_t{0}, blocks.size(), [&](std::size_t b) {
    const auto [begin, end] = blocks[b];
    const schema::ChunkRef& ref = *slices[begin].ref;
    const std::string key = ChunkKey(ref);
    const std::string where = schema::DescribeKey(ref.place, key);
    const auto bad = [&](std::string_view what) {
      absl::MutexLock lock(&mu);
      damage->AddBlock(ChunkBlock(ref), absl::StrFormat("%s: %s", where, what));
    };
    const absl::StatusOr<kv::Value> value = database.Read(ref.place, key);
    if (!value.ok()) {
      bad(absl::IsNotFound(value.status())
              ? std::string_view("the chunk is missing")
              : std::string_view(value.status().message().data(),
                                 value.status().message().size()));
      return;
    }
    for (std::size_t i = begin; i < end; ++i) {
      const Slice& slice = slices[i];
      const auto bytes = CheckedSlice(*slice.ref, value->view());
      if (!bytes.ok()) {
        bad({bytes.status().message().data(), bytes.status().message().size()});
        return;
      }
      const auto& known = slice.leaf->record.statistics;
      if (!options.statistics || slice.chunk >= known.size()) continue;
      const Statistics now = ComputeStatistics(
          slice.entry->dtype, slice.entry->packed,
          std::as_bytes(std::span(*bytes)), ElementsOf(slice));
      if (!(now == known[slice.chunk])) {
        bad("its statistics are not those of its bytes");
      }
    }
    absl::MutexLock lock(&mu);
    report->bytes += value->view().size();
    ++report->chunks;
  });
  return absl::OkStatus();
}

}  // namespace ckptree::internal
