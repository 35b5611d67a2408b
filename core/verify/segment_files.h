// SPDX-License-Identifier: Apache-2.0

// Reads every segment and its file once: headers, tables, counts and bytes are
// those of the segment's row, and every block of a file passes its checksum.

#ifndef CKPTREE_CORE_VERIFY_SEGMENT_FILES_H_
#define CKPTREE_CORE_VERIFY_SEGMENT_FILES_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/verify/verify_walk.h"
#include "kv/database.h"
#include "schema/keys.h"
#include "schema/segment_record.h"

namespace ckptree::internal {

struct SegmentFileOptions {
  // What CheckUpTo() reads ahead: it is to be in the page cache when its chunks
  // are read. At least one file.
  std::size_t bytes_ahead = 0;
  // Asked by the thread that calls: kCancelled. Null: never.
  std::function<bool()> cancelled = {};
};

// All calls but List() run in a TBB arena, one at a time.
class SegmentFiles {
 public:
  // `rows`: of `records`. What no save of these rows has, Finish() reports.
  // `database` outlives it.
  static absl::StatusOr<SegmentFiles> List(const kv::Database& database,
                                           kv::Iterator* rows,
                                           SegmentFileOptions options);

  // Of the files of `chunks` that are here; and of those that were checked.
  std::uint64_t bytes() const { return bytes_; }
  std::uint64_t checked_bytes() const { return checked_bytes_; }

  // Checks the files of `chunks` up to the one that may have `key`, and those
  // behind it while they are fewer than `bytes_ahead`. A file is read from its
  // disk, past the page cache, and is in that afterwards: who reads its chunks
  // next does not read the disk again. Returns the first key that is not
  // reached; empty where all are. What is elsewhere is left to Finish().
  absl::StatusOr<std::string> CheckUpTo(std::string_view key);

  // Checks the rest, and tells what is wrong with any. Files that belong to no
  // row are reported, but for those of versions after `newest_settled`. `far`:
  // also what is elsewhere alone. An object store that does not answer is the
  // error, behind all else that was found.
  absl::Status Finish(std::uint64_t newest_settled, bool far, Damage* damage);

 private:
  // A segment by its row.
  struct Segment {
    std::string key;
    schema::SegmentKeyFields fields;
    schema::SegmentRow row;
    bool has_file = false;
    VerifyReport report;  // Of its check.
    absl::Status silent;  // Not OK: the object store that it is in.
  };
  struct File {
    kv::LiveFile file;
    std::vector<std::size_t> segments;
    bool checked = false;
    absl::Status status;  // OK of one that is not whole.
  };

  SegmentFiles(const kv::Database& database, SegmentFileOptions options)
      : database_(&database), options_(std::move(options)) {}

  absl::Status CheckFiles(const std::vector<std::size_t>& files);
  absl::Status CheckSegments(const std::vector<std::size_t>& segments);
  // Calls `check` with each of `which`, at once; an error or a cancel ends it.
  absl::Status Each(const std::vector<std::size_t>& which,
                    const std::function<absl::Status(std::size_t)>& check);
  absl::StatusOr<bool> CheckLeafCopies(Damage* damage);

  const kv::Database* database_;
  SegmentFileOptions options_;
  std::vector<Segment> segments_;
  std::vector<File> files_;  // Ascending by space and first key.
  // Of `files_`, those of `chunks` that are here; the first not yet checked.
  std::vector<std::size_t> ahead_;
  std::size_t next_ = 0;
  std::uint64_t bytes_ = 0;
  std::uint64_t checked_bytes_ = 0;
};

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_VERIFY_SEGMENT_FILES_H_
