// SPDX-License-Identifier: Apache-2.0

// Which segments of `chunks` some kept version needs, by the dead lists alone.
//
// A block that version b wrote is in b and in those behind it, up to the first
// whose dead list names it. Where b was collected its place is above one
// version u with prev(u) < b < u; of several such versions it is the one behind
// which a dead list names blocks of b. Where none does, all that lives of b is
// in whatever is newest behind the true one, and each is taken for it. So the
// answer is never too little, and exact where every version that nothing
// follows is kept, as the tips of branches are.

#ifndef CKPTREE_CORE_REMOTE_NEEDED_SEGMENTS_H_
#define CKPTREE_CORE_REMOTE_NEEDED_SEGMENTS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/version/kept_versions.h"
#include "kv/database.h"
#include "schema/dead_list.h"
#include "schema/keys.h"
#include "schema/segment_record.h"

namespace ckptree::internal {

struct ChunkSegment {
  schema::SegmentKeyFields key;
  schema::SegmentRow row;
};

// Those that have a row, ascending by key. kDataLoss names a row that does not
// decode: nobody can say which of its blocks live.
absl::StatusOr<std::vector<ChunkSegment>> ListChunkSegments(
    const kv::Database& database);

// Not thread-safe, but for const calls.
class SegmentNeeds {
 public:
  // REQUIRES: they are of kChunks and ascend by key.
  explicit SegmentNeeds(std::vector<ChunkSegment> segments);

  // Takes the dead list of a version that is not collected. REQUIRES: the
  // versions ascend; those below that of the oldest segment may be left out,
  // and no other. kDataLoss: it is not what such a version can have; this
  // object is of no use any more.
  absl::Status Add(std::uint64_t version, const schema::DeadList& list);

  // Of each segment, in their order, whether a kept version needs it. One of
  // which no version is known that could have it is needed.
  std::vector<bool> NeededBy(const KeptVersions& kept) const;

  const std::vector<ChunkSegment>& segments() const { return segments_; }

 private:
  // A version, and the one that it follows; kNone: that is older than all
  // segments, or there is none.
  struct Node {
    std::uint64_t version = 0;
    std::uint64_t prev = 0;
    std::uint32_t prev_node = 0;
  };
  // Blocks of a segment that the list of a version names, by their sequences.
  struct Cut {
    std::uint32_t first = 0;
    std::uint32_t count = 0;
    std::uint32_t node = 0;
  };
  // A version that wrote segments, collected or not.
  struct Birth {
    std::uint64_t version = 0;
    std::size_t first = 0;  // Its segments: [first, end).
    std::size_t end = 0;
    std::uint32_t node = 0;     // kNone: it is collected.
    std::uint32_t told_by = 0;  // Whose list names blocks of it; kNone: none.
  };

  std::uint32_t NodeOf(std::uint64_t version) const;
  Birth* BirthOf(std::uint64_t version, Birth* from);
  absl::Status AddCut(const Birth& birth, std::uint16_t part,
                      const schema::BlockRun& run, std::uint32_t node);
  // How many kept versions there are at or behind the place of each birth;
  // nothing where no place is known.
  std::vector<std::optional<std::uint64_t>> KeptBehindBirths(
      const std::vector<std::uint64_t>& kept_behind) const;
  bool IsNeeded(std::size_t segment, std::uint64_t kept_behind_birth,
                const std::vector<std::uint64_t>& kept_behind,
                std::vector<std::uint64_t>* change) const;

  std::vector<ChunkSegment> segments_;
  std::vector<std::vector<Cut>> cuts_;  // Of each.
  std::vector<Birth> births_;           // Ascending.
  std::vector<Node> nodes_;             // Ascending.
};

// The needs of `segments`, which were read before: what was saved since is in
// no list that names blocks of them. Reads each dead list once, from the
// version of the oldest segment on.
absl::StatusOr<SegmentNeeds> ReadSegmentNeeds(
    const kv::Database& database, std::vector<ChunkSegment> segments);

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_REMOTE_NEEDED_SEGMENTS_H_
