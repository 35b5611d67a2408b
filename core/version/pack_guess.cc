// SPDX-License-Identifier: Apache-2.0

// Hot path: per leaf that is read from the disk.

#include "core/version/pack_guess.h"

#include <cstring>
#include <vector>

#include "schema/keys.h"
#include "schema/slice_proof.h"
#include "schema/spaces.h"

namespace ckptree::internal {
std::optional<PackPlace> GuessPack(const LeafOfStep& leaf,
                                   PackLayout::Kind kind) {
  if (leaf.tree.page_count() != 1 || leaf.ordinal >= leaf.map.size()) {
    return std::nullopt;
  }
  const auto page = leaf.tree.LoadPage(0);
  if (!page.ok()) return std::nullopt;
  const std::vector<std::uint32_t>& sizes = (*page)->array_bytes;
  if (sizes.size() != leaf.map.size()) return std::nullopt;
  const std::vector<schema::MapRun>& runs = leaf.map.runs();
  if (kind == PackLayout::Kind::kProved && runs.size() == 1 &&
      runs[0].version == leaf.version &&
      runs[0].place == schema::Space::kSmall) {
    return (*page)->proved_places.At(leaf.ordinal);
  }
  PackLayout layout(kind);
  std::optional<PackPlace> found;
  std::size_t pack = 0;  // That it is in.
  for (const schema::MapRun& run : runs) {
    if (run.version != leaf.version || run.place != schema::Space::kSmall) {
      continue;
    }
    const bool packed = AddToPacks(
        sizes, run.first, run.count, &layout,
        [&](std::uint32_t at, std::uint32_t bytes, PackLayout::Place place) {
          if (at == leaf.ordinal) {
            pack = place.pack;
            found = PackPlace{
                schema::BlockNumber(0, static_cast<std::uint32_t>(pack) + 1), 0,
                place.offset, bytes};
          }
          if (found.has_value() && place.pack == pack) {
            found->block_bytes = layout.bytes();
          }
        });
    if (!packed) return std::nullopt;
  }
  return layout.total() <= kMostGuessedBytes ? found : std::nullopt;
}

bool PackGuesses::ReadProved(const kv::Database& database,
                             const LeafOfStep& leaf, const base::Digest& step,
                             std::span<std::byte> destination, Trial* trial) {
  if (destination.size() < schema::kLeastProvedBytes ||
      destination.size() >= kPackedLeafBytes ||
      !MayGuess(PackLayout::Kind::kProved)) {
    return false;
  }
  trial->guess = GuessPack(leaf, PackLayout::Kind::kProved);
  if (!trial->guess.has_value() || trial->guess->bytes != destination.size()) {
    return false;
  }
  // Both at once: the proof stands behind the value.
  thread_local std::vector<std::byte> read;
  read.resize(destination.size() + schema::kSliceProofBytes);
  if (!database.ReadUnchecked(
          schema::Space::kSmall,
          schema::SmallKey(leaf.version, leaf.part, schema::BlockKind::kChunk,
                           trial->guess->n),
          trial->guess->block_bytes, trial->guess->offset, read)) {
    return false;
  }
  std::memcpy(destination.data(), read.data(), destination.size());
  // After the copy: what the caller gets is what was checked.
  const base::Digest proof = schema::SliceProof({.version = leaf.version,
                                                 .part = leaf.part,
                                                 .ordinal = leaf.ordinal,
                                                 .tree = leaf.tree.digest(),
                                                 .step = step},
                                                base::DigestOf(destination));
  trial->refuted =
      std::memcmp(proof.bytes.data(), read.data() + destination.size(),
                  schema::kSliceProofBytes) != 0;
  if (trial->refuted) return false;
  WrongOf(PackLayout::Kind::kProved).store(0, std::memory_order_relaxed);
  return true;
}

PackGuesses::Trial PackGuesses::Begin(const kv::Database& database,
                                      const LeafOfStep& leaf, bool one_part) {
  Trial trial;
  for (const auto kind :
       {PackLayout::Kind::kProved, PackLayout::Kind::kPlain}) {
    if (trial.guess.has_value() || !MayGuess(kind)) continue;
    if (kind == PackLayout::Kind::kProved && !one_part) continue;
    trial.kind = kind;
    trial.guess = GuessPack(leaf, kind);
  }
  if (trial.guess.has_value()) {
    const PackPlace& guess = *trial.guess;
    database.Prefetch(schema::Space::kSmall,
                      schema::SmallKey(leaf.version, leaf.part,
                                       schema::BlockKind::kChunk, guess.n),
                      guess.block_bytes, guess.offset, guess.bytes);
  }
  return trial;
}

void PackGuesses::Judge(const Trial& trial, const schema::LeafRecord& record) {
  const bool right =
      !trial.refuted && record.chunks.size() == 1 &&
      record.chunks[0].place == schema::Space::kSmall &&
      record.chunks[0].n == trial.guess->n &&
      record.chunks[0].block_length == trial.guess->block_bytes &&
      record.chunks[0].offset == trial.guess->offset;
  if (right) {
    WrongOf(trial.kind).store(0, std::memory_order_relaxed);
  } else {
    WrongOf(trial.kind).fetch_add(1, std::memory_order_relaxed);
  }
}

}  // namespace ckptree::internal
