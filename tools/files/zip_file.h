// SPDX-License-Identifier: Apache-2.0

// Files of NumPy's savez: npy files in a zip archive.

#ifndef CKPTREE_TOOLS_FILES_ZIP_FILE_H_
#define CKPTREE_TOOLS_FILES_ZIP_FILE_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "tools/files/array_file.h"

namespace ckptree::tools {

// As OpenArrayFile().
absl::StatusOr<std::unique_ptr<ArrayFile>> OpenNpz(const std::string& path);

}  // namespace ckptree::tools

#endif  // CKPTREE_TOOLS_FILES_ZIP_FILE_H_
