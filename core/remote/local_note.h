// SPDX-License-Identifier: Apache-2.0

// What a store's directory keeps of the object store that it ships to: the file
// `remote` in it.

#ifndef CKPTREE_CORE_REMOTE_LOCAL_NOTE_H_
#define CKPTREE_CORE_REMOTE_LOCAL_NOTE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kv/options.h"

namespace ckptree::internal {

// A commit by which this directory shipped something.
struct NotedShip {
  std::uint64_t at = 0;  // Its ordinal in the chain; 0: there is none.
  std::string write_id;  // 32 hexadecimal digits.
};

// Of one object store.
struct NotedShips {
  std::string address;
  NotedShip shipped;    // The newest that is known to be there.
  NotedShip announced;  // Asked for behind it; it may be there.
};

struct LocalNote {
  std::string local;   // Names the directory; 32 hexadecimal digits.
  std::string fenced;  // Who took the store over from it; empty: nobody.
  // A new `local` that no commit has yet, of a directory that is a copy of the
  // one that this names; empty: of none.
  std::string from;
  // False of a note of engines before this: what it shipped is not known.
  bool tracks = true;
  // Of `from`, where that is set. The last is of the address that it is shipped
  // to now.
  std::vector<NotedShips> ships;

  // Of an address, which becomes the last; a new one where there is none.
  NotedShips& ShipsTo(const std::string& address);
  const NotedShips* FindShipsTo(const std::string& address) const;
};

// A new one where there is none, or where the directory is a copy of the one
// that it was written in. kDataLoss where it is not one.
absl::StatusOr<LocalNote> ReadLocalNote(const kv::Options& options,
                                        const std::string& directory);
// Durable, and never half there.
absl::Status WriteLocalNote(const kv::Options& options,
                            const std::string& directory,
                            const LocalNote& note);

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_REMOTE_LOCAL_NOTE_H_
