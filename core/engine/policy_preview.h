// SPDX-License-Identifier: Apache-2.0

// What a policy would do, without doing it.

#ifndef CKPTREE_CORE_ENGINE_POLICY_PREVIEW_H_
#define CKPTREE_CORE_ENGINE_POLICY_PREVIEW_H_

#include <optional>
#include <string_view>

#include "absl/status/statusor.h"
#include "ckptree/policy.h"
#include "ckptree/preservation.h"
#include "core/engine/engine.h"

namespace ckptree::internal {

// See Store::PreviewPolicy.
absl::StatusOr<PolicyReport> PreviewPolicy(
    Engine* engine, std::string_view branch,
    const std::optional<Preservation>& policy);

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_ENGINE_POLICY_PREVIEW_H_
