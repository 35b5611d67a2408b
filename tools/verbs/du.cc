// SPDX-License-Identifier: Apache-2.0

// `ckptree du`: what steps cost, and what removing them would free.

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "tools/line/command.h"
#include "tools/line/step_range.h"
#include "tools/line/table_flags.h"
#include "tools/output/failure.h"
#include "tools/output/quantity.h"
#include "tools/verbs/freeing.h"

namespace ckptree::tools {
namespace {

// What the cells of SIZE, UNIQUE and SHARED say: the last two make up the
// first.
struct ValueShares {
  std::uint64_t size;
  std::uint64_t unique;

  ValueShares(std::uint64_t logical, std::uint64_t alone)
      : size(logical), unique(std::min(logical, alone)) {}
  std::uint64_t shared() const { return size - unique; }
};

Table StepTable(const UsageReport& usage, bool exact) {
  Table table;
  table.schema = "ckptree.du/1";
  table.rows_name = "steps";
  table.extra = {{"logical_bytes", usage.logical_bytes},
                 {"pending_bytes", usage.pending_bytes},
                 {"dead_bytes", usage.dead_bytes},
                 {"far_bytes", usage.far_bytes},
                 {"files", usage.files},
                 {"file_bytes", usage.file_bytes},
                 {"living_bytes", usage.living_bytes},
                 {"living_stored_bytes", usage.living_stored_bytes},
                 {"kept", KeptJson(usage.kept)}};
  table.columns = {
      {.name = "step", .title = "STEP", .right = true},
      {.name = "logical_bytes", .title = "SIZE", .right = true},
      {.name = "new_bytes", .title = "NEW", .right = true},
      {.name = "unique_value_bytes", .title = "UNIQUE", .right = true},
      {.name = "shared_bytes", .title = "SHARED", .right = true},
      // Where arrays are coded, what the disk gets back.
      {.name = "unique_stored_bytes", .title = "FREES", .right = true},
      {.name = "branch"},
      {.name = "version"},
      {.name = "unique_bytes"}};
  for (const StepUsage& step : usage.steps) {
    Cell number = StepCell(step.step);
    number.text = StepText(step.branch, step.step);
    const ValueShares split(step.logical_bytes, step.unique_bytes);
    table.rows.push_back(
        {std::move(number), BytesCell(split.size, exact),
         BytesCell(step.new_bytes, exact), BytesCell(split.unique, exact),
         BytesCell(split.shared(), exact),
         BytesCell(step.unique_stored_bytes, exact), TextCell(step.branch),
         CountCell(step.version), BytesCell(step.unique_bytes, exact)});
  }
  return table;
}

std::string TotalText(const UsageReport& usage, bool by_address, bool exact) {
  std::string text = absl::StrFormat(
      "%s, %s if each were whole, %s%s%s\n",
      CountText(usage.steps.size(), "step", "steps"),
      SizeText(usage.logical_bytes, exact),
      by_address ? "read through a cache of " : "in ",
      SizeText(usage.file_bytes, exact), by_address ? "" : " of files");
  if (usage.living_stored_bytes < usage.living_bytes) {
    absl::StrAppendFormat(&text,
                          "%s of arrays and records take %s: some are coded\n",
                          SizeText(usage.living_bytes, exact),
                          SizeText(usage.living_stored_bytes, exact));
  }
  if (usage.far_bytes > 0) {
    absl::StrAppendFormat(&text,
                          "%s of arrays left this disk, and are in the remote "
                          "alone\n",
                          SizeText(usage.far_bytes, exact));
  }
  if (usage.pending_bytes > 0) {
    absl::StrAppendFormat(&text,
                          "%s of removed steps: `ckptree gc` frees them\n",
                          SizeText(usage.pending_stored_bytes, exact));
  }
  if (usage.dead_bytes > 0) {
    absl::StrAppendFormat(&text,
                          "about %s dead in files that hold other bytes: "
                          "`ckptree gc --full` writes these again\n",
                          SizeText(usage.dead_bytes, exact));
  }
  return text + KeptText(usage.kept);
}

absl::StatusOr<int> PrintSteps(Session& session, const TableOptions& options) {
  const absl::StatusOr<Store*> store = session.OpenStore();
  if (!store.ok()) return store.status();
  const absl::StatusOr<UsageReport> usage = (*store)->Usage();
  if (!usage.ok()) return usage.status();
  const bool people = options.format == Format::kTable;
  if (!people || !usage->steps.empty()) {
    if (absl::Status status =
            session.Print(StepTable(*usage, options.exact_bytes), options);
        !status.ok()) {
      return status;
    }
  }
  if (people) {
    session.out().Write(TotalText(*usage,
                                  absl::StrContains(session.directory(), "://"),
                                  options.exact_bytes));
  }
  return kExitOk;
}

absl::StatusOr<int> PrintSubtrees(Session& session,
                                  const TableOptions& options) {
  if (session.words().size() > 1) {
    return WithHint(
        absl::InvalidArgumentError("`ckptree du` shows one step at a time"),
        "`ckptree du --free REV...` adds up what removing steps would free");
  }
  const auto depth = session.arguments().Number("depth");
  if (!depth.ok()) return depth.status();
  const absl::StatusOr<Address> address = ParseAddress(session.words()[0]);
  if (!address.ok()) return address.status();
  if (!address->key.empty()) {
    return WithHint(
        absl::InvalidArgumentError("`ckptree du` takes a step without a key"),
        "--depth N shows more of its subtrees, --where 'key==params' one");
  }
  const absl::StatusOr<StepInfo> info = session.Resolve(address->step);
  if (!info.ok()) return info.status();
  const absl::StatusOr<Store*> store = session.OpenStore();
  if (!store.ok()) return store.status();
  constexpr std::int64_t kDeepest = 1 << 20;
  const int parts = static_cast<int>(std::min(depth->value_or(1), kDeepest));
  const absl::StatusOr<std::vector<SubtreeUsage>> subtrees =
      (*store)->Subtrees(AtStep(info->step, info->branch), parts);
  if (!subtrees.ok()) return subtrees.status();
  Table table;
  table.schema = "ckptree.du-subtrees/1";
  table.rows_name = "subtrees";
  table.extra = {
      {"branch", info->branch}, {"step", info->step}, {"depth", parts}};
  table.columns = {
      {.name = "key", .title = "KEY", .elide = true},
      {.name = "leaves", .title = "LEAVES", .right = true},
      {.name = "logical_bytes", .title = "SIZE", .right = true},
      {.name = "unique_value_bytes", .title = "UNIQUE", .right = true},
      {.name = "shared_bytes", .title = "SHARED", .right = true},
      {.name = "unique_bytes"}};
  const bool exact = options.exact_bytes;
  for (const SubtreeUsage& subtree : *subtrees) {
    Cell name = TextCell(subtree.name);
    if (subtree.name.empty()) name.text = "(all)";
    const ValueShares split(subtree.logical_bytes, subtree.unique_value_bytes);
    table.rows.push_back({std::move(name), CountCell(subtree.leaves),
                          BytesCell(split.size, exact),
                          BytesCell(split.unique, exact),
                          BytesCell(split.shared(), exact),
                          BytesCell(subtree.unique_bytes, exact)});
  }
  if (absl::Status status = session.Print(std::move(table), options);
      !status.ok()) {
    return status;
  }
  return kExitOk;
}

absl::StatusOr<int> PrintFreed(Session& session, const TableOptions& options) {
  std::vector<StepSelector> steps;
  Json names = Json::array();
  CKPTREE_ASSIGN_OR_RETURN(const std::vector<StepInfo> found,
                           FindAllSteps(session, session.words()));
  for (const StepInfo& info : found) {
    steps.push_back(AtStep(info.step, info.branch));
    names.push_back(Text(steps.back()));
  }
  const absl::StatusOr<Store*> store = session.OpenStore();
  if (!store.ok()) return store.status();
  const absl::StatusOr<FreedBytes> freed = (*store)->WouldFree(steps);
  if (!freed.ok()) return freed.status();
  if (options.format == Format::kTable) {
    session.out().Write(absl::StrFormat(
        "removing %s would free %s\n", CountText(steps.size(), "step", "steps"),
        FreedText(freed->stored_bytes, *freed, options.exact_bytes, **store)));
    session.out().Write(KeptText(freed->kept));
    return kExitOk;
  }
  Table table;
  table.schema = "ckptree.du-free/1";
  table.rows_name = "kept";
  table.extra = {{"steps", std::move(names)},
                 {"free_bytes", freed->bytes},
                 {"free_stored_bytes", freed->stored_bytes},
                 {"free_remote_bytes", freed->remote_bytes},
                 {"free_blocks", freed->blocks}};
  table.columns = {{.name = "step"}, {.name = "version"}, {.name = "why"}};
  for (const KeptVersion& kept : freed->kept) {
    table.rows.push_back(
        {StepCell(kept.step), CountCell(kept.version), TextCell(kept.why)});
  }
  if (absl::Status status = session.Print(std::move(table), options);
      !status.ok()) {
    return status;
  }
  return kExitOk;
}

}  // namespace

absl::StatusOr<int> RunDu(Session& session) {
  const absl::StatusOr<TableOptions> options =
      ParseTableOptions(session.arguments());
  if (!options.ok()) return options.status();
  const bool has_words = !session.words().empty();
  if (session.arguments().Has("free")) {
    if (!has_words) {
      return WithHint(absl::InvalidArgumentError("--free of which steps?"),
                      "`ckptree du --free 0..900`");
    }
    return PrintFreed(session, *options);
  }
  if (has_words) return PrintSubtrees(session, *options);
  if (session.arguments().Has("depth")) {
    return WithHint(absl::InvalidArgumentError("--depth is of one step"),
                    "`ckptree du latest --depth 2`");
  }
  return PrintSteps(session, *options);
}

}  // namespace ckptree::tools
