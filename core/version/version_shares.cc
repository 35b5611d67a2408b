// SPDX-License-Identifier: Apache-2.0

#include "core/version/version_shares.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "core/version/open_check.h"
#include "core/version/row_scan.h"
#include "core/version/store_features.h"
#include "schema/keys.h"
#include "schema/segment_record.h"

namespace ckptree::internal {
namespace {

// What rows say of a file.
struct OfFile {
  std::uint64_t bytes = 0;
  std::uint64_t dead_bytes = 0;
  std::map<std::uint64_t, std::uint64_t> versions;  // Their living bytes.
};

struct OfVersion {
  double stored = 0;
  double bytes = 0;
};

}  // namespace

absl::StatusOr<std::map<std::uint64_t, double>> SharesByVersion(
    const kv::Database& database) {
  std::map<std::uint64_t, double> shares;
  CKPTREE_ASSIGN_OR_RETURN(const bool coded,
                           HasFeature(database, kCodedFeature));
  if (!coded) return shares;
  CKPTREE_ASSIGN_OR_RETURN(const std::vector<kv::LiveFile> files,
                           SortedLiveFiles(database));
  std::map<const kv::LiveFile*, OfFile> of_files;
  CKPTREE_RETURN_IF_ERROR(
      ScanRows(database, schema::Row::kSegment,
               [&](std::string_view key, std::string_view value) {
                 const auto fields = schema::DecodeSegmentKey(key);
                 const auto row = schema::DecodeSegmentRow(value);
                 // What is wrong with them is told elsewhere.
                 if (!fields.has_value() || !row.ok()) return absl::OkStatus();
                 const kv::LiveFile* const file = FileOfSegment(files, *fields);
                 if (file == nullptr) return absl::OkStatus();
                 OfFile& of = of_files[file];
                 of.bytes += row->bytes;
                 of.dead_bytes += row->dead_bytes;
                 of.versions[fields->version] += row->bytes - row->dead_bytes;
                 return absl::OkStatus();
               }));
  std::map<std::uint64_t, OfVersion> of_versions;
  for (const auto& [file, of] : of_files) {
    // Dead bytes may be gone or not: where the file has less than the living
    // ones it is coded, and they are thought gone.
    const double all = static_cast<double>(
        file->bytes < of.bytes - of.dead_bytes ? of.bytes - of.dead_bytes
                                               : of.bytes);
    if (all <= 0) continue;
    const double share =
        file->space == schema::Space::kChunks
            ? std::min(1.0, static_cast<double>(file->bytes) / all)
            : 1;
    for (const auto& [version, bytes] : of.versions) {
      of_versions[version].stored += share * static_cast<double>(bytes);
      of_versions[version].bytes += static_cast<double>(bytes);
    }
  }
  for (const auto& [version, of] : of_versions) {
    if (of.bytes > 0) shares.emplace(version, of.stored / of.bytes);
  }
  return shares;
}

}  // namespace ckptree::internal
