// SPDX-License-Identifier: Apache-2.0

// The policies of tests/core/policy_vectors.jsonl, as ours.

#ifndef CKPTREE_TESTS_CORE_POLICY_VECTOR_H_
#define CKPTREE_TESTS_CORE_POLICY_VECTOR_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "ckptree/preservation.h"
#include "ckptree/save_decision.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace ckptree {

using Json = nlohmann::json;

inline std::optional<std::int64_t> Count(const Json& policy, const char* key) {
  if (!policy.contains(key) || policy[key].is_null()) return std::nullopt;
  return policy[key].get<std::int64_t>();
}

inline Preservation KeepOf(const Json& json) {
  const std::string kind = json["kind"];
  if (kind == "LatestN") return LatestN{Count(json, "n")};
  if (kind == "EveryNSteps") {
    return EveryNSteps{json["n"], json.value("exact", true),
                       Count(json, "max_to_keep")};
  }
  if (kind == "EveryNStepsClosest") {
    return EveryNStepsClosest{json["n"], Count(json, "max_to_keep")};
  }
  if (kind == "EveryNSeconds") {
    return EveryNSeconds{absl::Seconds(json["secs"].get<std::int64_t>())};
  }
  if (kind == "CustomSteps") {
    return CustomSteps{json["steps"].get<std::vector<std::int64_t>>()};
  }
  if (kind == "BestN") {
    return BestN{
        .metric = "m",
        .mode = json.value("reverse", false) ? BestMode::kMin : BestMode::kMax,
        .n = Count(json, "n"),
        .keep_without_metrics = json.value("keep_wo", true)};
  }
  EXPECT_EQ(kind, "Any");
  AnyOf any;
  for (const Json& part : json["of"]) any.of.push_back(KeepOf(part));
  return any;
}

inline SaveDecision SaveOf(const Json& json) {
  const std::string kind = json["kind"];
  if (kind == "FixedInterval") return FixedInterval{json["n"]};
  if (kind == "SpecificSteps") {
    return SpecificSteps{json["steps"].get<std::vector<std::int64_t>>()};
  }
  if (kind == "Preemption") return OnPreemption{};
  if (kind == "Initial") return InitialSave{};
  if (kind == "Continuous") {
    ContinuousCheckpointing rule;
    if (!json["min"].is_null()) {
      rule.minimum = absl::Seconds(json["min"].get<std::int64_t>());
    }
    return rule;
  }
  EXPECT_EQ(kind, "Any");
  AnySave any;
  for (const Json& part : json["of"]) any.of.push_back(SaveOf(part));
  return any;
}

}  // namespace ckptree

#endif  // CKPTREE_TESTS_CORE_POLICY_VECTOR_H_
