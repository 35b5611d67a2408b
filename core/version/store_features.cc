// SPDX-License-Identifier: Apache-2.0

#include "core/version/store_features.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "base/status_macros.h"
#include "core/process/commit_status.h"
#include "schema/keys.h"
#include "schema/store_record.h"

namespace ckptree::internal {
namespace {

bool Has(const schema::StoreRecord& store, std::string_view name) {
  return std::find(store.incompat.begin(), store.incompat.end(), name) !=
         store.incompat.end();
}

}  // namespace

absl::StatusOr<bool> HasFeature(const kv::Database& database,
                                std::string_view name) {
  CKPTREE_ASSIGN_OR_RETURN(const schema::StoreRecord store,
                           ReadStoreRecord(database));
  return Has(store, name);
}

absl::Status AddFeature(kv::Database* database, std::string_view name) {
  while (true) {
    CKPTREE_ASSIGN_OR_RETURN(
        const std::optional<std::string> before,
        database->Get(schema::Space::kRecords, schema::StoreKey()));
    CKPTREE_ASSIGN_OR_RETURN(schema::StoreRecord store,
                             ReadStoreRecord(*database));
    if (Has(store, name)) return absl::OkStatus();
    store.incompat.emplace_back(name);
    kv::CommitRequest request;
    request.kind = kv::CommitKind::kSettings;
    request.batch.Put(schema::Space::kRecords, schema::StoreKey(),
                      schema::EncodeStoreRecord(store));
    request.preconditions.push_back(
        {schema::Space::kRecords, schema::StoreKey(), before});
    const kv::CommitResult result = database->Commit(std::move(request));
    // Saves and collection may both be the first.
    if (result.outcome == kv::Outcome::kConflict) continue;
    return CommitStatus(result, "a feature of the store");
  }
}

}  // namespace ckptree::internal
