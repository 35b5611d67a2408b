// SPDX-License-Identifier: Apache-2.0

#include "core/engine/settings_commits.h"

#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "ckptree/version.h"
#include "core/process/applying.h"
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

SettingsCommits::SettingsCommits(CatalogCommits* commits, Catalog* catalog,
                                 Retention* retention, RunPausedFn run_paused)
    : commits_(*commits),
      catalog_(*catalog),
      retention_(*retention),
      run_paused_(std::move(run_paused)) {}

absl::Status SettingsCommits::Put(std::uint32_t branch,
                                  schema::BranchSettings settings) {
  kv::CommitRequest request;
  request.kind = kv::CommitKind::kSettings;
  request.batch.Put(Space::kRecords, schema::SettingsKey(branch),
                    schema::EncodeBranchSettings(settings));
  CKPTREE_RETURN_IF_ERROR(commits_.Commit(std::move(request)));
  const Applying applying(commits_.database());
  catalog_.PutSettings(branch, std::move(settings));
  return absl::OkStatus();
}

absl::Status SettingsCommits::SetPolicy(const Preservation& policy,
                                        std::string_view branch,
                                        bool from_program) {
  CKPTREE_RETURN_IF_ERROR(commits_.CheckWritable());
  CKPTREE_RETURN_IF_ERROR(retention_.CheckSettable(policy));
  const absl::MutexLock lock(commits_.mu());
  CKPTREE_ASSIGN_OR_RETURN(const std::uint32_t number,
                           catalog_.FindBranch(branch));
  schema::BranchSettings settings = SettingsOf(catalog_, number);
  std::string text = Text(policy);
  if (settings.policy == text && settings.from_program == from_program) {
    retention_.Remember(number, policy);  // Its functions may be others.
    return absl::OkStatus();
  }
  settings.policy = std::move(text);
  settings.from_program = from_program;
  settings.set_by = std::string(Version());
  settings.set_ns = absl::GetCurrentTimeNanos();
  CKPTREE_RETURN_IF_ERROR(Put(number, std::move(settings)));
  const Applying applying(commits_.database());
  retention_.Remember(number, policy);
  return absl::OkStatus();
}

absl::Status SettingsCommits::SetMetadata(std::string json,
                                          std::string_view branch) {
  CKPTREE_RETURN_IF_ERROR(commits_.CheckWritable());
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
  const absl::MutexLock lock(commits_.mu());
  CKPTREE_ASSIGN_OR_RETURN(const std::uint32_t number,
                           catalog_.FindBranch(branch));
  schema::BranchSettings settings = SettingsOf(catalog_, number);
  if (settings.metadata == json) return absl::OkStatus();
  settings.metadata = std::move(json);
  return Put(number, std::move(settings));
}

absl::Status SettingsCommits::Adopt(std::string_view branch,
                                    schema::BranchSettings settings) {
  CKPTREE_RETURN_IF_ERROR(commits_.CheckWritable());
  const absl::MutexLock lock(commits_.mu());
  CKPTREE_ASSIGN_OR_RETURN(const std::uint32_t number,
                           catalog_.FindBranch(branch));
  if (catalog_.Settings(number) != nullptr) return absl::OkStatus();
  return Put(number, std::move(settings));
}

absl::StatusOr<bool> SettingsCommits::RemoveSome(
    std::string_view branch, std::vector<std::int64_t>* removed) {
  // A commit holds 16 MiB; a step record with its parts has 3 KiB at most.
  constexpr std::size_t kMostAtOnce = 2000;
  const absl::MutexLock lock(commits_.mu());
  CKPTREE_ASSIGN_OR_RETURN(const std::uint32_t number,
                           catalog_.FindBranch(branch));
  const PolicyInfo info = retention_.Of(number);
  CKPTREE_RETURN_IF_ERROR(info.applicable);
  CKPTREE_ASSIGN_OR_RETURN(const std::vector<PolicyVerdict> verdicts,
                           retention_.Judge(number, info.policy));
  std::map<std::uint64_t, StepRecordPtr> some;
  for (const PolicyVerdict& verdict : verdicts) {
    if (verdict.kept || some.size() == kMostAtOnce) continue;
    some.emplace(verdict.version, catalog_.Find(number, verdict.step));
  }
  if (some.empty()) return false;
  CKPTREE_RETURN_IF_ERROR(commits_.Remove(some));
  for (const auto& [version, record] : some) {
    removed->push_back(record->step);
  }
  return some.size() == kMostAtOnce;
}

absl::StatusOr<std::vector<std::int64_t>> SettingsCommits::ApplyPolicy(
    std::string_view branch) {
  CKPTREE_RETURN_IF_ERROR(commits_.CheckWritable());
  std::vector<std::int64_t> removed;
  absl::StatusOr<bool> more = true;
  while (more.ok() && *more) {
    // The wait for a collection or a verification comes before the lock of the
    // commits, so that saves go on.
    run_paused_([&] { more = RemoveSome(branch, &removed); });
  }
  CKPTREE_RETURN_IF_ERROR(more.status());
  return removed;
}

}  // namespace ckptree::internal
