// SPDX-License-Identifier: Apache-2.0

#include "core/policy/retention.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "core/policy/policy_thread.h"
#include "core/version/base_loader.h"
#include "core/version/row_scan.h"
#include "core/version/step_health.h"
#include "schema/keys.h"
#include "schema/store_record.h"

namespace ckptree::internal {
namespace {

// The steps of a branch, as policies see them.
struct StepList {
  std::vector<StepRecordPtr> records;
  std::vector<PolicyStep> steps;
  std::vector<bool> held;  // Pinned or tagged.

  StepList(const Catalog& catalog, std::uint32_t branch,
           const StepRecordPtr& fresh, bool without_later = false)
      : records(catalog.Steps(branch)) {
    if (fresh != nullptr) {
      const auto at = std::lower_bound(
          records.begin(), records.end(), fresh->step,
          [](const StepRecordPtr& r, std::int64_t s) { return r->step < s; });
      if (at != records.end() && (*at)->step == fresh->step) {
        *at = fresh;
      } else {
        records.insert(at, fresh);
      }
      while (without_later && records.back() != fresh) records.pop_back();
    }
    const std::set<std::uint64_t> named = catalog.NamedVersions();
    steps.reserve(records.size());
    for (const StepRecordPtr& record : records) {
      steps.push_back(PolicyStepOf(*record));
      held.push_back(named.contains(record->version));
    }
  }

  std::vector<PricedStep> Priced() const {
    std::vector<PricedStep> priced;
    for (std::size_t i = 0; i < records.size(); ++i) {
      priced.push_back({records[i]->version, held[i]});
    }
    return priced;
  }
};

// The newest version of the branch, as stored.
absl::StatusOr<PriceHead> StoredHead(const kv::Database& database,
                                     std::uint32_t branch) {
  PriceHead head;
  CKPTREE_ASSIGN_OR_RETURN(const BaseState tip, LoadBase(database, branch));
  if (tip.version == 0) return head;
  head.version = tip.version;
  CKPTREE_ASSIGN_OR_RETURN(
      const std::optional<std::string> row,
      database.Get(schema::Space::kRecords, schema::DeadKey(tip.version)));
  if (!row.has_value()) {
    return absl::DataLossError(
        absl::StrFormat("the dead list of version %d is missing", tip.version));
  }
  CKPTREE_ASSIGN_OR_RETURN(head.dead, schema::DecodeDeadList(*row));
  for (const auto& [number, part] : tip.parts) {
    for (const schema::Block& block : BlocksOfPart(*part)) {
      head.bytes[block.version] += block.bytes;
    }
  }
  return head;
}

// Which rule may keep nothing of a run; empty: none. A filter (`every`,
// `healthy`, a function) is no such rule: it goes by what the run saves.
struct KeepsNothing {
  std::string operator()(const LatestN& r) const { return Of(r, r.n); }
  std::string operator()(const EveryNSteps& r) const {
    return Of(r, r.max_to_keep);
  }
  std::string operator()(const EveryNStepsClosest& r) const {
    return Of(r, r.max_to_keep);
  }
  std::string operator()(const BestN& r) const { return Of(r, r.n); }
  std::string operator()(const Healthy& r) const { return Of(r, r.n); }
  // Every run leaves them behind.
  std::string operator()(const CustomSteps& r) const { return Of(r, 0); }
  std::string operator()(const AnyOf& r) const {
    std::string first;
    for (const Preservation& part : r.of) {
      std::string rule = std::visit(*this, part.rule());
      if (rule.empty()) return "";
      if (first.empty()) first = std::move(rule);
    }
    return first;
  }
  // Two that choose may choose apart.
  std::string operator()(const AllOf& r) const {
    int chosen = 0;
    for (const Preservation& part : r.of) {
      if (std::string rule = std::visit(*this, part.rule()); !rule.empty()) {
        return rule;
      }
      chosen += std::holds_alternative<PreserveAll>(part.rule()) ? 0 : 1;
    }
    return chosen > 1 ? Text(Preservation(r)) : "";
  }
  template <typename Rule>
  std::string operator()(const Rule&) const {
    return "";
  }

  template <typename Rule>
  static std::string Of(const Rule& rule, std::optional<std::int64_t> n) {
    return n == 0 ? Text(Preservation(rule)) : "";
  }
};

absl::Status CheckKeepsSome(const Preservation& policy) {
  const std::string rule = std::visit(KeepsNothing(), policy.rule());
  if (rule.empty()) return absl::OkStatus();
  const std::string text = Text(policy);
  return absl::InvalidArgumentError(absl::StrFormat(
      "the policy: %s may keep nothing of a run; add what does, as in '%s | "
      "latest(1)'",
      rule, text));
}

// The first rule whose interval is negative; empty: none.
struct NegativeInterval {
  std::string operator()(const EveryNSteps& r) const { return Of(r); }
  std::string operator()(const EveryNStepsClosest& r) const { return Of(r); }
  std::string operator()(const AnyOf& r) const { return First(r.of); }
  std::string operator()(const AllOf& r) const { return First(r.of); }
  template <typename Rule>
  std::string operator()(const Rule&) const {
    return "";
  }

  template <typename Rule>
  static std::string Of(const Rule& rule) {
    return rule.interval < 0 ? Text(Preservation(rule)) : "";
  }
  std::string First(const std::vector<Preservation>& of) const {
    for (const Preservation& part : of) {
      std::string rule = std::visit(*this, part.rule());
      if (!rule.empty()) return rule;
    }
    return "";
  }
};

// A policy that has one goes on to mean what it meant, and none is set any
// more.
absl::Status CheckIntervals(const Preservation& policy) {
  const std::string rule = std::visit(NegativeInterval(), policy.rule());
  if (rule.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat(
      "the policy: %s has a negative interval: 1 or more", rule));
}

bool AsksHealth(const Preservation& policy) {
  const auto any = [](const std::vector<Preservation>& parts) {
    return std::any_of(parts.begin(), parts.end(), AsksHealth);
  };
  if (const auto* of = std::get_if<AnyOf>(&policy.rule())) return any(of->of);
  if (const auto* of = std::get_if<AllOf>(&policy.rule())) return any(of->of);
  return std::holds_alternative<Healthy>(policy.rule());
}

}  // namespace

absl::Status CheckHealthIsKnown(std::string_view name,
                                const Preservation& policy, bool statistics) {
  if (statistics || !AsksHealth(policy)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat(
      "%s '%s' asks which steps are healthy, and the store is opened with "
      "statistics off, without which that is not known of what is saved: set "
      "statistics, or leave healthy out of the policy",
      name, Text(policy)));
}

absl::Status CheckSettable(std::string_view name, const Preservation& policy,
                           bool statistics) {
  CKPTREE_RETURN_IF_ERROR(Check(policy));
  CKPTREE_RETURN_IF_ERROR(CheckIntervals(policy));
  CKPTREE_RETURN_IF_ERROR(CheckKeepsSome(policy));
  return CheckHealthIsKnown(name, policy, statistics);
}

PolicyStep PolicyStepOf(const schema::StepRecord& record) {
  PolicyStep step;
  step.step = record.step;
  step.time = absl::FromUnixNanos(record.begun_ns);
  step.metrics = record.metrics;
  step.healthy = IsHealthy(record);
  return step;
}

void Retention::Remember(std::uint32_t branch, const Preservation& policy) {
  const absl::MutexLock lock(&mu_);
  known_.insert_or_assign({branch, Text(policy)}, policy);
}

PolicyInfo Retention::Of(std::uint32_t branch) const {
  PolicyInfo info;
  const auto settings = catalog_.Settings(branch);
  if (settings == nullptr) return info;
  info.text = settings->policy;
  info.set_by = settings->set_by;
  info.from_program = settings->from_program;
  info.set = absl::FromUnixNanos(settings->set_ns);
  if (info.text.empty()) return info;
  const absl::MutexLock lock(&mu_);
  auto it = known_.find({branch, info.text});
  if (it == known_.end()) {
    absl::StatusOr<Preservation> parsed = ParsePreservation(info.text);
    if (!parsed.ok()) {
      info.applicable = absl::FailedPreconditionError(absl::StrFormat(
          "the policy was set by ckptree %s, and this is another: %s",
          info.set_by, parsed.status().message()));
      return info;
    }
    it = known_.emplace(std::pair(branch, info.text), *std::move(parsed)).first;
  }
  info.policy = it->second;
  if (const std::string name = MissingFunction(info.policy); !name.empty()) {
    info.applicable = absl::FailedPreconditionError(absl::StrFormat(
        "the policy asks function '%s', which this program does not have",
        name));
  }
  if (const absl::Status known = CheckHealth(info.policy); !known.ok()) {
    info.applicable = absl::FailedPreconditionError(known.message());
  }
  if (const std::string damage = catalog_.damage();
      !damage.empty() && info.applicable.ok()) {
    info.applicable = absl::FailedPreconditionError(absl::StrFormat(
        "rows of steps, tags or pins are damaged, and what they say is not "
        "known: %s",
        damage));
  }
  return info;
}

absl::StatusOr<Retention::Verdict> Retention::Decide(
    StepRecordPtr fresh, bool stay, bool without_later,
    const std::function<absl::StatusOr<PriceHead>()>& head) const {
  const PolicyInfo info = Of(fresh->branch);
  if (info.text.empty()) return Verdict{};
  CKPTREE_RETURN_IF_ERROR(info.applicable);
  const StepList list(catalog_, fresh->branch, fresh, without_later);
  PreservationContext context;
  context.now = absl::FromUnixNanos(fresh->begun_ns);
  context.oldest_beyond =
      [&](std::uint64_t bytes) -> absl::StatusOr<std::size_t> {
    CKPTREE_ASSIGN_OR_RETURN(const PriceHead newest, head());
    return OldestBeyond(database_, newest, list.Priced(), bytes);
  };
  const PolicyThread here(&database_);
  CKPTREE_ASSIGN_OR_RETURN(const std::vector<bool> kept,
                           Preserve(info.policy, list.steps, context));
  Verdict verdict;
  for (std::size_t i = 0; i < kept.size(); ++i) {
    // Who resumes finds the newest step, whatever the policy.
    const bool newest = i + 1 == kept.size();
    if (kept[i] || list.held[i] || newest) continue;
    if (list.records[i] == fresh) {
      verdict.keeps_new = stay;
    } else {
      verdict.removed.push_back(list.records[i]);
    }
  }
  return verdict;
}

absl::StatusOr<std::vector<PolicyVerdict>> Retention::Judge(
    std::uint32_t branch, const Preservation& policy) const {
  const StepList list(catalog_, branch, nullptr);
  PreservationContext context;  // Its now: the time of the last step.
  context.oldest_beyond = [&](std::uint64_t bytes) {
    return StoredBeyond(branch, list.Priced(), bytes);
  };
  const PolicyThread here(&database_);
  CKPTREE_ASSIGN_OR_RETURN(const auto reasons,
                           Explain(policy, list.steps, context));
  std::vector<PolicyVerdict> verdicts;
  for (std::size_t i = 0; i < reasons.size(); ++i) {
    PolicyVerdict verdict;
    verdict.step = list.records[i]->step;
    verdict.version = list.records[i]->version;
    verdict.begun = absl::FromUnixNanos(list.records[i]->begun_ns);
    verdict.why = reasons[i];
    if (list.held[i]) {
      if (catalog_.IsPinned(verdict.version)) verdict.why.push_back("pinned");
      for (const std::string& tag : catalog_.TagsOf(verdict.version)) {
        verdict.why.push_back("tag " + tag);
      }
    }
    if (verdict.why.empty() && i + 1 == reasons.size()) {
      verdict.why.push_back("newest");
    }
    verdict.kept = !verdict.why.empty();
    verdicts.push_back(std::move(verdict));
  }
  return verdicts;
}

absl::StatusOr<KeptVersions> Retention::KeptOnDisk(
    const Preservation& policy) const {
  KeptVersions kept;
  // First: what is saved from here on is above it.
  kept.newest = catalog_.HighestVersion();
  if (const std::string damage = catalog_.damage(); !damage.empty()) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "which steps the disk keeps is not known, for rows of steps, tags or "
        "pins are damaged: %s",
        damage));
  }
  std::set<std::uint32_t> branches;
  for (const StepRecordPtr& record : catalog_.AllSteps()) {
    branches.insert(record->branch);
  }
  for (const std::uint32_t branch : branches) {
    const StepList list(catalog_, branch, nullptr);
    if (list.records.empty()) continue;  // Removed since.
    PreservationContext context;         // Its now: the time of the last step.
    context.oldest_beyond = [&](std::uint64_t bytes) {
      std::vector<PricedStep> steps = list.Priced();
      for (PricedStep& step : steps) step.fixed = false;
      return StoredBeyond(branch, steps, bytes);
    };
    const PolicyThread here(&database_);
    CKPTREE_ASSIGN_OR_RETURN(const std::vector<bool> mask,
                             Preserve(policy, list.steps, context));
    for (std::size_t i = 0; i < mask.size(); ++i) {
      if (mask[i]) kept.versions.insert(list.records[i]->version);
    }
    kept.versions.insert(list.records.back()->version);
  }
  // The catalog does not follow the tips.
  CKPTREE_RETURN_IF_ERROR(ScanRows(
      database_, schema::Row::kBranch,
      [&kept](std::string_view, std::string_view value) -> absl::Status {
        CKPTREE_ASSIGN_OR_RETURN(const schema::BranchRecord record,
                                 schema::DecodeBranchRecord(value));
        if (record.tip != 0) kept.versions.insert(record.tip);
        return absl::OkStatus();
      }));
  return kept;
}

absl::StatusOr<std::size_t> Retention::StoredBeyond(
    std::uint32_t branch, const std::vector<PricedStep>& steps,
    std::uint64_t bytes) const {
  absl::StatusOr<PriceHead> newest = absl::UnknownError("");
  arena_.execute([&] { newest = StoredHead(database_, branch); });
  CKPTREE_RETURN_IF_ERROR(newest.status());
  return OldestBeyond(database_, *newest, steps, bytes);
}

}  // namespace ckptree::internal
