// SPDX-License-Identifier: Apache-2.0

// Which version's record each leaf of a part has, run-length coded.

#ifndef CKPTREE_SCHEMA_LEAF_MAP_H_
#define CKPTREE_SCHEMA_LEAF_MAP_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "schema/spaces.h"

namespace ckptree::schema {

// Leaves [first, first + count) of this tree have the records [source,
// source + count) that `version` wrote, in `place` (kLeaves or kSmall).
struct MapRun {
  std::uint32_t first = 0;
  std::uint32_t count = 0;
  Space place = Space::kLeaves;
  std::uint64_t version = 0;
  std::uint32_t source = 0;  // Ordinal in that version's tree; n = source + 1.

  friend bool operator==(const MapRun&, const MapRun&) = default;
};

// Covers the ordinals 0 .. size() - 1 without gap. The part is that of the map:
// a reference never leaves its part.
class LeafMap {
 public:
  // Appends one leaf, extending the last run where it fits.
  void Append(Space place, std::uint64_t version, std::uint32_t source);
  // Appends `count` leaves with the records source, source + 1, ...
  void AppendRun(Space place, std::uint64_t version, std::uint32_t source,
                 std::uint32_t count);

  std::uint32_t size() const { return size_; }
  const std::vector<MapRun>& runs() const { return runs_; }

  // The one-leaf run of `ordinal`. REQUIRES: ordinal < size().
  MapRun At(std::uint32_t ordinal) const;

  // Distinct (version, place) pairs.
  std::size_t SourceCount() const;

  friend bool operator==(const LeafMap&, const LeafMap&) = default;

 private:
  std::vector<MapRun> runs_;
  std::uint32_t size_ = 0;
};

// A map as it stands in a record: a store has one for each step, and few of
// them are asked for more than one leaf. Immutable.
class PackedLeafMap {
 public:
  PackedLeafMap() : PackedLeafMap(LeafMap()) {}
  explicit PackedLeafMap(const LeafMap& map);
  // Refuses what DecodeLeafMap() refuses.
  static absl::StatusOr<PackedLeafMap> Of(std::string bytes);

  std::uint32_t size() const { return size_; }
  const std::string& bytes() const { return bytes_; }

  // The one-leaf run of `ordinal`, found from the front: who wants many leaves
  // unpacks it. REQUIRES: ordinal < size().
  MapRun At(std::uint32_t ordinal) const;
  LeafMap Unpack() const;

  friend bool operator==(const PackedLeafMap&, const PackedLeafMap&) = default;

 private:
  PackedLeafMap(std::string bytes, std::uint32_t size)
      : bytes_(std::move(bytes)), size_(size) {}

  std::string bytes_;
  std::uint32_t size_ = 0;
};

// Varints, no envelope: a map stands inside a StepRecord or StepMeta.
std::string EncodeLeafMap(const LeafMap& map);
absl::StatusOr<LeafMap> DecodeLeafMap(std::string_view bytes);

}  // namespace ckptree::schema

#endif  // CKPTREE_SCHEMA_LEAF_MAP_H_
