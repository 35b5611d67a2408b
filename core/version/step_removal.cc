// SPDX-License-Identifier: Apache-2.0

#include "core/version/step_removal.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "schema/keys.h"

namespace ckptree::internal {

absl::Status RemoveStep(const kv::Database& database, const Catalog& catalog,
                        const schema::StepRecord& record,
                        kv::CommitRequest* request) {
  using schema::Space;
  if (catalog.IsPinned(record.version)) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "step %s is pinned; unpin it first", catalog.NameOf(record)));
  }
  const std::string key = schema::StepKey(record.branch, record.step);
  CKPTREE_ASSIGN_OR_RETURN(std::optional<std::string> row,
                           database.Get(Space::kRecords, key));
  if (!row.has_value()) {
    return absl::NotFoundError(
        absl::StrFormat("no step %s", catalog.NameOf(record)));
  }
  request->batch.Put(Space::kRecords, schema::RemovedKey(record.version), *row);
  request->batch.Delete(Space::kRecords, key);
  for (const std::string& tag : catalog.TagsOf(record.version)) {
    request->batch.Delete(Space::kRecords, schema::TagKey(tag));
  }
  request->preconditions.push_back({Space::kRecords, key, std::move(row)});
  request->preconditions.push_back(
      {Space::kRecords, schema::PinKey(record.version), std::nullopt});
  return absl::OkStatus();
}

absl::Status MayOverwrite(const Catalog& catalog, const schema::StepRecord& old,
                          bool overwrite, bool tagged) {
  if (!overwrite) {
    return absl::AlreadyExistsError(absl::StrFormat(
        "step %s exists already; overwrite it (option `overwrite`), or choose "
        "another number",
        catalog.NameOf(old)));
  }
  if (catalog.IsPinned(old.version)) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "step %s is pinned; unpin it before overwriting", catalog.NameOf(old)));
  }
  const std::vector<std::string> tags = catalog.TagsOf(old.version);
  if (!tags.empty() && !tagged) {
    return absl::FailedPreconditionError(
        absl::StrFormat("step %s is tagged '%s'; untag it before overwriting",
                        catalog.NameOf(old), tags.front()));
  }
  return absl::OkStatus();
}

}  // namespace ckptree::internal
