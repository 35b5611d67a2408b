// SPDX-License-Identifier: Apache-2.0

#include "core/version/store_features.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/functional/function_ref.h"
#include "base/status_macros.h"
#include "core/process/commit_status.h"
#include "schema/keys.h"
#include "schema/limits.h"
#include "schema/store_record.h"

namespace ckptree::internal {
namespace {

bool Has(const schema::StoreRecord& store, std::string_view name) {
  return std::find(store.incompat.begin(), store.incompat.end(), name) !=
         store.incompat.end();
}

// Commits the record as `change` leaves it; nothing where it says that there is
// nothing to change.
absl::Status ChangeStore(kv::Database* database, std::string_view what,
                         absl::FunctionRef<bool(schema::StoreRecord*)> change) {
  while (true) {
    CKPTREE_ASSIGN_OR_RETURN(
        const std::optional<std::string> before,
        database->Get(schema::Space::kRecords, schema::StoreKey()));
    CKPTREE_ASSIGN_OR_RETURN(schema::StoreRecord store,
                             ReadStoreRecord(*database));
    if (!change(&store)) return absl::OkStatus();
    kv::CommitRequest request;
    request.kind = kv::CommitKind::kSettings;
    request.batch.Put(schema::Space::kRecords, schema::StoreKey(),
                      schema::EncodeStoreRecord(store));
    request.preconditions.push_back(
        {schema::Space::kRecords, schema::StoreKey(), before});
    const kv::CommitResult result = database->Commit(std::move(request));
    // Saves and collection may both be the first.
    if (result.outcome == kv::Outcome::kConflict) continue;
    return CommitStatus(result, what);
  }
}

}  // namespace

absl::StatusOr<bool> HasFeature(const kv::Database& database,
                                std::string_view name) {
  CKPTREE_ASSIGN_OR_RETURN(const schema::StoreRecord store,
                           ReadStoreRecord(database));
  return Has(store, name);
}

absl::Status AddFeature(kv::Database* database, std::string_view name) {
  return ChangeStore(database, "a feature of the store",
                     [name](schema::StoreRecord* store) {
                       if (Has(*store, name)) return false;
                       store->incompat.emplace_back(name);
                       return true;
                     });
}

absl::Status RaiseFormat(kv::Database* database) {
  return ChangeStore(database, "the format of the store",
                     [](schema::StoreRecord* store) {
                       if (store->format >= schema::kFormatNumber) return false;
                       store->format = schema::kFormatNumber;
                       return true;
                     });
}

}  // namespace ckptree::internal
