// SPDX-License-Identifier: Apache-2.0

#include "tests/judge/table.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace ckptree::testing {

void JudgeTable::Counts::Add(unsigned bits, unsigned bad) {
  ++trials;
  if (bad != 0) ++wrong;
  for (int bit = 0; bit < kFaults; ++bit) {
    if ((bits >> bit & 1) != 0) ++faults[static_cast<std::size_t>(bit)];
  }
}

void JudgeTable::Add(const std::string& kind, const std::string& shape,
                     const std::string& where, unsigned faults,
                     unsigned wrong) {
  all_.Add(faults, wrong);
  kinds_[kind].Add(faults, wrong);
  shapes_[shape].Add(faults, wrong);
  classes_[shape == "two at once" ? shape : where].Add(faults, wrong);
  cells_[absl::StrCat(kind, " | ", shape, " | ",
                      shape == "two at once" ? "" : where)]
      .Add(faults, wrong);
}

std::string JudgeTable::Row(const std::string& name, const Counts& counts) {
  std::string row =
      absl::StrFormat("  %-44s %6d %6d", name, counts.trials, counts.wrong);
  for (const int count : counts.faults) {
    if (count == 0) {
      row += "        .";
    } else {
      absl::StrAppendFormat(&row, " %8d", count);
    }
  }
  return row + "\n";
}

std::string JudgeTable::Text(bool whole) const {
  std::string head = absl::StrFormat("  %-44s %6s %6s", "", "trials", "wrong");
  for (int bit = 0; bit < kFaults; ++bit) {
    absl::StrAppendFormat(&head, " %8s", FaultName(bit));
  }
  std::string text = head + "\n";
  const auto add = [&](const std::string& title,
                       const std::map<std::string, Counts>& rows) {
    absl::StrAppend(&text, title, "\n");
    for (const auto& [name, counts] : rows) text += Row(name, counts);
  };
  add("kind of store", kinds_);
  add("shape of damage", shapes_);
  add("what it hit", classes_);
  if (whole) add("each", cells_);
  return text + Row("all", all_);
}

std::string JudgeTable::Summary() const {
  return absl::StrFormat("%d trials, %d fired: %d otherwise wrong", all_.trials,
                         all_.trials, all_.wrong);
}

}  // namespace ckptree::testing
