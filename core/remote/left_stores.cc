// SPDX-License-Identifier: Apache-2.0

#include "core/remote/left_stores.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "ckptree/version.h"
#include "core/remote/remote_objects.h"
#include "kv/conditional_put.h"
#include "kv/object_store.h"
#include "schema/remote_record.h"

namespace ckptree::internal {
namespace {

constexpr std::size_t kUuidDigits = 32;
constexpr std::string_view kCommits = "commit/";
// What no store has before it is named. Proofs and clocks may be of an open
// that names its store in a moment.
constexpr std::array<std::string_view, 5> kPartsOfStores = {
    kCommits, "index/", "rows/", "run/", "segment/"};
// More are not named one by one.
constexpr std::size_t kMostNamed = 8;
// Sorts behind all that begins with a uuid and a slash.
constexpr char kBehindSlash = '/' + 1;

bool IsDigitOfUuid(char c) {
  return absl::ascii_isdigit(static_cast<unsigned char>(c)) ||
         (c >= 'a' && c <= 'f');
}

bool IsUuid(std::string_view text) {
  return text.size() == kUuidDigits && std::ranges::all_of(text, IsDigitOfUuid);
}

// Behind all that is in the folder of the object: in that of a store the one
// below it, as one run may have left thousands of attempts.
std::string BehindFolderOf(const std::string& name) {
  std::size_t slash = name.find('/');
  if (slash != name.npos && IsUuid(std::string_view(name).substr(0, slash))) {
    slash = name.find('/', slash + 1);
  }
  return slash == name.npos ? name : name.substr(0, slash) + kBehindSlash;
}

// The store that an object is a part of.
std::optional<LeftStore> StoreOf(std::string_view name) {
  if (name.size() <= kUuidDigits || name[kUuidDigits] != '/') {
    return std::nullopt;
  }
  const std::string_view uuid = name.substr(0, kUuidDigits);
  const std::string_view rest = name.substr(kUuidDigits + 1);
  if (!IsUuid(uuid) ||
      std::ranges::none_of(kPartsOfStores, [rest](std::string_view part) {
        return rest.starts_with(part);
      })) {
    return std::nullopt;
  }
  return LeftStore{std::string(uuid), rest.starts_with(kCommits)};
}

}  // namespace

bool AtAddress::Has(const std::string& uuid) const {
  return std::ranges::any_of(
      left, [&uuid](const LeftStore& one) { return one.uuid == uuid; });
}

const LeftStore* AtAddress::TheOne() const {
  return left.size() == 1 && left.front().commits ? &left.front() : nullptr;
}

absl::StatusOr<std::vector<LeftStore>> ListStores(kv::ObjectStore& store,
                                                  const kv::Call& call) {
  std::vector<LeftStore> stores;
  std::string after;
  while (true) {
    CKPTREE_ASSIGN_OR_RETURN(const kv::ObjectPage page,
                             store.List("", after, call));
    std::optional<LeftStore> next;
    for (const kv::ObjectInfo& info : page.objects) {
      next = StoreOf(info.name);
      if (next.has_value()) break;
    }
    if (!next.has_value()) {
      if (!page.more || page.objects.empty()) return stores;
      after = BehindFolderOf(page.objects.back().name);
      continue;
    }
    if (stores.size() == kMostNamed) return stores;
    after = next->uuid + kBehindSlash;
    stores.push_back(*std::move(next));
  }
}

std::vector<std::string> StrangersTo(const std::string& uuid,
                                     const std::vector<LeftStore>& stores) {
  std::vector<std::string> strangers;
  for (const LeftStore& one : stores) {
    if (one.uuid != HexOf(uuid)) strangers.push_back(one.uuid);
  }
  return strangers;
}

absl::Status CheckNoOther(kv::ObjectStore& store, const std::string& uuid,
                          const kv::Call& call) {
  CKPTREE_ASSIGN_OR_RETURN(const std::vector<LeftStore> stores,
                           ListStores(store, call));
  // It may have begun since.
  bool has_begun = std::ranges::any_of(stores, [&uuid](const LeftStore& one) {
    return one.commits && one.uuid == HexOf(uuid);
  });
  if (!has_begun && stores.size() == kMostNamed) {
    CKPTREE_ASSIGN_OR_RETURN(
        const kv::ObjectPage own,
        store.List(absl::StrFormat("%s/%s", HexOf(uuid), kCommits), "", call));
    has_begun = !own.objects.empty();
  }
  if (has_begun) return absl::OkStatus();
  const std::vector<std::string> strangers = StrangersTo(uuid, stores);
  if (strangers.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrFormat(
      "in %s the object '%s' names the store %s, of which no commit is there, "
      "and there are objects of the store %s: as where '%s' of another run was "
      "copied over it. Nothing is read or begun there. Put that object back "
      "from a version or a copy of it; where there is none delete it, and the "
      "directory that shipped there, or an open with this remote that has "
      "take_over set, puts it back",
      store.address(), kRemoteStoreName, HexOf(uuid),
      absl::StrJoin(strangers, ", "), kRemoteStoreName));
}

absl::StatusOr<AtAddress> LookAtAddress(kv::ObjectStore& store,
                                        const kv::Call& call) {
  AtAddress found;
  CKPTREE_ASSIGN_OR_RETURN(found.store, FindRemoteStore(store, call));
  if (found.store.has_value()) return found;
  CKPTREE_ASSIGN_OR_RETURN(found.left, ListStores(store, call));
  if (found.left.empty()) return found;
  // It may have been named since, by the open whose objects these are.
  CKPTREE_ASSIGN_OR_RETURN(found.store, FindRemoteStore(store, call));
  if (found.store.has_value()) found.left.clear();
  return found;
}

bool HasLeftStore(const std::string& folder) {
  std::error_code error;
  std::filesystem::directory_iterator entries(folder, error);
  const std::filesystem::directory_iterator end;
  for (; !error && entries != end; entries.increment(error)) {
    const std::string name = entries->path().filename().string();
    std::error_code missing;
    if (StoreOf(name + "/commit/").has_value() &&
        std::filesystem::is_directory(entries->path() / "commit", missing)) {
      return true;
    }
  }
  return false;
}

absl::Status NameIsGone(const std::string& address, const AtAddress& found) {
  std::vector<std::string> uuids;
  for (const LeftStore& one : found.left) uuids.push_back(one.uuid);
  return absl::FailedPreconditionError(absl::StrFormat(
      "%s has lost the object '%s', which says which store is there, and has "
      "objects of the store %s: no other store is begun beside them, and none "
      "is read. The directory that shipped there puts it back when it is "
      "opened with this remote%s. Else put that object back from a copy, or "
      "give an address of its own; where the rest of a run is there that was "
      "to be deleted, delete that, too",
      address, kRemoteStoreName, absl::StrJoin(uuids, ", "),
      found.TheOne() != nullptr
          ? ", and so does any open with this remote that has take_over set"
          : ""));
}

absl::StatusOr<bool> PutNameBack(kv::ObjectStore& store, const AtAddress& found,
                                 const kv::Call& call) {
  const std::string uuid = absl::HexStringToBytes(found.TheOne()->uuid);
  const schema::RemoteStore named{uuid, std::string(Version())};
  CKPTREE_ASSIGN_OR_RETURN(
      const kv::PutAnswer answer,
      kv::PutSettled(store, kRemoteStoreName, schema::EncodeRemoteStore(named),
                     kv::NewWriteId(), call));
  if (answer.outcome == kv::PutOutcome::kUnknown) return answer.reason;
  return answer.outcome == kv::PutOutcome::kCreated;
}

}  // namespace ckptree::internal
