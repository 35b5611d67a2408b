// SPDX-License-Identifier: Apache-2.0

#include "core/engine/kept_segments.h"

#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "ckptree/policy.h"
#include "core/version/base_loader.h"
#include "core/version/leaf_reader.h"
#include "schema/keys.h"
#include "schema/leaf_map.h"
#include "schema/leaf_record.h"
#include "schema/spaces.h"
#include "schema/step_record.h"

namespace ckptree::internal {

absl::StatusOr<std::set<std::string>> KeptSegments::SegmentsOf(
    const schema::StepRecord& record) const {
  std::set<std::string> segments;
  CKPTREE_ASSIGN_OR_RETURN(const std::vector<schema::PartRecord> parts,
                           PartsOf(database_, record));
  for (const schema::PartRecord& part : parts) {
    const schema::LeafMap map = part.map.Unpack();
    std::vector<std::uint32_t> all(map.size());
    std::iota(all.begin(), all.end(), 0);
    CKPTREE_ASSIGN_OR_RETURN(
        const std::vector<schema::LeafRecord> records,
        ReadRecords(database_, part.part, map, all, /*here=*/true));
    for (const schema::LeafRecord& leaf : records) {
      for (const schema::ChunkRef& ref : leaf.chunks) {
        if (ref.place != schema::Space::kChunks) continue;
        segments.insert(schema::SegmentKey(ref.version, ref.part, ref.place,
                                           schema::BuilderOf(ref.n)));
      }
    }
  }
  return segments;
}

absl::StatusOr<std::set<std::string>> KeptSegments::Find() {
  std::map<std::uint64_t, std::set<std::string>> kept;
  for (const auto& [branch, unused] : catalog_.Branches()) {
    CKPTREE_ASSIGN_OR_RETURN(const std::vector<PolicyVerdict> verdicts,
                             retention_.Judge(branch, policy_));
    for (const PolicyVerdict& verdict : verdicts) {
      const bool newest = verdict.version == verdicts.back().version;
      if (!verdict.kept && !newest) continue;
      const auto known = known_.find(verdict.version);
      if (known != known_.end()) {
        kept.insert(known_.extract(known));
        continue;
      }
      const StepRecordPtr record = catalog_.Find(branch, verdict.step);
      // Removed since, or another one has its number.
      if (record == nullptr || record->version != verdict.version) continue;
      absl::StatusOr<std::set<std::string>> segments = SegmentsOf(*record);
      if (!segments.ok() && catalog_.Find(branch, verdict.step) != record) {
        continue;
      }
      CKPTREE_RETURN_IF_ERROR(segments.status());
      kept.emplace(verdict.version, *std::move(segments));
    }
  }
  known_ = std::move(kept);
  std::set<std::string> all;
  for (const auto& [version, segments] : known_) {
    all.insert(segments.begin(), segments.end());
  }
  return all;
}

}  // namespace ckptree::internal
