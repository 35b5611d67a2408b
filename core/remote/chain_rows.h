// SPDX-License-Identifier: Apache-2.0

// What the commits of a chain come to: which rows there are, which segments,
// and whose local commits they hold.

#ifndef CKPTREE_CORE_REMOTE_CHAIN_ROWS_H_
#define CKPTREE_CORE_REMOTE_CHAIN_ROWS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/digest.h"
#include "core/remote/chain.h"
#include "core/remote/row_index.h"
#include "kv/database.h"
#include "kv/object_store.h"
#include "schema/remote_record.h"

namespace ckptree::internal {

// Makes `chain`, of which nothing was read yet, go on behind the newest index
// that is in it. Nothing: there is none, and nothing was read.
absl::StatusOr<std::optional<schema::RemoteIndex>> GoOnFromIndex(
    RemoteChain* chain, kv::ObjectStore& store, const std::string& uuid,
    const kv::Call& call);
bool ShipsAnything(const schema::RemoteIndex& index);

// Confined to one thread at a time.
class ChainRows {
 public:
  // Of the store `uuid`. `keeps_rows` as of RowIndex; Differences() needs it.
  ChainRows(std::string uuid, bool keeps_rows)
      : uuid_(std::move(uuid)),
        keeps_rows_(keeps_rows),
        index_(std::make_unique<RowIndex>(uuid_, keeps_rows)) {}

  // Reads `chain`, of which nothing was read yet, from the newest index on that
  // is whole and in it, or from its first commit on, and goes on to its end.
  // `take` sees each row; `again` is called where all that it saw is void.
  absl::Status Read(RemoteChain* chain, kv::ObjectStore& store,
                    const kv::Call& call, TakeRowFn take,
                    absl::FunctionRef<absl::Status()> again);
  // What came since.
  absl::Status ReadOn(RemoteChain* chain, kv::ObjectStore& store,
                      const kv::Call& call, TakeRowFn take);

  RowIndex& index() { return *index_; }
  std::unique_ptr<RowIndex> TakeIndex() { return std::move(index_); }

  // Rules 10 and 11 of tests/remote/model.py: up to which of its commits the
  // directory that is known as `local`, and is at `ordinal`, was shipped;
  // nothing where only its rows can tell: equal ones are, all else is
  // kFailedPrecondition. kFailedPrecondition, naming the directory and the
  // other: it must not go on.
  absl::StatusOr<std::optional<std::uint64_t>> PlaceOf(
      const std::string& local, const std::string& directory,
      const std::string& address, std::uint64_t ordinal) const;
  // The newest commit by which `local` shipped something; 0: none.
  std::uint64_t ShippedAt(const std::string& local) const;
  // The names of rows in which the database is another than the chain.
  absl::StatusOr<std::set<RowName>> Differences(
      const kv::Database& database) const;

 private:
  absl::Status Start(RemoteChain* chain, kv::ObjectStore& store,
                     const kv::Call& call, TakeRowFn take);
  void Note(const schema::RemoteRow& row);

  const std::string uuid_;
  const bool keeps_rows_;
  std::unique_ptr<RowIndex> index_;
  std::map<RowName, base::Digest> rows_;
};

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_REMOTE_CHAIN_ROWS_H_
