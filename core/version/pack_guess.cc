// SPDX-License-Identifier: Apache-2.0

// Hot path: per leaf that is read from the disk.

#include "core/version/pack_guess.h"

#include <chrono>

#include "ckptree/dtype.h"
#include "core/array/pack_layout.h"
#include "schema/keys.h"
#include "schema/limits.h"
#include "schema/spaces.h"

namespace ckptree::internal {
namespace {

// More new bytes than these are in no save whose blocks are in `small`.
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 20;

}  // namespace

std::optional<PackPlace> GuessPack(const StepTree& tree,
                                   const schema::LeafMap& map,
                                   std::uint64_t version,
                                   std::uint32_t ordinal) {
  const auto& runs = map.runs();
  if (tree.page_count() != 1 || ordinal >= map.size()) return std::nullopt;
  const auto page = tree.LoadPage(0);
  if (!page.ok()) return std::nullopt;
  PackLayout layout;
  std::optional<PackPlace> found;
  std::size_t pack = 0;  // That it is in.
  std::uint64_t total = 0;
  std::uint32_t leaf = 0;
  auto run = runs.begin();
  for (const schema::TreeEntry& entry : (*page)->page->entries) {
    if (!IsLeaf(entry.kind)) continue;
    const std::uint32_t at = leaf++;
    while (run != runs.end() && at >= run->first + run->count) ++run;
    if (run == runs.end()) return std::nullopt;
    const bool written =
        run->version == version && run->place == schema::Space::kSmall;
    if (at == ordinal && !written) return std::nullopt;
    // Of other kinds most stand in their record.
    if (!written || entry.kind != EntryKind::kArray) continue;
    const auto bytes = static_cast<std::uint64_t>(
        ArrayBytes(entry.dtype, entry.packed, entry.shape).value_or(0));
    if (bytes <= std::uint64_t{schema::kMaxInlineBytes}) continue;
    if (bytes >= kPackedLeafBytes) return std::nullopt;
    const PackLayout::Place place = layout.Add(bytes);
    total += bytes;
    if (at == ordinal) {
      pack = place.pack;
      found = PackPlace{
          schema::BlockNumber(0, static_cast<std::uint32_t>(pack) + 1), 0,
          place.offset, bytes};
    }
    if (found.has_value() && place.pack == pack) {
      found->block_bytes = layout.bytes();
    }
  }
  return total <= kMostBytes ? found : std::nullopt;
}

std::int64_t PackGuesses::Now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

std::optional<PackPlace> PackGuesses::Begin(const kv::Database& database,
                                            const StepTree& tree,
                                            const schema::LeafMap& map,
                                            std::uint16_t part,
                                            std::uint64_t version,
                                            std::uint32_t ordinal) {
  const auto guess = GuessPack(tree, map, version, ordinal);
  if (guess.has_value()) {
    database.Prefetch(
        schema::Space::kSmall,
        schema::SmallKey(version, part, schema::BlockKind::kChunk, guess->n),
        guess->block_bytes, guess->offset, guess->bytes);
  }
  return guess;
}

void PackGuesses::Judge(const PackPlace& guess,
                        const schema::LeafRecord& record) {
  const bool right = record.chunks.size() == 1 &&
                     record.chunks[0].place == schema::Space::kSmall &&
                     record.chunks[0].n == guess.n &&
                     record.chunks[0].offset == guess.offset;
  if (right) {
    wrong_.store(0, std::memory_order_relaxed);
  } else {
    wrong_.fetch_add(1, std::memory_order_relaxed);
  }
}

}  // namespace ckptree::internal
