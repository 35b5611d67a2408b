// SPDX-License-Identifier: Apache-2.0

// Writes .npz files, as numpy.savez does.

#ifndef CKPTREE_TOOLS_FILES_ZIP_WRITER_H_
#define CKPTREE_TOOLS_FILES_ZIP_WRITER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace ckptree::tools {

// One entry. Its bytes are asked for once, when they are written; those of one
// entry are in memory at a time.
struct NpzEntry {
  std::string name;  // Without ".npy".
  std::uint64_t bytes = 0;
  std::function<absl::StatusOr<std::vector<std::byte>>()> read;
};

// Writes `path`, whole or not at all, replacing what is there. kCancelled where
// `cancelled` said so. `said`: what messages call it.
absl::Status WriteNpz(const std::string& path, const std::string& said,
                      const std::vector<NpzEntry>& entries,
                      const std::function<bool()>& cancelled);

}  // namespace ckptree::tools

#endif  // CKPTREE_TOOLS_FILES_ZIP_WRITER_H_
