// SPDX-License-Identifier: Apache-2.0

#include "tools/verbs/aligned_steps.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "base/status_macros.h"

namespace ckptree::tools {
namespace {

// Entries of a range, of all steps together and of each: few of the first, for
// which somebody waits, then enough for all threads. A page of a tree is the
// least.
struct Most {
  std::size_t of_all;
  std::size_t of_each;
};
constexpr Most kFirstRange = {1 << 15, 2048}, kLaterRanges = {1 << 17, 8192};

}  // namespace

AlignedSteps::AlignedSteps(const std::vector<const Step*>& steps) {
  sources_.reserve(steps.size());
  for (const Step* step : steps) {
    sources_.push_back({.pieces = internal::LeafPieces(*step)});
  }
}

bool AlignedSteps::any_at_once() const {
  return std::ranges::any_of(sources_, [](const Source& source) {
    return source.pieces.come_at_once();
  });
}

absl::Status AlignedSteps::Fill(Source* source) const {
  if (source->taken < source->read.size()) return absl::OkStatus();
  source->taken = 0;
  source->read.clear();
  if (source->ended) return absl::OkStatus();
  const Most& most = begun_ ? kLaterRanges : kFirstRange;
  CKPTREE_ASSIGN_OR_RETURN(
      source->read, source->pieces.Next(
                        std::min(most.of_all / sources_.size(), most.of_each)));
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
  begun_ = true;
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
