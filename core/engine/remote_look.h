// SPDX-License-Identifier: Apache-2.0

// What the object store that a directory was shipped to says now.

#ifndef CKPTREE_CORE_ENGINE_REMOTE_LOOK_H_
#define CKPTREE_CORE_ENGINE_REMOTE_LOOK_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "ckptree/store.h"

namespace ckptree::internal {

struct RemoteLook {
  // Empty: it was not shipped, has no directory, or where `reads` is an error,
  // what it notes of that cannot be read.
  std::string address;
  // OK: it answers, and this store is there. Its code says whether that is so
  // for lack of an answer (kDeadlineExceeded, kUnavailable), of rights, or of
  // the store.
  absl::Status reads;
  // OK: it takes objects as a writer makes them. Where `reads` is OK.
  absl::Status writes;
  // Commits of the directory that are not there. Nothing: not known.
  std::optional<std::uint64_t> behind;
  // Who shipped to it behind the directory, "host HOST, pid PID": an open of
  // the directory for writing with that remote is refused. Empty: nobody, or
  // not known.
  std::string went_on;
  // Other stores whose objects lie at the address; hexadecimal uuids.
  std::vector<std::string> strangers;
};

// With the credentials of this process: some requests, with `patience` to read
// and as much to write, for moments, what an open for writing would.
RemoteLook LookAtRemote(const Store& store, absl::Duration patience);

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_ENGINE_REMOTE_LOOK_H_
