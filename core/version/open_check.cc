// SPDX-License-Identifier: Apache-2.0

#include "core/version/open_check.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <set>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "core/version/row_scan.h"
#include "schema/keys.h"
#include "schema/limits.h"
#include "schema/segment_record.h"
#include "schema/step_record.h"
#include "schema/store_record.h"

namespace ckptree::internal {
namespace {

using schema::Space;

// Features that this engine knows.
constexpr std::string_view kKnownFeatures[] = {kCodedFeature, kRemoteFeature};

bool IsKnownFeature(std::string_view name) {
  return std::find(std::begin(kKnownFeatures), std::end(kKnownFeatures),
                   name) != std::end(kKnownFeatures);
}

// Of a branch but the main one, with a slash: "trial/".
std::string BranchPrefix(const kv::Database& database, std::uint32_t branch) {
  const absl::StatusOr<std::optional<std::string>> row =
      database.Get(Space::kRecords, schema::BranchKey(branch));
  if (!row.ok() || !row->has_value()) return "";
  const absl::StatusOr<schema::BranchRecord> record =
      schema::DecodeBranchRecord(**row);
  return record.ok() && !record->name.empty() ? record->name + "/" : "";
}

// " (step 3, trial/7)" for the versions given.
std::string StepsText(const kv::Database& database,
                      const std::set<std::uint64_t>& versions) {
  std::string text;
  // What cannot be read is told elsewhere.
  ScanRows(database, schema::Row::kStep,
           [&](std::string_view, std::string_view value) {
             const absl::StatusOr<schema::StepRecord> record =
                 schema::DecodeStepRecord(value);
             if (record.ok() && versions.contains(record->version)) {
               absl::StrAppendFormat(
                   &text, "%s%s%d", text.empty() ? "step " : ", ",
                   BranchPrefix(database, record->branch), record->step);
             }
             return absl::OkStatus();
           })
      .IgnoreError();
  return text.empty() ? text : " (" + text + ")";
}

// Calls `found` for each row of a segment of which no file here has all, and
// which no row says is elsewhere, with the file that is cut short, or null.
// `fields`: nothing where the row is of no segment.
absl::Status ForEachMissing(
    const kv::Database& database,
    absl::FunctionRef<
        void(std::string_view key,
             const std::optional<schema::SegmentKeyFields>& fields,
             const kv::LiveFile* file)>
        found) {
  CKPTREE_ASSIGN_OR_RETURN(const std::vector<kv::LiveFile> files,
                           SortedLiveFiles(database));
  return ScanRows(
      database, schema::Row::kSegment,
      [&](std::string_view key, std::string_view) {
        const auto fields = schema::DecodeSegmentKey(key);
        const kv::LiveFile* file =
            fields.has_value() ? FileOfSegment(files, *fields) : nullptr;
        if (file != nullptr && file->whole) {
          return absl::OkStatus();
        }
        CKPTREE_ASSIGN_OR_RETURN(
            const bool far, fields.has_value() ? HasFarRow(database, *fields)
                                               : absl::StatusOr<bool>(false));
        if (!far) found(key, fields, file);
        return absl::OkStatus();
      });
}

}  // namespace

absl::StatusOr<bool> HasFarRow(const kv::Database& database,
                               const schema::SegmentKeyFields& segment) {
  if (segment.space != Space::kChunks) return false;
  CKPTREE_ASSIGN_OR_RETURN(
      const std::optional<std::string> row,
      database.Get(Space::kRecords, schema::FarKey(segment)));
  return row.has_value();
}

absl::StatusOr<schema::StoreRecord> ReadStoreRecord(
    const kv::Database& database) {
  CKPTREE_ASSIGN_OR_RETURN(const std::optional<std::string> bytes,
                           database.Get(Space::kRecords, schema::StoreKey()));
  if (!bytes.has_value()) {
    return absl::DataLossError("the store's own record is missing");
  }
  CKPTREE_ASSIGN_OR_RETURN(schema::StoreRecord store,
                           schema::DecodeStoreRecord(*bytes));
  if (store.format > schema::kFormatNumber) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "the store has format %d, this engine reads up to %d: use a newer one",
        store.format, schema::kFormatNumber));
  }
  for (const std::string& feature : store.incompat) {
    if (!IsKnownFeature(feature)) {
      return absl::FailedPreconditionError(absl::StrFormat(
          "the store uses '%s', which this engine does not know: use a newer "
          "one",
          feature));
    }
  }
  return store;
}

std::string ReadOnlyFeature(const schema::StoreRecord& store) {
  for (const std::string& feature : store.ro_compat) {
    if (!IsKnownFeature(feature)) return feature;
  }
  return "";
}

const kv::LiveFile* FileOfSegment(const std::vector<kv::LiveFile>& files,
                                  const schema::SegmentKeyFields& segment) {
  return FileOfKeys(files, segment.space, schema::SegmentHeaderKey(segment),
                    schema::SegmentTableKey(segment));
}

const kv::LiveFile* FileOfKeys(const std::vector<kv::LiveFile>& files,
                               Space space, std::string_view first_key,
                               std::string_view last_key) {
  // The last file that begins at or before the segment's first key.
  const auto it = std::upper_bound(
      files.begin(), files.end(), std::pair(space, first_key),
      [](const auto& wanted, const kv::LiveFile& file) {
        return wanted < std::pair(file.space, std::string_view(file.first_key));
      });
  if (it == files.begin()) return nullptr;
  const kv::LiveFile& file = *std::prev(it);
  return file.space == space && file.last_key >= last_key ? &file : nullptr;
}

absl::StatusOr<std::vector<kv::LiveFile>> SortedLiveFiles(
    const kv::Database& database) {
  CKPTREE_ASSIGN_OR_RETURN(std::vector<kv::LiveFile> files,
                           database.LiveFiles());
  std::sort(files.begin(), files.end(),
            [](const kv::LiveFile& a, const kv::LiveFile& b) {
              return std::pair(a.space, std::string_view(a.first_key)) <
                     std::pair(b.space, std::string_view(b.first_key));
            });
  return files;
}

std::string UuidOfStoreRow(std::string_view key, std::string_view value) {
  if (key != schema::StoreKey()) return "";
  const absl::StatusOr<schema::StoreRecord> record =
      schema::DecodeStoreRecord(value);
  return record.ok() ? record->uuid : "";
}

absl::StatusOr<OpenFindings> CheckStore(const kv::Database& database,
                                        const kv::OpenReport& report) {
  OpenFindings findings;
  CKPTREE_ASSIGN_OR_RETURN(findings.store, ReadStoreRecord(database));
  const std::string_view uuid(reinterpret_cast<const char*>(report.uuid.data()),
                              report.uuid.size());
  if (findings.store.uuid != uuid) {
    return absl::DataLossError("the journal belongs to another store");
  }
  findings.read_only_feature = ReadOnlyFeature(findings.store);
  // Beside a live writer a commit may be seen before its segments; the reader
  // refreshes before it reads.
  if (!database.following()) {
    CKPTREE_ASSIGN_OR_RETURN(findings.damage, SegmentDamage(database));
  }
  return findings;
}

absl::StatusOr<std::vector<std::string>> SegmentDamage(
    const kv::Database& database) {
  std::vector<std::string> damage;
  CKPTREE_RETURN_IF_ERROR(ForEachMissing(
      database, [&](std::string_view key,
                    const std::optional<schema::SegmentKeyFields>& fields,
                    const kv::LiveFile* file) {
        const std::string name = schema::DescribeKey(Space::kRecords, key);
        if (!fields.has_value()) {
          damage.push_back(name + ": no segment row has such a key");
          return;
        }
        damage.push_back(absl::StrFormat(
            "%s%s: %s", name, StepsText(database, {fields->version}),
            file == nullptr ? std::string("no file holds it")
                            : file->path + " is missing or cut short"));
      }));
  return damage;
}

absl::StatusOr<bool> AllSegmentsAreThere(const kv::Database& database) {
  bool all = true;
  CKPTREE_RETURN_IF_ERROR(ForEachMissing(
      database,
      [&all](std::string_view, const std::optional<schema::SegmentKeyFields>&,
             const kv::LiveFile*) { all = false; }));
  return all;
}

absl::StatusOr<std::vector<std::string>> MissingSegments(
    const kv::Database& database) {
  std::vector<std::string> keys;
  CKPTREE_RETURN_IF_ERROR(ForEachMissing(
      database, [&keys](std::string_view key,
                        const std::optional<schema::SegmentKeyFields>& fields,
                        const kv::LiveFile*) {
        if (fields.has_value()) keys.emplace_back(key);
      }));
  return keys;
}

absl::StatusOr<int> DropUnlistedFiles(kv::Database* database) {
  CKPTREE_ASSIGN_OR_RETURN(const std::vector<kv::LiveFile> files,
                           database->LiveFiles());
  std::vector<const kv::LiveFile*> unlisted;
  for (const kv::LiveFile& file : files) {
    if (file.far) continue;
    const auto first = schema::DecodeBlockKey(file.first_key);
    const auto last = schema::DecodeBlockKey(file.last_key);
    // What cannot be understood is kept.
    if (!first.has_value() || !last.has_value()) continue;
    if (first->version != last->version || first->part != last->part ||
        schema::BuilderOf(first->n) != schema::BuilderOf(last->n)) {
      continue;  // Merged from several segments.
    }
    CKPTREE_ASSIGN_OR_RETURN(
        const std::optional<std::string> row,
        database->Get(
            Space::kRecords,
            schema::SegmentKey(first->version, first->part, file.space,
                               schema::BuilderOf(first->n))));
    if (!row.has_value()) unlisted.push_back(&file);
  }
  if (unlisted.empty()) return 0;
  CKPTREE_RETURN_IF_ERROR(database->Secure());
  for (const kv::LiveFile* file : unlisted) {
    // The bound is exclusive: the table key is the largest of its segment.
    CKPTREE_RETURN_IF_ERROR(database->Drop(
        file->space, {{file->first_key, file->last_key + '\0'}}));
  }
  return static_cast<int>(unlisted.size());
}

}  // namespace ckptree::internal
