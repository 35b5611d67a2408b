// SPDX-License-Identifier: Apache-2.0

// What a file of arrays says of itself, as the metadata of a step.

#ifndef CKPTREE_TOOLS_VERBS_IMPORT_METADATA_H_
#define CKPTREE_TOOLS_VERBS_IMPORT_METADATA_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/files/array_file.h"

namespace ckptree::tools {

struct ImportedMetadata {
  std::string json;
  std::vector<std::string> left_out;  // Names, and why; fit for a terminal.
};

// Each value whole. What a step cannot hold, as a text that is no UTF-8, or
// more than 8 MiB in all, is an error that names it, or with `skip` left out.
absl::StatusOr<ImportedMetadata> MetadataOf(const ArrayFile& file, bool skip);

}  // namespace ckptree::tools

#endif  // CKPTREE_TOOLS_VERBS_IMPORT_METADATA_H_
