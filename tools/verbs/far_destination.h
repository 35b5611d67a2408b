// SPDX-License-Identifier: Apache-2.0

// A copy to an object store, on its way there.

#ifndef CKPTREE_TOOLS_VERBS_FAR_DESTINATION_H_
#define CKPTREE_TOOLS_VERBS_FAR_DESTINATION_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "ckptree/store.h"
#include "tools/line/session.h"

namespace ckptree::tools {

// True where `to` is in an object store: where no directory of this machine is
// meant, and something else is.
bool IsFar(const std::string& to);

// `why` a step was not saved, with what helps a copy where the engine says what
// helps a trainer.
std::string ForACopy(std::string_view why);

// Of a store that a copy writes to.
StoreOptions DestinationOptions(Session& session);

// Through a folder of this machine, which ships to `to`, and goes when all is
// there. In $XDG_CACHE_HOME/ckptree, of each address:
//
//   copy-HASH          the store; one that an ended copy left is gone on with
//   copy-HASH.writers  host and pid of each copy since the last one that came
//                      to its end, locked by the one that lives
//   copy-HASH.gone     what is being removed: a store that is removed in part
//                      is no store
//
// An open takes the address over, and only then is there a directory that the
// chain of commits knows. A copy that ends between the two is known by its pid.
//
// Confined to one thread. `session` outlives it.
class FarDestination {
 public:
  FarDestination(Session& session, std::string to)
      : session_(session), to_(std::move(to)) {}
  ~FarDestination();
  FarDestination(const FarDestination&) = delete;
  FarDestination& operator=(const FarDestination&) = delete;

  // Nothing: of a dry run, where no store is there. kCancelled once
  // Interrupted(). kUnavailable: another copy on this machine writes there.
  absl::StatusOr<std::optional<Store>> Open(bool dry_run);

  // Until all of it is there, or Ctrl-C.
  static absl::Status Await(Store& store);

  // REQUIRES: all is there, and the store is closed.
  void Remove();

 private:
  struct Writer {
    std::string host;
    std::int64_t pid = 0;
  };

  absl::Status FindFolder();
  absl::Status TakeTurn(absl::Duration wait);
  absl::StatusOr<bool> TryTurn();
  absl::StatusOr<Store> OpenFolder(StoreOptions options) const;
  bool WasOurs(const absl::Status& refused) const;
  absl::Status PutAway() const;

  Session& session_;
  const std::string to_;
  std::string folder_;
  int lock_ = -1;
  std::vector<Writer> before_;
};

}  // namespace ckptree::tools

#endif  // CKPTREE_TOOLS_VERBS_FAR_DESTINATION_H_
