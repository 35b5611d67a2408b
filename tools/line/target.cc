// SPDX-License-Identifier: Apache-2.0

#include "tools/line/target.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "ckptree/selector.h"
#include "tools/line/address.h"
#include "tools/output/failure.h"
#include "tools/output/nearest.h"
#include "tools/output/quantity.h"
#include "tools/output/terminal.h"

namespace ckptree::tools {
namespace {

std::string NameOf(const Step& step) {
  return StepText(step.info().branch, step.step());
}

bool IsPattern(std::string_view key) {
  return key.starts_with("re:") ||
         key.find_first_of("*?") != std::string_view::npos;
}

// A slash behind a key names what is below it, as shells complete folders.
std::string_view WithoutSlash(std::string_view key) {
  const bool slash = key.size() > 1 && key.ends_with('/') && !IsPattern(key);
  return slash ? key.substr(0, key.size() - 1) : key;
}

bool IsBelow(const Path& path, const Path& root) {
  return path.parts().size() >= root.parts().size() &&
         std::equal(root.parts().begin(), root.parts().end(),
                    path.parts().begin());
}

// As somebody may write it who thinks of other trees: list/0 for list/[0],
// layers.0.weight for layers/[0]/weight.
std::string WithoutMarks(std::string_view key) {
  std::string text;
  for (const char c : key) {
    if (c == '.' || c == '/') {
      if (!text.empty() && text.back() != '/') text += '/';
    } else if (std::string_view("[]{}\"").find(c) == std::string_view::npos) {
      text += c;
    }
  }
  return text;
}

absl::Status NoSuchKey(const Step& step, std::string_view key,
                       const std::vector<LeafInfo>& leaves) {
  // Where a step and its key are two words.
  const absl::StatusOr<Address> address = ParseAddress(key);
  if (address.ok() && !address->key.empty() && !key.starts_with(':')) {
    const std::string rev =
        Escape(key.substr(0, key.size() - address->key.size() - 1));
    const std::string alone = Escape(address->key);
    return WithHint(
        absl::NotFoundError(absl::StrFormat(
            "`%s` names a step, and a key alone is needed here", Escape(key))),
        absl::StrFormat("`stat %s --rev %s`, `hist %s %s`, `history %s %s`",
                        alone, rev, alone, rev, alone, rev));
  }
  std::string text =
      absl::StrFormat("step %s has no key `%s`", NameOf(step), Escape(key));
  std::vector<std::string> names;
  names.reserve(leaves.size());
  // A bad guess is not worth seconds.
  constexpr std::size_t kMostNames = 20000;
  for (const LeafInfo& leaf : leaves) {
    if (names.size() == kMostNames) break;
    names.push_back(leaf.name);
  }
  std::string nearest = Nearest(key, names);
  const auto alike = std::ranges::find(names, WithoutMarks(key), WithoutMarks);
  if (alike != names.end() && nearest != key) nearest = *alike;
  if (nearest == key) {
    const auto node = std::ranges::find(leaves, nearest, &LeafInfo::name);
    const bool none = node == leaves.end() || node->kind == EntryKind::kNone;
    text = absl::StrFormat(
        "`%s` of step %s is %s: it has no value", Escape(key), NameOf(step),
        none ? "None" : absl::StrFormat("an empty %s", Name(node->kind)));
  } else if (!nearest.empty()) {
    text += ". Did you mean `" + nearest + "`?";
  }
  return WithHint(
      absl::NotFoundError(text),
      absl::StrFormat("`ckptree ls %s` lists the keys", NameOf(step)));
}

// The entry that is exactly `path`; nothing where there is none.
absl::StatusOr<std::optional<LeafInfo>> FindExact(const Step& step,
                                                  std::string_view key) {
  const absl::StatusOr<Path> path = Path::Parse(key);
  if (!path.ok() || path->empty()) return std::optional<LeafInfo>();
  return step.Find(*path);
}

}  // namespace

absl::StatusOr<Target> FindTarget(const Step& step, std::string_view key) {
  key = WithoutSlash(key);
  Target target;
  std::string_view name = key;
  const auto split = SplitSlice(key);
  for (int attempt = 0; attempt < 2; ++attempt) {
    absl::StatusOr<std::optional<LeafInfo>> found = FindExact(step, name);
    if (!found.ok()) return found.status();
    if (*found && ((*found)->is_leaf() || (*found)->tie_to)) {
      target.leaves.push_back(**std::move(found));
      break;
    }
    if (attempt == 1 || !split || split->first.empty()) break;
    name = split->first;
  }
  if (target.leaves.empty() && IsPattern(key)) {
    target.pattern = true;
    // "re:" may end in brackets of its own.
    name = split && !key.starts_with("re:") ? split->first : key;
    absl::StatusOr<std::vector<LeafInfo>> all = FindSubtree(step, name);
    if (!all.ok()) return all.status();
    for (LeafInfo& leaf : *all) {
      if (leaf.is_leaf() || leaf.tie_to)
        target.leaves.push_back(std::move(leaf));
    }
  }
  if (target.leaves.empty()) {
    const absl::StatusOr<std::vector<LeafInfo>> all = step.Leaves();
    if (!all.ok()) return all.status();
    const absl::StatusOr<Path> root = Path::Parse(key);
    std::size_t below = 0;
    if (root.ok()) {
      for (const LeafInfo& leaf : *all) {
        if (leaf.is_leaf() && IsBelow(leaf.path, *root)) ++below;
      }
    }
    if (below > 0) {
      return WithHint(
          absl::InvalidArgumentError(
              absl::StrFormat("`%s` is a subtree of %s", Escape(key),
                              CountText(below, "leaf", "leaves"))),
          absl::StrFormat("`ckptree ls '%s:%s'` lists them; '%s/**' means all",
                          NameOf(step), Escape(key), Escape(key)));
    }
    CKPTREE_RETURN_IF_ERROR(WrongSliceOf(key, [&](std::string_view before) {
      const auto found = FindExact(step, before);
      return found.ok() && *found && ((*found)->is_leaf() || (*found)->tie_to);
    }));
    return NoSuchKey(step, name, *all);
  }
  if (split && name.size() < key.size()) {
    absl::StatusOr<std::vector<SliceItem>> slice = ParseSlice(split->second);
    if (!slice.ok()) return WhyNoSlice(split->second);
    target.slice = *std::move(slice);
    target.slice_text = std::string(split->second);
  }
  return target;
}

absl::StatusOr<std::vector<LeafInfo>> FindSubtree(const Step& step,
                                                  std::string_view key) {
  if (key.empty()) return step.Leaves();
  key = WithoutSlash(key);
  const absl::StatusOr<Path> root = Path::Parse(key);
  absl::StatusOr<std::vector<LeafInfo>> all = step.Leaves();
  if (!all.ok()) return all.status();
  std::vector<LeafInfo> found;
  if (root.ok()) {
    for (LeafInfo& leaf : *all) {
      if (IsBelow(leaf.path, *root)) found.push_back(std::move(leaf));
    }
    if (!found.empty()) return found;
  }
  if (!IsPattern(key)) return NoSuchKey(step, key, *all);
  if (absl::Status status = ValidateGlob(key); !status.ok()) {
    return WithHint(status, "`*` is any run in one part, `**` any parts");
  }
  absl::StatusOr<std::vector<LeafInfo>> matches = step.Leaves(key);
  if (!matches.ok()) return matches.status();
  if (matches->empty()) {
    return WithHint(
        absl::NotFoundError(absl::StrFormat("nothing in step %s matches `%s`",
                                            NameOf(step), Escape(key))),
        absl::StrFormat("`ckptree ls %s` lists the keys", NameOf(step)));
  }
  return matches;
}

absl::StatusOr<std::vector<LeafInfo>> SubtreePieces::Next() {
  // More than WriteTable() waits for; then enough for all threads, and so few
  // that their memory is warm when that of the next ones is asked for.
  constexpr std::size_t kFirst = 2048, kThen = 8192;
  const bool first = !std::exchange(begun_, true);
  if (key_.empty()) return pieces_.Next(first ? kFirst : kThen);
  if (!first) return std::vector<LeafInfo>();
  return FindSubtree(step_, key_);
}

std::vector<std::string> PlainKeys(std::vector<std::string> keys) {
  for (std::string& key : keys) {
    if (IsPattern(key)) continue;
    const absl::StatusOr<Path> path = Path::Parse(WithoutSlash(key));
    if (path.ok() && !path->empty()) key = path->Text();
  }
  return keys;
}

absl::StatusOr<std::vector<std::string>> NamesIn(
    const std::vector<const Step*>& steps, std::string_view key,
    std::vector<std::string>* leaves) {
  std::vector<std::string> names;
  absl::Status status;
  bool found = false;
  for (const Step* step : steps) {
    const absl::StatusOr<std::vector<LeafInfo>> named = FindSubtree(*step, key);
    status = named.status();
    if (!named.ok()) continue;
    found = true;
    for (const LeafInfo& info : *named) {
      names.push_back(info.name);
      if (leaves != nullptr && step == steps.front() && info.is_leaf() &&
          !info.tie_to) {
        leaves->push_back(info.name);
      }
    }
  }
  if (!found) return status;
  std::sort(names.begin(), names.end());
  if (leaves != nullptr) std::sort(leaves->begin(), leaves->end());
  return names;
}

}  // namespace ckptree::tools
