// SPDX-License-Identifier: Apache-2.0

// What is salvaged of a file is what it gives more than once.

#ifndef CKPTREE_KV_ROCKS_STEADY_FILE_H_
#define CKPTREE_KV_ROCKS_STEADY_FILE_H_

#include <atomic>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace rocksdb {
class FSRandomAccessFile;
}  // namespace rocksdb

namespace ckptree::kv {

// Set once reads of a file differed.
using Unsteady = std::shared_ptr<std::atomic<bool>>;

// Salvage writes down what it read of a damaged file, with checksums of its
// own. Where the file is whole, and a cable, a controller or memory changed
// what was read, good bytes would be lost that way. So a read of the result
// counts when two of three have the same end; before the second and the third
// the page cache gives up what it has, as far as the system lets it. Where all
// three differ the read fails, and `unsteady` is set.
std::unique_ptr<rocksdb::FSRandomAccessFile> ReadSteadily(
    std::unique_ptr<rocksdb::FSRandomAccessFile> file, std::string path,
    Unsteady unsteady);

// Why nothing is salvaged of a file whose `unsteady` is set.
absl::Status UnsteadyError(std::string_view path);
bool IsUnsteady(const absl::Status& status);

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_ROCKS_STEADY_FILE_H_
