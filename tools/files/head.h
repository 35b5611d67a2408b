// SPDX-License-Identifier: Apache-2.0

// The heads of foreign files, as pure functions of their bytes: whatever these
// are, what comes out lies inside the file, and takes no more memory than they.

#ifndef CKPTREE_TOOLS_FILES_HEAD_H_
#define CKPTREE_TOOLS_FILES_HEAD_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/files/array_file.h"

namespace ckptree::tools {

// Each: kInvalidArgument says what is wrong; kFailedPrecondition: an array has
// a name that no leaf can have; kOutOfRange: `bytes`, a beginning of the file,
// is too short to tell, and the file has more.

// `bytes` of a .safetensors file of `file_bytes`.
absl::StatusOr<FileHead> ParseSafetensors(std::string_view bytes,
                                          std::uint64_t file_bytes);

// Of an .npy file; one array without a name.
absl::StatusOr<FileHead> ParseNpy(std::string_view bytes,
                                  std::uint64_t file_bytes);

// Of a .gguf file, version 2 or 3. Types of blocks can be listed, not read.
absl::StatusOr<FileHead> ParseGguf(std::string_view bytes,
                                   std::uint64_t file_bytes);

// Where arrays of one file lie over each other: kInvalidArgument, by name. With
// `whole` they must also fill [begin, end) of the file without a hole.
absl::Status CheckPlaces(const std::vector<FileArray>& arrays,
                         std::uint64_t begin, std::uint64_t end, bool whole);

}  // namespace ckptree::tools

#endif  // CKPTREE_TOOLS_FILES_HEAD_H_
