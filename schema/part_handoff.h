// SPDX-License-Identifier: Apache-2.0

// What a rank that built one part of a step tells the coordinator.

#ifndef CKPTREE_SCHEMA_PART_HANDOFF_H_
#define CKPTREE_SCHEMA_PART_HANDOFF_H_

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "schema/dead_list.h"
#include "schema/step_record.h"

namespace ckptree::schema {

// Lives in the staging folder while a save of several processes is put
// together; never in a store.
struct PartHandoff {
  // Exactly one part; version, base, step, totals and the part's digest.
  StepRecord record;
  DeadList dead;  // At most that part; prev is the base.
  std::string tree_root;
  std::vector<std::string> tree_pages;
  // Keys and values of rows and of `small`, as they will be written.
  std::vector<std::pair<std::string, std::string>> segments;
  std::vector<std::pair<std::string, std::string>> small;
};

std::string EncodePartHandoff(const PartHandoff& handoff);
// kDataLoss where it is not whole or contradicts itself.
absl::StatusOr<PartHandoff> DecodePartHandoff(std::string_view bytes);

}  // namespace ckptree::schema

#endif  // CKPTREE_SCHEMA_PART_HANDOFF_H_
