// SPDX-License-Identifier: Apache-2.0

#include "tools/report/histograms.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "ckptree/path.h"
#include "tools/output/array_reader.h"
#include "tools/output/bins.h"
#include "tools/output/element_text.h"
#include "tools/output/failure.h"
#include "tools/output/terminal.h"
#include "tools/report/choose_steps.h"

namespace ckptree::tools {
namespace {

constexpr std::size_t kMostArrays = 64;
constexpr std::size_t kMostColumns = 32;
constexpr std::size_t kBins = 64;

bool HasRealValues(const LeafInfo& leaf) {
  return leaf.kind == EntryKind::kArray && leaf.dtype != DType::kNone &&
         !IsComplex(leaf.dtype);
}

// One array in one step; nothing where the step lacks it, or it is no array of
// real numbers there.
struct OneHistogram {
  std::size_t place = 0;
  LeafInfo leaf = {};
  std::vector<std::int64_t> bins = std::vector<std::int64_t>(kBins);
};

class ArrayHistogram {
 public:
  ArrayHistogram(const Store& store, const std::vector<StepInfo>& steps,
                 const std::vector<std::size_t>& places, std::string name,
                 const std::function<bool()>& cancelled)
      : store_(store),
        steps_(steps),
        places_(places),
        name_(std::move(name)),
        cancelled_(cancelled) {}

  absl::StatusOr<Json> Count(NumberPack* pack) {
    for (const std::size_t place : places_) {
      if (absl::Status status = Find(place); !status.ok()) return status;
    }
    for (OneHistogram& one : found_) {
      absl::Status status = Fill(&one);
      if (!status.ok() && !IsStepGone(status)) return status;
    }
    std::vector<std::int64_t> places, counts;
    for (const OneHistogram& one : found_) {
      places.push_back(static_cast<std::int64_t>(one.place));
      counts.insert(counts.end(), one.bins.begin(), one.bins.end());
    }
    return Json({{"name", name_},
                 {"low", low_},
                 {"high", high_},
                 {"bins", kBins},
                 {"at", pack->AddIntegers(places)},
                 {"counts", pack->AddIntegers(counts)}});
  }

 private:
  absl::StatusOr<Step> Open(std::size_t place) const {
    return store_.OpenStep(AtStep(steps_[place].step, steps_[place].branch));
  }

  absl::Status ForEach(const Step& step, const LeafInfo& leaf,
                       const std::function<void(double)>& take) const {
    const auto width = static_cast<std::size_t>(ElementBytes(leaf.dtype));
    return ArrayReader(step, leaf)
        .ReadPieces(
            SelectAll(leaf.shape), [&](std::span<const std::byte> piece) {
              for (std::size_t at = 0; at + width <= piece.size();
                   at += width) {
                const double value = RealValue(leaf.dtype, piece.data() + at);
                if (std::isfinite(value)) take(value);
              }
              return cancelled_() ? absl::CancelledError("interrupted")
                                  : absl::OkStatus();
            });
  }

  // The extent, which all steps share, from the statistics where there are any.
  absl::Status Find(std::size_t place) {
    const absl::StatusOr<Step> step = Open(place);
    if (IsStepGone(step.status())) return absl::OkStatus();
    if (!step.ok()) return step.status();
    absl::StatusOr<std::vector<LeafInfo>> leaves = step->Leaves();
    if (!leaves.ok()) return leaves.status();
    const auto it =
        std::find_if(leaves->begin(), leaves->end(),
                     [&](const LeafInfo& leaf) { return leaf.name == name_; });
    if (it == leaves->end()) return absl::OkStatus();
    absl::StatusOr<LeafInfo> holder = step->Holder(*it);
    if (!holder.ok()) return holder.status();
    if (!HasRealValues(*holder)) return absl::OkStatus();
    const absl::StatusOr<LeafDetail> detail = step->Detail(holder->path);
    if (!detail.ok()) return detail.status();
    const auto widen = [this](double value) {
      if (!std::isfinite(value)) return;
      low_ = std::min(low_, value);
      high_ = std::max(high_, value);
    };
    if (detail->statistics) {
      widen(detail->statistics->min);
      widen(detail->statistics->max);
    } else if (absl::Status status = ForEach(*step, *holder, widen);
               !status.ok()) {
      return status;
    }
    found_.push_back({.place = place, .leaf = *std::move(holder)});
    return absl::OkStatus();
  }

  absl::Status Fill(OneHistogram* one) {
    const absl::StatusOr<Step> step = Open(one->place);
    if (!step.ok()) return step.status();
    const Bins bins(low_, high_, kBins);
    return ForEach(*step, one->leaf,
                   [&](double value) { ++one->bins[bins.Of(value)]; });
  }

  const Store& store_;
  const std::vector<StepInfo>& steps_;
  const std::vector<std::size_t>& places_;
  const std::string name_;
  const std::function<bool()>& cancelled_;
  double low_ = std::numeric_limits<double>::infinity();
  double high_ = -std::numeric_limits<double>::infinity();
  std::vector<OneHistogram> found_;
};

}  // namespace

absl::StatusOr<Json> HistogramsOf(const Store& store,
                                  const std::vector<StepInfo>& steps,
                                  const std::vector<std::string>& globs,
                                  const std::function<bool()>& cancelled,
                                  NumberPack* pack) {
  Json all = Json::array();
  if (globs.empty()) return all;
  const absl::StatusOr<Step> newest =
      store.OpenStep(AtStep(steps.back().step, steps.back().branch));
  if (!newest.ok()) return newest.status();
  absl::StatusOr<std::vector<LeafInfo>> leaves = newest->Leaves();
  if (!leaves.ok()) return leaves.status();
  std::erase_if(*leaves, [&](const LeafInfo& leaf) {
    return !HasRealValues(leaf) ||
           std::none_of(globs.begin(), globs.end(), [&](const auto& glob) {
             return MatchesGlob(glob, leaf.name);
           });
  });
  if (leaves->empty()) {
    return WithHint(
        absl::NotFoundError(absl::StrFormat(
            "no array of real numbers is called `%s`", Escape(globs[0]))),
        "`ckptree ls` lists the leaves");
  }
  if (leaves->size() > kMostArrays) {
    return WithHint(absl::InvalidArgumentError(absl::StrFormat(
                        "histograms of %d arrays: at most %d are in a report",
                        leaves->size(), kMostArrays)),
                    "name fewer of them");
  }
  const std::vector<std::size_t> places = ChooseSteps(steps, kMostColumns);
  for (const LeafInfo& leaf : *leaves) {
    absl::StatusOr<Json> one =
        ArrayHistogram(store, steps, places, leaf.name, cancelled).Count(pack);
    if (!one.ok()) return one.status();
    all.push_back(*std::move(one));
  }
  return all;
}

}  // namespace ckptree::tools
