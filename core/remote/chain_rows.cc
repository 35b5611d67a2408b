// SPDX-License-Identifier: Apache-2.0

#include "core/remote/chain_rows.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "base/digest.h"
#include "base/status_macros.h"
#include "core/remote/remote_objects.h"
#include "kv/database.h"
#include "schema/keys.h"
#include "schema/remote_record.h"

namespace ckptree::internal {

using schema::RemoteCommit;
using schema::RemoteRow;

absl::Status ForEachRow(
    const RemoteCommit& commit, kv::ObjectStore& store, const kv::Call& call,
    absl::FunctionRef<absl::Status(const RemoteRow& row)> take) {
  for (const schema::RemoteRowsObject& object : commit.rows_objects) {
    const std::string name = RemoteRowsName(commit.uuid, commit.era, object);
    CKPTREE_ASSIGN_OR_RETURN(
        const std::string bytes,
        GetChecked(store, name, object.bytes, object.digest, call));
    absl::StatusOr<std::vector<RemoteRow>> rows =
        schema::DecodeRemoteRows(bytes);
    if (!rows.ok()) {
      return absl::Status(
          rows.status().code(),
          absl::StrFormat("%s: %s", name, rows.status().message()));
    }
    for (const RemoteRow& row : *rows) CKPTREE_RETURN_IF_ERROR(take(row));
  }
  for (const RemoteRow& row : commit.rows) CKPTREE_RETURN_IF_ERROR(take(row));
  return absl::OkStatus();
}

absl::Status ChainRows::Add(
    const RemoteCommit& commit, kv::ObjectStore& store, const kv::Call& call,
    absl::FunctionRef<absl::Status(const RemoteRow& row)> take) {
  for (const schema::RemoteSegment& segment : commit.segments) {
    const schema::SegmentKeyFields& fields = segment.segment;
    uploaded_[schema::SegmentKey(fields.version, fields.part, fields.space,
                                 fields.builder)] = {segment, commit.era};
  }
  const auto add = [&](const RemoteRow& row) -> absl::Status {
    CKPTREE_RETURN_IF_ERROR(take(row));
    const RowName name(row.space, row.key);
    const bool of_segment = row.space == schema::Space::kRecords &&
                            schema::DecodeSegmentKey(row.key).has_value();
    if (!row.value.has_value()) {
      rows_.erase(name);
      if (of_segment) segments_.erase(row.key);
      return absl::OkStatus();
    }
    rows_[name] = base::DigestOf(*row.value);
    if (!of_segment || segments_.contains(row.key)) {
      return absl::OkStatus();
    }
    const auto uploaded = uploaded_.find(row.key);
    if (uploaded == uploaded_.end()) {
      return absl::DataLossError(absl::StrFormat(
          "commit %d in %s has a row of %s, which was not uploaded",
          commit.ordinal, store.address(),
          schema::DescribeKey(row.space, row.key)));
    }
    segments_[row.key] = uploaded->second;
    return absl::OkStatus();
  };
  CKPTREE_RETURN_IF_ERROR(ForEachRow(commit, store, call, add));
  uploaded_.clear();
  ceiling_ = std::max(ceiling_, commit.ceiling);
  RemoteCommit bare = commit;
  bare.rows.clear();
  bare.rows_objects.clear();
  bare.segments.clear();
  const bool ships = commit.shape == RemoteCommit::Shape::kShip;
  if (commit.local == local_ && commit.to > 0) {
    place_ = commit.to;
    other_.reset();
  } else if (ships && commit.local != local_) {
    other_ = bare;
  }
  if (ships) newest_ship_ = std::move(bare);
  return absl::OkStatus();
}

absl::StatusOr<std::optional<std::uint64_t>> ChainRows::PlaceOf(
    const std::string& directory, const std::string& address,
    std::uint64_t ordinal) const {
  if (!newest_ship_.has_value()) return 0;
  if (place_ == 0) return std::nullopt;
  if (ordinal < place_) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "%s ends at its commit %d, and %s has its commits up to %d: it is an "
        "older copy of itself. Take the store from there: open an empty "
        "directory with this remote",
        directory, ordinal, address, place_));
  }
  if (!other_.has_value()) return place_;
  const std::string who =
      absl::StrFormat("host %s, pid %d", other_->host, other_->pid);
  if (ordinal == place_) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "%s went on in %s (%s) after this directory was shipped, all of it: "
        "remove %s, and open it again with this remote, which fetches the "
        "store from there",
        "another machine", address, who, directory));
  }
  return absl::FailedPreconditionError(absl::StrFormat(
      "diverged: %s has commits %d to %d, which were not shipped, and another "
      "machine (%s) has shipped its own to %s since. Nothing of both is lost: "
      "open the directory without a remote to read it, and copy what is "
      "to stay; an empty directory with this remote fetches the other",
      directory, place_ + 1, ordinal, who, address));
}

absl::StatusOr<std::set<RowName>> ChainRows::Differences(
    const kv::Database& database) const {
  std::set<RowName> differ;
  std::uint64_t same = 0;
  for (const schema::Space space :
       {schema::Space::kRecords, schema::Space::kSmall}) {
    CKPTREE_ASSIGN_OR_RETURN(kv::Iterator row, database.Scan(space, "", ""));
    for (; row.Valid(); row.Next()) {
      const RowName name(space, std::string(row.key()));
      const auto there = rows_.find(name);
      if (there == rows_.end() ||
          there->second != base::DigestOf(row.value())) {
        differ.insert(name);
      }
      same += there != rows_.end();
    }
    CKPTREE_RETURN_IF_ERROR(row.status());
  }
  if (same == rows_.size()) return differ;
  for (const auto& [name, digest] : rows_) {
    CKPTREE_ASSIGN_OR_RETURN(const std::optional<std::string> value,
                             database.Get(name.first, name.second));
    if (!value.has_value()) differ.insert(name);
  }
  return differ;
}

}  // namespace ckptree::internal
