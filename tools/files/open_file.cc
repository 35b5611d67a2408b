// SPDX-License-Identifier: Apache-2.0

#include "tools/files/open_file.h"

#include <algorithm>
#include <filesystem>
#include <initializer_list>
#include <string_view>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "tools/files/plain_file.h"
#include "tools/files/zip_file.h"
#include "tools/output/failure.h"
#include "tools/output/terminal.h"

namespace ckptree::tools {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kIndex = ".safetensors.index.json";

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

bool Exists(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

enum class FolderKind { kNone, kOrbax, kDcp, kFiles };

// What a folder holds, by the names in it.
struct Folder {
  FolderKind kind = FolderKind::kNone;
  std::string file;                   // The one file or index in it.
  std::vector<std::string> npy = {};  // Or these.
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
  std::error_code error;
  for (fs::directory_iterator it(at, error), end; !error && it != end;
       it.increment(error)) {
    const std::string name = it->path().string();
    if (name.ends_with(kIndex)) return {FolderKind::kFiles, name};
    if (name.ends_with(".npy")) folder.npy.push_back(name);
    if (EndsWithAny(name, {".safetensors", ".npz", ".gguf"})) {
      files.push_back(name);
    }
  }
  if (files.size() == 1) return {FolderKind::kFiles, files[0]};
  if (files.empty() && !folder.npy.empty()) {
    std::sort(folder.npy.begin(), folder.npy.end());
    folder.kind = FolderKind::kFiles;
  }
  return folder;
}

absl::Status OnlyPython(const std::string& path, std::string_view what,
                        std::string_view module) {
  return WithHint(
      absl::FailedPreconditionError(absl::StrFormat(
          "%s is %s, which is read through Python", Escape(path), what)),
      absl::StrFormat("`python -m ckptree.%s import %s STORE` saves it into a "
                      "store",
                      module, Escape(path)));
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
        return OnlyPython(path, "a folder of Orbax", "orbax");
      case FolderKind::kDcp:
        return OnlyPython(path, "a folder of DCP", "torch");
      case FolderKind::kFiles:
        return folder.file.empty() ? OpenNpyFolder(path, folder.npy)
                                   : OpenArrayFile(folder.file);
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
    return OnlyPython(path, "a file of torch.save()", "torch");
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

bool IsArrayFile(const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (fs::is_regular_file(status)) return HasNameOfFile(path);
  return fs::is_directory(status) && LookInto(path).kind != FolderKind::kNone;
}

std::vector<std::pair<std::int64_t, std::string>> StepFolders(
    const std::string& folder) {
  std::vector<std::pair<std::int64_t, std::string>> steps;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end;
       it.increment(error)) {
    const std::string name = it->path().filename().string();
    const std::size_t stem = name.find_last_not_of("0123456789");
    std::int64_t step = 0;
    if (stem == std::string::npos || stem + 1 == name.size() ||
        (name[stem] != '-' && name[stem] != '_') ||
        !absl::SimpleAtoi(name.substr(stem + 1), &step) ||
        !IsArrayFile(it->path().string())) {
      continue;
    }
    steps.emplace_back(step, it->path().string());
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

}  // namespace ckptree::tools
