// SPDX-License-Identifier: Apache-2.0

// `ckptree diff`: the leaves in which two steps differ.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "ckptree/history.h"
#include "core/engine/difference_pieces.h"
#include "tools/line/command.h"
#include "tools/line/step_range.h"
#include "tools/line/table_flags.h"
#include "tools/line/target.h"
#include "tools/output/failure.h"
#include "tools/output/interrupt.h"
#include "tools/output/leaf_cells.h"
#include "tools/output/quantity.h"
#include "tools/output/scalar_cell.h"
#include "tools/output/value_difference.h"
#include "tools/verbs/file_view.h"

namespace ckptree::tools {
namespace {

using internal::LeafDifference;
using internal::LeafSide;

std::uint64_t NonFiniteOf(const LeafSide& side) {
  return side.statistics ? side.statistics->nan + side.statistics->inf : 0;
}

// Of the dicts, lists, tuples and objects that are another in the other step,
// or not there: their names, as of two steps whose leaves are the same.
absl::StatusOr<std::vector<std::string>> OtherContainers(const Step& before,
                                                         const Step& after) {
  std::vector<std::string> names;
  if (before.info().digest == after.info().digest) return names;
  using Shown = std::pair<EntryKind, std::string>;  // And its tag.
  std::map<std::string, Shown> first;
  const auto is_container = [](const LeafInfo& info) {
    return !info.is_leaf() && info.kind != EntryKind::kNone &&
           info.kind != EntryKind::kTie;
  };
  CKPTREE_ASSIGN_OR_RETURN(const std::vector<LeafInfo> a, before.Leaves());
  for (const LeafInfo& info : a) {
    if (is_container(info)) first[info.name] = {info.kind, info.tag};
  }
  CKPTREE_ASSIGN_OR_RETURN(const std::vector<LeafInfo> b, after.Leaves());
  for (const LeafInfo& info : b) {
    if (!is_container(info)) continue;
    const auto it = first.find(info.name);
    if (it == first.end() || it->second != Shown(info.kind, info.tag)) {
      names.push_back(info.name);
    }
    if (it != first.end()) first.erase(it);
  }
  for (const auto& [name, shown] : first) names.push_back(name);
  std::sort(names.begin(), names.end());
  return names;
}

// What is in no record of a leaf.
struct Computed {
  Cell values[2] = {NoCell(), NoCell()};  // Of what is no array: both sides.
  std::optional<ValueDifference> difference;
};

// The differences that have been read, and the next ones.
class Differences {
 public:
  // With `values` arrays are read, too. Both steps outlive it.
  Differences(const Step& before, const Step& after, bool values)
      : before_(before),
        after_(after),
        values_(values),
        pieces_(before, after) {}

  // Leaves of other names are passed over. `leaves`: those names that are of
  // leaves of the step before. Both are ascending. To be called before any are
  // read.
  void Only(std::vector<std::string> names, std::vector<std::string> leaves) {
    names_ = std::move(names);
    leaves_ = std::move(leaves);
  }

  std::size_t size() const { return size_; }
  // Of all, once all are read.
  std::uint64_t same() const {
    return names_ ? leaves_.size() - differing_ : pieces_.same();
  }
  bool has_non_finite() const { return has_non_finite_; }

  // Of each run the place of its first one comes before it.
  const LeafDifference& operator[](std::size_t i) const {
    const auto behind = std::upper_bound(begins_.begin(), begins_.end(), i);
    const auto run = static_cast<std::size_t>(behind - begins_.begin()) - 1;
    return runs_[run][i - begins_[run]];
  }
  const Computed& ComputedOf(std::size_t i) const {
    static const Computed kNothing;
    const auto found = computed_.find(i);
    return found == computed_.end() ? kNothing : found->second;
  }

  // False: there are no more.
  absl::StatusOr<bool> Read() {
    // More than WriteTable() waits for; then enough for all threads. To read
    // values takes longer: of these more often some.
    constexpr std::size_t kFirst = 2048, kThen = 16384;
    if (ended_) return false;
    const bool few = !std::exchange(begun_, true) || values_;
    internal::DifferencePieces::Runs runs;
    CKPTREE_ASSIGN_OR_RETURN(const bool more,
                             pieces_.Next(few ? kFirst : kThen, &runs));
    for (std::vector<LeafDifference>& run : runs) {
      if (names_) {
        std::erase_if(run, [this](const LeafDifference& difference) {
          return !std::binary_search(names_->begin(), names_->end(),
                                     difference.name);
        });
        for (const LeafDifference& difference : run) {
          differing_ += std::binary_search(leaves_.begin(), leaves_.end(),
                                           difference.name)
                            ? 1
                            : 0;
        }
      }
      if (run.empty()) continue;
      begins_.push_back(size_);
      size_ += run.size();
      runs_.push_back(std::move(run));
      CKPTREE_RETURN_IF_ERROR(Look(begins_.back(), runs_.back()));
    }
    ended_ = !more;
    return more;
  }

  absl::Status ReadAll() {
    while (!ended_) CKPTREE_RETURN_IF_ERROR(Read().status());
    return absl::OkStatus();
  }

  // Some of the first ones, if there are any.
  absl::Status Begin() {
    while (!ended_ && size_ == 0) CKPTREE_RETURN_IF_ERROR(Read().status());
    return absl::OkStatus();
  }

  // So far that has_non_finite() is true of all if it is of any. The steps say
  // whether they have anything that is not finite; where they do, the first
  // leaf of these that differs has to be found.
  absl::Status LookForNonFinite() {
    if (before_.info().nonfinite_leaves + after_.info().nonfinite_leaves == 0) {
      return absl::OkStatus();
    }
    while (!ended_ && !has_non_finite_) {
      CKPTREE_RETURN_IF_ERROR(Read().status());
    }
    return absl::OkStatus();
  }

 private:
  // At those of `run`, which is in its place; the first of them is `begin`.
  absl::Status Look(std::size_t begin, const std::vector<LeafDifference>& run) {
    std::optional<Interruptible> interruptible;
    if (values_) interruptible.emplace();
    for (std::size_t i = 0; i < run.size(); ++i) {
      const LeafDifference& difference = run[i];
      has_non_finite_ = has_non_finite_ || NonFiniteOf(difference.before) > 0 ||
                        NonFiniteOf(difference.after) > 0;
      if (HasScalarIn(difference.before) || HasScalarIn(difference.after)) {
        CKPTREE_RETURN_IF_ERROR(ReadScalars(difference, &computed_[begin + i]));
      }
      if (values_ && difference.kind == LeafChange::Kind::kChanged &&
          HoldsArray(*difference.before.type)) {
        CKPTREE_ASSIGN_OR_RETURN(const LeafInfo before,
                                 Named(difference, difference.before));
        CKPTREE_ASSIGN_OR_RETURN(const LeafInfo after,
                                 Named(difference, difference.after));
        CKPTREE_ASSIGN_OR_RETURN(
            computed_[begin + i].difference,
            CompareValues(before_, before, after_, after, Interrupted));
      }
    }
    // The first Ctrl-C may have come behind the last array.
    if (values_ && Interrupted()) return absl::CancelledError("interrupted");
    return absl::OkStatus();
  }

  static bool HasScalarIn(const LeafSide& side) {
    return side.type != nullptr && HasScalar(*side.type);
  }

  static absl::StatusOr<LeafInfo> Named(const LeafDifference& difference,
                                        const LeafSide& side) {
    LeafInfo leaf = *side.type;
    CKPTREE_ASSIGN_OR_RETURN(leaf.path, Path::Parse(difference.name));
    leaf.name = difference.name;
    return leaf;
  }

  absl::Status ReadScalars(const LeafDifference& difference,
                           Computed* computed) const {
    for (const int which : {0, 1}) {
      const LeafSide& side = which == 0 ? difference.before : difference.after;
      if (!HasScalarIn(side)) continue;
      CKPTREE_ASSIGN_OR_RETURN(const LeafInfo leaf, Named(difference, side));
      CKPTREE_ASSIGN_OR_RETURN(computed->values[which],
                               ScalarCell(which == 0 ? before_ : after_, leaf,
                                          LeafDetail{.bytes = side.bytes}));
    }
    return absl::OkStatus();
  }

  const Step& before_;
  const Step& after_;
  const bool values_;
  internal::DifferencePieces pieces_;
  std::optional<std::vector<std::string>> names_;  // Nothing: all.
  std::vector<std::string> leaves_;                // Of names_.
  std::size_t differing_ = 0;                      // Of these.
  bool begun_ = false;
  bool ended_ = false;
  bool has_non_finite_ = false;
  internal::DifferencePieces::Runs runs_;
  std::vector<std::size_t> begins_;
  std::size_t size_ = 0;
  std::map<std::size_t, Computed> computed_;  // Most have nothing.
};

StatisticsCells StatisticsOf(const LeafSide& side) {
  return side.type != nullptr ? StatisticsCells(*side.type, side.statistics)
                              : StatisticsCells(side.statistics);
}

// Made late: the table holds on to `found`, and reads it.
Table DiffTable(Differences* found, bool values, const TableOptions& options) {
  Table table;
  table.schema = "ckptree.diff/1";
  table.rows_name = "changes";
  table.columns = {{.name = "change", .title = "CHANGE"},
                   {.name = "key", .title = "KEY", .elide = true},
                   {.name = "before", .title = "BEFORE", .elide = true},
                   {.name = "after", .title = "AFTER", .elide = true},
                   {.name = "bytes", .title = "SIZE", .right = true},
                   {.name = "l2_before", .title = "L2 BEFORE", .right = true},
                   {.name = "l2_after", .title = "L2 AFTER", .right = true}};
  if (values) AddValueColumns(&table);
  table.columns.push_back({.name = "before_value"});
  table.columns.push_back({.name = "after_value"});
  // Beside norms, which are of the finite elements.
  AddNonFiniteColumns(&table);
  if (found->has_non_finite()) TitleNonFiniteColumns(&table);
  table.late_rows = found->size();
  // Written ones are kept: the last line is of all of them.
  table.more_rows = [found](std::size_t,
                            std::size_t* late_rows) -> absl::StatusOr<bool> {
    CKPTREE_ASSIGN_OR_RETURN(const bool more, found->Read());
    *late_rows = found->size();
    return more;
  };
  table.make_row = [found, values, exact = options.exact_bytes,
                    needed = options.NeedsOf(table.columns)](
                       std::size_t i, std::vector<Cell>* cells) {
    const LeafDifference& difference = (*found)[i];
    const Computed& own = found->ComputedOf(i);
    const bool typed = difference.kind == LeafChange::Kind::kChanged;
    // People see the values, where there are any.
    const auto type_of = [&](const LeafSide& side, int which) {
      Cell type = side.type != nullptr ? TypeCell(*side.type) : NoCell();
      const std::string& value = own.values[which].text;
      if (value.empty()) return type;
      if (typed || type.text.empty()) {
        type.text = value;
      } else {
        type.text += " " + value;
      }
      return type;
    };
    const StatisticsCells a = StatisticsOf(difference.before);
    const StatisticsCells b = StatisticsOf(difference.after);
    RowMaker row(needed, cells);
    row.Add([&] { return TextCell(Name(difference.kind)); });
    row.Add([&] { return TextCell(difference.name); });
    row.Add([&] { return type_of(difference.before, 0); });
    row.Add([&] { return type_of(difference.after, 1); });
    row.Add([&] {
      const LeafSide& side = difference.after.type != nullptr
                                 ? difference.after
                                 : difference.before;
      return BytesCell(side.bytes, exact);
    });
    row.Add([&] { return a.Of("l2"); });
    row.Add([&] { return b.Of("l2"); });
    if (values) {
      const auto& compared = own.difference;
      row.Add(
          [&] { return compared ? NumberCell(compared->max_abs) : NoCell(); });
      row.Add([&] {
        return compared ? NumberCell(compared->relative()) : NoCell();
      });
      row.Add([&] {
        if (!compared) return NoCell();
        return Cell{
            Json(compared->changed),
            absl::StrFormat("%d of %d", compared->changed, compared->elements)};
      });
    }
    row.Add([&] { return own.values[0]; });
    row.Add([&] { return own.values[1]; });
    for (const std::string_view name : {"nan", "inf"}) {
      row.Add([&] { return a.Of(name); });
      row.Add([&] { return b.Of(name); });
    }
  };
  return table;
}

// A..B as git has it: A and B; an end that is left out is the latest step.
absl::StatusOr<std::vector<std::string>> TwoEnds(
    Session& session, const std::vector<std::string>& words) {
  if (words.size() != 1) return words;
  const std::string& word = words[0];
  const std::size_t dots = word.find("..");
  // Behind ':' stands a key, which may have dots.
  if (dots == word.npos || word.substr(0, dots).find(':') != word.npos) {
    return words;
  }
  std::vector<std::string> ends = {word.substr(0, dots), word.substr(dots + 2)};
  // What the second leaves out it takes from the first.
  const std::string branch = FromTheEnd(ends[0]).branch;
  for (std::string& end : ends) {
    CKPTREE_ASSIGN_OR_RETURN(end, PlainEnd(session, end, branch));
    if (end.empty()) end = "latest";
    if (branch.empty() || !FromTheEnd(end).branch.empty() ||
        end.starts_with('@')) {
      continue;
    }
    end.insert(0, branch + "/");
  }
  return ends;
}

}  // namespace

absl::StatusOr<int> RunDiff(Session& session) {
  std::optional<FileWord> files[2];
  for (std::size_t i = 0; i < session.words().size(); ++i) {
    absl::StatusOr<std::optional<FileWord>> file =
        FindFile(session, session.words()[i]);
    if (!file.ok()) return file.status();
    files[i] = *std::move(file);
  }
  if (files[0] || files[1]) return DiffFiles(session, files[0], files[1]);
  const absl::StatusOr<TableOptions> options =
      ParseTableOptions(session.arguments());
  if (!options.ok()) return options.status();
  std::optional<Step> steps[2];
  std::string key;
  const absl::StatusOr<std::vector<std::string>> ends =
      TwoEnds(session, session.words());
  if (!ends.ok()) return ends.status();
  const std::vector<std::string>& words = *ends;
  for (int i = 0; i < 2; ++i) {
    // One REV: with the save before it.
    const std::size_t word =
        words.size() > 1 ? static_cast<std::size_t>(i) : std::size_t{0};
    absl::StatusOr<Address> address = ParseAddress(words[word]);
    if (!address.ok()) return address.status();
    if (words.size() == 1 && i == 0) ++address->step.back;
    if (!key.empty() && !address->key.empty() && key != address->key) {
      return WithHint(
          absl::InvalidArgumentError(
              absl::StrFormat("`%s` and `%s` are two keys: a difference is of "
                              "one, in two steps",
                              Escape(key), Escape(address->key))),
          "`ckptree get REV:KEY --out FILE.npy` writes an array, and `ckptree "
          "diff FILE FILE` compares two of them");
    }
    if (!address->key.empty()) key = address->key;
    absl::StatusOr<Step> step = session.OpenStep(address->step);
    if (words.size() == 1 && i == 0 && absl::IsNotFound(step.status())) {
      --address->step.back;
      CKPTREE_ASSIGN_OR_RETURN(const StepInfo own,
                               session.Resolve(address->step));
      CKPTREE_ASSIGN_OR_RETURN(const auto base, BaseOf(session, own));
      if (base.has_value()) {
        step = session.OpenStep(AtStep(base->step, base->branch));
      }
    }
    if (!step.ok()) return step.status();
    steps[i].emplace(*std::move(step));
  }
  const Step& before = *steps[0];
  const Step& after = *steps[1];
  const bool values = session.arguments().Has("values");
  Differences found(before, after, values);
  if (!key.empty()) {
    std::vector<std::string> leaves;
    CKPTREE_ASSIGN_OR_RETURN(std::vector<std::string> names,
                             NamesIn({&before, &after}, key, &leaves));
    found.Only(std::move(names), std::move(leaves));
  }
  CKPTREE_RETURN_IF_ERROR(found.Begin());
  const auto name = [](const Step& step) {
    return StepText(step.info().branch, step.step());
  };
  std::vector<std::string> containers;
  if (found.size() == 0 && key.empty()) {
    CKPTREE_ASSIGN_OR_RETURN(containers, OtherContainers(before, after));
  }
  const bool people = options->format == Format::kTable;
  if (people || options->format == Format::kMarkdown) {
    CKPTREE_RETURN_IF_ERROR(found.LookForNonFinite());
  }
  if (!people || found.size() > 0) {
    Table table = DiffTable(&found, values, *options);
    table.extra = {{"before", name(before)}, {"after", name(after)}};
    table.ending = [&]() -> absl::StatusOr<Json> {
      CKPTREE_RETURN_IF_ERROR(found.ReadAll());  // Those behind a limit.
      Json ending = {{"same", found.same()}};
      if (!containers.empty()) ending["containers"] = containers;
      return ending;
    };
    CKPTREE_RETURN_IF_ERROR(session.Print(std::move(table), *options));
  }
  if (people && !session.out().failed()) {
    CKPTREE_RETURN_IF_ERROR(found.ReadAll());  // Those behind a limit.
    session.out().Write(absl::StrFormat(
        "%s -> %s: %s%s\n", name(before), name(after),
        found.size() == 0
            ? std::string(containers.empty() ? "no difference"
                                             : "no other value")
            : CountText(found.size(), "difference", "differences"),
        key.empty()
            ? absl::StrFormat(", %s the same",
                              CountText(found.same(), "leaf is", "leaves are"))
            : ""));
    if (!containers.empty()) {
      session.out().Write(absl::StrFormat(
          "%s of another kind: %s%s; `ckptree ls -a` shows what they are\n",
          CountText(containers.size(), "container is", "containers are"),
          Escape(containers[0]), containers.size() > 1 ? ", ..." : ""));
    }
    if (found.has_non_finite()) {
      session.out().Write("norms and differences are of the finite elements\n");
    }
  }
  return found.size() == 0 && containers.empty() ? kExitOk : kExitNegative;
}

}  // namespace ckptree::tools
