// SPDX-License-Identifier: Apache-2.0

#include "tools/line/file_word.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <iterator>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "tools/files/open_file.h"
#include "tools/output/failure.h"
#include "tools/output/nearest.h"
#include "tools/output/terminal.h"

namespace ckptree::tools {
namespace {

absl::StatusOr<std::optional<FileWord>> OpenWord(const std::string& path,
                                                 std::string_view key) {
  CKPTREE_ASSIGN_OR_RETURN(std::shared_ptr<const ArrayFile> file,
                           OpenArrayFile(path));
  return std::optional<FileWord>(FileWord{std::move(file), std::string(key)});
}

// What -C or the environment says.
std::string StoreWord(const Session& session) {
  if (session.arguments().Has("store")) {
    return session.arguments().Get("store", "");
  }
  const char* variable = std::getenv("CKPTREE_STORE");
  return variable == nullptr ? "" : variable;
}

// REV[:KEY] of a folder of checkpoints, or of one file.
absl::StatusOr<std::optional<FileWord>> OfStore(const std::string& store,
                                                std::string_view word) {
  CKPTREE_ASSIGN_OR_RETURN(const Address address, ParseAddress(word));
  const StepSelector& step = address.step;
  if (IsArrayFile(store)) {
    if (step.kind == StepSelector::Kind::kLatest && step.back == 0 &&
        step.branch.empty()) {
      return OpenWord(store, address.key);
    }
    return WithHint(absl::InvalidArgumentError(absl::StrFormat(
                        "%s is one checkpoint: it has no step `%s`",
                        Escape(store), Escape(Text(step)))),
                    "`latest:KEY` names an array of it");
  }
  const auto steps = StepFolders(store);
  const bool known =
      step.branch.empty() && (step.kind == StepSelector::Kind::kLatest ||
                              step.kind == StepSelector::Kind::kStep);
  std::string last;
  if (known) {
    auto found = steps.size();
    for (std::size_t i = 0; i < steps.size(); ++i) {
      if (step.kind == StepSelector::Kind::kLatest ||
          steps[i].first == step.step) {
        found = i;
      }
    }
    const auto back = static_cast<std::size_t>(step.back);
    // Of two with one number nobody can say which is meant, or the one before.
    if (found < steps.size()) {
      const std::size_t at = found - std::min(found, back);
      const auto end = steps.begin() + static_cast<std::ptrdiff_t>(
                                           std::min(found + 2, steps.size()));
      const auto twin = std::adjacent_find(
          steps.begin() + static_cast<std::ptrdiff_t>(at == 0 ? 0 : at - 1),
          end, [](const auto& a, const auto& b) { return a.first == b.first; });
      if (twin != end) {
        return WithHint(
            absl::InvalidArgumentError(absl::StrFormat(
                "%s and %s are both step %d", Escape(twin->second),
                Escape(std::next(twin)->second), twin->first)),
            "name the one that is meant in place of the folder: PATH:KEY");
      }
    }
    if (found < steps.size() && back <= found) {
      return OpenWord(steps[found - back].second, address.key);
    }
  }
  return WithHint(absl::NotFoundError(absl::StrFormat(
                      "the folder %s has no step `%s`; the last one is %d",
                      Escape(store), Escape(Text(step)), steps.back().first)),
                  "of a folder of checkpoints a step is 500, latest or "
                  "latest~1");
}

}  // namespace

absl::StatusOr<std::optional<FileWord>> FindFile(const Session& session,
                                                 std::string_view word,
                                                 bool is_rev) {
  // A colon may stand in the name of a file, too: the longest name counts.
  for (std::size_t end = word.size();;) {
    const std::string path(word.substr(0, end));
    // One that could be a step is one, unless it says that it is a path.
    const bool is_path = path.find_first_of("./") != std::string::npos ||
                         (!path.empty() && !ParseAddress(path).ok());
    if (is_path && IsArrayFile(path) && !IsStore(path)) {
      return OpenWord(path, end < word.size() ? word.substr(end + 1) : "");
    }
    end = end == 0 ? std::string_view::npos : word.rfind(':', end - 1);
    if (end == std::string_view::npos) break;
  }
  // No step is called so: a file that is not there, or no file.
  const std::string first(word.substr(0, word.find(':')));
  if (is_rev && !first.starts_with('@') && HasNameOfFile(first) &&
      !IsStore(first)) {
    return OpenWord(first, "");
  }
  const std::string store = StoreWord(session);
  if (store.empty() || IsStore(store) ||
      (!IsArrayFile(store) && StepFolders(store).empty())) {
    return std::optional<FileWord>();
  }
  return OfStore(store, word);
}

absl::StatusOr<std::optional<FileWord>> FileOfStore(const Session& session) {
  return FindFile(session, "");
}

absl::StatusOr<FileTarget> FindArrays(const ArrayFile& file,
                                      std::string_view key) {
  FileTarget target;
  const std::vector<FileArray>& all = file.arrays();
  if (key.empty()) {
    target.arrays = all;
    return target;
  }
  const auto split = SplitSlice(key);
  std::string_view name = key;
  const auto find_name = [&all, &target](std::string_view wanted) {
    for (const FileArray& array : all) {
      if (array.name == wanted || array.leaf.name == wanted) {
        target.arrays.push_back(array);
        return;
      }
    }
  };
  find_name(name);
  if (target.arrays.empty() && split && !split->first.empty() &&
      !key.starts_with("re:")) {
    name = split->first;
    find_name(name);
  }
  if (target.arrays.empty()) {
    const bool pattern = key.starts_with("re:") ||
                         name.find_first_of("*?") != std::string_view::npos;
    // As of a step, where no array is called so.
    if (!pattern && name.size() > 1 && name.ends_with('/')) {
      name.remove_suffix(1);
    }
    if (pattern) CKPTREE_RETURN_IF_ERROR(ValidateGlob(name));
    for (const FileArray& array : all) {
      const bool below =
          array.name.size() > name.size() && array.name.starts_with(name) &&
          (array.name[name.size()] == '.' || array.name[name.size()] == '/');
      if (pattern ? MatchesGlob(name, array.leaf.name) : below) {
        target.arrays.push_back(array);
      }
    }
  }
  if (target.arrays.empty()) {
    CKPTREE_RETURN_IF_ERROR(WrongSliceOf(key, [&all](std::string_view before) {
      return std::any_of(all.begin(), all.end(), [before](const auto& array) {
        return array.name == before || array.leaf.name == before;
      });
    }));
    std::vector<std::string> names;
    for (const FileArray& array : all) names.push_back(array.name);
    const std::string nearest = Nearest(name, names);
    return WithHint(
        absl::NotFoundError(absl::StrFormat(
            "%s has no array `%s`%s", Escape(file.path()), Escape(name),
            nearest.empty()
                ? ""
                : absl::StrFormat(". Did you mean `%s`?", Escape(nearest)))),
        "`ckptree ls FILE` lists them");
  }
  if (split && name == split->first) {
    absl::StatusOr<std::vector<SliceItem>> slice = ParseSlice(split->second);
    if (!slice.ok()) return WhyNoSlice(split->second);
    target.slice = *std::move(slice);
    target.slice_text = std::string(split->second);
  }
  return target;
}

absl::StatusOr<std::vector<FileArray>> FindWholeArrays(const ArrayFile& file,
                                                       std::string_view key,
                                                       std::string_view verb) {
  CKPTREE_ASSIGN_OR_RETURN(FileTarget target, FindArrays(file, key));
  if (target.slice.empty()) return std::move(target.arrays);
  return WithHint(
      absl::InvalidArgumentError(
          absl::StrFormat("`ckptree %s` takes no slice", verb)),
      "`ckptree get 'FILE:KEY[SLICE]'` reads one, with --out into a file");
}

ArrayReader ReaderOf(const ArrayFile& file, const FileArray& array) {
  return {array.leaf,
          [&file, &array](const BoxSpec& box, std::span<std::byte> to) {
            return file.ReadBox(array, box, to);
          }};
}

}  // namespace ckptree::tools
