// SPDX-License-Identifier: Apache-2.0

// `ckptree ls`: the leaves of a step.

#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "tools/line/command.h"
#include "tools/line/table_flags.h"
#include "tools/line/target.h"
#include "tools/output/failure.h"
#include "tools/output/kept_rows.h"
#include "tools/output/leaf_cells.h"
#include "tools/output/quantity.h"
#include "tools/verbs/file_view.h"

namespace ckptree::tools {
namespace {

// Columns that come from leaf records: one look-up for each leaf.
constexpr const char* kDetailColumns[] = {
    "l2",  "mean",  "std",   "min",    "max",         "nan",
    "inf", "zeros", "since", "digest", "stored_bytes"};

bool NeedsDetails(const TableOptions& options, bool stats) {
  if (stats || options.format == Format::kJson ||
      options.format == Format::kNdjson || options.format == Format::kCsv ||
      options.format == Format::kTsv) {
    return true;
  }
  return std::any_of(std::begin(kDetailColumns), std::end(kDetailColumns),
                     [&](const char* name) { return options.Mentions(name); });
}

// Bytes of `leaf` where its description tells them.
std::optional<std::uint64_t> KnownBytes(const LeafInfo& leaf) {
  if (!leaf.is_leaf() || leaf.dtype == DType::kNone) return std::nullopt;
  const auto bytes = ArrayBytes(leaf.dtype, leaf.packed, leaf.shape);
  if (!bytes) return std::nullopt;
  return static_cast<std::uint64_t>(*bytes);
}

void EraseNodes(std::vector<LeafInfo>* leaves) {
  std::erase_if(*leaves, [](const LeafInfo& leaf) {
    return !leaf.is_leaf() && !leaf.tie_to;
  });
}

// Details of the leaves for which `wanted` holds, in their places.
template <typename Wanted>
absl::StatusOr<std::vector<std::optional<LeafDetail>>> FetchDetails(
    const Step& step, const std::vector<LeafInfo>& leaves, Wanted wanted) {
  std::vector<std::optional<LeafDetail>> details(leaves.size());
  const auto count = static_cast<std::size_t>(
      std::count_if(leaves.begin(), leaves.end(), wanted));
  if (count == 0) return details;
  std::vector<LeafInfo> some;
  if (count < leaves.size()) {
    std::copy_if(leaves.begin(), leaves.end(), std::back_inserter(some),
                 wanted);
  }
  absl::StatusOr<std::vector<LeafDetail>> fetched =
      step.Details(count < leaves.size() ? some : leaves);
  if (!fetched.ok()) return fetched.status();
  std::size_t next = 0;
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    if (wanted(leaves[i])) details[i] = std::move((*fetched)[next++]);
  }
  return details;
}

// The leaves that have been read, and the next ones.
struct Listed {
  const Step& step;
  SubtreePieces pieces;
  bool all;    // Also nodes.
  bool every;  // Details of all of them.
  KeptRows<LeafInfo> leaves = {};
  KeptRows<std::optional<LeafDetail>> details = {};

  // False where there are none. The first `written` are not asked for again.
  absl::StatusOr<bool> Read(std::size_t written) {
    leaves.Drop(written);
    details.Drop(written);
    CKPTREE_ASSIGN_OR_RETURN(std::vector<LeafInfo> next, pieces.Next());
    if (next.empty()) return false;
    if (!all) EraseNodes(&next);
    CKPTREE_ASSIGN_OR_RETURN(
        auto details_of_next,
        FetchDetails(step, next, [&](const LeafInfo& leaf) {
          return leaf.is_leaf() && (every || !KnownBytes(leaf));
        }));
    leaves.Add(std::move(next), step.info().leaf_count);
    details.Add(std::move(details_of_next), step.info().leaf_count);
    return true;
  }
};

// Made late: the table holds on to `listed`, and reads it.
Table LeafTable(Listed* listed, const TableOptions& options, bool stats) {
  Table table;
  table.columns = {{.name = "key", .title = "KEY", .elide = true},
                   {.name = "dtype", .title = "DTYPE"},
                   {.name = "shape", .title = "SHAPE", .elide = true},
                   {.name = "bytes", .title = "SIZE", .right = true}};
  for (const auto& [name, title] : {std::pair("l2", "L2"),
                                    {"mean", "MEAN"},
                                    {"std", ""},
                                    {"min", "MIN"},
                                    {"max", "MAX"},
                                    {"nan", "NAN"},
                                    {"inf", "INF"},
                                    {"zeros", ""}}) {
    table.columns.push_back(
        {.name = name, .title = stats ? title : "", .right = true});
  }
  table.columns.push_back({.name = "since", .right = true});
  table.columns.push_back({.name = "digest"});
  table.columns.push_back({.name = "stored_bytes", .right = true});
  table.columns.push_back({.name = "kind"});
  table.columns.push_back({.name = "tie_to"});
  table.columns.push_back({.name = "tag"});

  const bool exact = options.exact_bytes;
  table.more_rows = [listed](std::size_t written,
                             std::size_t* late_rows) -> absl::StatusOr<bool> {
    CKPTREE_ASSIGN_OR_RETURN(const bool more, listed->Read(written));
    *late_rows = listed->leaves.end();
    return more;
  };
  table.make_row = [listed, exact, needed = options.NeedsOf(table.columns)](
                       std::size_t i, std::vector<Cell>* cells) {
    const LeafInfo& leaf = listed->leaves[i];
    const std::optional<LeafDetail>& detail = listed->details[i];
    const bool array = HoldsArray(leaf);
    RowMaker row(needed, cells);
    row.Add([&] { return TextCell(leaf.name); });
    row.Add([&] {
      Cell dtype = TextCell(array ? Name(leaf.dtype) : Name(KindOf(leaf)));
      if (!array) dtype.value = nullptr;
      return dtype;
    });
    row.Add([&] {
      Cell shape =
          array ? Cell{Json(leaf.shape), ShapeText(leaf.shape)} : NoCell();
      if (leaf.tie_to) shape.text = "-> " + Escape(leaf.tie_to->Text());
      return shape;
    });
    row.Add([&] {
      std::optional<std::uint64_t> bytes = KnownBytes(leaf);
      if (!bytes && detail) bytes = detail->bytes;
      return bytes ? BytesCell(*bytes, exact) : NoCell();
    });
    const StatisticsCells statistics(
        leaf, detail ? detail->statistics : std::nullopt);
    for (const std::string_view name :
         {"l2", "mean", "std", "min", "max", "nan", "inf", "zeros"}) {
      row.Add([&] { return statistics.Of(name); });
    }
    row.Add([&] { return detail ? StepCell(detail->since_step) : NoCell(); });
    row.Add([&] { return detail ? TextCell(detail->digest) : NoCell(); });
    row.Add([&] {
      return detail ? BytesCell(detail->stored_bytes, exact) : NoCell();
    });
    row.Add([&] { return TextCell(Name(KindOf(leaf))); });
    row.Add(
        [&] { return leaf.tie_to ? TextCell(leaf.tie_to->Text()) : NoCell(); });
    row.Add([&] { return leaf.tag.empty() ? NoCell() : TextCell(leaf.tag); });
  };
  return table;
}

// One row for everything that shares its first `depth` parts.
absl::StatusOr<Table> FoldedTable(const Step& step, std::string_view root,
                                  bool all, const TableOptions& options,
                                  std::size_t depth) {
  CKPTREE_ASSIGN_OR_RETURN(std::vector<LeafInfo> leaves,
                           FindSubtree(step, root));
  if (!all) EraseNodes(&leaves);
  const auto details = FetchDetails(step, leaves, [](const LeafInfo& leaf) {
    return leaf.is_leaf() && !KnownBytes(leaf);
  });
  if (!details.ok()) return details.status();
  struct Group {
    std::string key;
    std::uint64_t leaves = 0;
    std::uint64_t elements = 0;
    std::uint64_t bytes = 0;
  };
  std::vector<Group> groups;
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    const LeafInfo& leaf = leaves[i];
    if (!leaf.is_leaf()) continue;
    std::string key = leaf.name;
    if (leaf.path.parts().size() > depth) {
      std::vector<PathPart> parts(
          leaf.path.parts().begin(),
          leaf.path.parts().begin() + static_cast<std::ptrdiff_t>(depth));
      key = Path(std::move(parts)).Text();
    }
    // In tree order the members of a group follow each other.
    if (groups.empty() || groups.back().key != key) groups.push_back({key});
    Group& group = groups.back();
    ++group.leaves;
    group.bytes +=
        (*details)[i] ? (*details)[i]->bytes : KnownBytes(leaf).value_or(0);
    if (leaf.dtype != DType::kNone) {
      group.elements += NumberCount(leaf);
    }
  }
  Table table;
  table.columns = {{.name = "key", .title = "KEY", .elide = true},
                   {.name = "leaves", .title = "LEAVES", .right = true},
                   {.name = "elements", .title = "ELEMENTS", .right = true},
                   {.name = "bytes", .title = "SIZE", .right = true}};
  for (const Group& group : groups) {
    table.rows.push_back({TextCell(group.key), CountCell(group.leaves),
                          CountCell(group.elements),
                          BytesCell(group.bytes, options.exact_bytes)});
  }
  return table;
}

}  // namespace

absl::StatusOr<int> RunLs(Session& session) {
  const auto file =
      FindFile(session, session.words().empty() ? "" : session.words()[0]);
  if (!file.ok()) return file.status();
  if (*file) return LsFile(session, **file);
  const absl::StatusOr<TableOptions> options =
      ParseTableOptions(session.arguments());
  if (!options.ok()) return options.status();
  const auto depth = session.arguments().Number("depth");
  if (!depth.ok()) return depth.status();
  const absl::StatusOr<Address> address =
      ParseAddress(session.words().empty() ? "" : session.words()[0]);
  if (!address.ok()) return address.status();
  const absl::StatusOr<Step> step = session.OpenStep(address->step);
  if (!step.ok()) return step.status();
  const bool all = session.arguments().Has("all");
  const bool stats = session.arguments().Has("stats");
  if (*depth && stats) {
    return WithHint(absl::InvalidArgumentError(
                        "--stats is of leaves, and --depth puts them together"),
                    "leave one of them out");
  }
  Listed listed = {.step = *step,
                   .pieces = SubtreePieces(*step, address->key),
                   .all = all,
                   .every = NeedsDetails(*options, stats)};
  absl::StatusOr<Table> table =
      *depth ? FoldedTable(*step, address->key, all, *options,
                           static_cast<std::size_t>(**depth))
             : LeafTable(&listed, *options, stats);
  if (!table.ok()) return table.status();
  table->schema = *depth ? "ckptree.ls-folded/1" : "ckptree.ls/1";
  table->rows_name = "leaves";
  table->extra["branch"] = step->info().branch;
  table->extra["step"] = step->step();
  if (absl::Status status = session.Print(*std::move(table), *options);
      !status.ok()) {
    return status;
  }
  return kExitOk;
}

}  // namespace ckptree::tools
