// SPDX-License-Identifier: Apache-2.0

// What the commits of a chain come to: which rows there are, which segments,
// and whose local commits they hold.

#ifndef CKPTREE_CORE_REMOTE_CHAIN_ROWS_H_
#define CKPTREE_CORE_REMOTE_CHAIN_ROWS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/digest.h"
#include "kv/database.h"
#include "kv/object_store.h"
#include "schema/remote_record.h"
#include "schema/spaces.h"

namespace ckptree::internal {

using RowName = std::pair<schema::Space, std::string>;

// A segment that a living row names, and the era its object's name has.
struct LivingSegment {
  schema::RemoteSegment segment;
  std::uint64_t era = 0;
};

// Calls `take` for each row of the commit, in their order; rows that stand in
// objects of their own are fetched.
absl::Status ForEachRow(
    const schema::RemoteCommit& commit, kv::ObjectStore& store,
    const kv::Call& call,
    absl::FunctionRef<absl::Status(const schema::RemoteRow& row)> take);

// Confined to one thread at a time.
class ChainRows {
 public:
  // What commits say of the directory `local`.
  explicit ChainRows(std::string local) : local_(std::move(local)) {}

  // The next one. `take` sees each of its rows, too.
  absl::Status Add(
      const schema::RemoteCommit& commit, kv::ObjectStore& store,
      const kv::Call& call,
      absl::FunctionRef<absl::Status(const schema::RemoteRow& row)> take);

  // Digests of the values of all rows.
  const std::map<RowName, base::Digest>& rows() const { return rows_; }
  // By the key of the row.
  const std::map<std::string, LivingSegment>& segments() const {
    return segments_;
  }
  std::uint64_t ceiling() const { return ceiling_; }
  bool ships_anything() const { return newest_ship_.has_value(); }

  // Rules 10 and 11 of tests/remote/model.py: up to which of its commits the
  // directory, which is at `ordinal`, was shipped; nothing where only its rows
  // can tell: equal ones are, all else is kFailedPrecondition.
  // kFailedPrecondition, naming the directory and the other: it must not go on.
  absl::StatusOr<std::optional<std::uint64_t>> PlaceOf(
      const std::string& directory, const std::string& address,
      std::uint64_t ordinal) const;
  // The names of rows in which the database is another than the chain.
  absl::StatusOr<std::set<RowName>> Differences(
      const kv::Database& database) const;

 private:
  const std::string local_;
  std::map<RowName, base::Digest> rows_;
  std::map<std::string, LivingSegment> segments_;
  std::map<std::string, LivingSegment> uploaded_;  // Whose row is to come.
  std::uint64_t ceiling_ = 0;
  std::uint64_t place_ = 0;  // Of `local_`.
  // Of another directory, after the newest of `local_`.
  std::optional<schema::RemoteCommit> other_;
  std::optional<schema::RemoteCommit> newest_ship_;  // Without rows.
};

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_REMOTE_CHAIN_ROWS_H_
