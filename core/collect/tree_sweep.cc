// SPDX-License-Identifier: Apache-2.0

#include "core/collect/tree_sweep.h"

#include <optional>
#include <vector>

#include "base/status_macros.h"
#include "core/version/row_scan.h"
#include "schema/keys.h"
#include "schema/limits.h"
#include "schema/tree.h"

namespace ckptree::internal {
namespace {

using base::Digest;
using schema::Row;
using schema::Space;

absl::Status ForEachDigest(const kv::Database& database, Row row,
                           absl::FunctionRef<absl::Status(
                               const Digest& digest, std::string_view value)>
                               fn) {
  return ScanRows(
      database, row,
      [&](std::string_view key, std::string_view value) -> absl::Status {
        const std::optional<Digest> digest = schema::DecodeDigestKey(row, key);
        return digest.has_value() ? fn(*digest, value) : absl::OkStatus();
      });
}

}  // namespace

absl::StatusOr<kv::CommitRequest> DeadTrees(const kv::Database& database,
                                            const std::set<Digest>& living,
                                            bool all_pages) {
  kv::CommitRequest request;
  request.kind = kv::CommitKind::kCollect;
  std::vector<Digest> dead;
  std::set<Digest> dead_pages, living_pages;
  CKPTREE_RETURN_IF_ERROR(ForEachDigest(
      database, Row::kTree,
      [&](const Digest& digest, std::string_view value) -> absl::Status {
        CKPTREE_ASSIGN_OR_RETURN(const schema::TreeRoot root,
                                 schema::DecodeTreeRoot(value));
        const bool lives = living.contains(digest);
        if (!lives) dead.push_back(digest);
        for (const schema::TreePageRef& page : root.pages) {
          (lives ? living_pages : dead_pages).insert(page.digest);
        }
        return absl::OkStatus();
      }));
  if (all_pages) {
    CKPTREE_RETURN_IF_ERROR(ForEachDigest(
        database, Row::kTreePage, [&](const Digest& digest, std::string_view) {
          dead_pages.insert(digest);
          return absl::OkStatus();
        }));
  }
  for (const Digest& tree : dead) {
    request.batch.Delete(Space::kRecords, schema::TreeKey(tree));
  }
  for (const Digest& page : dead_pages) {
    if (living_pages.contains(page) || living.contains(page)) continue;
    request.batch.Delete(Space::kRecords, schema::TreePageKey(page));
  }
  return request;
}

}  // namespace ckptree::internal
