// SPDX-License-Identifier: Apache-2.0

#include "core/remote/chain_rows.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "base/digest.h"
#include "base/status_macros.h"
#include "core/remote/chain.h"
#include "core/remote/row_index.h"
#include "kv/database.h"
#include "schema/keys.h"
#include "schema/remote_record.h"

namespace ckptree::internal {

using schema::RemoteCommit;
using schema::RemoteRow;

namespace {

// Indexes that are deleted while they are read: a newer one is there then.
constexpr int kIndexAttempts = 3;

}  // namespace

absl::StatusOr<std::optional<schema::RemoteIndex>> GoOnFromIndex(
    RemoteChain* chain, kv::ObjectStore& store, const std::string& uuid,
    const kv::Call& call) {
  CKPTREE_ASSIGN_OR_RETURN(std::optional<schema::RemoteIndex> index,
                           FindRemoteIndex(store, uuid, call));
  if (!index.has_value()) return std::nullopt;
  chain->ExpectTo(index->ordinal);
  const absl::Status known = chain->GoOnFrom(index->ordinal, index->hash, call);
  if (absl::IsDataLoss(known)) return std::nullopt;  // Of another chain.
  CKPTREE_RETURN_IF_ERROR(known);
  return index;
}

bool ShipsAnything(const schema::RemoteIndex& index) {
  return std::any_of(index.directories.begin(), index.directories.end(),
                     [](const auto& one) { return one.shipped_at > 0; });
}

void ChainRows::Note(const RemoteRow& row) {
  if (!keeps_rows_) return;
  RowName name(row.space, row.key);
  if (row.value.has_value()) {
    rows_[std::move(name)] = base::DigestOf(*row.value);
  } else {
    rows_.erase(name);
  }
}

absl::Status ChainRows::Start(RemoteChain* chain, kv::ObjectStore& store,
                              const kv::Call& call, TakeRowFn take) {
  CKPTREE_ASSIGN_OR_RETURN(std::optional<schema::RemoteIndex> index,
                           GoOnFromIndex(chain, store, uuid_, call));
  if (!index.has_value()) return absl::NotFoundError("there is no index");
  return index_->Start(*std::move(index), store, call,
                       [&](const RemoteRow& row) {
                         Note(row);
                         return take(row);
                       });
}

absl::Status ChainRows::Read(RemoteChain* chain, kv::ObjectStore& store,
                             const kv::Call& call, TakeRowFn take,
                             absl::FunctionRef<absl::Status()> again) {
  for (int attempt = 0; attempt < kIndexAttempts; ++attempt) {
    const absl::Status started = Start(chain, store, call, take);
    if (started.ok()) return ReadOn(chain, store, call, take);
    // What is wrong with an index is no matter: the commits are there.
    if (!absl::IsNotFound(started) && !absl::IsDataLoss(started)) {
      return started;
    }
    chain->Forget();
    index_ = std::make_unique<RowIndex>(uuid_, keeps_rows_);
    rows_.clear();
    CKPTREE_RETURN_IF_ERROR(again());
    if (absl::IsNotFound(started)) break;
  }
  return ReadOn(chain, store, call, take);
}

absl::Status ChainRows::ReadOn(RemoteChain* chain, kv::ObjectStore& store,
                               const kv::Call& call, TakeRowFn take) {
  return chain->ReadOn(
      [&](const RemoteCommit& commit) {
        return index_->Add(commit, store, call, [&](const RemoteRow& row) {
          Note(row);
          return take(row);
        });
      },
      call);
}

absl::StatusOr<std::optional<std::uint64_t>> ChainRows::PlaceOf(
    const std::string& local, const std::string& directory,
    const std::string& address, std::uint64_t ordinal) const {
  std::uint64_t place = 0;
  std::uint64_t place_at = 0;
  const schema::RemoteDirectory* other = nullptr;
  bool ships = false;
  for (const schema::RemoteDirectory& one : index_->directories()) {
    ships |= one.shipped_at > 0;
    if (one.local == local) {
      place = one.to;
      place_at = one.to_at;
    } else if (one.shipped_at > 0 &&
               (other == nullptr || other->shipped_at < one.shipped_at)) {
      other = &one;
    }
  }
  if (!ships) return 0;
  if (place == 0) return std::nullopt;
  if (other != nullptr && other->shipped_at < place_at) other = nullptr;
  if (ordinal < place) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "%s ends at its commit %d, and %s has its commits up to %d: it is an "
        "older copy of itself. Take the store from there: open an empty "
        "directory with this remote",
        directory, ordinal, address, place));
  }
  if (other == nullptr) return place;
  const std::string who =
      absl::StrFormat("host %s, pid %d", other->host, other->pid);
  if (ordinal == place) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "%s went on in %s (%s) after this directory was shipped, all of it: "
        "remove %s, and open it again with this remote, which fetches the "
        "store from there",
        "another machine", address, who, directory));
  }
  return absl::FailedPreconditionError(absl::StrFormat(
      "diverged: %s has commits %d to %d, which are not there (any more), and "
      "another machine (%s) has shipped its own to %s since. Nothing of either "
      "is lost: "
      "open the directory without a remote to read it, and copy what is "
      "to stay; an empty directory with this remote fetches the other",
      directory, place + 1, ordinal, who, address));
}

std::uint64_t ChainRows::ShippedAt(const std::string& local) const {
  for (const schema::RemoteDirectory& one : index_->directories()) {
    if (one.local == local) return one.shipped_at;
  }
  return 0;
}

absl::StatusOr<std::set<RowName>> ChainRows::Differences(
    const kv::Database& database) const {
  std::set<RowName> differ;
  std::uint64_t same = 0;
  for (const schema::Space space :
       {schema::Space::kRecords, schema::Space::kSmall}) {
    CKPTREE_ASSIGN_OR_RETURN(kv::Iterator row, database.Scan(space, "", ""));
    for (; row.Valid(); row.Next()) {
      if (IsOfTheDirectory(space, row.key())) continue;
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
    const absl::StatusOr<std::optional<std::string>> value =
        database.Get(name.first, name.second);
    // Damaged here, and whole there: nothing is to be shipped.
    if (absl::IsDataLoss(value.status()) &&
        name.first == schema::Space::kSmall) {
      continue;
    }
    CKPTREE_RETURN_IF_ERROR(value.status());
    if (!value->has_value()) differ.insert(name);
  }
  return differ;
}

}  // namespace ckptree::internal
