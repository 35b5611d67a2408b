// SPDX-License-Identifier: Apache-2.0

// What removing steps frees, and what it does not, in words.

#ifndef CKPTREE_TOOLS_VERBS_FREEING_H_
#define CKPTREE_TOOLS_VERBS_FREEING_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tools/line/changes.h"
#include "tools/line/session.h"

namespace ckptree::tools {

// What files gave back, and what stays dead in them.
std::string FreedText(const CollectReport& report, bool exact);
// A line for each thing that a full disk left undone.
std::string NoRoomText(const CollectReport& report);
// A line for each step whose bytes stay, and why.
std::string KeptText(const std::vector<KeptVersion>& kept);
Json KeptJson(const std::vector<KeptVersion>& kept);

// "1.2 MiB", of this disk, and what the remote gets back.
// `here`: one of the two that it says of this disk.
std::string FreedText(std::uint64_t here, const FreedBytes& freed, bool exact,
                      const Store& store);

// Collects with a progress line; Ctrl-C ends it with kCancelled.
// A trainer that does it shows no progress, and goes on after Ctrl-C.
absl::StatusOr<CollectReport> RunCollect(Session& session, Changes& changes,
                                         CollectOptions options,
                                         std::string_view label, bool patient);

// Frees what a removal left without a step, as far as that costs nothing, and
// says so.
absl::Status FreeRemoved(Session& session, Changes& changes);

// "step 100", "the steps 100, 200 and 300", "the 8 steps 100, 200, ... 800".
// REQUIRES: there is one.
std::string StepsText(const std::vector<std::string>& names);
// More steps than these are said in one line.
inline constexpr std::size_t kMostLines = 20;

// "would free 1.2 MiB", and what would stay.
absl::StatusOr<std::string> WouldFreeText(Store* store,
                                          const std::vector<StepInfo>& steps);
// The same where a branch goes.
absl::StatusOr<std::string> WouldFreeText(Store* store,
                                          std::string_view branch);

}  // namespace ckptree::tools

#endif  // CKPTREE_TOOLS_VERBS_FREEING_H_
