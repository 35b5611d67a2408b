// SPDX-License-Identifier: Apache-2.0

// The object store of a store, as `ckptree doctor` finds it.

#ifndef CKPTREE_TOOLS_VERBS_REMOTE_HEALTH_H_
#define CKPTREE_TOOLS_VERBS_REMOTE_HEALTH_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "ckptree/store.h"
#include "tools/verbs/diagnosis.h"

namespace ckptree::tools {

// Nothing: there is none. One of a directory is asked whether it answers, takes
// what is written, and has all: some seconds at most.
std::optional<Diagnosis> HealthOfRemote(const Store& store);

// True of an object store that does not answer, or answers that it may not be
// read; not where there is no store, or a damaged one.
bool IsOutOfReach(const absl::Status& status);
// Of the one at `address`, which said so.
Diagnosis OutOfReachAt(const std::string& address, const absl::Status& status);

}  // namespace ckptree::tools

#endif  // CKPTREE_TOOLS_VERBS_REMOTE_HEALTH_H_
