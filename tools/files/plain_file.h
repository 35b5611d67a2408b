// SPDX-License-Identifier: Apache-2.0

// Files whose arrays stand in them as they are.

#ifndef CKPTREE_TOOLS_FILES_PLAIN_FILE_H_
#define CKPTREE_TOOLS_FILES_PLAIN_FILE_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/files/array_file.h"

namespace ckptree::tools {

// Each as OpenArrayFile(). A .safetensors, .npy or .gguf file.
absl::StatusOr<std::unique_ptr<ArrayFile>> OpenPlainFile(
    const std::string& path);
// All files that NAME.safetensors.index.json names, which stand beside it.
absl::StatusOr<std::unique_ptr<ArrayFile>> OpenSafetensorsIndex(
    const std::string& path);
// The npy files of a folder; each is an array of its name.
absl::StatusOr<std::unique_ptr<ArrayFile>> OpenNpyFolder(
    const std::string& path, const std::vector<std::string>& files);

}  // namespace ckptree::tools

#endif  // CKPTREE_TOOLS_FILES_PLAIN_FILE_H_
