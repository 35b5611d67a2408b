// SPDX-License-Identifier: Apache-2.0

// A catalog whose rows of steps are read when somebody asks for all of them.

#include <algorithm>
#include <optional>
#include <utility>

#include "core/process/arena.h"
#include "core/version/catalog.h"

namespace ckptree::internal {
namespace {

// Beyond so many look-ups of single steps it is faster to have listed all.
constexpr int kMostLookUps = 1000;
// So many of the newest are listed with all others.
constexpr std::size_t kMostNewest = 1000;

}  // namespace

std::vector<std::string> Catalog::LoadLater(kv::Database* database,
                                            Arena* arena,
                                            ProblemFn on_problems) {
  std::vector<std::string> problems;
  absl::StatusOr<StepRows> steps = StepRows::Open(*database);
  if (!steps.ok()) {
    arena->execute([&] { problems = Load(*database); });
    return problems;
  }
  Rows rows;
  LoadNames(*database, &problems, &rows);
  absl::MutexLock lock(&mu_);
  rows_ = std::move(rows);
  later_.emplace(
      Later{*std::move(steps), database, arena, std::move(on_problems)});
  return problems;
}

Catalog::Problems Catalog::ListAll() const {
  if (!later_.has_value()) return {};
  Later& later = *later_;
  Problems found;
  StepsByBranch steps;
  StepRows::BadRows bad;
  absl::Status seen;
  std::optional<Rows> anew;
  seen = later.steps.ReadAll(&found.rows, &steps, &bad, later.arena);
  // Files may have gone since: what there is now.
  if (!seen.ok() && later.database->Refresh().ok()) {
    found.rows.clear();
    anew = RowsOf(*later.database, later.arena, &found.rows);
  }
  if (anew.has_value()) {
    rows_ = *std::move(anew);
  } else {
    rows_.steps = std::move(steps);
    rows_.bad_steps = std::move(bad);
    rows_.unseen.Update(seen);
  }
  if (!found.rows.empty() && rows_.damage.empty()) {
    rows_.damage = found.rows.front();
  }
  found.tell = std::move(later.on_problems);
  later_.reset();
  return found;
}

Catalog::Listed::Listed(const Catalog* catalog) : catalog_(*catalog) {
  catalog_.mu_.Lock();
  try {
    problems_ = catalog_.ListAll();
  } catch (...) {
    catalog_.mu_.Unlock();
    throw;
  }
}

Catalog::Listed::~Listed() {
  catalog_.mu_.Unlock();
  if (!problems_.rows.empty() && problems_.tell) {
    problems_.tell(problems_.rows);
  }
}

void Catalog::List() const { const Listed all(this); }

void Catalog::Close() {
  const absl::MutexLock lock(&mu_);
  later_.reset();
}

std::optional<StepRecordPtr> Catalog::FindLater(std::uint32_t branch,
                                                std::int64_t step) const {
  if (!later_.has_value() || ++later_->look_ups > kMostLookUps) {
    return std::nullopt;
  }
  absl::StatusOr<StepRecordPtr> found = later_->steps.Find(branch, step);
  if (!found.ok()) return std::nullopt;
  return *std::move(found);
}

StepRecordPtr Catalog::ResolveLater(const StepSelector& selector) const {
  if (!later_.has_value() || selector.back != 0) return nullptr;
  const auto branch = BranchCalled(selector.branch);
  if (!branch.ok()) return nullptr;
  switch (selector.kind) {
    case StepSelector::Kind::kStep:
      return FindLater(*branch, selector.step).value_or(nullptr);
    case StepSelector::Kind::kLatest: {
      if (!MayTakeNewest(*branch).ok()) return nullptr;
      auto newest = later_->steps.Newest(*branch, 1);
      return newest.ok() && !newest->empty() ? newest->front() : nullptr;
    }
    case StepSelector::Kind::kTag: {
      const auto tag = rows_.tags.find(selector.name);
      if (tag == rows_.tags.end()) return nullptr;
      return FindLater(tag->second.branch, tag->second.step).value_or(nullptr);
    }
    default:
      return nullptr;
  }
}

std::vector<StepRecordPtr> Catalog::NewestSteps(std::uint32_t branch,
                                                std::size_t count) const {
  {
    const absl::MutexLock lock(&mu_);
    if (later_.has_value() && count <= kMostNewest) {
      auto newest = later_->steps.Newest(branch, count);
      if (newest.ok()) return *std::move(newest);
    }
  }
  std::vector<StepRecordPtr> all = Steps(branch);
  if (all.size() > count) {
    all.erase(all.begin(), all.end() - static_cast<std::ptrdiff_t>(count));
  }
  return all;
}

}  // namespace ckptree::internal
