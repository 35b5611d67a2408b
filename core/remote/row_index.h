// SPDX-License-Identifier: Apache-2.0

// All rows of a chain as of one of its commits, as objects: what an open reads
// in place of the commits up to there.

#ifndef CKPTREE_CORE_REMOTE_ROW_INDEX_H_
#define CKPTREE_CORE_REMOTE_ROW_INDEX_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/digest.h"
#include "kv/object_store.h"
#include "schema/remote_record.h"
#include "schema/spaces.h"

namespace ckptree::internal {

using RowName = std::pair<schema::Space, std::string>;
// Rows that say something of one directory alone: no commit of a chain has
// them.
inline bool IsOfTheDirectory(schema::Space space, std::string_view key) {
  return space == schema::Space::kRecords && !key.empty() &&
         key.front() == static_cast<char>(schema::Row::kFar);
}

using TakeRowFn = absl::FunctionRef<absl::Status(const schema::RemoteRow& row)>;

// A commit that was seen.
struct ChainPoint {
  std::uint64_t ordinal = 0;
  base::Digest hash;

  friend bool operator==(const ChainPoint&, const ChainPoint&) = default;
};

// The newest index that is there whole, nothing where none is. Not whether the
// chain has its commit. Those that are damaged are passed over: an index says
// nothing that the commits do not say.
absl::StatusOr<std::optional<schema::RemoteIndex>> FindRemoteIndex(
    kv::ObjectStore& store, const std::string& uuid, const kv::Call& call);

// Calls `take` for each row of the commit, in their order; rows that stand in
// objects of their own are fetched.
absl::Status ForEachRow(const schema::RemoteCommit& commit,
                        kv::ObjectStore& store, const kv::Call& call,
                        TakeRowFn take);

// What commits come to, one added after the other: which segments live, what
// was shipped from where, and what an index of it has to say.
//
// Like a tree of sorted runs: rows of the newest commits stand in the index
// itself, and become a run where they are many; a run that is not much smaller
// than the one before it is merged with that. Each commit is then in few
// objects, and a row is written again a few times.
//
// Confined to one thread at a time.
class RowIndex {
 public:
  // Of the store `uuid`. `keeps_rows`: an index is to be written.
  RowIndex(std::string uuid, bool keeps_rows)
      : uuid_(std::move(uuid)), keeps_rows_(keeps_rows) {}

  // As of `index`. `take` sees all rows, those of older commits first: a later
  // one of a name counts. REQUIRES: nothing was added. kDataLoss, kNotFound:
  // an object of it is not as it was; this has nothing to say then.
  absl::Status Start(schema::RemoteIndex index, kv::ObjectStore& store,
                     const kv::Call& call, TakeRowFn take);
  // The next commit. `take` sees its rows.
  absl::Status Add(const schema::RemoteCommit& commit, kv::ObjectStore& store,
                   const kv::Call& call, TakeRowFn take);
  // The same of one whose rows are at hand: `commit` may be without them. It
  // may be added again where something was thrown; one that was added is passed
  // over.
  absl::Status AddWithRows(const schema::RemoteCommit& commit,
                           const std::vector<schema::RemoteRow>& rows);

  // A segment whose row was there before all that is added.
  void Know(const std::string& row_key, const schema::RemoteLiving& living) {
    segments_[row_key] = living;
  }

  // Of the newest commit, and of that of the newest index; 0: of none.
  std::uint64_t ordinal() const { return ordinal_; }
  std::uint64_t written() const { return written_; }
  std::uint64_t ceiling() const { return ceiling_; }
  // By the key of the row.
  const std::map<std::string, schema::RemoteLiving>& segments() const {
    return segments_;
  }
  const std::vector<schema::RemoteDirectory>& directories() const {
    return directories_;
  }

  // ---- what nothing needs any more (tests/remote/deletion_model.py) ----

  // Names of objects, without the uuid. Those that commits, living rows and
  // this index name.
  std::set<std::string> Needed() const;
  // The next index lists it. Once: what is listed already is passed over.
  void Mark(std::string name);
  // An index that is there, newer than all that were told before; the two
  // newest stay, and the others are marked.
  void NoteIndex(std::string name);
  // Dead since the commit `at`, or an earlier one, and listed in an index that
  // was answered. `at` is of this writer, or was known before it opened.
  std::vector<schema::RemoteDead> Dead() const;
  bool HasDead() const;  // That it is not empty.
  void Deleted(const std::vector<std::string>& names);

  // Writes an index as of the newest commit, which has the bytes of `hash`.
  // After an error none is there, or one that is whole; it may be tried again.
  // REQUIRES: keeps_rows.
  absl::Status Write(const base::Digest& hash, std::uint64_t era,
                     kv::ObjectStore& store, const std::stop_token& stop);

 private:
  // Rows of a run, ascending, object by object.
  class RunReader;
  using Rows = std::map<RowName, std::optional<std::string>>;
  using Run = std::vector<schema::RemoteRunObject>;

  absl::Status AddRow(
      const schema::RemoteRow& row, const schema::RemoteCommit& commit,
      const std::map<std::string, schema::RemoteLiving>& uploaded);
  void Count(const schema::RemoteCommit& commit);
  schema::RemoteRun NewestRun() const;
  // The newest rows become a run, with those of runs that are not much larger.
  absl::Status Spill(std::uint64_t era, kv::ObjectStore& store,
                     const std::stop_token& stop);

  const std::string uuid_;
  const bool keeps_rows_;
  std::uint64_t ordinal_ = 0;
  std::uint64_t written_ = 0;
  std::uint64_t ceiling_ = 0;
  std::map<std::string, schema::RemoteLiving> segments_;
  std::vector<schema::RemoteDirectory> directories_;
  std::vector<std::string> rows_objects_;
  std::vector<std::string> indexes_;  // Not marked; the newest one last.
  std::vector<schema::RemoteDead> dead_;
  std::size_t listed_ = 0;  // So many of them an index lists.
  std::set<std::string> marked_;
  std::vector<Run> runs_;
  // Behind the runs; the segments among them whose upload no run has.
  Rows newest_;
  std::map<std::string, schema::RemoteLiving> newest_segments_;
  std::size_t newest_bytes_ = 0;  // At most.
};

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_REMOTE_ROW_INDEX_H_
