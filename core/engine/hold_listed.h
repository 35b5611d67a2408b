// SPDX-License-Identifier: Apache-2.0

// For what reads several steps of a store beside its trainer.

#ifndef CKPTREE_CORE_ENGINE_HOLD_LISTED_H_
#define CKPTREE_CORE_ENGINE_HOLD_LISTED_H_

#include <memory>

#include "absl/status/statusor.h"
#include "ckptree/store.h"

namespace ckptree::internal {

// Of a store that is open to read beside a live writer: catches up; while the
// result lives the writer collects nothing, so that each step that is listed
// can be opened and read, also one that a policy removes since then. Null, and
// no such promise, where there is no writer, where no lease can be made in the
// directory, and of a store that is read by its address. Ends before `store`.
absl::StatusOr<std::shared_ptr<const void>> HoldListed(const Store& store);

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_ENGINE_HOLD_LISTED_H_
