// SPDX-License-Identifier: Apache-2.0

// A file once more, under another name.

#ifndef CKPTREE_KV_ROCKS_TABLE_SOURCE_H_
#define CKPTREE_KV_ROCKS_TABLE_SOURCE_H_

#include <string>

#include "absl/status/status.h"
#include "kv/options.h"

namespace ckptree::kv {

// A second file with the same bytes, synced.
absl::Status CopyFile(const Options& options, const std::string& from,
                      const std::string& to);

// A second name of it, or such a file where the file system gives it none.
absl::Status LinkOrCopy(const Options& options, const std::string& from,
                        const std::string& to);

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_ROCKS_TABLE_SOURCE_H_
