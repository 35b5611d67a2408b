// SPDX-License-Identifier: Apache-2.0

// The free space of a store's disk, and for how long it lasts.

#ifndef CKPTREE_TOOLS_VERBS_ROOM_LEFT_H_
#define CKPTREE_TOOLS_VERBS_ROOM_LEFT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "ckptree/store.h"
#include "tools/verbs/diagnosis.h"

namespace ckptree::tools {

// What is known of how long some free bytes last.
struct Lasting {
  std::string text;                     // Goes on behind "1 GiB free".
  std::optional<double> days;           // At the rate of the last saves.
  std::optional<double> days_at_least;  // Of a disk from which steps go.
};
// Of a store that keeps all that is saved. `steps` in the order of their saves.
Lasting WhereAllStays(const std::vector<StepInfo>& steps, std::uint64_t free);
// Of one from whose disk steps go; `grows` names what stays of a save. `there`,
// its bytes, came since it was made, and not all of that stays: it grows no
// faster.
Lasting WhereSomeStays(const std::string& grows, std::uint64_t there,
                       absl::Time created, const std::vector<StepInfo>& steps,
                       std::uint64_t free);

// `steps` are all of them, in the order of their saves; `directory` is where
// the store is, or where it was fetched to.
absl::StatusOr<Diagnosis> RoomLeft(const Store& store,
                                   const std::string& directory,
                                   const std::vector<StepInfo>& steps);

}  // namespace ckptree::tools

#endif  // CKPTREE_TOOLS_VERBS_ROOM_LEFT_H_
