// SPDX-License-Identifier: Apache-2.0

// A directory in memory, for an index that may not be made on the disk.

#ifndef CKPTREE_KV_ROCKS_MEMORY_INDEX_H_
#define CKPTREE_KV_ROCKS_MEMORY_INDEX_H_

#include <string>

#include "kv/options.h"

namespace ckptree::kv {

// `options` with `directory` in memory: what is written there stays in this
// process, until the last that uses the result is gone. A link there to a file
// elsewhere is a second name of that file, which is read where it is. Nothing
// else may be changed, and all else is read as before.
//
// `directory` need not exist. Where it does, what it holds is hidden, and can
// be read and linked to in OnDisk(directory): so an index can take the place of
// the one on the disk.
Options WithDirectoryInMemory(const Options& options,
                              const std::string& directory);

std::string OnDisk(const std::string& directory);

// True for options that were made here.
bool IsInMemory(const Options& options);

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_ROCKS_MEMORY_INDEX_H_
