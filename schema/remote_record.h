// SPDX-License-Identifier: Apache-2.0

// What stands in an object store beside segments: which store it is of, its
// commits, rows that are too many for a commit, and indexes of all rows; and
// what a directory says of a segment that is there alone.

#ifndef CKPTREE_SCHEMA_REMOTE_RECORD_H_
#define CKPTREE_SCHEMA_REMOTE_RECORD_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/digest.h"
#include "schema/keys.h"
#include "schema/spaces.h"

namespace ckptree::schema {

// The object `store`.
struct RemoteStore {
  std::string uuid;  // Of the store: the first part of all other names.
  std::string created_by;

  friend bool operator==(const RemoteStore&, const RemoteStore&) = default;
};

// A row as a commit leaves it.
struct RemoteRow {
  Space space = Space::kRecords;  // kRecords or kSmall.
  std::string key;
  std::optional<std::string> value;  // Nothing: it is deleted.

  friend bool operator==(const RemoteRow&, const RemoteRow&) = default;
};

// 16 random bytes: no two tries ever share a name.
inline constexpr std::size_t kRemoteIdBytes = 16;

// Where the value of a block stands in its segment.
struct RemoteBlock {
  std::uint32_t sequence = 0;  // Neither the header nor the table.
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;

  friend bool operator==(const RemoteBlock&, const RemoteBlock&) = default;
};

// A segment that was uploaded for the commit.
struct RemoteSegment {
  SegmentKeyFields segment{};
  std::string attempt;  // kRemoteIdBytes.
  std::uint64_t bytes = 0;
  base::Digest digest;  // Of all of them.
  // Of kChunks, ascending in both. Empty: only the segment itself says it.
  std::vector<RemoteBlock> blocks = {};
};

// An object of rows that was uploaded for the commit.
struct RemoteRowsObject {
  std::string attempt;
  std::uint64_t bytes = 0;
  base::Digest digest;
};

struct RemoteCommit {
  enum class Shape : std::uint8_t {  // ON DISK: never renumber.
    kOpen = 1,                       // A writer takes the store over.
    kShip = 2,                       // Rows of local commits.
    kClose = 3,                      // The writer is done.
  };
  Shape shape = Shape::kOpen;
  std::string uuid;
  std::uint64_t ordinal = 0;  // From 1.
  base::Digest before;        // Of the bytes of the commit before; or zeros.
  std::string write_id;       // kRemoteIdBytes.
  std::uint64_t era = 0;      // The ordinal of the writer's open.
  std::string local;          // kRemoteIdBytes: the directory it ships from.
  // Ordinals of that directory: its rows up to `to` are those of the chain up
  // to here. Of an open 0 where they are not.
  std::uint64_t from = 0;
  std::uint64_t to = 0;
  std::uint64_t ceiling = 0;  // No version above it was used by then.
  std::int64_t made_ns = 0;
  std::string host;
  std::uint64_t pid = 0;
  std::vector<RemoteRow> rows;
  std::vector<RemoteRowsObject> rows_objects;  // In this order, before `rows`.
  std::vector<RemoteSegment> segments;
};

// A segment that a living row names, and the era its object's name has.
struct RemoteLiving {
  RemoteSegment segment;
  std::uint64_t era = 0;
};

// A segment of a directory that is in the object store of that address alone.
struct FarSegment {
  RemoteLiving living;  // Of kChunks.
  std::string address;  // Not empty.
};

// What commits behind each other come to, or a piece of that.
struct RemoteRun {
  std::vector<RemoteRow> rows;         // Ascending by space and key.
  std::vector<RemoteLiving> segments;  // Of rows of it, by the keys of those.
};

struct RemoteRunObject {
  RemoteRowsObject object;
  std::uint64_t era = 0;  // That its name has.
};

// What the chain says of a directory.
struct RemoteDirectory {
  std::string local;
  std::uint64_t to = 0;     // Of its newest commit with a `to`; 0: none.
  std::uint64_t to_at = 0;  // The ordinal of that one.
  // Of its newest ship, and who made that; 0: none.
  std::uint64_t shipped_at = 0;
  std::string host;
  std::uint64_t pid = 0;

  friend bool operator==(const RemoteDirectory&,
                         const RemoteDirectory&) = default;
};

// An object that nothing needs since the commit `at`, or before.
struct RemoteDead {
  std::string name;  // Without the uuid.
  std::uint64_t at = 0;

  friend bool operator==(const RemoteDead&, const RemoteDead&) = default;
};

// All rows as of a commit.
struct RemoteIndex {
  std::string uuid;
  std::uint64_t ordinal = 0;
  base::Digest hash;  // Of the bytes of that commit.
  std::uint64_t ceiling = 0;
  std::vector<RemoteDirectory> directories;
  // Oldest first; each is objects whose rows ascend from one to the next.
  std::vector<std::vector<RemoteRunObject>> runs;
  RemoteRun newest;  // Behind them.
  std::vector<RemoteDead> dead;
  std::vector<std::string> rows_objects;  // Names that commits list.
};

std::string EncodeFarSegment(const FarSegment& far);
absl::StatusOr<FarSegment> DecodeFarSegment(std::string_view bytes);
std::string EncodeRemoteStore(const RemoteStore& store);
absl::StatusOr<RemoteStore> DecodeRemoteStore(std::string_view bytes);
std::string EncodeRemoteRows(const std::vector<RemoteRow>& rows);
absl::StatusOr<std::vector<RemoteRow>> DecodeRemoteRows(std::string_view bytes);
std::string EncodeRemoteRun(const RemoteRun& run);
absl::StatusOr<RemoteRun> DecodeRemoteRun(std::string_view bytes);
std::string EncodeRemoteIndex(const RemoteIndex& index);
absl::StatusOr<RemoteIndex> DecodeRemoteIndex(std::string_view bytes);
std::string EncodeRemoteCommit(const RemoteCommit& commit);
// kDataLoss where it is not whole or contradicts itself; whether it goes on
// from the one before is for the reader of the chain.
absl::StatusOr<RemoteCommit> DecodeRemoteCommit(std::string_view bytes);

}  // namespace ckptree::schema

#endif  // CKPTREE_SCHEMA_REMOTE_RECORD_H_
