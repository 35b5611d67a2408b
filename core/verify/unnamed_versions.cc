// SPDX-License-Identifier: Apache-2.0

#include "core/verify/unnamed_versions.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "core/version/open_check.h"
#include "kv/iterator.h"
#include "schema/keys.h"
#include "schema/segment_record.h"
#include "schema/step_record.h"

namespace ckptree::internal {
namespace {

using schema::Row;
using schema::Space;

// What there is of one version.
struct Seen {
  std::uint64_t segments = 0;
  std::uint64_t leaf_records = 0;
  std::uint64_t chunks = 0;
  std::uint64_t rows = 0;
};

using ByVersion = std::map<std::uint64_t, Seen>;

// The least key above `key`, at a distance of a power of 2, from which on rows
// can be read; nothing where there is none. Keys are told apart by their first
// 16 bytes.
std::optional<std::string> NextReadable(const kv::Database& database,
                                        Space space, const std::string& key,
                                        const std::string& end) {
  constexpr std::size_t kBytes = 16;
  std::string padded = key;
  padded.resize(kBytes, '\0');
  for (std::size_t bit = 0; bit < 8 * kBytes; ++bit) {
    std::string next = padded;
    unsigned carry = 1u << (bit % 8);
    for (std::size_t i = kBytes - bit / 8; i-- > 0 && carry > 0; carry >>= 8) {
      carry += static_cast<unsigned char>(next[i]);
      next[i] = static_cast<char>(carry & 0xff);
    }
    if (carry > 0 || (!end.empty() && next >= end)) return std::nullopt;
    const absl::StatusOr<kv::Iterator> scan = database.Scan(space, next, end);
    if (scan.ok() && scan->status().ok()) return next;
  }
  return std::nullopt;
}

// Calls fn(key, value) for the rows of a range that can be read. `problems`
// gets a line where some cannot.
template <typename Fn>
void ForEach(const kv::Database& database, Space space,
             const schema::KeyRange& range, std::vector<std::string>* problems,
             Fn fn) {
  std::optional<std::string> begin = range.begin;
  int gaps = 0;
  absl::Status met;
  while (begin.has_value()) {
    std::string last = *begin;
    absl::StatusOr<kv::Iterator> scan = database.Scan(space, *begin, range.end);
    if (scan.ok()) {
      for (; scan->Valid(); scan->Next()) {
        last.assign(scan->key());
        fn(scan->key(), scan->value());
      }
    }
    const absl::Status status = scan.ok() ? scan->status() : scan.status();
    if (status.ok()) break;
    if (gaps++ == 0) met = status;
    begin = NextReadable(database, space, last, range.end);
  }
  if (gaps == 0) return;
  problems->push_back(
      absl::StrFormat("rows of `%s` cannot be read in %d places: %s",
                      schema::NameOf(space), gaps, met.message()));
}

void CountSegments(const kv::Database& database, ByVersion* found,
                   std::vector<std::string>* problems) {
  const absl::StatusOr<std::vector<kv::LiveFile>> files =
      SortedLiveFiles(database);
  if (!files.ok()) {
    problems->emplace_back(files.status().message());
    return;
  }
  for (const kv::LiveFile& file : *files) {
    const auto first = schema::DecodeBlockKey(file.first_key);
    // Of what is elsewhere the row is counted.
    if (!first.has_value() || file.far) continue;
    Seen& seen = (*found)[first->version];
    ++seen.segments;
    // The table says what was there; damage may have taken some of it.
    const auto table_bytes = database.Get(
        file.space,
        schema::BlockKey(first->version, first->part,
                         schema::BlockNumber(schema::BuilderOf(first->n),
                                             schema::kTableSequence)));
    if (!table_bytes.ok() || !table_bytes->has_value()) continue;
    const auto table = schema::DecodeSegmentTable(**table_bytes);
    if (!table.ok()) continue;
    (file.space == Space::kLeaves ? seen.leaf_records : seen.chunks) +=
        table->entries.size();
  }
}

void CountSmall(const kv::Database& database, ByVersion* found,
                std::vector<std::string>* problems) {
  ForEach(database, Space::kSmall, schema::WholeSpace(), problems,
          [found](std::string_view key, std::string_view) {
            const auto fields = schema::DecodeSmallKey(key);
            if (!fields.has_value()) return;
            Seen& seen = (*found)[fields->version];
            if (fields->kind == schema::BlockKind::kLeafRecord) {
              ++seen.leaf_records;
            } else if (fields->kind == schema::BlockKind::kChunk) {
              ++seen.chunks;
            }
          });
}

void CountRows(const kv::Database& database, ByVersion* found,
               std::vector<std::string>* problems) {
  for (const Row row : {Row::kStepMeta, Row::kDead}) {
    ForEach(database, Space::kRecords, schema::AllRows(row), problems,
            [found, row](std::string_view key, std::string_view) {
              const auto version = schema::DecodeVersionKey(row, key);
              if (version.has_value()) ++(*found)[*version].rows;
            });
  }
  ForEach(database, Space::kRecords, schema::AllRows(Row::kSegment), problems,
          [found](std::string_view key, std::string_view) {
            const auto fields = schema::DecodeSegmentKey(key);
            if (fields.has_value()) ++(*found)[fields->version].rows;
          });
}

ByVersion AllRemains(const kv::Database& database,
                     std::vector<std::string>* problems) {
  ByVersion found;
  CountSegments(database, &found, problems);
  CountSmall(database, &found, problems);
  CountRows(database, &found, problems);
  return found;
}

std::set<std::uint64_t> NamedVersions(const kv::Database& database,
                                      std::vector<std::string>* problems) {
  std::set<std::uint64_t> named;
  for (const Row row : {Row::kStep, Row::kRemoved}) {
    ForEach(database, Space::kRecords, schema::AllRows(row), problems,
            [&named](std::string_view, std::string_view value) {
              const auto record = schema::DecodeStepRecord(value);
              if (record.ok()) named.insert(record->version);
            });
  }
  return named;
}

}  // namespace

std::vector<std::string> UnnamedVersions(const kv::Database& database,
                                         std::vector<std::string>* problems) {
  const ByVersion found = AllRemains(database, problems);
  const std::set<std::uint64_t> named = NamedVersions(database, problems);
  std::vector<std::string> lines;
  for (const auto& [version, seen] : found) {
    if (version == 0 || named.contains(version)) continue;
    lines.push_back(absl::StrFormat(
        "save %d: the row that names its step and leaves is gone, or it was "
        "never committed; there are %d segments, %d leaf records and %d chunks "
        "of it, which cannot be recovered without their names",
        version, seen.segments, seen.leaf_records, seen.chunks));
  }
  return lines;
}

std::uint64_t HighestVersion(const kv::Database& database) {
  std::vector<std::string> problems;  // They hide nothing from the journal.
  const ByVersion found = AllRemains(database, &problems);
  const std::set<std::uint64_t> named = NamedVersions(database, &problems);
  return std::max(found.empty() ? 0 : found.rbegin()->first,
                  named.empty() ? 0 : *named.rbegin());
}

std::optional<Space> SpaceOfSegment(std::string_view first_value) {
  const auto header = schema::DecodeSegmentHeader(first_value);
  if (!header.ok()) return std::nullopt;
  return header->space;
}

}  // namespace ckptree::internal
