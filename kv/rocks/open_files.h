// SPDX-License-Identifier: Apache-2.0

// How many files this process may hold open.

#ifndef CKPTREE_KV_ROCKS_OPEN_FILES_H_
#define CKPTREE_KV_ROCKS_OPEN_FILES_H_

#include <cstddef>

namespace ckptree::kv {

// Tables that a database may keep open: at most a quarter of what the process
// may have (RLIMIT_NOFILE), and not more than pays.
int OpenTableLimit();

// Makes room for `tables` open at once and for as many to come. Raises the
// soft limit of the process towards the hard one where it must, as language
// runtimes do; never lowers it. False where the hard limit forbids it.
bool RoomForTables(std::size_t tables);

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_ROCKS_OPEN_FILES_H_
