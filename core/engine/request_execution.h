// SPDX-License-Identifier: Apache-2.0

// Does what another process asked of the one that has the store open.

#ifndef CKPTREE_CORE_ENGINE_REQUEST_EXECUTION_H_
#define CKPTREE_CORE_ENGINE_REQUEST_EXECUTION_H_

#include <functional>

#include "core/collect/collector.h"
#include "core/engine/catalog_commits.h"
#include "core/engine/settings_commits.h"
#include "schema/store_request.h"

namespace ckptree::internal {

// All outlive the calls.
struct RequestContext {
  CatalogCommits* commits = nullptr;
  SettingsCommits* settings = nullptr;
  Collector* collector = nullptr;
};

// The same calls as those of a store's user. The answer has the outcome, and
// neither an id nor who did it. `cancelled` is asked by collections alone.
schema::StoreAnswer ExecuteRequest(const RequestContext& context,
                                   const schema::StoreRequest& request,
                                   const std::function<bool()>& cancelled);

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_ENGINE_REQUEST_EXECUTION_H_
