// SPDX-License-Identifier: Apache-2.0

#include "core/remote/index_check.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "base/digest.h"
#include "base/status_macros.h"
#include "core/remote/remote_objects.h"
#include "schema/limits.h"
#include "schema/remote_record.h"

namespace ckptree::internal {
namespace {

// Older ones are deleted, together with what they name.
constexpr std::size_t kIndexesThatStay = 2;

absl::StatusOr<std::vector<kv::ObjectInfo>> NewestIndexes(
    kv::ObjectStore& store, const std::string& uuid, const kv::Call& call) {
  CKPTREE_ASSIGN_OR_RETURN(kv::ObjectPage page,
                           store.List(RemoteIndexPrefix(uuid), "", call));
  page.objects.resize(std::min(page.objects.size(), kIndexesThatStay));
  return std::move(page.objects);
}

// kDataLoss: it is damaged. Nothing: it was deleted since.
absl::StatusOr<std::optional<schema::RemoteIndex>> ReadIndex(
    kv::ObjectStore& store, const std::string& uuid, const kv::ObjectInfo& info,
    const kv::Call& call) {
  const auto damaged = [&](const std::string& what) {
    return absl::DataLossError(
        absl::StrFormat("%s in %s: %s", info.name, store.address(), what));
  };
  if (info.size > static_cast<std::uint64_t>(schema::kMaxRecordBytes)) {
    return damaged("no index is as large");
  }
  CKPTREE_ASSIGN_OR_RETURN(const std::optional<std::string> bytes,
                           GetKnown(store, info.name, info.size, call));
  if (!bytes.has_value()) return std::nullopt;
  absl::StatusOr<schema::RemoteIndex> index = schema::DecodeRemoteIndex(*bytes);
  if (absl::IsFailedPrecondition(index.status())) return index.status();
  if (!index.ok()) {
    return damaged(std::string(index.status().message()));
  }
  if (index->uuid != uuid ||
      !info.name.starts_with(RemoteIndexPrefix(uuid, index->ordinal))) {
    return damaged("it is the index of another commit or store");
  }
  return *std::move(index);
}

absl::Status CheckRuns(kv::ObjectStore& store, const std::string& uuid,
                       const schema::RemoteIndex& index, const kv::Call& call) {
  for (const auto& run : index.runs) {
    for (const schema::RemoteRunObject& object : run) {
      const std::string name = RemoteRunName(uuid, object);
      CKPTREE_ASSIGN_OR_RETURN(
          const std::optional<std::string> bytes,
          GetKnown(store, name, object.object.bytes, call));
      if (!bytes.has_value()) {
        return absl::DataLossError(
            absl::StrFormat("%s is missing in %s", name, store.address()));
      }
      if (bytes->size() != object.object.bytes ||
          base::DigestOf(*bytes) != object.object.digest) {
        return absl::DataLossError(absl::StrFormat(
            "%s in %s is not what was put there", name, store.address()));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckIndexes(kv::ObjectStore& store, const std::string& uuid,
                          const kv::Call& call,
                          std::vector<std::string>* found) {
  CKPTREE_ASSIGN_OR_RETURN(const std::vector<kv::ObjectInfo> indexes,
                           NewestIndexes(store, uuid, call));
  for (std::size_t i = 0; i < indexes.size(); ++i) {
    const auto index = ReadIndex(store, uuid, indexes[i], call);
    absl::Status status = index.status();
    if (index.ok() && index->has_value() && i == 0) {
      status = CheckRuns(store, uuid, **index, call);
    }
    if (status.ok()) continue;
    if (!absl::IsDataLoss(status)) return status;
    // A writer may have put newer ones there, and deleted what this one names.
    CKPTREE_ASSIGN_OR_RETURN(const std::vector<kv::ObjectInfo> now,
                             NewestIndexes(store, uuid, call));
    if (i >= now.size() || now[i].name != indexes[i].name) {
      return absl::OkStatus();
    }
    found->push_back(absl::StrFormat(
        "%s; no step is hurt: an index says again what the commits say, and an "
        "open reads those",
        std::string(status.message())));
  }
  return absl::OkStatus();
}

}  // namespace ckptree::internal
