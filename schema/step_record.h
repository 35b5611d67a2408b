// SPDX-License-Identifier: Apache-2.0

// A step's row, and the larger things said of it.

#ifndef CKPTREE_SCHEMA_STEP_RECORD_H_
#define CKPTREE_SCHEMA_STEP_RECORD_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/digest.h"
#include "schema/leaf_map.h"

namespace ckptree::schema {

// What one part of a step is.
struct PartRecord {
  std::uint16_t part = 0;
  base::Digest tree;
  PackedLeafMap map;

  friend bool operator==(const PartRecord&, const PartRecord&) = default;
};

// Part tables up to this many bytes stand in the step record, larger ones in
// the StepMeta of the version.
inline constexpr std::size_t kMaxPartTableBytes = 1024;

struct StepRecord {
  std::uint64_t version = 0;
  std::uint64_t base = 0;
  std::uint32_t branch = 0;
  std::int64_t step = 0;

  // Where !parts_in_meta: the parts, ascending by number.
  bool parts_in_meta = false;
  std::vector<PartRecord> parts;

  // Wall clock, nanoseconds since 1970 UTC. Informational: order is by version.
  std::int64_t begun_ns = 0;
  std::int64_t staged_ns = 0;
  std::int64_t committed_ns = 0;

  std::vector<std::pair<std::string, double>> metrics;  // As given; NaN kept.

  std::uint64_t leaf_count = 0;
  std::uint64_t changed_leaves = 0;  // Leaves whose value is new here.
  std::uint64_t logical_bytes = 0;   // Of all values.
  std::uint64_t new_bytes = 0;       // Of values written by this save.

  std::uint64_t nan_count = 0;  // Over all leaves.
  std::uint64_t inf_count = 0;
  std::uint64_t nonfinite_leaves = 0;
  // Of which that is not known, as their statistics were not recorded. Steps of
  // engines that did not count them have 0.
  std::uint64_t unknown_leaves = 0;

  // Over the digests of its parts, in order: of each, over its tree and the
  // ValueDigest() of each leaf.
  base::Digest digest;

  std::string saved_by;  // Engine version.
  std::string note;

  friend bool operator==(const StepRecord&, const StepRecord&) = default;
};

enum class ItemKind : std::uint8_t {  // ON DISK: never renumber.
  kTree = 1,
  kJson = 2,
  kProto = 3,
  kFiles = 4,
};
std::string_view Name(ItemKind kind);

// Who saved a part of a step that several processes saved.
struct PartOrigin {
  std::uint16_t part = 0;
  std::string host;
  std::uint32_t pid = 0;
  std::uint64_t nonce = 0;  // Of the process among those of its rank.
  std::uint64_t bytes = 0;  // Of the values of the part.
  std::uint64_t new_bytes = 0;
  std::uint64_t nanoseconds = 0;  // From the plan to the handoff.

  friend bool operator==(const PartOrigin&, const PartOrigin&) = default;
};

struct StepMeta {
  std::vector<PartRecord> parts;  // Where the step record says so.
  std::vector<std::pair<std::string, ItemKind>> items;
  std::string custom_metadata;  // JSON text; may be empty.
  // Where this save came from: "host", "pid", "command", ... in order.
  std::vector<std::pair<std::string, std::string>> lineage;
  // Of each part, ascending; none where one process saved the step.
  std::vector<PartOrigin> origins;

  friend bool operator==(const StepMeta&, const StepMeta&) = default;
};

// Decides parts_in_meta: moves the parts of `record` into `meta` where their
// encoding exceeds kMaxPartTableBytes.
void PlaceParts(StepRecord* record, StepMeta* meta);

// kInvalidArgument, naming the field, where a decoder would refuse what the
// caller gave: too many metrics, a name too long or twice, a note or custom
// metadata too large, parts not ascending. For the engine to ask before a save.
absl::Status Validate(const StepRecord& record);
absl::Status Validate(const StepMeta& meta);

std::string EncodeStepRecord(const StepRecord& record);
absl::StatusOr<StepRecord> DecodeStepRecord(std::string_view bytes);
std::string EncodeStepMeta(const StepMeta& meta);
absl::StatusOr<StepMeta> DecodeStepMeta(std::string_view bytes);

}  // namespace ckptree::schema

#endif  // CKPTREE_SCHEMA_STEP_RECORD_H_
