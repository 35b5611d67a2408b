// SPDX-License-Identifier: Apache-2.0

#include "tools/verbs/leaf_in_steps.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "base/digest.h"
#include "base/status_macros.h"
#include "core/engine/engine.h"
#include "core/engine/leaf_series.h"
#include "core/engine/step_difference.h"
#include "core/engine/step_reader.h"
#include "core/engine/store_engine.h"
#include "core/engine/tied_leaves.h"

namespace ckptree::tools {

using internal::LeafKnown;
using internal::PastValue;

absl::StatusOr<LeafInSteps> LeafInSteps::Read(const Store& store,
                                              const Path& path,
                                              const HistoryOptions& options) {
  LeafInSteps found;
  internal::Engine& engine = internal::StoreEngine::Of(store);
  CKPTREE_RETURN_IF_ERROR(engine.CheckUsable());
  CKPTREE_RETURN_IF_ERROR(engine.catalog().CheckListed());
  const auto branch = engine.catalog().FindBranch(options.branch);
  if (absl::IsNotFound(branch.status())) return found;
  CKPTREE_RETURN_IF_ERROR(branch.status());
  found.records_ = engine.catalog().Steps(*branch);
  std::erase_if(found.records_, [&](const internal::StepRecordPtr& record) {
    return record->step < options.first || record->step > options.last;
  });
  internal::LeafSeries<PastValue> series(&engine, found.records_, path,
                                         options.cancelled);
  const std::string encoded = path.Encode();
  std::optional<internal::StepReader::RecordName> last;  // Of others_.back().
  std::optional<base::Digest> without;  // The tree of the step before.
  for (std::size_t i = 0; i < found.records_.size(); ++i) {
    if (options.cancelled && options.cancelled()) {
      return absl::CancelledError("interrupted");
    }
    const std::int64_t number = found.records_[i]->step;
    const auto place = series.at(i);
    if (place.kind == LeafKnown::kAbsent) {
      // It was looked up in the tree of the only part.
      const base::Digest& tree = found.records_[i]->parts[0].tree;
      if (without != tree) found.without_.push_back(number);
      without = tree;
      continue;
    }
    without.reset();
    if (place.kind == LeafKnown::kLeaf) {
      found.steps_.push_back({number, place.entry});
      continue;
    }
    const absl::StatusOr<Step> step =
        store.OpenStep(AtStep(number, options.branch));
    if (IsStepGone(step.status())) continue;  // Removed since.
    CKPTREE_RETURN_IF_ERROR(step.status());
    const auto name = internal::StepInside::Of(*step).RecordOf(encoded);
    if (name.has_value() && name == last) {
      found.steps_.push_back({number, found.others_.back().get()});
      continue;
    }
    CKPTREE_ASSIGN_OR_RETURN(std::optional<LeafInfo> leaf, step->Find(path));
    if (!leaf || (!leaf->is_leaf() && !leaf->tie_to)) {
      found.without_.push_back(number);
      continue;
    }
    std::vector<LeafInfo> one = {*std::move(leaf)};
    CKPTREE_RETURN_IF_ERROR(internal::FollowTies(*step, &one));
    CKPTREE_ASSIGN_OR_RETURN(const LeafDetail detail, step->Detail(path));
    found.leaves_.push_back(
        std::make_unique<const LeafInfo>(std::move(one.front())));
    PastValue& value =
        *found.others_.emplace_back(std::make_unique<PastValue>());
    value.leaf = found.leaves_.back().get();
    internal::Describe(detail, &value);
    found.steps_.push_back({number, &value});
    last = name;
  }
  // Where they are: what the steps point to stands in them.
  found.values_ = series.TakeEntries();
  auto infos = series.TakeInfos();
  std::move(infos.begin(), infos.end(), std::back_inserter(found.leaves_));
  return found;
}

bool LeafInSteps::AnyBelow(const Store& store, const Path& path,
                           const HistoryOptions& options) const {
  const std::string name = path.Text();
  return std::ranges::any_of(without_, [&](std::int64_t number) {
    if (options.cancelled && options.cancelled()) return true;
    const absl::StatusOr<Step> step =
        store.OpenStep(AtStep(number, options.branch));
    if (!step.ok()) return false;  // Removed since.
    const absl::StatusOr<std::vector<LeafInfo>> leaves = step->Leaves(name);
    return leaves.ok() && !leaves->empty();
  });
}

}  // namespace ckptree::tools
