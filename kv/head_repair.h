// HEAD held against a database that was opened without it, and written anew.

#ifndef CKPTREE_KV_HEAD_REPAIR_H_
#define CKPTREE_KV_HEAD_REPAIR_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kv/database.h"
#include "kv/head.h"
#include "kv/options.h"
#include "kv/salvage.h"

namespace ckptree::kv {

struct HeadFinding {
  // One line; empty where HEAD and the database agree as an open for writing
  // wants it.
  std::string problem;
  // Of the commits that HEAD acknowledges and that are gone; 0: none is known.
  std::uint64_t first_lost = 0;
  std::uint64_t last_lost = 0;
  // What HEAD must say.
  HeadSlot wanted;
};

// `database` was opened with Options::ignore_head; `uuid` stands in its store
// record, `incarnation` is the highest that any of its segments was made by.
// The wanted slot is that of the newest commit. It keeps what HEAD alone knows:
// the version ceiling, the incarnation, the directory. Where HEAD cannot be
// read nobody can tell a copy from its original, so it is a new incarnation.
//
// kDataLoss: a commit is missing, or does not follow the one before it.
absl::StatusOr<HeadFinding> HoldAgainstHead(const Options& options,
                                            const std::string& directory,
                                            const Database& database,
                                            std::string_view uuid,
                                            std::uint64_t incarnation);

// True where files of `directory` may lead further than commit `ordinal`: a
// table of rows that the MANIFEST does not name, or a log that goes on behind
// its damage. An open for writing would remove them.
absl::StatusOr<bool> MayLeadFurther(const Options& options,
                                    const std::string& directory,
                                    std::uint64_t ordinal,
                                    SegmentSpaceFn space_of);

// Writes the wanted slot, durably: at every moment HEAD says what it said
// before or what is wanted. REQUIRES: the caller holds the store's lock, and
// nothing was written since.
absl::Status WriteHead(const Options& options, const std::string& directory,
                       const HeadFinding& finding);

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_HEAD_REPAIR_H_
