// SPDX-License-Identifier: Apache-2.0

// The settings of a branch: its policy, and the metadata of the run.

#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "ckptree/version.h"
#include "core/engine/engine.h"
#include "core/engine/usage.h"
#include "schema/json_text.h"
#include "schema/keys.h"
#include "schema/limits.h"
#include "schema/utf8.h"

namespace ckptree::internal {

namespace {

using schema::Space;

schema::BranchSettings SettingsOf(const Catalog& catalog,
                                  std::uint32_t branch) {
  const auto known = catalog.Settings(branch);
  return known == nullptr ? schema::BranchSettings{} : *known;
}

}  // namespace

absl::Status Engine::PutSettings(std::uint32_t branch,
                                 schema::BranchSettings settings) {
  kv::CommitRequest request;
  request.kind = kv::CommitKind::kSettings;
  request.batch.Put(Space::kRecords, schema::SettingsKey(branch),
                    schema::EncodeBranchSettings(settings));
  CKPTREE_RETURN_IF_ERROR(Commit(std::move(request)));
  catalog_.PutSettings(branch, std::move(settings));
  return absl::OkStatus();
}

absl::Status Engine::SetPolicy(const Preservation& policy,
                               std::string_view branch, bool from_program) {
  CKPTREE_RETURN_IF_ERROR(CheckWritable());
  CKPTREE_RETURN_IF_ERROR(Check(policy));
  CKPTREE_RETURN_IF_ERROR(CheckKeepsSome(policy));
  const absl::MutexLock commit_lock(&commit_mu_);
  CKPTREE_ASSIGN_OR_RETURN(const std::uint32_t number,
                           catalog_.FindBranch(branch));
  schema::BranchSettings settings = SettingsOf(catalog_, number);
  std::string text = Text(policy);
  if (settings.policy == text && settings.from_program == from_program) {
    retention_->Remember(number, policy);  // Its functions may be others.
    return absl::OkStatus();
  }
  settings.policy = std::move(text);
  settings.from_program = from_program;
  settings.set_by = std::string(Version());
  settings.set_ns = absl::GetCurrentTimeNanos();
  CKPTREE_RETURN_IF_ERROR(PutSettings(number, std::move(settings)));
  retention_->Remember(number, policy);
  return absl::OkStatus();
}

absl::Status Engine::SetMetadata(std::string json, std::string_view branch) {
  CKPTREE_RETURN_IF_ERROR(CheckWritable());
  if (static_cast<std::int64_t>(json.size()) >
      schema::kMaxCustomMetadataBytes) {
    return absl::InvalidArgumentError(
        absl::StrFormat("metadata of %d bytes: at most %d", json.size(),
                        schema::kMaxCustomMetadataBytes));
  }
  if (!schema::IsUtf8(json)) {
    return absl::InvalidArgumentError("the metadata are no UTF-8 text");
  }
  if (!json.empty()) {
    if (absl::Status status = schema::CheckJson(json); !status.ok()) {
      return absl::InvalidArgumentError(
          absl::StrFormat("the metadata are %s", status.message()));
    }
  }
  const absl::MutexLock commit_lock(&commit_mu_);
  CKPTREE_ASSIGN_OR_RETURN(const std::uint32_t number,
                           catalog_.FindBranch(branch));
  schema::BranchSettings settings = SettingsOf(catalog_, number);
  if (settings.metadata == json) return absl::OkStatus();
  settings.metadata = std::move(json);
  return PutSettings(number, std::move(settings));
}

absl::Status Engine::AdoptSettings(std::string_view branch,
                                   schema::BranchSettings settings) {
  CKPTREE_RETURN_IF_ERROR(CheckWritable());
  const absl::MutexLock commit_lock(&commit_mu_);
  CKPTREE_ASSIGN_OR_RETURN(const std::uint32_t number,
                           catalog_.FindBranch(branch));
  if (catalog_.Settings(number) != nullptr) return absl::OkStatus();
  return PutSettings(number, std::move(settings));
}

absl::StatusOr<std::vector<PolicyVerdict>> Engine::Judge(
    std::uint32_t branch, const Preservation& policy) {
  // Nothing is collected while a budget is read.
  absl::StatusOr<std::vector<PolicyVerdict>> verdicts = absl::UnknownError("");
  RunPaused([&] { verdicts = retention_->Judge(branch, policy); });
  return verdicts;
}

absl::StatusOr<PolicyReport> Engine::PreviewPolicy(
    std::string_view branch, const std::optional<Preservation>& policy) {
  CKPTREE_RETURN_IF_ERROR(CheckUsable());
  CKPTREE_ASSIGN_OR_RETURN(const std::uint32_t number,
                           catalog_.FindBranch(branch));
  PolicyReport report;
  Preservation wanted;
  if (policy.has_value()) {
    CKPTREE_RETURN_IF_ERROR(Check(*policy));
    CKPTREE_RETURN_IF_ERROR(CheckKeepsSome(*policy));
    wanted = *policy;
  } else {
    PolicyInfo info = retention_->Of(number);
    CKPTREE_RETURN_IF_ERROR(info.applicable);
    wanted = std::move(info.policy);
  }
  report.policy = Text(wanted);
  CKPTREE_ASSIGN_OR_RETURN(report.steps, Judge(number, wanted));
  std::vector<StepSelector> removed;
  for (const PolicyVerdict& verdict : report.steps) {
    if (!verdict.kept) removed.push_back(AtStep(verdict.step, branch));
  }
  if (!removed.empty()) {
    CKPTREE_ASSIGN_OR_RETURN(report.freed, WouldFree(this, removed));
  }
  return report;
}

absl::StatusOr<std::vector<std::int64_t>> Engine::ApplyPolicy(
    std::string_view branch) {
  CKPTREE_RETURN_IF_ERROR(CheckWritable());
  // A commit holds 16 MiB; a step record with its parts has 3 KiB at most.
  constexpr std::size_t kMostAtOnce = 2000;
  std::vector<std::int64_t> removed;
  bool more = true;
  const auto remove_some = [&]() -> absl::Status {
    const absl::MutexLock commit_lock(&commit_mu_);
    CKPTREE_ASSIGN_OR_RETURN(const std::uint32_t number,
                             catalog_.FindBranch(branch));
    const PolicyInfo info = retention_->Of(number);
    CKPTREE_RETURN_IF_ERROR(info.applicable);
    CKPTREE_ASSIGN_OR_RETURN(const std::vector<PolicyVerdict> verdicts,
                             retention_->Judge(number, info.policy));
    std::map<std::uint64_t, StepRecordPtr> some;
    for (const PolicyVerdict& verdict : verdicts) {
      if (verdict.kept || some.size() == kMostAtOnce) continue;
      some.emplace(verdict.version, catalog_.Find(number, verdict.step));
    }
    more = some.size() == kMostAtOnce;
    if (some.empty()) return absl::OkStatus();
    CKPTREE_RETURN_IF_ERROR(RemoveSteps(some));
    for (const auto& [version, record] : some) {
      removed.push_back(record->step);
    }
    return absl::OkStatus();
  };
  while (more) {
    // The wait for a collection or a verification comes before the lock of the
    // commits, so that saves go on.
    absl::Status status;
    RunPaused([&] { status = remove_some(); });
    CKPTREE_RETURN_IF_ERROR(status);
  }
  return removed;
}

}  // namespace ckptree::internal
