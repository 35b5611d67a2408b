// SPDX-License-Identifier: Apache-2.0

// Which files and folders are files of arrays, and opening them.

#ifndef CKPTREE_TOOLS_FILES_OPEN_FILE_H_
#define CKPTREE_TOOLS_FILES_OPEN_FILE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/files/array_file.h"

namespace ckptree::tools {

// A file by the end of its name; the index of several safetensors files; a
// folder of one of these, or of npy files. kNotFound; kInvalidArgument: what
// is no such file, cut, or contradicts itself, by name; kFailedPrecondition:
// what only another program reads, and which.
absl::StatusOr<std::unique_ptr<ArrayFile>> OpenArrayFile(
    const std::string& path);

// True where `path` is a file or folder that OpenArrayFile() would look at: it
// is there, and its name or what is in it says so.
bool IsArrayFile(const std::string& path);

// True where the name of `path` ends as those of such files do.
bool HasNameOfFile(std::string_view path);

// What Python saves into a store: files of torch.save(), folders of DCP and of
// Orbax, and folders that have any of these.
enum class Foreign { kNone, kTorch, kOrbax };
Foreign ForeignKind(const std::string& path);

// The number that the name of `path` ends with: step_500.npz, checkpoint-500.
std::optional<std::int64_t> NumberOf(const std::string& path);

// Of the entries of `folder` that are called step_N, checkpoint-N and the like,
// those that IsArrayFile(), by number.
std::vector<std::pair<std::int64_t, std::string>> StepFolders(
    const std::string& folder);

// All that are called so, whatever is in them, by number.
struct NamedStep {
  std::int64_t step = 0;
  std::string path;
  // kNone: arrays that are read here, or nothing that is known.
  Foreign kind = Foreign::kNone;
  bool is_read = false;  // IsArrayFile().
  // ckptree.torch reads it, too: it is of PyTorch, or has safetensors files.
  bool torch_reads = false;
};
std::vector<NamedStep> NamedSteps(const std::string& folder);

}  // namespace ckptree::tools

#endif  // CKPTREE_TOOLS_FILES_OPEN_FILE_H_
