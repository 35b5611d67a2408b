// SPDX-License-Identifier: Apache-2.0

#include "core/remote/needed_segments.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <tuple>
#include <utility>

#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "core/version/row_scan.h"
#include "kv/iterator.h"
#include "schema/spaces.h"

namespace ckptree::internal {
namespace {

using schema::BlockRun;
using schema::Space;

constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();

// Where each node and those behind it stand in an order in which they are
// neighbours.
class Subtrees {
 public:
  // `prev`: of each node; kNone, or less than its own number.
  explicit Subtrees(const std::vector<std::uint32_t>& prev)
      : first_(prev.size()), size_(prev.size(), 1) {
    for (std::size_t i = prev.size(); i-- > 0;) {
      if (prev[i] != kNone) size_[prev[i]] += size_[i];
    }
    std::uint32_t next_root = 0;
    std::vector<std::uint32_t> next(prev.size());
    for (std::size_t i = 0; i < prev.size(); ++i) {
      std::uint32_t& at = prev[i] == kNone ? next_root : next[prev[i]];
      first_[i] = at;
      at += size_[i];
      next[i] = first_[i] + 1;
    }
  }

  // Whether `node` is `root` or behind it.
  bool Has(std::uint32_t root, std::uint32_t node) const {
    return first_[node] >= first_[root] &&
           first_[node] - first_[root] < size_[root];
  }

 private:
  std::vector<std::uint32_t> first_;
  std::vector<std::uint32_t> size_;
};

absl::Status Contradiction(std::uint64_t version, std::string_view what) {
  return absl::DataLossError(
      absl::StrFormat("the dead list of version %d %s", version, what));
}

}  // namespace

absl::StatusOr<std::vector<ChunkSegment>> ListChunkSegments(
    const kv::Database& database) {
  std::vector<ChunkSegment> segments;
  CKPTREE_RETURN_IF_ERROR(
      ScanRows(database, schema::Row::kSegment,
               [&segments](std::string_view key,
                           std::string_view value) -> absl::Status {
                 const auto fields = schema::DecodeSegmentKey(key);
                 if (!fields.has_value())
                   return absl::DataLossError("its key is not that of a row");
                 if (fields->space != Space::kChunks) return absl::OkStatus();
                 CKPTREE_ASSIGN_OR_RETURN(schema::SegmentRow row,
                                          schema::DecodeSegmentRow(value));
                 segments.push_back({*fields, std::move(row)});
                 return absl::OkStatus();
               }));
  return segments;
}

SegmentNeeds::SegmentNeeds(std::vector<ChunkSegment> segments)
    : segments_(std::move(segments)), cuts_(segments_.size()) {
  for (std::size_t i = 0; i < segments_.size(); ++i) {
    const std::uint64_t version = segments_[i].key.version;
    if (births_.empty() || births_.back().version != version) {
      births_.push_back({version, i, i, kNone, kNone});
    }
    births_.back().end = i + 1;
  }
}

std::uint32_t SegmentNeeds::NodeOf(std::uint64_t version) const {
  const auto at = std::lower_bound(
      nodes_.begin(), nodes_.end(), version,
      [](const Node& node, std::uint64_t v) { return node.version < v; });
  if (at == nodes_.end() || at->version != version) return kNone;
  return static_cast<std::uint32_t>(at - nodes_.begin());
}

// At or behind `from`; null: it has no segment.
SegmentNeeds::Birth* SegmentNeeds::BirthOf(std::uint64_t version, Birth* from) {
  Birth* const end = births_.data() + births_.size();
  if (from == end || from->version >= version) {
    return from != end && from->version == version ? from : nullptr;
  }
  Birth* const at = std::lower_bound(
      from, end, version,
      [](const Birth& birth, std::uint64_t v) { return birth.version < v; });
  return at != end && at->version == version ? at : nullptr;
}

absl::Status SegmentNeeds::AddCut(const Birth& birth, std::uint16_t part,
                                  const BlockRun& run, std::uint32_t node) {
  const std::tuple name(part, schema::BuilderOf(run.first_n));
  const auto begin = segments_.begin();
  const auto end = begin + static_cast<std::ptrdiff_t>(birth.end);
  const auto at = std::lower_bound(
      begin + static_cast<std::ptrdiff_t>(birth.first), end, name,
      [](const ChunkSegment& segment, const auto& wanted) {
        return std::tuple(segment.key.part, segment.key.builder) < wanted;
      });
  if (at == end || std::tuple(at->key.part, at->key.builder) != name) {
    return absl::OkStatus();  // It is not asked about.
  }
  const std::uint32_t first = schema::SequenceOf(run.first_n);
  if (first == 0 || std::uint64_t{first} + run.count - 1 >
                        std::uint64_t{at->row.block_count}) {
    return Contradiction(nodes_[node].version,
                         "names blocks that their segment does not have");
  }
  cuts_[static_cast<std::size_t>(at - begin)].push_back(
      {first, run.count, node});
  return absl::OkStatus();
}

absl::Status SegmentNeeds::Add(std::uint64_t version,
                               const schema::DeadList& list) {
  if (list.prev >= version) return Contradiction(version, "is of another one");
  if (births_.empty()) return absl::OkStatus();
  const std::uint32_t prev = NodeOf(list.prev);
  if (prev == kNone && list.prev >= births_.front().version) {
    return Contradiction(
        version,
        absl::StrFormat("follows version %d, which is not there", list.prev));
  }
  const auto node = static_cast<std::uint32_t>(nodes_.size());
  nodes_.push_back({version, list.prev, prev});
  if (Birth* const own = BirthOf(version, births_.data())) own->node = node;
  for (const schema::DeadPart& part : list.parts) {
    Birth* birth = births_.data();
    std::uint64_t before = 0;
    for (const BlockRun& run : part.runs) {
      // Of one kind and place they ascend.
      Birth* const from = run.version < before ? births_.data() : birth;
      before = run.version;
      Birth* const found = BirthOf(run.version, from);
      birth = found != nullptr ? found : from;
      if (found == nullptr) continue;
      if (found->told_by == kNone) found->told_by = node;
      if (run.place != Space::kChunks) continue;
      CKPTREE_RETURN_IF_ERROR(AddCut(*found, part.part, run, node));
    }
  }
  return absl::OkStatus();
}

std::vector<std::optional<std::uint64_t>> SegmentNeeds::KeptBehindBirths(
    const std::vector<std::uint64_t>& kept_behind) const {
  std::vector<std::uint32_t> prev;
  prev.reserve(nodes_.size());
  for (const Node& node : nodes_) prev.push_back(node.prev_node);
  const Subtrees subtrees(prev);
  std::vector<std::uint32_t> by_prev(nodes_.size());
  std::iota(by_prev.begin(), by_prev.end(), 0);
  std::stable_sort(by_prev.begin(), by_prev.end(),
                   [this](std::uint32_t a, std::uint32_t b) {
                     return nodes_[a].prev < nodes_[b].prev;
                   });
  std::vector<std::optional<std::uint64_t>> kept(births_.size());
  auto next = by_prev.begin();
  std::vector<std::uint32_t> places;  // As many as branches, about.
  for (std::size_t i = 0; i < births_.size(); ++i) {
    const Birth& birth = births_[i];
    for (; next != by_prev.end() && nodes_[*next].prev < birth.version;
         ++next) {
      places.push_back(*next);
    }
    std::erase_if(places, [&](std::uint32_t node) {
      return nodes_[node].version <= birth.version;
    });
    if (birth.node != kNone) {
      kept[i] = kept_behind[birth.node];
      continue;
    }
    std::uint64_t behind_all = 0;
    for (const std::uint32_t place : places) {
      if (birth.told_by != kNone && subtrees.Has(place, birth.told_by)) {
        kept[i] = kept_behind[place];
        break;
      }
      behind_all += kept_behind[place];
    }
    if (!kept[i].has_value() && !places.empty()) kept[i] = behind_all;
  }
  return kept;
}

// A block is needed by as many kept versions as there are behind its birth,
// less those behind the lists that name it: none of these is behind another
// one, for what is dead does not come back.
bool SegmentNeeds::IsNeeded(std::size_t segment,
                            std::uint64_t kept_behind_birth,
                            const std::vector<std::uint64_t>& kept_behind,
                            std::vector<std::uint64_t>* change) const {
  if (kept_behind_birth == 0) return false;
  if (cuts_[segment].empty()) return true;
  const schema::SegmentRow& row = segments_[segment].row;
  // From one block to the next; what wraps around comes back.
  change->assign(std::size_t{row.block_count} + 2, 0);
  const auto add = [change](std::uint32_t first, std::uint32_t count,
                            std::uint64_t lost) {
    (*change)[first] += lost;
    (*change)[std::size_t{first} + count] -= lost;
  };
  for (const Cut& cut : cuts_[segment]) {
    add(cut.first, cut.count, kept_behind[cut.node]);
  }
  for (const schema::DeadRun& run : row.dead) {
    add(run.first, run.count, kept_behind_birth);
  }
  std::uint64_t lost = 0;
  for (std::size_t sequence = 1; sequence <= row.block_count; ++sequence) {
    lost += (*change)[sequence];
    if (lost < kept_behind_birth) return true;
  }
  return false;
}

std::vector<bool> SegmentNeeds::NeededBy(const KeptVersions& kept) const {
  std::vector<std::uint64_t> kept_behind(nodes_.size());
  for (std::size_t i = nodes_.size(); i-- > 0;) {
    kept_behind[i] += kept.Has(nodes_[i].version) ? 1 : 0;
    const std::uint32_t prev = nodes_[i].prev_node;
    if (prev != kNone) kept_behind[prev] += kept_behind[i];
  }
  const std::vector<std::optional<std::uint64_t>> behind_births =
      KeptBehindBirths(kept_behind);
  std::vector<bool> needed(segments_.size(), true);
  std::vector<std::uint64_t> change;
  for (std::size_t i = 0; i < births_.size(); ++i) {
    if (!behind_births[i].has_value()) continue;
    for (std::size_t s = births_[i].first; s < births_[i].end; ++s) {
      needed[s] = IsNeeded(s, *behind_births[i], kept_behind, &change);
    }
  }
  return needed;
}

absl::StatusOr<SegmentNeeds> ReadSegmentNeeds(
    const kv::Database& database, std::vector<ChunkSegment> segments) {
  if (segments.empty()) return SegmentNeeds({});
  const std::string oldest = schema::DeadKey(segments.front().key.version);
  SegmentNeeds needs(std::move(segments));
  CKPTREE_ASSIGN_OR_RETURN(
      kv::Iterator rows,
      database.Scan(Space::kRecords, oldest,
                    schema::AllRows(schema::Row::kDead).end));
  for (; rows.Valid(); rows.Next()) {
    const auto version =
        schema::DecodeVersionKey(schema::Row::kDead, rows.key());
    if (!version.has_value()) {
      return NamingRow(rows.key(),
                       absl::DataLossError("its key is not that of a row"));
    }
    absl::StatusOr<schema::DeadList> list =
        schema::DecodeDeadList(rows.value());
    const absl::Status status =
        list.ok() ? needs.Add(*version, *list) : list.status();
    if (!status.ok()) return NamingRow(rows.key(), status);
  }
  CKPTREE_RETURN_IF_ERROR(rows.status());
  return needs;
}

}  // namespace ckptree::internal
