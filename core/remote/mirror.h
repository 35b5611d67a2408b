// SPDX-License-Identifier: Apache-2.0

// A directory made of what is in an object store.

#ifndef CKPTREE_CORE_REMOTE_MIRROR_H_
#define CKPTREE_CORE_REMOTE_MIRROR_H_

#include <map>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "core/remote/row_index.h"
#include "kv/object_store.h"
#include "kv/options.h"
#include "schema/remote_record.h"

namespace ckptree::internal {

// By the key of the row.
using LivingSegments = std::map<std::string, schema::RemoteLiving>;

// Makes the store `uuid` in `directory`, of which nothing is kept, and closes
// it: all rows, as of `point`. Its segments stay where they are; `segments`
// says which they are. Nothing of it counts before this returned OK.
// kNotFound: nothing was shipped there yet.
absl::Status MakeMirror(kv::ObjectStore& store, const std::string& uuid,
                        const std::string& directory,
                        const kv::Options& options, LivingSegments* segments,
                        ChainPoint* point);

// Brings a mirror, which is at `point` and has the rows of `segments`, up to
// the end of the chain, and moves `point` there. `keep` is called with all
// segments, and where the chain ends, before any row is written. Who reads it
// beside that sees each commit as a whole once it refreshes, and goes on with
// what it has open. It may be done again from an earlier point. kDataLoss: the
// chain does not go on from there.
absl::Status AdvanceMirror(kv::ObjectStore& store, const std::string& uuid,
                           const std::string& directory,
                           const kv::Options& options,
                           const LivingSegments& segments,
                           absl::FunctionRef<absl::Status(
                               const LivingSegments& all, const ChainPoint& to)>
                               keep,
                           ChainPoint* point);

// Makes the store with its segments in the folder kv::kFetchingName of
// `directory`, which the caller has locked and takes it into. Segments that are
// damaged there, or gone, stay away: then it is a store that lost them, and
// each is said in `lost`. An error leaves nothing.
absl::Status FetchStore(kv::ObjectStore& store, const std::string& uuid,
                        const std::string& directory,
                        const kv::Options& options,
                        std::vector<std::string>* lost);

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_REMOTE_MIRROR_H_
