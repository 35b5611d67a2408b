#include "core/nameless_versions.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_format.h"
#include "core/open_check.h"
#include "kv/status_macros.h"
#include "schema/keys.h"
#include "schema/segment_record.h"
#include "schema/step_record.h"

namespace ckptree::internal {
namespace {

using schema::Row;
using schema::Space;

// What there is of one version.
struct Remains {
  std::uint64_t segments = 0;
  std::uint64_t leaf_records = 0;
  std::uint64_t chunks = 0;
  std::uint64_t rows = 0;
};

using ByVersion = std::map<std::uint64_t, Remains>;

// Calls fn(key, value) for all rows of a range.
template <typename Fn>
absl::Status ForEach(const kv::Database& database, Space space,
                     const schema::KeyRange& range, Fn fn) {
  CKPTREE_ASSIGN_OR_RETURN(kv::Iterator scan,
                           database.Scan(space, range.begin, range.end));
  for (; scan.Valid(); scan.Next()) fn(scan.key(), scan.value());
  return scan.status();
}

absl::Status CountSegments(const kv::Database& database, ByVersion* found) {
  CKPTREE_ASSIGN_OR_RETURN(const std::vector<kv::LiveFile> files,
                           SortedLiveFiles(database));
  for (const kv::LiveFile& file : files) {
    const auto first = schema::DecodeBlockKey(file.first_key);
    if (!first.has_value()) continue;
    Remains& remains = (*found)[first->version];
    ++remains.segments;
    // The table says what was there; damage may have taken some of it.
    const auto table_bytes = database.Get(
        file.space,
        schema::BlockKey(first->version, first->part,
                         schema::BlockNumber(schema::BuilderOf(first->n),
                                             schema::kTableSequence)));
    if (!table_bytes.ok() || !table_bytes->has_value()) continue;
    const auto table = schema::DecodeSegmentTable(**table_bytes);
    if (!table.ok()) continue;
    (file.space == Space::kLeaves ? remains.leaf_records : remains.chunks) +=
        table->entries.size();
  }
  return absl::OkStatus();
}

absl::Status CountSmall(const kv::Database& database, ByVersion* found) {
  return ForEach(database, Space::kSmall, schema::WholeSpace(),
                 [found](std::string_view key, std::string_view) {
                   const auto fields = schema::DecodeSmallKey(key);
                   if (!fields.has_value()) return;
                   Remains& remains = (*found)[fields->version];
                   if (fields->kind == schema::BlockKind::kLeafRecord) {
                     ++remains.leaf_records;
                   } else if (fields->kind == schema::BlockKind::kChunk) {
                     ++remains.chunks;
                   }
                 });
}

absl::Status CountRows(const kv::Database& database, ByVersion* found) {
  for (const Row row : {Row::kStepMeta, Row::kDead}) {
    CKPTREE_RETURN_IF_ERROR(
        ForEach(database, Space::kRecords, schema::AllRows(row),
                [found, row](std::string_view key, std::string_view) {
                  const auto version = schema::DecodeVersionKey(row, key);
                  if (version.has_value()) ++(*found)[*version].rows;
                }));
  }
  return ForEach(database, Space::kRecords, schema::AllRows(Row::kSegment),
                 [found](std::string_view key, std::string_view) {
                   const auto fields = schema::DecodeSegmentKey(key);
                   if (fields.has_value()) ++(*found)[fields->version].rows;
                 });
}

absl::StatusOr<ByVersion> AllRemains(const kv::Database& database) {
  ByVersion found;
  CKPTREE_RETURN_IF_ERROR(CountSegments(database, &found));
  CKPTREE_RETURN_IF_ERROR(CountSmall(database, &found));
  CKPTREE_RETURN_IF_ERROR(CountRows(database, &found));
  return found;
}

absl::StatusOr<std::set<std::uint64_t>> NamedVersions(
    const kv::Database& database) {
  std::set<std::uint64_t> named;
  for (const Row row : {Row::kStep, Row::kRemoved}) {
    CKPTREE_RETURN_IF_ERROR(
        ForEach(database, Space::kRecords, schema::AllRows(row),
                [&named](std::string_view, std::string_view value) {
                  const auto record = schema::DecodeStepRecord(value);
                  if (record.ok()) named.insert(record->version);
                }));
  }
  return named;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> NamelessVersions(
    const kv::Database& database) {
  CKPTREE_ASSIGN_OR_RETURN(const ByVersion found, AllRemains(database));
  CKPTREE_ASSIGN_OR_RETURN(const std::set<std::uint64_t> named,
                           NamedVersions(database));
  std::vector<std::string> lines;
  for (const auto& [version, remains] : found) {
    if (version == 0 || named.contains(version)) continue;
    lines.push_back(absl::StrFormat(
        "save %d: the row that names its step and leaves is gone, or it was "
        "never committed; there are %d segments, %d leaf records and %d chunks "
        "of it, which cannot be recovered without their names",
        version, remains.segments, remains.leaf_records, remains.chunks));
  }
  return lines;
}

absl::StatusOr<std::uint64_t> HighestVersion(const kv::Database& database) {
  CKPTREE_ASSIGN_OR_RETURN(const ByVersion found, AllRemains(database));
  CKPTREE_ASSIGN_OR_RETURN(const std::set<std::uint64_t> named,
                           NamedVersions(database));
  return std::max(found.empty() ? 0 : found.rbegin()->first,
                  named.empty() ? 0 : *named.rbegin());
}

std::optional<Space> SpaceOfSegment(std::string_view first_value) {
  const auto header = schema::DecodeSegmentHeader(first_value);
  if (!header.ok()) return std::nullopt;
  return header->space;
}

}  // namespace ckptree::internal
