// SPDX-License-Identifier: Apache-2.0

#include "core/remote/cleaner.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "base/status_macros.h"
#include "core/remote/remote_objects.h"
#include "core/remote/row_index.h"
#include "kv/conditional_put.h"
#include "kv/monotonic.h"
#include "kv/object_store.h"
#include "schema/remote_record.h"

namespace ckptree::internal {
namespace {

// One request takes so many.
constexpr std::size_t kDeletedAtOnce = 1000;
// What ranks say to each other through the store.
constexpr std::string_view kAttempts = "attempt/";
// Between two looks at the clock of the store.
constexpr absl::Duration kMostBetweenLooks = absl::Minutes(5);

// KIND/HH/ERA-..., of segments, rows and runs; index/NEWEST-ERA-...;
// attempt/JOB/ERA/... 0: it is no name that engines give.
std::uint64_t EraOf(std::string_view name) {
  if (name.starts_with(kAttempts)) {
    name.remove_prefix(name.find('/', kAttempts.size()) ==
                               std::string_view::npos
                           ? name.size()
                           : name.find('/', kAttempts.size()) + 1);
    std::uint64_t era = 0;
    return absl::SimpleAtoi(std::string(name.substr(0, name.find('/'))), &era)
               ? era
               : 0;
  }
  const std::size_t slash = name.rfind('/');
  if (slash == std::string_view::npos) return 0;
  std::string_view rest = name.substr(slash + 1);
  if (name.starts_with("index/")) {
    const std::size_t dash = rest.find('-');
    if (dash == std::string_view::npos) return 0;
    rest.remove_prefix(dash + 1);
  }
  std::uint64_t era = 0;
  return absl::SimpleAtoi(std::string(rest.substr(0, rest.find('-'))), &era)
             ? era
             : 0;
}

}  // namespace

absl::StatusOr<absl::Time> RemoteClock(kv::ObjectStore& store,
                                       const std::string& uuid,
                                       const kv::Call& call) {
  const std::string id = kv::NewWriteId();
  const std::string name = absl::StrFormat("%s/clock-%s", HexOf(uuid), id);
  CKPTREE_RETURN_IF_ERROR(store.Put(name, BytesOf(id), call));
  CKPTREE_ASSIGN_OR_RETURN(const std::optional<kv::ObjectInfo> info,
                           store.Head(name, call));
  store.Delete(std::span(&name, 1), call).IgnoreError();
  if (info.has_value()) return info->modified;
  return absl::DataLossError(absl::StrFormat(
      "%s was put to %s and is not there", name, store.address()));
}

// Names of segments, rows and runs are used once, and those of an era before
// that of the open in the chain stand in no commit that is still to come. Of
// indexes also the newest one: before it goes there is one of this writer.
absl::Status RemoteCleaner::Sweep(RowIndex* index, const kv::Call& call) {
  const std::string above = HexOf(uuid_) + "/";
  const std::set<std::string> needed = index->Needed();
  std::map<std::string, std::uint64_t> sizes;  // Of those.
  const auto same_call = [&call] { return call; };
  for (const std::string_view kind : {"segment/", "rows/", "run/", "index/"}) {
    CKPTREE_RETURN_IF_ERROR(
        ForEachObject(*store_, above + std::string(kind), same_call,
                      [&](const kv::ObjectInfo& object) {
                        std::string name = object.name.substr(above.size());
                        const std::uint64_t era = EraOf(name);
                        if (needed.contains(name)) {
                          sizes[std::move(name)] = object.size;
                        } else if (era != 0 && era < era_) {
                          index->Mark(std::move(name));
                        }
                      }));
  }
  for (const auto& [row_key, living] : index->segments()) {
    const auto there =
        sizes.find(RemoteSegmentName("", living.era, living.segment));
    if (there == sizes.end() || there->second != living.segment.bytes) {
      lost_.push_back(row_key);
    }
  }
  return DeleteAttempts(call);
}

absl::Status RemoteCleaner::AbortLeft(const kv::Call& call) {
  const std::string above = HexOf(uuid_) + "/";
  CKPTREE_ASSIGN_OR_RETURN(const std::vector<kv::Upload> uploads,
                           store_->ListUploads(above, call));
  for (const kv::Upload& upload : uploads) {
    if (!upload.name.starts_with(above)) continue;
    const std::uint64_t era = EraOf(upload.name.substr(above.size()));
    if (era == 0 || era >= era_) continue;
    CKPTREE_RETURN_IF_ERROR(store_->AbortUpload(upload, call));
  }
  return absl::OkStatus();
}

// Nobody who counts reads them any more, so they wait for no grace: who was in
// a group of before looks for a newer coordinator where an answer is absent.
absl::Status RemoteCleaner::DeleteAttempts(const kv::Call& call) {
  const std::string above = HexOf(uuid_) + "/";
  std::vector<std::string> old;
  CKPTREE_RETURN_IF_ERROR(ForEachObject(
      *store_, above + std::string(kAttempts), [&call] { return call; },
      [&](const kv::ObjectInfo& object) {
        const std::uint64_t era =
            EraOf(std::string_view(object.name).substr(above.size()));
        if (era != 0 && era < era_) old.push_back(object.name);
      }));
  for (std::size_t at = 0; at < old.size(); at += kDeletedAtOnce) {
    CKPTREE_RETURN_IF_ERROR(store_->Delete(
        std::span(old).subspan(at, std::min(kDeletedAtOnce, old.size() - at)),
        call));
  }
  return absl::OkStatus();
}

absl::Status RemoteCleaner::DeleteDue(
    RowIndex* index, const kv::Call& call,
    absl::FunctionRef<absl::Status()> still_ours) {
  std::vector<schema::RemoteDead> dead = index->Dead();
  if (dead.empty()) return absl::OkStatus();
  std::stable_sort(dead.begin(), dead.end(),
                   [](const auto& a, const auto& b) { return a.at < b.at; });
  CKPTREE_ASSIGN_OR_RETURN(const absl::Time now,
                           RemoteClock(*store_, uuid_, call));
  // Commits are in the order of their time: of the last one that is old enough
  // all before it are.
  std::size_t due = 0;
  std::size_t not_due = dead.size();
  while (due < not_due) {
    const std::size_t middle = due + (not_due - due) / 2;
    CKPTREE_ASSIGN_OR_RETURN(
        const absl::Time since,
        RemoteCommitTime(*store_, uuid_, dead[middle].at, call));
    if (now - since >= grace_) {
      due = middle + 1;
    } else {
      not_due = middle;
    }
  }
  if (due == 0) return absl::OkStatus();
  CKPTREE_RETURN_IF_ERROR(still_ours());
  const std::string above = HexOf(uuid_) + "/";
  const std::set<std::string> needed = index->Needed();
  for (std::size_t at = 0; at < due; at += kDeletedAtOnce) {
    std::vector<std::string> names;
    std::vector<std::string> whole;
    for (std::size_t i = at; i < std::min(due, at + kDeletedAtOnce); ++i) {
      const std::string& name = dead[i].name;
      names.push_back(name);
      // An index that is not what an engine writes deletes nothing that counts.
      const std::uint64_t era = EraOf(name);
      if (era == 0 || era > era_ || name.find("..") != std::string::npos ||
          needed.contains(name)) {
        continue;
      }
      whole.push_back(above + name);
    }
    CKPTREE_RETURN_IF_ERROR(store_->Delete(whole, call));
    index->Deleted(names);
  }
  return absl::OkStatus();
}

void RemoteCleaner::PutOff() {
  next_ = kv::MonotonicNow() + std::min(grace_ / 8, kMostBetweenLooks);
}

absl::Status RemoteCleaner::Look(RowIndex* index, const kv::Call& call) {
  if (looked_ || kv::MonotonicNow() < next_) return absl::OkStatus();
  const absl::Status swept = Sweep(index, call);
  looked_ = swept.ok();
  if (!looked_) {
    PutOff();
    return swept;
  }
  // These take space and nothing else: where they cannot be asked for, as some
  // servers and rights have it, all else goes on.
  const absl::Status aborted = AbortLeft(call);
  if (aborted.ok()) return absl::OkStatus();
  return absl::Status(
      aborted.code(),
      absl::StrFormat("%s: unfinished uploads of earlier writers stay there "
                      "until the next open: %s",
                      store_->address(), aborted.message()));
}

absl::Status RemoteCleaner::Clean(
    RowIndex* index, const kv::Call& call,
    absl::FunctionRef<absl::Status()> still_ours) {
  if (!looked_ || kv::MonotonicNow() < next_) return absl::OkStatus();
  PutOff();
  return DeleteDue(index, call, still_ours);
}

}  // namespace ckptree::internal
