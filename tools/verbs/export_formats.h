// SPDX-License-Identifier: Apache-2.0

// The formats that `export` writes.

#ifndef CKPTREE_TOOLS_VERBS_EXPORT_FORMATS_H_
#define CKPTREE_TOOLS_VERBS_EXPORT_FORMATS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tools/output/array_reader.h"
#include "tools/output/new_file.h"

namespace ckptree::tools {

enum class ExportFormat {
  kSafetensors,
  kNpz,
  kNpy,  // A folder of .npy files.
  kRaw,  // A folder of files of bytes, and index.json that says what they are.
  // Through Python, by way of a file of safetensors.
  kTorch,  // A file of torch.save(): a dict of tensors by their names.
  kDcp,    // The same in a folder of DCP.
  kOrbax,  // A folder of Orbax: dicts in each other, by the dots of the names.
};

// By `name` where it is not empty, else by the end of `path`. kInvalidArgument
// says which there are.
absl::StatusOr<ExportFormat> ExportFormatOf(const std::string& path,
                                            const std::string& name);

// True where what is made is a folder.
bool MakesFolder(ExportFormat format);

// True where the metadata of a file, or which step it was, is written, too.
bool HoldsMetadata(ExportFormat format);

// True where the format has what a file of safetensors can hold, and no more.
bool IsAsSafetensors(ExportFormat format);

// True where an array can have that name in the format.
bool CanBeNamed(ExportFormat format, const std::string& name);

struct ExportArray {
  std::string key;   // Where it comes from.
  std::string name;  // In the new file.
  LeafInfo leaf;
  std::string why_not;  // Where it cannot be read.
  std::uint64_t bytes = 0;
  // Reads elements of `leaf`, which the reader refers to.
  std::function<ArrayReader(const LeafInfo& leaf)> reader;
};

// Writes all of them into `path`, which appears whole or not at all.
// kCancelled after Ctrl-C.
absl::Status WriteExport(
    ExportFormat format, const std::string& path,
    const std::vector<ExportArray>& arrays,
    const std::vector<std::pair<std::string, std::string>>& metadata,
    const std::function<void(std::uint64_t bytes)>& on_bytes, Others others);

}  // namespace ckptree::tools

#endif  // CKPTREE_TOOLS_VERBS_EXPORT_FORMATS_H_
