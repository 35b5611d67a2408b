// SPDX-License-Identifier: Apache-2.0

#include "core/collect/small_sweep.h"

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/status_macros.h"
#include "core/collect/collect_plan.h"
#include "core/verify/verify_walk.h"
#include "schema/keys.h"

namespace ckptree::internal {

using schema::BlockKind;
using schema::Space;

namespace {

// The last of the versions that follow each other without a gap from `at` on.
std::uint64_t LastOfRun(const std::map<std::uint64_t, ChainLink>& versions,
                        std::map<std::uint64_t, ChainLink>::const_iterator at) {
  std::uint64_t last = at->first;
  while (++at != versions.end() && at->first == last + 1) ++last;
  return last;
}

}  // namespace

absl::StatusOr<std::set<std::uint64_t>> VersionsBeside(
    const kv::Database& database, const Chain& chain) {
  std::set<std::uint64_t> versions;
  CKPTREE_ASSIGN_OR_RETURN(kv::Iterator scan,
                           database.Scan(Space::kSmall, "", ""));
  while (scan.Valid()) {
    const auto key = schema::DecodeSmallKey(scan.key());
    if (!key.has_value()) {  // `verify` names it.
      scan.Next();
      continue;
    }
    // Each seek reads a block, so those that are known are passed together.
    const auto known = chain.versions().find(key->version);
    const std::uint64_t last = known == chain.versions().end()
                                   ? key->version
                                   : LastOfRun(chain.versions(), known);
    if (known == chain.versions().end() && key->kind == BlockKind::kHeader) {
      versions.insert(key->version);
    }
    scan.Seek(schema::BlocksOfVersion(last).end);
  }
  CKPTREE_RETURN_IF_ERROR(scan.status());
  return versions;
}

absl::StatusOr<kv::CommitRequest> UnlistedSmall(
    const kv::Database& database, const Chain& chain,
    const std::set<std::uint64_t>& unlisted) {
  kv::CommitRequest request;
  request.kind = kv::CommitKind::kCollect;
  std::set<BlockId> used;
  for (const auto& [version, link] : chain.versions()) {
    CKPTREE_ASSIGN_OR_RETURN(const std::vector<schema::DeadPart> parts,
                             ReadBlocks(database, version));
    for (const schema::DeadPart& part : parts) {
      for (const schema::BlockRun& run : part.runs) {
        if (run.place != Space::kSmall) continue;
        for (std::uint32_t i = 0; i < run.count; ++i) {
          used.insert(
              {part.part, {run.kind, run.place, run.version, run.first_n + i}});
        }
      }
    }
  }
  for (const std::uint64_t version : unlisted) {
    const schema::KeyRange range = schema::BlocksOfVersion(version);
    CKPTREE_ASSIGN_OR_RETURN(
        kv::Iterator scan,
        database.Scan(Space::kSmall, range.begin, range.end));
    for (; scan.Valid(); scan.Next()) {
      const auto key = schema::DecodeSmallKey(scan.key());
      if (!key.has_value() ||
          used.contains(
              {key->part, {key->kind, Space::kSmall, version, key->n}})) {
        continue;
      }
      request.batch.Delete(Space::kSmall, std::string(scan.key()));
    }
    CKPTREE_RETURN_IF_ERROR(scan.status());
  }
  return request;
}

}  // namespace ckptree::internal
