// SPDX-License-Identifier: Apache-2.0

// Whether options of an open can be, before anything is done.

#ifndef CKPTREE_CORE_ENGINE_OPTION_CHECK_H_
#define CKPTREE_CORE_ENGINE_OPTION_CHECK_H_

#include "absl/status/status.h"
#include "ckptree/options.h"

namespace ckptree::internal {

// kInvalidArgument: what cannot be, and what can. Also where the clock of the
// machine cannot be.
absl::Status CheckOptions(const StoreOptions& options);

// The same options, those of a remote as if there was none.
StoreOptions WithoutRemote(StoreOptions options);

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_ENGINE_OPTION_CHECK_H_
