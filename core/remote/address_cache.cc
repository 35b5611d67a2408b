// SPDX-License-Identifier: Apache-2.0

#include "core/remote/address_cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "base/digest.h"
#include "base/status_macros.h"
#include "core/remote/mirror.h"
#include "core/remote/remote_objects.h"
#include "core/remote/row_index.h"
#include "kv/conditional_put.h"
#include "kv/file_system.h"
#include "kv/object_store.h"
#include "kv/store_directory.h"
#include "schema/remote_record.h"

namespace ckptree::internal {
namespace {

namespace fs = std::filesystem;

constexpr absl::Duration kTimeOfLook = absl::Minutes(30);
constexpr std::string_view kSegmentsFolder = "segments";
constexpr std::string_view kPartialPrefix = "making-";

absl::Status ErrorOf(const std::error_code& error, const std::string& what) {
  return absl::ErrnoToStatus(error.value(), what);
}

absl::StatusOr<std::string> CacheRoot(std::string_view uuid) {
  const char* const named = std::getenv("XDG_CACHE_HOME");
  const char* const home = std::getenv("HOME");
  std::string root;
  if (named != nullptr && *named == '/') {
    root = named;
  } else if (home != nullptr && *home == '/') {
    root = kv::Join(home, ".cache");
  } else {
    return absl::FailedPreconditionError(
        "a store that is read by its address needs a folder for what it "
        "fetches: set XDG_CACHE_HOME");
  }
  return kv::Join(kv::Join(root, "ckptree"), HexOf(uuid));
}

// at-ORDINAL-HASH
std::string NameOf(const ChainPoint& point) {
  return absl::StrFormat("at-%d-%s", point.ordinal, point.hash.Hex());
}

std::optional<ChainPoint> PointOf(const std::string& name) {
  const std::vector<std::string> parts = absl::StrSplit(name, '-');
  ChainPoint point;
  if (parts.size() != 3 || parts[0] != "at" || parts[2].size() != 32 ||
      !absl::SimpleAtoi(parts[1], &point.ordinal)) {
    return std::nullopt;
  }
  point.hash = base::Digest::FromBytes(absl::HexStringToBytes(parts[2]));
  return NameOf(point) == name ? std::optional(point) : std::nullopt;
}

// Of all who use a directory. Null: somebody else has it in a way that does not
// go with `how`, or it is not there.
std::shared_ptr<const void> TryHold(const std::string& directory, int how) {
  const int fd =
      open((directory + ".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (fd < 0) return nullptr;
  std::error_code error;
  if (flock(fd, how | LOCK_NB) != 0 || !fs::exists(directory, error)) {
    close(fd);
    return nullptr;
  }
  return std::shared_ptr<const void>(static_cast<const void*>(&kTimeOfLook),
                                     [fd](const void*) { close(fd); });
}

// Older directories that nobody has, and segments that no directory has.
void Clean(const std::string& root, const std::string& kept) {
  std::error_code error;
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(root, error)) {
    names.push_back(entry.path().filename().string());
  }
  for (const std::string& name : names) {
    const std::string path = kv::Join(root, name);
    if (name == kept || !PointOf(name).has_value()) continue;
    if (const auto alone = TryHold(path, LOCK_EX)) {
      fs::remove_all(path, error);
      fs::remove(path + ".lock", error);
    }
  }
  for (const auto& entry :
       fs::directory_iterator(kv::Join(root, kSegmentsFolder), error)) {
    if (fs::hard_link_count(entry.path(), error) == 1 && !error &&
        entry.path().extension().empty()) {
      fs::remove(entry.path(), error);
    }
  }
}

// The newest that is there.
std::optional<ChainPoint> NewestOf(const std::string& root) {
  std::error_code error;
  std::optional<ChainPoint> newest;
  for (const auto& entry : fs::directory_iterator(root, error)) {
    const auto point = PointOf(entry.path().filename().string());
    if (point.has_value() &&
        (!newest.has_value() || newest->ordinal < point->ordinal)) {
      newest = point;
    }
  }
  return newest;
}

// Whether nothing was shipped behind the commit. False where the chain does not
// go on from it.
absl::StatusOr<bool> IsNewest(ChainPoint point, kv::ObjectStore& store,
                              const std::string& uuid, const kv::Call& call) {
  while (true) {
    CKPTREE_ASSIGN_OR_RETURN(
        const std::optional<std::string> bytes,
        GetObject(store, RemoteCommitName(uuid, point.ordinal + 1),
                  kv::ObjectStore::kMaxConditionalBytes, call));
    if (!bytes.has_value()) return true;
    const absl::StatusOr<schema::RemoteCommit> commit =
        schema::DecodeRemoteCommit(*bytes);
    if (!commit.ok() || commit->before != point.hash ||
        commit->shape == schema::RemoteCommit::Shape::kShip) {
      return false;
    }
    point = {point.ordinal + 1, base::DigestOf(*bytes)};
  }
}

}  // namespace

bool IsRemoteAddress(const std::string& where) {
  if (where.starts_with("s3://") || where.starts_with("rados://")) return true;
  constexpr std::string_view kFile = "file://";
  if (!where.starts_with(kFile)) return false;
  std::error_code error;
  return fs::is_regular_file(
      kv::Join(where.substr(kFile.size()), kRemoteStoreName), error);
}

absl::StatusOr<CachedStore> CacheOf(const std::string& address,
                                    const kv::Options& options) {
  const kv::Call call = kv::Call::Within(kTimeOfLook);
  CKPTREE_ASSIGN_OR_RETURN(
      const std::unique_ptr<kv::ObjectStore> store,
      kv::OpenObjectStore(address, kv::ObjectStoreOptions(), call));
  CKPTREE_ASSIGN_OR_RETURN(const std::optional<schema::RemoteStore> there,
                           FindRemoteStore(*store, call));
  if (!there.has_value()) {
    return absl::NotFoundError(
        absl::StrFormat("there is no store in %s", address));
  }
  CKPTREE_ASSIGN_OR_RETURN(const std::string root, CacheRoot(there->uuid));
  const std::string segments = kv::Join(root, kSegmentsFolder);
  std::error_code error;
  fs::create_directories(segments, error);
  if (error) return ErrorOf(error, "making " + segments);
  if (const std::optional<ChainPoint> newest = NewestOf(root)) {
    CachedStore cached{kv::Join(root, NameOf(*newest)), nullptr};
    cached.hold = TryHold(cached.directory, LOCK_SH);
    if (cached.hold != nullptr) {
      CKPTREE_ASSIGN_OR_RETURN(const bool is_newest,
                               IsNewest(*newest, *store, there->uuid, call));
      if (is_newest) return cached;
    }
  }
  const std::string partial =
      kv::Join(root, std::string(kPartialPrefix) + kv::NewWriteId());
  const absl::Cleanup remove = [&] {
    std::error_code ignored;
    fs::remove_all(partial, ignored);
  };
  ChainPoint point;
  CKPTREE_RETURN_IF_ERROR(
      MakeMirror(*store, there->uuid, partial, segments, options, {}, &point));
  const std::string directory = kv::Join(root, NameOf(point));
  fs::rename(partial, directory, error);
  // Another process made the same.
  if (error && !fs::exists(directory)) {
    return ErrorOf(error, "renaming to " + directory);
  }
  CachedStore made{directory, TryHold(directory, LOCK_SH)};
  if (made.hold == nullptr) {
    return absl::UnavailableError(absl::StrFormat(
        "%s was removed while it was opened: try again", directory));
  }
  Clean(root, NameOf(point));
  return made;
}

}  // namespace ckptree::internal
