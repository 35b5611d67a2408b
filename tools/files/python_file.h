// SPDX-License-Identifier: Apache-2.0

// Checkpoints that are read through Python: files of torch.save(), folders of
// DCP and of Orbax.

#ifndef CKPTREE_TOOLS_FILES_PYTHON_FILE_H_
#define CKPTREE_TOOLS_FILES_PYTHON_FILE_H_

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "tools/files/array_file.h"

namespace ckptree::tools {

// `module` reads `path`: see PythonProgram. An array is read as a whole when
// any of it is asked for. Errors are those of PythonProgram, and
// kFailedPrecondition with what Python says of the file.
absl::StatusOr<std::unique_ptr<ArrayFile>> OpenPythonFile(
    const std::string& path, std::string_view module, std::string_view format);

}  // namespace ckptree::tools

#endif  // CKPTREE_TOOLS_FILES_PYTHON_FILE_H_
