// SPDX-License-Identifier: Apache-2.0

#include "tools/verbs/aligned_steps.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "base/status_macros.h"

namespace ckptree::tools {

AlignedSteps::AlignedSteps(const std::vector<const Step*>& steps) {
  sources_.reserve(steps.size());
  for (const Step* step : steps) {
    sources_.push_back({.pieces = SubtreePieces(*step, "")});
  }
}

absl::Status AlignedSteps::Fill(Source* source) {
  if (source->taken < source->read.size()) return absl::OkStatus();
  source->taken = 0;
  source->read.clear();
  if (source->ended) return absl::OkStatus();
  CKPTREE_ASSIGN_OR_RETURN(source->read, source->pieces.Next());
  source->ended = source->read.empty();
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::vector<LeafInfo>>> AlignedSteps::Next() {
  // The range ends where the first of what was read does.
  std::optional<std::string> end;
  for (Source& source : sources_) {
    CKPTREE_RETURN_IF_ERROR(Fill(&source));
    if (source.read.empty()) continue;
    std::string last = source.read.back().path.Encode();
    if (!end || last < *end) end = std::move(last);
  }
  std::vector<std::vector<LeafInfo>> range(sources_.size());
  if (!end) return range;
  for (std::size_t i = 0; i < sources_.size(); ++i) {
    Source& source = sources_[i];
    const auto begin =
        source.read.begin() + static_cast<std::ptrdiff_t>(source.taken);
    const auto behind = std::partition_point(
        begin, source.read.end(),
        [&end](const LeafInfo& info) { return info.path.Encode() <= *end; });
    range[i].assign(std::make_move_iterator(begin),
                    std::make_move_iterator(behind));
    source.taken = static_cast<std::size_t>(behind - source.read.begin());
  }
  return range;
}

}  // namespace ckptree::tools
