// SPDX-License-Identifier: Apache-2.0

#include "core/engine/hold_listed.h"

#include "core/engine/engine.h"
#include "core/engine/store_engine.h"

namespace ckptree::internal {

absl::StatusOr<std::shared_ptr<const void>> HoldListed(const Store& store) {
  return StoreEngine::Of(store).HoldListed();
}

}  // namespace ckptree::internal
