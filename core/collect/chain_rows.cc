// SPDX-License-Identifier: Apache-2.0

#include "core/collect/chain_rows.h"

#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "core/version/base_loader.h"
#include "core/version/row_scan.h"
#include "schema/dead_list.h"
#include "schema/keys.h"
#include "schema/step_record.h"
#include "schema/store_record.h"

namespace ckptree::internal {
namespace {

using schema::Row;

// What the row of its step says of a version.
absl::Status NoteStep(const kv::Database& database,
                      const schema::StepRecord& record, bool removed,
                      ChainLinks* links) {
  const auto it = links->find(record.version);
  if (it == links->end()) {
    return absl::DataLossError("its version has no dead list");
  }
  ChainLink& link = it->second;
  link.step = record.step;
  link.removed = removed;
  std::vector<schema::PartRecord> in_meta;
  if (record.parts_in_meta) {
    CKPTREE_ASSIGN_OR_RETURN(in_meta, PartsOf(database, record));
  }
  const auto& parts = record.parts_in_meta ? in_meta : record.parts;
  for (const schema::PartRecord& part : parts) link.trees.push_back(part.tree);
  return absl::OkStatus();
}

absl::Status NoteRows(const kv::Database& database, Row row,
                      ChainLinks* links) {
  return ScanRows(
      database, row,
      [&](std::string_view, std::string_view value) -> absl::Status {
        CKPTREE_ASSIGN_OR_RETURN(const schema::StepRecord record,
                                 schema::DecodeStepRecord(value));
        return NoteStep(database, record, row == Row::kRemoved, links);
      });
}

absl::StatusOr<Chain> ChainOf(const kv::Database& database, ChainLinks links) {
  Chain chain;
  for (auto& [version, link] : links) {
    if (link.prev != 0 && !links.contains(link.prev)) {
      return absl::DataLossError(
          absl::StrFormat("version %d follows version %d, which is not there",
                          version, link.prev));
    }
    chain.Add(version, std::move(link));
  }
  CKPTREE_RETURN_IF_ERROR(ScanRows(
      database, Row::kBranch,
      [&](std::string_view key, std::string_view value) -> absl::Status {
        const auto branch = schema::DecodeBranchKey(key);
        CKPTREE_ASSIGN_OR_RETURN(const schema::BranchRecord record,
                                 schema::DecodeBranchRecord(value));
        if (!branch.has_value() ||
            (record.tip != 0 && !chain.versions().contains(record.tip))) {
          return absl::DataLossError("its tip is not there");
        }
        chain.SetTip(*branch, record.tip);
        return absl::OkStatus();
      }));
  return chain;
}

}  // namespace

absl::StatusOr<ChainLinks> ReadChainLinks(const kv::Database& database) {
  // Every version that is not collected has a dead list, whatever else it lost.
  ChainLinks links;
  CKPTREE_RETURN_IF_ERROR(ScanRows(
      database, Row::kDead,
      [&links](std::string_view key, std::string_view value) -> absl::Status {
        const auto version = schema::DecodeVersionKey(Row::kDead, key);
        CKPTREE_ASSIGN_OR_RETURN(const schema::DeadList list,
                                 schema::DecodeDeadList(value));
        if (!version.has_value() || list.prev >= *version) {
          return absl::DataLossError("it is of another version");
        }
        ChainLink link;
        link.prev = list.prev;
        link.branch = list.branch;
        links.try_emplace(links.end(), *version, std::move(link));
        return absl::OkStatus();
      }));
  return links;
}

absl::StatusOr<Chain> ReadChain(const kv::Database& database,
                                absl::StatusOr<ChainLinks> links,
                                std::span<const StepRecordPtr> steps) {
  CKPTREE_RETURN_IF_ERROR(links.status());
  for (const StepRecordPtr& step : steps) {
    const absl::Status noted =
        NoteStep(database, *step, /*removed=*/false, &*links);
    if (!noted.ok()) {
      return NamingRow(schema::StepKey(step->branch, step->step), noted);
    }
  }
  CKPTREE_RETURN_IF_ERROR(NoteRows(database, Row::kRemoved, &*links));
  return ChainOf(database, *std::move(links));
}

absl::StatusOr<Chain> ReadChain(const kv::Database& database) {
  CKPTREE_ASSIGN_OR_RETURN(ChainLinks links, ReadChainLinks(database));
  CKPTREE_RETURN_IF_ERROR(NoteRows(database, Row::kStep, &links));
  CKPTREE_RETURN_IF_ERROR(NoteRows(database, Row::kRemoved, &links));
  return ChainOf(database, std::move(links));
}

}  // namespace ckptree::internal
