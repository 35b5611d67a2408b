// SPDX-License-Identifier: Apache-2.0

#include "tools/files/open_file.h"

#include <algorithm>
#include <filesystem>
#include <initializer_list>
#include <string_view>
#include <system_error>
#include <tuple>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tools/files/plain_file.h"
#include "tools/files/python_file.h"
#include "tools/files/zip_file.h"
#include "tools/output/failure.h"
#include "tools/output/terminal.h"

namespace ckptree::tools {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kIndex = ".safetensors.index.json";
// What says the kind of a file, and is no part of the name of a step. As
// ckptree.torch has it, which reads some of them.
constexpr std::string_view kEnds[] = {kIndex, ".safetensors", ".npz",
                                      ".npy", ".gguf",        ".pt",
                                      ".pth", ".bin",         ".ckpt"};

bool EndsWithAny(std::string_view path,
                 std::initializer_list<std::string_view> ends) {
  return std::any_of(ends.begin(), ends.end(), [path](std::string_view end) {
    return path.ends_with(end);
  });
}

bool IsTorchFile(std::string_view path) {
  return EndsWithAny(path, {".pt", ".pth", ".bin", ".ckpt"});
}
bool IsReadFile(std::string_view path) {
  return EndsWithAny(path, {".safetensors", ".npz", ".npy", ".gguf", kIndex});
}

// One of those that an index lists.
bool IsShard(std::string_view name) {
  return name.ends_with(".safetensors") && name.find("-of-") != name.npos;
}

bool Exists(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

enum class FolderKind { kNone, kOrbax, kDcp, kFiles, kSeveral };

// What a folder holds, by the names in it.
struct Folder {
  FolderKind kind = FolderKind::kNone;
  std::string file;                   // The one file or index in it.
  std::vector<std::string> npy = {};  // Or these.
  // Of several: files, or indexes, that may be meant.
  std::vector<std::string> choices = {};
};

Folder LookInto(const std::string& path) {
  Folder folder;
  const fs::path at(path);
  if (Exists(at / ".metadata")) return {FolderKind::kDcp, ""};
  for (const char* name :
       {"_CHECKPOINT_METADATA", "manifest.ocdbt", "_METADATA"}) {
    if (Exists(at / name)) return {FolderKind::kOrbax, ""};
  }
  std::vector<std::string> files;
  std::vector<std::string> shards;
  std::error_code error;
  for (fs::directory_iterator it(at, error), end; !error && it != end;
       it.increment(error)) {
    const std::string path_of = it->path().string();
    if (path_of.ends_with(kIndex)) {
      files.push_back(path_of);
    } else if (path_of.ends_with(".npy")) {
      folder.npy.push_back(path_of);
    } else if (IsShard(it->path().filename().string())) {
      shards.push_back(path_of);
    } else if (EndsWithAny(path_of, {".safetensors", ".npz", ".gguf"})) {
      files.push_back(path_of);
    }
  }
  std::sort(files.begin(), files.end());
  std::sort(folder.npy.begin(), folder.npy.end());
  // Those of an index; without one each is a file.
  const bool has_index = std::any_of(
      files.begin(), files.end(),
      [](const std::string& file) { return file.ends_with(kIndex); });
  if (!has_index) files.insert(files.end(), shards.begin(), shards.end());
  if (files.size() == 1 && folder.npy.empty()) {
    return {FolderKind::kFiles, files[0]};
  }
  if (files.empty()) {
    if (!folder.npy.empty()) folder.kind = FolderKind::kFiles;
    return folder;
  }
  files.insert(files.end(), folder.npy.begin(), folder.npy.end());
  return {FolderKind::kSeveral, "", {}, std::move(files)};
}

// Of the first few.
std::string NamesOf(const std::vector<std::string>& paths) {
  constexpr std::size_t kMost = 4;
  std::string names;
  for (std::size_t i = 0; i < paths.size() && i < kMost; ++i) {
    absl::StrAppend(&names, i == 0 ? "" : ", ",
                    fs::path(paths[i]).filename().string());
  }
  if (paths.size() > kMost) {
    absl::StrAppendFormat(&names, " and %d more", paths.size() - kMost);
  }
  return names;
}

Foreign ForeignOf(FolderKind kind) {
  switch (kind) {
    case FolderKind::kDcp:
      return Foreign::kTorch;
    case FolderKind::kOrbax:
      return Foreign::kOrbax;
    case FolderKind::kFiles:
    case FolderKind::kSeveral:
    case FolderKind::kNone:
      return Foreign::kNone;
  }
  return Foreign::kNone;
}

// What the checkpoints in a folder are, one of each kind or several.
Foreign KindWithin(const std::string& path) {
  std::error_code error;
  Foreign found = Foreign::kNone;
  for (fs::directory_iterator it(path, error), end; !error && it != end;
       it.increment(error)) {
    const std::string child = it->path().string();
    const Foreign kind =
        IsTorchFile(child) ? Foreign::kTorch : ForeignOf(LookInto(child).kind);
    if (kind == Foreign::kTorch) return kind;
    if (kind != Foreign::kNone) found = kind;
  }
  return found;
}

bool HasSafetensors(const std::string& folder) {
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end;
       it.increment(error)) {
    if (EndsWithAny(it->path().string(), {".safetensors", kIndex})) return true;
  }
  return false;
}

// The number of what is called step_N, checkpoint-N or N.
std::optional<std::int64_t> StepOfEntry(const fs::path& path, bool is_folder) {
  std::string name = path.filename().string();
  if (!is_folder) {
    // The number of a shard is no step.
    if (name.find("-of-") != name.npos ||
        !(IsTorchFile(name) ||
          EndsWithAny(name, {".safetensors", ".npz", ".gguf"}))) {
      return std::nullopt;
    }
    name.resize(name.rfind('.'));
  }
  // What a save of Orbax that was killed left.
  if (name.find(".orbax-checkpoint-tmp") != name.npos) return std::nullopt;
  // Accelerate writes such folders of DCP into one checkpoint.
  for (const std::string_view part : {"pytorch_model_fsdp_", "optimizer_"}) {
    if (is_folder && name.starts_with(part)) return std::nullopt;
  }
  const std::size_t stem = name.find_last_not_of("0123456789");
  // Orbax names the folders of its steps by their numbers alone.
  const bool bare = stem == std::string::npos;
  std::int64_t step = 0;
  if (stem + 1 == name.size() ||
      (!bare && name[stem] != '-' && name[stem] != '_') ||
      !absl::SimpleAtoi(bare ? name : name.substr(stem + 1), &step)) {
    return std::nullopt;
  }
  return step;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ArrayFile>> OpenArrayFile(
    const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status)) {
    return WithHint(
        absl::NotFoundError(absl::StrFormat("there is no %s", Escape(path))),
        "name a store, or a safetensors, npz, npy or GGUF file");
  }
  if (fs::is_directory(status)) {
    const Folder folder = LookInto(path);
    switch (folder.kind) {
      case FolderKind::kOrbax:
        return OpenPythonFile(path, "ckptree.orbax", "Orbax");
      case FolderKind::kDcp:
        return OpenPythonFile(path, "ckptree.torch", "DCP");
      case FolderKind::kFiles:
        return folder.file.empty() ? OpenNpyFolder(path, folder.npy)
                                   : OpenArrayFile(folder.file);
      case FolderKind::kSeveral:
        return WithHint(absl::InvalidArgumentError(absl::StrFormat(
                            "%s has several checkpoints: %s", Escape(path),
                            Escape(NamesOf(folder.choices)))),
                        "name the one that is meant");
      case FolderKind::kNone:
        return WithHint(
            absl::InvalidArgumentError(absl::StrFormat(
                "%s is no checkpoint that is known here", Escape(path))),
            "a folder has one safetensors, npz or GGUF file, an index of "
            "several, or npy files");
    }
  }
  if (!fs::is_regular_file(status)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s is no regular file", Escape(path)));
  }
  if (path.ends_with(kIndex)) return OpenSafetensorsIndex(path);
  if (path.ends_with(".npz")) return OpenNpz(path);
  if (IsTorchFile(path)) {
    return OpenPythonFile(path, "ckptree.torch", "PyTorch");
  }
  if (IsReadFile(path)) return OpenPlainFile(path);
  return WithHint(
      absl::InvalidArgumentError(absl::StrFormat(
          "%s is no file of a kind that is known here", Escape(path))),
      "known are .safetensors, .npz, .npy, .gguf and .safetensors.index.json");
}

bool HasNameOfFile(std::string_view path) {
  return IsReadFile(path) || IsTorchFile(path);
}

Foreign ForeignKind(const std::string& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) {
    return IsTorchFile(path) ? Foreign::kTorch : Foreign::kNone;
  }
  const Foreign itself = ForeignOf(LookInto(path).kind);
  if (itself != Foreign::kNone) return itself;
  const Foreign within = KindWithin(path);
  if (within != Foreign::kNone) return within;
  Foreign below = Foreign::kNone;
  for (const NamedStep& named : NamedSteps(path)) {
    if (named.kind == Foreign::kTorch) return named.kind;
    if (named.kind != Foreign::kNone) below = named.kind;
  }
  return below;
}

bool IsArrayFile(const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (fs::is_regular_file(status)) return HasNameOfFile(path);
  return fs::is_directory(status) && LookInto(path).kind != FolderKind::kNone;
}

std::optional<std::int64_t> NumberOf(const std::string& path) {
  std::string name = std::filesystem::path(path).filename().string();
  if (name.empty()) {
    name = std::filesystem::path(path).parent_path().filename().string();
  }
  // The number of a shard is no step.
  if (name.find("-of-") != name.npos) return std::nullopt;
  for (const std::string_view end : kEnds) {
    if (!name.ends_with(end)) continue;
    name.resize(name.size() - end.size());
    break;
  }
  const std::size_t stem = name.find_last_not_of("0123456789");
  std::int64_t step = 0;
  const std::string digits =
      stem == std::string::npos ? name : name.substr(stem + 1);
  if (digits.empty() || !absl::SimpleAtoi(digits, &step)) return std::nullopt;
  return step;
}

std::vector<NamedStep> NamedSteps(const std::string& folder) {
  std::vector<NamedStep> steps;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end;
       it.increment(error)) {
    const std::string path = it->path().string();
    std::error_code unknown;
    const bool is_folder = fs::is_directory(path, unknown);
    const std::optional<std::int64_t> step = StepOfEntry(path, is_folder);
    if (!step) continue;
    NamedStep named = {*step, path};
    named.is_read = IsArrayFile(path);
    if (!is_folder) {
      if (IsTorchFile(path)) named.kind = Foreign::kTorch;
      named.torch_reads =
          named.kind == Foreign::kTorch || path.ends_with(".safetensors");
    } else {
      named.kind = ForeignOf(LookInto(path).kind);
      if (named.kind == Foreign::kNone) named.kind = KindWithin(path);
      named.torch_reads =
          named.kind == Foreign::kTorch ||
          (named.kind == Foreign::kNone && HasSafetensors(path));
    }
    steps.push_back(std::move(named));
  }
  std::sort(steps.begin(), steps.end(),
            [](const NamedStep& a, const NamedStep& b) {
              return std::tie(a.step, a.path) < std::tie(b.step, b.path);
            });
  return steps;
}

std::vector<std::pair<std::int64_t, std::string>> StepFolders(
    const std::string& folder) {
  std::vector<std::pair<std::int64_t, std::string>> steps;
  for (const NamedStep& named : NamedSteps(folder)) {
    // Files of PyTorch are imported, and not looked at as steps.
    std::error_code error;
    if (!named.is_read || (named.kind == Foreign::kTorch &&
                           !fs::is_directory(named.path, error))) {
      continue;
    }
    steps.emplace_back(named.step, named.path);
  }
  return steps;
}

}  // namespace ckptree::tools
