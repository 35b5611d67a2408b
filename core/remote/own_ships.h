// SPDX-License-Identifier: Apache-2.0

// Whether a directory is the one that shipped what the chain says it did, or an
// older copy of that, put back.

#ifndef CKPTREE_CORE_REMOTE_OWN_SHIPS_H_
#define CKPTREE_CORE_REMOTE_OWN_SHIPS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/remote/local_note.h"
#include "kv/database.h"
#include "kv/object_store.h"
#include "kv/options.h"
#include "schema/remote_record.h"

namespace ckptree::internal {

// The newest commit by which a directory shipped something.
struct NewestShip {
  std::uint64_t at = 0;                        // 0: there is none.
  std::optional<schema::RemoteCommit> commit;  // Nothing: its object is gone.
};
absl::StatusOr<NewestShip> ReadShip(kv::ObjectStore& store,
                                    const std::string& uuid, std::uint64_t at,
                                    const kv::Call& call);

// Rule 13 of tests/remote/model.py, of the note of `directory`. Ordinals of
// local commits say nothing here: a copy may have made as many since.
//
//   true   it shipped `newest` itself, or asked for it
//   false  the chain ends before what it shipped: the object store lost some,
//          or is an older copy of itself
//   kFailedPrecondition  it is older than what was shipped from its place
absl::StatusOr<bool> KnowsShip(const LocalNote& note,
                               const std::string& address,
                               const NewestShip& newest,
                               const std::string& directory);

// Of an object store that has no commit of the store: kFailedPrecondition, with
// what to do, where the directory shipped some there, or asked for it.
absl::Status CheckNoneWereShipped(const LocalNote& note,
                                  const std::string& address,
                                  const std::string& directory);

// What a directory has.
struct OwnRows {
  const kv::Database& database;
  const kv::Options& options;
  const std::string& directory;
};
// Whether the directory has a step that `newest` shipped, or had it, by its
// journal, or where that is of no step something else that it changed:
// whichever directory it was copied from, it was copied after that. Where the
// ship gave rows no value but those that newer ones changed (it uploaded
// segments again, or removed rows), no row that it removed may be there, and
// the one before it says the rest.
absl::StatusOr<bool> HoldsShip(const OwnRows& own, kv::ObjectStore& store,
                               const std::string& uuid, NewestShip newest,
                               const kv::Call& call);

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_REMOTE_OWN_SHIPS_H_
