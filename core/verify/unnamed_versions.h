// SPDX-License-Identifier: Apache-2.0

// Saves of which there are blocks, and no row that names a step.

#ifndef CKPTREE_CORE_VERIFY_UNNAMED_VERSIONS_H_
#define CKPTREE_CORE_VERIFY_UNNAMED_VERSIONS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kv/database.h"
#include "schema/spaces.h"

namespace ckptree::internal {

// A line for each version that is seen in a segment, in `small`, or in rows of
// its own, but has neither a step nor a removed row: its rows are lost, or it
// was never committed. Says what there is of it. What cannot be read is passed,
// and told in a line of `problems`: the leaves in it are lost by name.
std::vector<std::string> UnnamedVersions(const kv::Database& database,
                                         std::vector<std::string>* problems);

// The highest version of the rows and blocks that can be read.
std::uint64_t HighestVersion(const kv::Database& database);

// See kv::SegmentSpaceFn.
std::optional<schema::Space> SpaceOfSegment(std::string_view first_value);

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_VERIFY_UNNAMED_VERSIONS_H_
