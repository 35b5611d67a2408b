// SPDX-License-Identifier: Apache-2.0

#include "core/engine/catalog_commits.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "core/process/applying.h"
#include "core/process/commit_status.h"
#include "core/version/step_removal.h"
#include "schema/keys.h"
#include "schema/limits.h"
#include "schema/utf8.h"

namespace ckptree::internal {
namespace {

using schema::Space;

// Of a commit that others may come in between.
constexpr int kMostTries = 16;

// Rows of `records` that must stay as they are until the commit.
absl::StatusOr<kv::Precondition> Unchanged(const kv::Database& database,
                                           std::string key) {
  CKPTREE_ASSIGN_OR_RETURN(std::optional<std::string> row,
                           database.Get(Space::kRecords, key));
  return kv::Precondition{Space::kRecords, std::move(key), std::move(row)};
}

absl::Status CheckTagName(std::string_view name) {
  if (name.empty() ||
      static_cast<std::int64_t>(name.size()) > schema::kMaxNameBytes) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "a tag's name has 1 to %d bytes", schema::kMaxNameBytes));
  }
  if (!schema::IsUtf8(name)) {
    return absl::InvalidArgumentError("a tag's name is UTF-8");
  }
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x21 || byte == 0x7f || c == '@' || c == ':' || c == '~') {
      return absl::InvalidArgumentError(
          "a tag's name has no spaces, control characters, '@', ':' or '~'");
    }
  }
  return absl::OkStatus();
}

}  // namespace

CatalogCommits::CatalogCommits(CommitContext context)
    : context_(std::move(context)),
      database_(*context_.database),
      catalog_(*context_.catalog),
      keeper_(*context_.keeper) {}

absl::Status CatalogCommits::Commit(kv::CommitRequest request) {
  CKPTREE_RETURN_IF_ERROR(CheckHealth(database_));
  return CommitStatus(database_.Commit(std::move(request)), "the change");
}

absl::Status CatalogCommits::Delete(const std::vector<StepSelector>& steps,
                                    const DeleteOptions& options) {
  CKPTREE_RETURN_IF_ERROR(CheckWritable());
  if (steps.empty()) return absl::OkStatus();
  absl::MutexLock commit_lock(&mu_);
  std::map<std::uint64_t, StepRecordPtr> records;  // By version: each once.
  for (const StepSelector& step : steps) {
    CKPTREE_ASSIGN_OR_RETURN(StepRecordPtr record, catalog_.Resolve(step));
    CKPTREE_RETURN_IF_ERROR(CheckTags(*record, options));
    records.emplace(record->version, std::move(record));
  }
  return Remove(records);
}

absl::Status CatalogCommits::CheckTags(const schema::StepRecord& record,
                                       const DeleteOptions& options) const {
  const std::vector<std::string> tags = catalog_.TagsOf(record.version);
  // That it is pinned is said by who removes it.
  if (tags.empty() || options.tagged || catalog_.IsPinned(record.version)) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      absl::StrFormat("step %s is tagged '%s'; untag it first, or delete it "
                      "with the option `tagged`",
                      catalog_.NameOf(record), tags.front()));
}

absl::Status CatalogCommits::Remove(
    const std::map<std::uint64_t, StepRecordPtr>& records) {
  kv::CommitRequest request;
  request.kind = kv::CommitKind::kDelete;
  for (const auto& [version, record] : records) {
    CKPTREE_RETURN_IF_ERROR(RemoveStep(database_, catalog_, *record, &request));
  }
  CKPTREE_RETURN_IF_ERROR(Commit(std::move(request)));
  const Applying applying(database_);
  std::vector<StepRecordPtr> erased;
  for (const auto& [version, record] : records) erased.push_back(record);
  catalog_.Apply(erased, nullptr);
  for (const auto& [version, record] : records) keeper_.Removed(version);
  context_.on_removed();
  return absl::OkStatus();
}

absl::Status CatalogCommits::Tag(std::string_view name,
                                 const StepSelector& step, bool move) {
  CKPTREE_RETURN_IF_ERROR(CheckWritable());
  CKPTREE_RETURN_IF_ERROR(CheckTagName(name));
  absl::MutexLock commit_lock(&mu_);
  CKPTREE_ASSIGN_OR_RETURN(const StepRecordPtr record, catalog_.Resolve(step));
  if (const auto old = catalog_.FindTag(name); old.has_value()) {
    if (old->version == record->version) return absl::OkStatus();
    if (!move) {
      return absl::AlreadyExistsError(absl::StrFormat(
          "tag '%s' names step %s; ask to move it", name,
          StepText(catalog_.BranchName(old->branch), old->step)));
    }
  }
  schema::TagRecord tag;
  tag.branch = record->branch;
  tag.step = record->step;
  tag.version = record->version;
  tag.created_ns = absl::GetCurrentTimeNanos();
  kv::CommitRequest request;
  request.kind = kv::CommitKind::kTag;
  request.batch.Put(Space::kRecords, schema::TagKey(name),
                    schema::EncodeTagRecord(tag));
  CKPTREE_ASSIGN_OR_RETURN(
      kv::Precondition row,
      Unchanged(database_, schema::StepKey(record->branch, record->step)));
  request.preconditions.push_back(std::move(row));
  CKPTREE_RETURN_IF_ERROR(Commit(std::move(request)));
  const Applying applying(database_);
  catalog_.PutTag(std::string(name), tag);
  return absl::OkStatus();
}

absl::Status CatalogCommits::Untag(std::string_view name) {
  CKPTREE_RETURN_IF_ERROR(CheckWritable());
  absl::MutexLock commit_lock(&mu_);
  if (!catalog_.FindTag(name).has_value()) {
    return absl::NotFoundError(absl::StrFormat("no tag '%s'", name));
  }
  kv::CommitRequest request;
  request.kind = kv::CommitKind::kTag;
  request.batch.Delete(Space::kRecords, schema::TagKey(name));
  CKPTREE_RETURN_IF_ERROR(Commit(std::move(request)));
  const Applying applying(database_);
  catalog_.EraseTag(name);
  return absl::OkStatus();
}

absl::Status CatalogCommits::Pin(const StepSelector& step, bool pinned) {
  CKPTREE_RETURN_IF_ERROR(CheckWritable());
  absl::MutexLock commit_lock(&mu_);
  CKPTREE_ASSIGN_OR_RETURN(const StepRecordPtr record, catalog_.Resolve(step));
  if (catalog_.IsPinned(record->version) == pinned) return absl::OkStatus();
  kv::CommitRequest request;
  request.kind = kv::CommitKind::kPin;
  std::string key = schema::PinKey(record->version);
  if (pinned) {
    schema::PinRecord pin;
    pin.branch = record->branch;
    pin.step = record->step;
    pin.created_ns = absl::GetCurrentTimeNanos();
    request.batch.Put(Space::kRecords, std::move(key),
                      schema::EncodePinRecord(pin));
  } else {
    request.batch.Delete(Space::kRecords, std::move(key));
  }
  CKPTREE_ASSIGN_OR_RETURN(
      kv::Precondition row,
      Unchanged(database_, schema::StepKey(record->branch, record->step)));
  request.preconditions.push_back(std::move(row));
  CKPTREE_RETURN_IF_ERROR(Commit(std::move(request)));
  const Applying applying(database_);
  if (pinned) {
    catalog_.PutPin(record->version);
  } else {
    catalog_.ErasePin(record->version);
  }
  return absl::OkStatus();
}

absl::Status CatalogCommits::Fork(const StepSelector& step,
                                  std::string_view name) {
  CKPTREE_RETURN_IF_ERROR(CheckWritable());
  if (!IsBranchName(name)) {
    return absl::InvalidArgumentError(
        "a branch's name has letters, digits, '_', '-' and '.', begins with a "
        "letter; main, latest, best and healthy are not allowed");
  }
  absl::MutexLock commit_lock(&mu_);
  CKPTREE_ASSIGN_OR_RETURN(const StepRecordPtr record, catalog_.Resolve(step));
  schema::BranchRecord branch;
  branch.tip = record->version;
  branch.name = std::string(name);
  branch.origin_branch = record->branch;
  branch.origin_step = record->step;
  branch.origin_version = record->version;
  branch.created_ns = absl::GetCurrentTimeNanos();
  kv::CommitRequest request;
  CKPTREE_ASSIGN_OR_RETURN(
      kv::Precondition row,
      Unchanged(database_, schema::StepKey(record->branch, record->step)));
  request.preconditions.push_back(std::move(row));
  return AddBranch(std::move(branch), std::move(request));
}

absl::Status CatalogCommits::AdoptBranch(schema::BranchRecord branch,
                                         bool orphan) {
  CKPTREE_RETURN_IF_ERROR(CheckWritable());
  absl::MutexLock commit_lock(&mu_);
  if (orphan) branch.origin_branch = NextBranch();
  return AddBranch(std::move(branch), {});
}

absl::Status CatalogCommits::ReplaceBranch(schema::BranchRecord branch,
                                           bool orphan) {
  CKPTREE_RETURN_IF_ERROR(CheckWritable());
  absl::MutexLock commit_lock(&mu_);
  CKPTREE_ASSIGN_OR_RETURN(const std::uint32_t number,
                           catalog_.FindBranch(branch.name));
  if (orphan) branch.origin_branch = NextBranch();
  const bool has_steps = !catalog_.Steps(number).empty();
  absl::Status replaced;
  // The collector changes the row of a branch of which it frees the tip.
  for (int i = 0; i < kMostTries; ++i) {
    CKPTREE_ASSIGN_OR_RETURN(kv::Precondition row,
                             Unchanged(database_, schema::BranchKey(number)));
    CKPTREE_ASSIGN_OR_RETURN(
        const schema::BranchRecord before,
        schema::DecodeBranchRecord(row.expected.value_or("")));
    if (has_steps) branch.tip = before.tip;
    kv::CommitRequest request;
    request.kind = kv::CommitKind::kBranch;
    request.batch.Put(Space::kRecords, row.key,
                      schema::EncodeBranchRecord(branch));
    request.preconditions.push_back(std::move(row));
    // As AddBranch() says.
    absl::Cleanup undo = [&] {
      if (!has_steps) keeper_.Forked(number, before.tip);
    };
    if (!has_steps) keeper_.Forked(number, branch.tip);
    replaced = Commit(std::move(request));
    if (replaced.ok()) std::move(undo).Cancel();
    if (!absl::IsAborted(replaced)) break;
  }
  CKPTREE_RETURN_IF_ERROR(replaced);
  const Applying applying(database_);
  catalog_.PutBranch(number, std::move(branch));
  return absl::OkStatus();
}

std::uint32_t CatalogCommits::NextBranch() const {
  std::uint32_t number = keeper_.NextBranch();
  for (const auto& [known, other] : catalog_.Branches()) {
    // Not that of a dropped branch either, while it is somebody's origin.
    number = std::max(number, other.origin_branch + 1);
  }
  return number;
}

absl::Status CatalogCommits::AddBranch(schema::BranchRecord branch,
                                       kv::CommitRequest request) {
  const std::uint32_t number = std::max(NextBranch(), branch.origin_branch + 1);
  for (const auto& [known, other] : catalog_.Branches()) {
    if (other.name != branch.name) continue;
    return absl::AlreadyExistsError(
        absl::StrFormat("branch '%s' exists already; it goes on from step %d",
                        branch.name, other.origin_step));
  }
  request.kind = kv::CommitKind::kBranch;
  std::string key = schema::BranchKey(number);
  request.preconditions.push_back({Space::kRecords, key, std::nullopt});
  request.batch.Put(Space::kRecords, std::move(key),
                    schema::EncodeBranchRecord(branch));
  // Before the commit: as soon as it is there the step may be overwritten, and
  // its version must not be collected then.
  absl::Cleanup undo = [&] { keeper_.BranchDropped(number); };
  keeper_.Forked(number, branch.tip);
  CKPTREE_RETURN_IF_ERROR(Commit(std::move(request)));
  std::move(undo).Cancel();
  const Applying applying(database_);
  catalog_.PutBranch(number, std::move(branch));
  return absl::OkStatus();
}

absl::StatusOr<kv::CommitRequest> CatalogCommits::DropRequest(
    std::uint32_t branch, const std::vector<StepRecordPtr>& steps,
    const DeleteOptions& options) const {
  kv::CommitRequest request;
  request.kind = kv::CommitKind::kBranch;
  CKPTREE_ASSIGN_OR_RETURN(kv::Precondition branch_row,
                           Unchanged(database_, schema::BranchKey(branch)));
  request.batch.Delete(Space::kRecords, branch_row.key);
  request.batch.Delete(Space::kRecords, schema::SettingsKey(branch));
  request.preconditions.push_back(std::move(branch_row));
  for (const StepRecordPtr& record : steps) {
    CKPTREE_RETURN_IF_ERROR(CheckTags(*record, options));
    CKPTREE_RETURN_IF_ERROR(RemoveStep(database_, catalog_, *record, &request));
  }
  return request;
}

absl::Status CatalogCommits::DropBranch(std::string_view name,
                                        const DeleteOptions& options,
                                        std::int64_t created_ns) {
  CKPTREE_RETURN_IF_ERROR(CheckWritable());
  absl::MutexLock commit_lock(&mu_);
  CKPTREE_ASSIGN_OR_RETURN(const std::uint32_t number,
                           catalog_.FindBranch(name));
  if (number == kMainBranch) {
    return absl::InvalidArgumentError("the main branch cannot be removed");
  }
  if (created_ns != 0 &&
      catalog_.Branches().at(number).created_ns != created_ns) {
    return absl::FailedPreconditionError(
        absl::StrFormat("branch '%s' was removed, and made anew since", name));
  }
  std::vector<StepRecordPtr> steps;
  absl::Status dropped;
  // The collector changes the row of a branch of which it frees the tip.
  for (int i = 0; i < kMostTries; ++i) {
    steps = catalog_.Steps(number);
    CKPTREE_ASSIGN_OR_RETURN(kv::CommitRequest request,
                             DropRequest(number, steps, options));
    dropped = Commit(std::move(request));
    if (!absl::IsAborted(dropped)) break;
  }
  CKPTREE_RETURN_IF_ERROR(dropped);
  const Applying applying(database_);
  catalog_.EraseBranch(number);
  keeper_.BranchDropped(number);
  for (const StepRecordPtr& record : steps) keeper_.Removed(record->version);
  context_.on_removed();
  return absl::OkStatus();
}

}  // namespace ckptree::internal
