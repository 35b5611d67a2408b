// SPDX-License-Identifier: Apache-2.0

// Policies as values: how they are made, put together and looked through.

#include <concepts>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "ckptree/preservation.h"

namespace ckptree {

Preservation::Preservation() : rule_(std::make_shared<const Rule>()) {}
Preservation::Preservation(PreserveAll rule)
    : rule_(std::make_shared<const Rule>(std::move(rule))) {}
Preservation::Preservation(LatestN rule)
    : rule_(std::make_shared<const Rule>(std::move(rule))) {}
Preservation::Preservation(EveryNSteps rule)
    : rule_(std::make_shared<const Rule>(std::move(rule))) {}
Preservation::Preservation(EveryNStepsClosest rule)
    : rule_(std::make_shared<const Rule>(std::move(rule))) {}
Preservation::Preservation(EveryNSeconds rule)
    : rule_(std::make_shared<const Rule>(std::move(rule))) {}
Preservation::Preservation(LatestDuration rule)
    : rule_(std::make_shared<const Rule>(std::move(rule))) {}
Preservation::Preservation(CustomSteps rule)
    : rule_(std::make_shared<const Rule>(std::move(rule))) {}
Preservation::Preservation(BestN rule)
    : rule_(std::make_shared<const Rule>(std::move(rule))) {}
Preservation::Preservation(Healthy rule)
    : rule_(std::make_shared<const Rule>(std::move(rule))) {}
Preservation::Preservation(Logarithmic rule)
    : rule_(std::make_shared<const Rule>(std::move(rule))) {}
Preservation::Preservation(Budget rule)
    : rule_(std::make_shared<const Rule>(std::move(rule))) {}
Preservation::Preservation(AnyOf rule)
    : rule_(std::make_shared<const Rule>(std::move(rule))) {}
Preservation::Preservation(AllOf rule)
    : rule_(std::make_shared<const Rule>(std::move(rule))) {}
Preservation::Preservation(KeepIf rule)
    : rule_(std::make_shared<const Rule>(std::move(rule))) {}
Preservation::Preservation(CustomPreservation rule)
    : rule_(std::make_shared<const Rule>(std::move(rule))) {}

Preservation operator|(Preservation a, Preservation b) {
  AnyOf any;
  for (Preservation* part : {&a, &b}) {
    if (const auto* parts = std::get_if<AnyOf>(&part->rule())) {
      any.of.insert(any.of.end(), parts->of.begin(), parts->of.end());
    } else {
      any.of.push_back(std::move(*part));
    }
  }
  return any;
}

Preservation operator&(Preservation a, Preservation b) {
  AllOf all;
  for (Preservation* part : {&a, &b}) {
    if (const auto* parts = std::get_if<AllOf>(&part->rule())) {
      all.of.insert(all.of.end(), parts->of.begin(), parts->of.end());
    } else {
      all.of.push_back(std::move(*part));
    }
  }
  return all;
}

std::string MissingFunction(const Preservation& policy) {
  return std::visit(
      [](const auto& rule) -> std::string {
        using R = std::remove_cvref_t<decltype(rule)>;
        if constexpr (std::same_as<R, BestN>) {
          return rule.computed && rule.function == nullptr ? rule.metric : "";
        } else if constexpr (std::same_as<R, KeepIf> ||
                             std::same_as<R, CustomPreservation>) {
          return rule.function == nullptr ? rule.name : "";
        } else if constexpr (std::same_as<R, AnyOf> || std::same_as<R, AllOf>) {
          for (const Preservation& part : rule.of) {
            if (std::string name = MissingFunction(part); !name.empty()) {
              return name;
            }
          }
        }
        return "";
      },
      policy.rule());
}

}  // namespace ckptree
