// SPDX-License-Identifier: Apache-2.0

// Hot path: per leaf.

#include "core/engine/part_comparison.h"

#include <algorithm>

#include "absl/status/statusor.h"
#include "base/status_macros.h"

namespace ckptree::internal {
namespace {

bool IsOneRecord(const schema::MapRun& a, const schema::MapRun& b) {
  return a.place == b.place && a.version == b.version && a.source == b.source;
}

void CallWithValues(PartComparison::Entry before, PartComparison::Entry after,
                    PartComparison::OnDifferent fn) {
  for (PartComparison::Entry* const one : {&before, &after}) {
    if (one->entry != nullptr && !HasValue(one->entry->kind)) *one = {};
  }
  if (before.entry != nullptr || after.entry != nullptr) fn(before, after);
}

}  // namespace

bool HasValue(EntryKind kind) {
  return IsLeaf(kind) || kind == EntryKind::kTie || kind == EntryKind::kNone;
}

absl::Status PartComparison::Side::Load() {
  if (loaded_ != nullptr) return absl::OkStatus();
  absl::StatusOr<std::shared_ptr<const StepTree::Page>> page =
      tree_.LoadPage(page_);
  if (!page.ok()) return step_.Annotate(page.status());
  loaded_ = *std::move(page);
  return absl::OkStatus();
}

schema::MapRun PartComparison::Side::RecordOf(std::uint32_t ordinal) {
  while (ordinal - runs_[run_].first >= runs_[run_].count) ++run_;
  schema::MapRun run = runs_[run_];
  const std::uint32_t skipped = ordinal - run.first;
  run.source += skipped;
  run.count -= skipped;
  return run;
}

absl::Status PartComparison::Run(OnDifferent fn) {
  while (!AtEnd()) CKPTREE_RETURN_IF_ERROR(Next(fn));
  return absl::OkStatus();
}

absl::Status PartComparison::Next(OnDifferent fn) {
  if (a_.AtEnd() || b_.AtEnd()) {
    Side& rest = a_.AtEnd() ? b_ : a_;
    CKPTREE_RETURN_IF_ERROR(rest.Load());
    CallWithValues(a_.AtEnd() ? Entry() : a_.entry(),
                   b_.AtEnd() ? Entry() : b_.entry(), fn);
    rest.Next();
    return absl::OkStatus();
  }
  if (a_.AtPage() && b_.AtPage() && a_.ref().digest == b_.ref().digest &&
      a_.OnlyLeaves() && b_.OnlyLeaves() && a_.leaves() == b_.leaves()) {
    return ComparePage(fn);
  }
  return CompareEntry(fn);
}

// Only the records matter, run by run.
absl::Status PartComparison::ComparePage(OnDifferent fn) {
  const std::uint32_t leaves = a_.leaves();
  const std::uint32_t a_first = a_.ref().first_ordinal;
  const std::uint32_t b_first = b_.ref().first_ordinal;
  for (std::uint32_t leaf = 0; leaf < leaves;) {
    const schema::MapRun a = a_.RecordOf(a_first + leaf);
    const schema::MapRun b = b_.RecordOf(b_first + leaf);
    const std::uint32_t end =
        std::min({leaves - leaf, a.count, b.count}) + leaf;
    if (IsOneRecord(a, b)) {
      same_ += end - leaf;
      leaf = end;
      continue;
    }
    CKPTREE_RETURN_IF_ERROR(a_.Load());
    for (; leaf < end; ++leaf) {
      fn({a_.leaf(leaf), a_first + leaf}, {a_.leaf(leaf), b_first + leaf});
    }
  }
  a_.NextPage();
  b_.NextPage();
  return absl::OkStatus();
}

absl::Status PartComparison::CompareEntry(OnDifferent fn) {
  CKPTREE_RETURN_IF_ERROR(a_.Load());
  CKPTREE_RETURN_IF_ERROR(b_.Load());
  const Entry a = a_.entry();
  const Entry b = b_.entry();
  const int order = a.entry->path.compare(b.entry->path);
  if (order != 0) {
    CallWithValues(order < 0 ? a : Entry(), order < 0 ? Entry() : b, fn);
  } else if (IsLeaf(a.entry->kind) && *a.entry == *b.entry &&
             IsOneRecord(a_.RecordOf(a.ordinal), b_.RecordOf(b.ordinal))) {
    ++same_;
  } else {
    CallWithValues(a, b, fn);
  }
  if (order <= 0) a_.Next();
  if (order >= 0) b_.Next();
  return absl::OkStatus();
}

}  // namespace ckptree::internal
