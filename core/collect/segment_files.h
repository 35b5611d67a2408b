// SPDX-License-Identifier: Apache-2.0

// The files that segments stand in, and which of them are worth writing again.

#ifndef CKPTREE_CORE_COLLECT_SEGMENT_FILES_H_
#define CKPTREE_CORE_COLLECT_SEGMENT_FILES_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kv/database.h"
#include "schema/keys.h"
#include "schema/segment_record.h"

namespace ckptree::internal {

struct SegmentFile {
  kv::LiveFile file;
  struct Segment {
    schema::SegmentKeyFields key;
    schema::SegmentRow row;
  };
  // Those in it that have a row, ascending by key.
  std::vector<Segment> segments;
  std::uint64_t live_bytes = 0;
  std::uint64_t dead_bytes = 0;  // Still there; about right.
  std::uint64_t died_at = 0;     // The newest of its segments'.
  // Bytes that a byte of a living block takes in it: less than 1 where blocks
  // are coded. About right.
  double share = 1;
  bool damaged = false;
  bool in_flight = false;  // Of a save that is not committed yet.
  // Elsewhere alone. It stands between its neighbours: a file that was merged
  // of them would seem to have what is in it, too.
  bool far = false;
};

// Ascending by space and key. `version_in_flight` is asked after the files were
// listed, so that a save that adopts in between is not taken for an unlisted
// one.
absl::StatusOr<std::vector<SegmentFile>> ListSegmentFiles(
    const kv::Database& database,
    const std::function<std::uint64_t()>& version_in_flight);

// The living blocks of a file of chunks in key order, each by its key.
std::vector<std::string> LivingBlocks(const SegmentFile& file);

struct RewriteLimits {
  double min_dead_fraction = 0.25;  // 0: every file with a dead byte; 1: none.
  std::uint64_t newest = 0;         // Version.
};

// Neighbours that become one file.
struct RewriteGroup {
  std::vector<SegmentFile> files;
};

// A file is worth it where half of it is dead, or min_dead_fraction and nothing
// in it died for a while (it would soon have to be written once more). Small
// files are merged, oldest first, where there are too many.
std::vector<RewriteGroup> ChooseRewrites(const std::vector<SegmentFile>& files,
                                         const RewriteLimits& limits);

// Whether a file would be a twentieth smaller with its plain blocks of versions
// up to `code_up_to` coded, by a sample of them.
bool WorthPacking(const kv::Database& database, const SegmentFile& file,
                  std::uint64_t code_up_to);

struct RewriteHow {
  std::uint64_t bytes_per_second = 0;
  // Plain blocks of chunks of this version and older become coded where that is
  // worth it; 0: none. REQUIRES otherwise: the store has the feature.
  std::uint64_t code_up_to = 0;
};

struct RewriteResult {
  std::uint64_t bytes_written = 0;
  std::vector<std::string> damaged;  // One line each; nothing was changed.
};

// Writes the group again without what is dead. A damaged file is marked in the
// rows of its segments, by a commit, and left alone from then on. REQUIRES:
// what is committed is flushed. Once `hurry` says so the bound no longer holds:
// somebody waits for the end.
absl::StatusOr<RewriteResult> RewriteGroupOf(
    kv::Database* database, const RewriteGroup& group, const RewriteHow& how,
    const std::function<bool()>& hurry);

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_COLLECT_SEGMENT_FILES_H_
