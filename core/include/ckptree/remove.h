// SPDX-License-Identifier: Apache-2.0

// Removing a whole store, which holds no more than the caller believes.

#ifndef CKPTREE_REMOVE_H_
#define CKPTREE_REMOVE_H_

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "ckptree/export.h"

namespace ckptree {

// Removes the store in `directory`, and the directory. What it holds is looked
// at while nobody else can write to it, and goes from there in one step, under
// the name DIRECTORY.removed-..., which a process that is killed leaves behind.
// Where there are files of others, or the directory is a mount or in a folder
// that the caller may not write to, the store goes from within it, also in one
// step, and the directory stays. Objects that it shipped to an object store
// stay.
//
// `most_steps`: how many steps it may have, over all branches.
//
// Where it is refused the store is as before. kFailedPrecondition: it has more
// steps, one of them is pinned or tagged, or `directory` is a link.
// kUnavailable: it is open for writing, in this process too.
// kDataLoss: nobody can tell what it holds. kNotFound: there is no store.
CKPTREE_EXPORT absl::Status RemoveStore(const std::string& directory,
                                        std::size_t most_steps = 0);

}  // namespace ckptree

#endif  // CKPTREE_REMOVE_H_
