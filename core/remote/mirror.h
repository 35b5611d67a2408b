// SPDX-License-Identifier: Apache-2.0

// A directory made of what is in an object store.

#ifndef CKPTREE_CORE_REMOTE_MIRROR_H_
#define CKPTREE_CORE_REMOTE_MIRROR_H_

#include <stop_token>
#include <string>

#include "absl/status/status.h"
#include "core/remote/row_index.h"
#include "kv/object_store.h"
#include "kv/options.h"

namespace ckptree::internal {

// Makes the store `uuid` in `directory`, of which nothing is kept, and closes
// it: all rows, then every segment that one of them names. Nothing of it counts
// before this returned OK. Segments are looked for in the folder `known` first,
// and kept there by a second name; empty: there is none.
// kNotFound: nothing was shipped there yet.
absl::Status MakeMirror(kv::ObjectStore& store, const std::string& uuid,
                        const std::string& directory, const std::string& known,
                        const kv::Options& options, std::stop_token cancelled,
                        ChainPoint* point = nullptr);

// Brings a mirror, which is at `point`, up to the end of the chain, and moves
// `point` there. Who reads it beside that sees each commit as a whole once it
// refreshes, and goes on with what it has open. It may be done again from an
// earlier point. kDataLoss: the chain does not go on from there.
absl::Status AdvanceMirror(kv::ObjectStore& store, const std::string& uuid,
                           const std::string& directory,
                           const std::string& known, const kv::Options& options,
                           ChainPoint* point);

// The same as MakeMirror() in a directory that is absent or empty,
// which gets it as a whole: it is put together beside it. A crash leaves no
// half of a store.
absl::Status FetchStore(kv::ObjectStore& store, const std::string& uuid,
                        const std::string& directory,
                        const kv::Options& options);

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_REMOTE_MIRROR_H_
