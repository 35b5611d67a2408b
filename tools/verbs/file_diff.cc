// SPDX-License-Identifier: Apache-2.0

// `ckptree diff` where at least one side is a file of arrays.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "tools/line/command.h"
#include "tools/line/table_flags.h"
#include "tools/line/target.h"
#include "tools/output/array_reader.h"
#include "tools/output/failure.h"
#include "tools/output/interrupt.h"
#include "tools/output/leaf_cells.h"
#include "tools/output/quantity.h"
#include "tools/output/safetensors.h"
#include "tools/output/value_difference.h"
#include "tools/verbs/file_view.h"

namespace ckptree::tools {
namespace {

// One array of one side.
struct SideArray {
  std::string own_name;  // Where it is.
  LeafInfo leaf;
  std::string type;  // "float32[3,4]", or the file's own word.
  std::uint64_t bytes = 0;
  std::function<ArrayReader()> reader;
};

// The arrays of one side, by the names that files have.
struct DiffSide {
  std::string name;
  std::map<std::string, SideArray> arrays;
  std::uint64_t others = 0;  // Leaves that no file of arrays could have.
  std::optional<Step> step;
  std::optional<FileWord> file;
};

// By which names the arrays of both sides are found.
enum class Names {
  kOwn,     // Of two files each has its own.
  kDotted,  // Keys joined by dots, as `export` makes them.
  kKeys,    // The keys that `import` makes of those of the file.
};

// The names of some files are paths, which `export` joins by dots.
std::string DottedNameOf(const ArrayFile& file, const FileArray& array) {
  return file.has_paths() ? DottedName(array.leaf.path) : array.name;
}

std::string NameOf(const ArrayFile& file, const FileArray& array, Names names) {
  return names == Names::kOwn      ? array.name
         : names == Names::kDotted ? DottedNameOf(file, array)
                                   : array.leaf.name;
}

absl::Status TwoOfOneName(std::string_view a, std::string_view b,
                          std::string_view name) {
  return WithHint(
      absl::InvalidArgumentError(absl::StrFormat(
          "`%s` and `%s` would both be `%s`, by which arrays are found in the "
          "other one",
          Escape(a), Escape(b), Escape(name))),
      "`ckptree get REV:KEY --out FILE.npy` writes one array to compare");
}

absl::Status AddFile(const FileWord& word, Names names, DiffSide* side) {
  side->file = word;
  side->name = word.file->path();
  for (const FileArray& array : word.file->arrays()) {
    const std::string name = NameOf(*word.file, array, names);
    const auto [place, fresh] = side->arrays.try_emplace(name);
    SideArray& added = place->second;
    if (!fresh) return TwoOfOneName(added.own_name, array.name, name);
    added.own_name = array.name;
    added.leaf = array.leaf;
    added.bytes = array.bytes;
    added.type = (array.leaf.dtype == DType::kNone
                      ? array.type
                      : std::string(Name(array.leaf.dtype))) +
                 ShapeText(array.leaf.shape);
    added.reader = [file = word.file.get(), &array] {
      return ReaderOf(*file, array);
    };
  }
  return absl::OkStatus();
}

// True where `key`, which may be a subtree or a glob, is of `name`.
bool IsAsked(const std::string& key, const std::string& name) {
  return key.empty() || name == key || MatchesGlob(key, name) ||
         (name.starts_with(key) && name.size() > key.size() &&
          (name[key.size()] == '.' || name[key.size()] == '/'));
}

absl::Status AddStep(Step opened, DiffSide* side, bool dotted,
                     const std::string& key) {
  side->step.emplace(std::move(opened));
  const Step& step = *side->step;
  side->name = StepText(step.info().branch, step.step());
  CKPTREE_ASSIGN_OR_RETURN(const std::vector<LeafInfo> leaves, step.Leaves());
  for (const LeafInfo& named : leaves) {
    if (!named.is_leaf() && !named.tie_to) continue;
    CKPTREE_ASSIGN_OR_RETURN(LeafInfo leaf, step.Holder(named));
    if (!HoldsArray(leaf)) {
      side->others += IsAsked(key, named.name) ? 1 : 0;
      continue;
    }
    const std::string name = dotted ? DottedName(named.path) : named.name;
    const auto [place, fresh] = side->arrays.try_emplace(name);
    SideArray& added = place->second;
    if (!fresh) return TwoOfOneName(added.own_name, named.name, name);
    added.own_name = named.name;
    added.bytes = static_cast<std::uint64_t>(
        ArrayBytes(leaf.dtype, leaf.packed, leaf.shape).value_or(0));
    added.type = std::string(Name(leaf.dtype)) + ShapeText(leaf.shape);
    added.leaf = std::move(leaf);
    added.reader = [&step, &array = added] {
      return ArrayReader(step, array.leaf);
    };
  }
  return absl::OkStatus();
}

// Whether the names of the file are keys joined by dots, as `export` makes
// them, or what `import` makes keys of: by how many leaves of the step would
// have them; of both as many, by whether they have slashes as keys do. Names
// that two arrays would have are no names.
absl::StatusOr<bool> IsDotted(const FileWord& word, const Step& step) {
  std::set<std::string, std::less<>> names, keys, of_step;
  bool slashes = false;
  bool ambiguous = false;
  for (const FileArray& array : word.file->arrays()) {
    ambiguous |= !names.insert(DottedNameOf(*word.file, array)).second;
    keys.insert(array.leaf.name);
    slashes = slashes || (word.file->has_paths()
                              ? array.leaf.path.parts().size() > 1
                              : array.name.find('/') != std::string::npos);
  }
  std::size_t as_names = 0;
  std::size_t as_keys = 0;
  CKPTREE_ASSIGN_OR_RETURN(const std::vector<LeafInfo> leaves, step.Leaves());
  for (const LeafInfo& leaf : leaves) {
    if (!leaf.is_leaf() && !leaf.tie_to) continue;
    const std::string dotted = DottedName(leaf.path);
    as_names += names.contains(dotted) ? 1 : 0;
    ambiguous |= !of_step.insert(dotted).second;
    as_keys += keys.contains(leaf.name) ? 1 : 0;
  }
  if (ambiguous && as_keys > 0) return false;
  return as_names == as_keys ? !slashes : as_names > as_keys;
}

std::vector<Cell> Row(std::string_view change, const std::string& name,
                      const SideArray* before, const SideArray* after,
                      bool exact) {
  const SideArray& any = after != nullptr ? *after : *before;
  return {TextCell(change), TextCell(name),
          before != nullptr ? TextCell(before->type) : NoCell(),
          after != nullptr ? TextCell(after->type) : NoCell(),
          BytesCell(any.bytes, exact)};
}

}  // namespace

absl::StatusOr<int> DiffFiles(Session& session,
                              const std::optional<FileWord>& before,
                              const std::optional<FileWord>& after) {
  CKPTREE_ASSIGN_OR_RETURN(const TableOptions options,
                           ParseTableOptions(session.arguments()));
  if (session.words().size() < 2) {
    return WithHint(
        absl::InvalidArgumentError("a file has no step before it: name two"),
        "`ckptree diff REV FILE`, `ckptree diff FILE FILE`");
  }
  DiffSide sides[2];
  std::string key;
  bool dotted = true;
  std::optional<Step> opened;
  if (!before || !after) {
    CKPTREE_ASSIGN_OR_RETURN(const Address address,
                             ParseAddress(session.words()[before ? 1 : 0]));
    key = address.key;
    CKPTREE_ASSIGN_OR_RETURN(Step step, session.OpenStep(address.step));
    CKPTREE_ASSIGN_OR_RETURN(dotted, IsDotted(before ? *before : *after, step));
    opened.emplace(std::move(step));
    // A subtree, too, as `export` names what is in it.
    const absl::StatusOr<Path> path = Path::Parse(key);
    if (dotted && path.ok()) key = DottedName(*path);
  }
  for (int i = 0; i < 2; ++i) {
    const std::optional<FileWord>& word = i == 0 ? before : after;
    if (word) {
      CKPTREE_RETURN_IF_ERROR(AddFile(*word,
                                      !opened  ? Names::kOwn
                                      : dotted ? Names::kDotted
                                               : Names::kKeys,
                                      &sides[i]));
      std::string asked = word->key;
      const absl::StatusOr<Path> path = Path::Parse(asked);
      if (opened && dotted && word->file->has_paths() && path.ok()) {
        asked = DottedName(*path);
      }
      if (!key.empty() && !asked.empty() && key != asked) {
        return WithHint(
            absl::InvalidArgumentError(absl::StrFormat(
                "`%s` and `%s` are two names: a difference is of one, on both "
                "sides",
                Escape(key), Escape(word->key))),
            "`ckptree export FILE:NAME OUT --rename NAME=OTHER` gives an array "
            "another name");
      }
      if (!asked.empty()) key = asked;
      continue;
    }
    CKPTREE_RETURN_IF_ERROR(
        AddStep(*std::move(opened), &sides[i], dotted, key));
  }
  if (!key.empty()) CKPTREE_RETURN_IF_ERROR(ValidateGlob(key));
  std::uint64_t unnamed[2] = {};  // Arrays that the key leaves out.
  for (int i = 0; i < 2; ++i) {
    for (const auto& [name, array] : sides[i].arrays) {
      unnamed[i] += IsAsked(key, name) ? 0 : 1;
    }
  }
  const bool values = session.arguments().Has("values");
  Table table;
  table.schema = "ckptree.diff/1";
  table.rows_name = "changes";
  table.columns = {{.name = "change", .title = "CHANGE"},
                   {.name = "key", .title = "KEY", .elide = true},
                   {.name = "before", .title = "BEFORE", .elide = true},
                   {.name = "after", .title = "AFTER", .elide = true},
                   {.name = "bytes", .title = "SIZE", .right = true}};
  if (values) {
    AddValueColumns(&table);
    AddNonFiniteColumns(&table);
  }
  bool any_bad = false;
  const auto add = [&table, values](std::vector<Cell> row) {
    if (values) row.resize(table.columns.size(), NoCell());
    table.rows.push_back(std::move(row));
  };
  std::uint64_t same = 0, compared = 0;
  const Interruptible interruptible;
  for (const auto& [name, a] : sides[0].arrays) {
    if (!IsAsked(key, name)) continue;
    ++compared;
    const auto found = sides[1].arrays.find(name);
    if (found == sides[1].arrays.end()) {
      add(Row("removed", name, &a, nullptr, options.exact_bytes));
      continue;
    }
    const SideArray& b = found->second;
    if (a.type != b.type) {
      add(Row("retyped", name, &a, &b, options.exact_bytes));
      continue;
    }
    if (a.leaf.dtype == DType::kNone) {
      return WithHint(absl::FailedPreconditionError(absl::StrFormat(
                          "`%s` is %s on both sides, which is not read here",
                          Escape(name), a.type)),
                      "name the arrays to compare: FILE:KEY");
    }
    CKPTREE_ASSIGN_OR_RETURN(
        const ValueDifference difference,
        CompareValues(a.leaf, a.reader(), b.reader(), Interrupted));
    if (difference.changed == 0) {
      ++same;
      continue;
    }
    std::vector<Cell> row = Row("changed", name, &a, &b, options.exact_bytes);
    if (values) {
      row.push_back(NumberCell(difference.max_abs));
      row.push_back(NumberCell(difference.relative()));
      row.push_back({Json(difference.changed),
                     absl::StrFormat("%d of %d", difference.changed,
                                     difference.elements)});
      for (const auto& counts : {difference.nan, difference.inf}) {
        row.push_back(CountCell(counts[0]));
        row.push_back(CountCell(counts[1]));
      }
      any_bad |= difference.has_non_finite();
    }
    add(std::move(row));
  }
  for (const auto& [name, b] : sides[1].arrays) {
    if (!IsAsked(key, name) || sides[0].arrays.contains(name)) continue;
    ++compared;
    add(Row("added", name, nullptr, &b, options.exact_bytes));
  }
  if (compared == 0) {
    return WithHint(absl::NotFoundError(absl::StrFormat(
                        "neither side has an array `%s`", Escape(key))),
                    "`ckptree ls FILE` lists those of a file");
  }
  // Beside differences, which are of the finite elements.
  if (any_bad) TitleNonFiniteColumns(&table);
  const std::size_t differences = table.rows.size();
  const bool people = options.format == Format::kTable;
  table.extra = {
      {"before", sides[0].name}, {"after", sides[1].name}, {"same", same}};
  if (!people || differences > 0) {
    CKPTREE_RETURN_IF_ERROR(session.Print(std::move(table), options));
  }
  if (people) {
    session.out().Write(absl::StrFormat(
        "%s -> %s: %s, %s the same\n", Escape(sides[0].name),
        Escape(sides[1].name),
        differences == 0 ? std::string("no difference")
                         : CountText(differences, "difference", "differences"),
        CountText(same, "array is", "arrays are")));
    if (any_bad) {
      session.out().Write("differences are of the finite elements\n");
    }
    for (int i = 0; i < 2; ++i) {
      if (unnamed[i] == 0 || unnamed[i] < sides[i].arrays.size()) continue;
      session.Note(absl::StrFormat(
          "%s has no array `%s`; %s left out. `ckptree export --strip` writes "
          "names without their beginning",
          Escape(sides[i].name), Escape(key),
          CountText(unnamed[i], "array was", "arrays were")));
    }
    const std::uint64_t others = sides[0].others + sides[1].others;
    if (others > 0) {
      session.Note(
          absl::StrFormat("%s not compared: files of arrays have none",
                          CountText(others, "leaf that is no array was",
                                    "leaves that are no arrays were")));
    }
  }
  return differences == 0 ? kExitOk : kExitNegative;
}

}  // namespace ckptree::tools
