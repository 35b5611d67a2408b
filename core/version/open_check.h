// SPDX-License-Identifier: Apache-2.0

// What must hold before a store is opened for writing: step 4 of open.

#ifndef CKPTREE_CORE_VERSION_OPEN_CHECK_H_
#define CKPTREE_CORE_VERSION_OPEN_CHECK_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kv/database.h"
#include "schema/keys.h"
#include "schema/store_record.h"

namespace ckptree::internal {

// Features by name. Blocks of arrays may be coded; of `incompat`.
inline constexpr std::string_view kCodedFeature = "coded";
// Some segments may be elsewhere; of `incompat`.
inline constexpr std::string_view kRemoteFeature = "remote";

struct OpenFindings {
  schema::StoreRecord store;
  std::vector<std::string> damage;  // One line each, names what it hurts.
  std::string read_only_feature;    // An ro_compat feature that is not known.
};

// The store's own record. kFailedPrecondition: a newer format or an unknown
// feature, by name. kDataLoss: it is gone.
absl::StatusOr<schema::StoreRecord> ReadStoreRecord(
    const kv::Database& database);

// The feature because of which this engine may only read; empty for none.
std::string ReadOnlyFeature(const schema::StoreRecord& store);

// The uuid in the row of the store itself; empty: it is another row, or
// damaged.
std::string UuidOfStoreRow(std::string_view key, std::string_view value);

// Reads the store record and compares: the journal's uuid, the format and
// features, each segment row's keys with the live files. kFailedPrecondition: a
// newer format or an unknown feature, by name.
// kDataLoss: the store record itself is gone.
absl::StatusOr<OpenFindings> CheckStore(const kv::Database& database,
                                        const kv::OpenReport& report);

// The files of `leaves` and `chunks`, ascending by space and first key.
absl::StatusOr<std::vector<kv::LiveFile>> SortedLiveFiles(
    const kv::Database& database);

// The live file that covers the whole of a segment, from header to table; null
// where there is none. `files` as SortedLiveFiles() gives.
const kv::LiveFile* FileOfSegment(const std::vector<kv::LiveFile>& files,
                                  const schema::SegmentKeyFields& segment);

// Likewise the one that covers all keys from `first_key` to `last_key`.
const kv::LiveFile* FileOfKeys(const std::vector<kv::LiveFile>& files,
                               schema::Space space, std::string_view first_key,
                               std::string_view last_key);

// One line for each segment that a row names and of which no file has all: what
// it is, and which steps it hurts.
absl::StatusOr<std::vector<std::string>> SegmentDamage(
    const kv::Database& database);

// The keys of the rows of these segments.
absl::StatusOr<std::vector<std::string>> MissingSegments(
    const kv::Database& database);

// Whether a row says that this segment is elsewhere alone.
absl::StatusOr<bool> HasFarRow(const kv::Database& database,
                               const schema::SegmentKeyFields& segment);

// Whether every segment row has a live file that covers it, with its size.
absl::StatusOr<bool> AllSegmentsAreThere(const kv::Database& database);

// Files of `leaves` and `chunks` in which no key belongs to a segment with a
// row: what a crash left between adopting and committing. Drops them, after a
// flush. Returns how many.
absl::StatusOr<int> DropUnlistedFiles(kv::Database* database);

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_VERSION_OPEN_CHECK_H_
