// SPDX-License-Identifier: Apache-2.0

// `ckptree stat`: the statistics of leaves of a step.

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "core/engine/tied_leaves.h"
#include "tools/files/open_file.h"
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

struct Total {
  std::uint64_t arrays = 0;
  std::uint64_t elements = 0;
  std::uint64_t bytes = 0;
};

// What any of the keys names, each once, some at a time.
class Arrays {
 public:
  // No keys: all arrays.
  Arrays(const Step& step, std::vector<std::string> keys)
      : step_(step),
        keys_(std::move(keys)),
        pieces_(step, keys_.size() == 1 ? keys_[0] : "") {}

  const KeptRows<LeafInfo>& leaves() const { return leaves_; }
  const KeptRows<LeafDetail>& details() const { return details_; }
  const std::map<std::string, Total>& totals() const { return totals_; }
  const Total& all() const { return all_; }

  // False where no more came. The first `written` are not asked for again.
  absl::StatusOr<bool> Read(std::size_t written = 0) {
    if (ended_) return false;
    leaves_.Drop(written);
    details_.Drop(written);
    std::vector<LeafInfo> next;
    if (keys_.size() > 1) {
      CKPTREE_ASSIGN_OR_RETURN(next, OfSeveral());
      ended_ = true;
    } else {
      CKPTREE_ASSIGN_OR_RETURN(next, pieces_.Next());
      ended_ = next.empty();
      CKPTREE_RETURN_IF_ERROR(
          EraseOthers(keys_.empty() ? "" : keys_[0], &next));
    }
    CKPTREE_ASSIGN_OR_RETURN(std::vector<LeafDetail> details,
                             internal::DetailsOf(step_, next));
    for (std::size_t i = 0; i < next.size(); ++i) Count(next[i], details[i]);
    leaves_.Add(std::move(next), step_.info().leaf_count);
    details_.Add(std::move(details), step_.info().leaf_count);
    return !ended_;
  }

  // Those that nobody asks for are counted.
  absl::Status ReadRest() {
    while (!ended_) CKPTREE_RETURN_IF_ERROR(Read(leaves_.end()).status());
    return absl::OkStatus();
  }

  // The first ones. kNotFound where there are none.
  absl::Status Begin() {
    while (!ended_ && leaves_.end() == 0) {
      CKPTREE_RETURN_IF_ERROR(Read().status());
    }
    if (leaves_.end() > 0) return absl::OkStatus();
    return WithHint(absl::NotFoundError("there are no arrays among these"),
                    "`ckptree ls` lists the keys");
  }

 private:
  // A tie stays where `key` is its name: below a subtree the leaf that it is
  // tied to has a row already.
  absl::Status EraseOthers(const std::string& key,
                           std::vector<LeafInfo>* leaves) const {
    const std::string name = PlainKeys({key}).front();
    std::erase_if(*leaves, [&](const LeafInfo& leaf) {
      return leaf.tie_to ? leaf.name != name : !leaf.is_leaf();
    });
    CKPTREE_RETURN_IF_ERROR(internal::FollowTies(step_, leaves));
    std::erase_if(*leaves,
                  [](const LeafInfo& leaf) { return !HoldsArray(leaf); });
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<LeafInfo>> OfSeveral() const {
    std::vector<LeafInfo> arrays;
    std::set<std::string> seen;
    for (const std::string& key : keys_) {
      CKPTREE_ASSIGN_OR_RETURN(std::vector<LeafInfo> found,
                               FindSubtree(step_, key));
      CKPTREE_RETURN_IF_ERROR(EraseOthers(key, &found));
      for (LeafInfo& leaf : found) {
        if (seen.insert(leaf.name).second) arrays.push_back(std::move(leaf));
      }
    }
    return arrays;
  }

  void Count(const LeafInfo& leaf, const LeafDetail& detail) {
    const std::uint64_t elements = NumberCount(leaf);
    for (Total* total : {&totals_[std::string(Name(leaf.dtype))], &all_}) {
      ++total->arrays;
      total->elements += elements;
      total->bytes += detail.bytes;
    }
  }

  const Step& step_;
  const std::vector<std::string> keys_;
  SubtreePieces pieces_;
  bool ended_ = false;
  KeptRows<LeafInfo> leaves_;
  KeptRows<LeafDetail> details_;
  std::map<std::string, Total> totals_;
  Total all_;
};

Json TotalsJson(const Arrays& arrays) {
  Json by_dtype = Json::object();
  for (const auto& [dtype, total] : arrays.totals()) {
    by_dtype[dtype] = {{"arrays", total.arrays},
                       {"elements", total.elements},
                       {"bytes", total.bytes}};
  }
  return by_dtype;
}

std::string TotalsLine(const Step& step, const Arrays& arrays,
                       bool exact_bytes) {
  std::string line =
      absl::StrFormat("%s: %s, %s", StepText(step.info().branch, step.step()),
                      CountText(arrays.all().arrays, "array", "arrays"),
                      CountText(arrays.all().elements, "element", "elements"));
  if (arrays.totals().size() > 1) {
    for (const auto& [dtype, total] : arrays.totals()) {
      absl::StrAppendFormat(&line, "; %s %d", dtype, total.elements);
    }
  }
  absl::StrAppendFormat(&line, "; %s\n",
                        SizeText(arrays.all().bytes, exact_bytes));
  return line;
}

}  // namespace

absl::StatusOr<int> RunStat(Session& session) {
  if (const auto& words = session.words(); words.size() < 2) {
    // The file of --rev, of -C, or the word itself.
    const std::string rev = session.arguments().Get("rev", "");
    const bool key = !words.empty() && !rev.empty();
    const auto file = FindFile(session,
                               !rev.empty() ? (key ? rev + ":" + words[0] : rev)
                               : words.empty() ? ""
                                               : words[0],
                               /*is_rev=*/words.empty() || !rev.empty());
    if (!file.ok()) return file.status();
    if (*file) return StatFile(session, **file);
  } else if (const std::string& first = words[0];
             first.find_first_of("./") != std::string::npos &&
             IsArrayFile(first) && !IsStore(first)) {
    return WithHint(
        absl::InvalidArgumentError(absl::StrFormat(
            "%s is a file: of a file one word is asked, FILE or FILE:KEY",
            Escape(first))),
        absl::StrFormat("`ckptree stat %s:%s`", Escape(first),
                        Escape(words[1])));
  }
  const absl::StatusOr<TableOptions> options =
      ParseTableOptions(session.arguments());
  if (!options.ok()) return options.status();
  const absl::StatusOr<Address> address =
      ParseAddress(session.arguments().Get("rev", ""));
  if (!address.ok()) return address.status();
  if (!address->key.empty()) {
    return WithHint(absl::InvalidArgumentError("--rev is a step without a key"),
                    "`ckptree stat --rev 1200 KEY...`");
  }
  const absl::StatusOr<Step> step = session.OpenStep(address->step);
  if (!step.ok()) return step.status();
  Arrays arrays(*step, session.words());
  CKPTREE_RETURN_IF_ERROR(arrays.Begin());

  Table table;
  table.schema = "ckptree.stat/1";
  table.rows_name = "arrays";
  table.columns = {{.name = "key", .title = "KEY", .elide = true},
                   {.name = "type", .title = "TYPE", .json = false},
                   {.name = "count", .title = "ELEMENTS", .right = true},
                   {.name = "l2", .title = "L2", .right = true},
                   {.name = "mean", .title = "MEAN", .right = true},
                   {.name = "std", .title = "STD", .right = true},
                   {.name = "min", .title = "MIN", .right = true},
                   {.name = "max", .title = "MAX", .right = true},
                   {.name = "nan", .title = "NAN", .right = true},
                   {.name = "inf", .title = "INF", .right = true},
                   {.name = "zeros", .title = "ZEROS", .right = true},
                   {.name = "dtype"},
                   {.name = "shape"},
                   {.name = "bytes"}};
  const std::vector<bool> needed = options->NeedsOf(table.columns);
  table.late_rows = arrays.leaves().end();
  table.more_rows = [&](std::size_t written,
                        std::size_t* late_rows) -> absl::StatusOr<bool> {
    CKPTREE_ASSIGN_OR_RETURN(const bool more, arrays.Read(written));
    *late_rows = arrays.leaves().end();
    return more;
  };
  table.make_row = [&](std::size_t i, std::vector<Cell>* cells) {
    const LeafInfo& leaf = arrays.leaves()[i];
    const LeafDetail& detail = arrays.details()[i];
    RowMaker row(needed, cells);
    row.Add([&] { return TextCell(leaf.name); });
    row.Add([&] { return TypeCell(leaf); });
    row.Add([&] { return CountCell(NumberCount(leaf)); });
    const StatisticsCells statistics(leaf, detail.statistics);
    for (const std::string_view name :
         {"l2", "mean", "std", "min", "max", "nan", "inf", "zeros"}) {
      row.Add([&] { return statistics.Of(name); });
    }
    row.Add([&] { return TextCell(Name(leaf.dtype)); });
    row.Add([&] { return Cell{Json(leaf.shape), ShapeText(leaf.shape)}; });
    row.Add([&] { return BytesCell(detail.bytes, options->exact_bytes); });
  };
  table.extra = {{"branch", step->info().branch}, {"step", step->step()}};
  table.ending = [&]() -> absl::StatusOr<Json> {
    CKPTREE_RETURN_IF_ERROR(arrays.ReadRest());
    return Json::object({{"totals", TotalsJson(arrays)}});
  };
  if (absl::Status status = session.Print(std::move(table), *options);
      !status.ok()) {
    return status;
  }
  if (options->format == Format::kTable && !session.out().failed()) {
    CKPTREE_RETURN_IF_ERROR(arrays.ReadRest());  // Behind a limit.
    session.out().Write(TotalsLine(*step, arrays, options->exact_bytes));
  }
  return kExitOk;
}

}  // namespace ckptree::tools
