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
constexpr std::size_t kMostPointBytes = 128;

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

// Where a directory is that was brought on, for all who use it: a file beside
// it, never half there.
std::string PointFile(const std::string& directory) {
  return directory + ".point";
}

ChainPoint PointIn(const std::string& directory, const ChainPoint& made_at,
                   const kv::Options& options) {
  const absl::StatusOr<std::string> text =
      kv::ReadFile(options, PointFile(directory), kMostPointBytes);
  if (!text.ok()) return made_at;
  return PointOf(*text).value_or(made_at);
}

absl::Status WritePoint(const std::string& directory, const ChainPoint& point,
                        const kv::Options& options) {
  const std::string partial = PointFile(directory) + "." + kv::NewWriteId();
  CKPTREE_RETURN_IF_ERROR(kv::WriteFile(options, partial, NameOf(point)));
  return kv::RenameFile(options, partial, PointFile(directory));
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
      fs::remove(PointFile(path), error);
      fs::remove(path + ".advance", error);
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
      std::unique_ptr<kv::ObjectStore> store,
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
  const std::shared_ptr<kv::ObjectStore> shared = std::move(store);
  if (const std::optional<ChainPoint> newest = NewestOf(root)) {
    CachedStore cached{kv::Join(root, NameOf(*newest)), nullptr, shared,
                       there->uuid};
    cached.hold = TryHold(cached.directory, LOCK_SH);
    if (cached.hold != nullptr) {
      const ChainPoint point = PointIn(cached.directory, *newest, options);
      CKPTREE_ASSIGN_OR_RETURN(const bool is_newest,
                               IsNewest(point, *shared, there->uuid, call));
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
      MakeMirror(*shared, there->uuid, partial, segments, options, {}, &point));
  const std::string directory = kv::Join(root, NameOf(point));
  fs::rename(partial, directory, error);
  // Another process made the same.
  if (error && !fs::exists(directory)) {
    return ErrorOf(error, "renaming to " + directory);
  }
  CachedStore made{directory, TryHold(directory, LOCK_SH), shared, there->uuid};
  if (made.hold == nullptr) {
    return absl::UnavailableError(absl::StrFormat(
        "%s was removed while it was opened: try again", directory));
  }
  Clean(root, NameOf(point));
  return made;
}

absl::Status AdvanceCache(const CachedStore& cached,
                          const kv::Options& options) {
  const kv::Call call = kv::Call::Within(kTimeOfLook);
  const std::optional<ChainPoint> made_at =
      PointOf(fs::path(cached.directory).filename().string());
  if (!made_at.has_value()) {
    return absl::InternalError(cached.directory + " is no mirror");
  }
  ChainPoint point = PointIn(cached.directory, *made_at, options);
  CKPTREE_ASSIGN_OR_RETURN(const bool is_newest,
                           IsNewest(point, *cached.store, cached.uuid, call));
  if (is_newest) return absl::OkStatus();
  const std::string root = fs::path(cached.directory).parent_path().string();
  // One process at a time: from where the last one brought it.
  const int fd = open((cached.directory + ".advance").c_str(),
                      O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (fd < 0) return absl::ErrnoToStatus(errno, "locking " + cached.directory);
  const absl::Cleanup unlock = [fd] { close(fd); };
  if (flock(fd, LOCK_EX) != 0) {
    return absl::ErrnoToStatus(errno, "locking " + cached.directory);
  }
  point = PointIn(cached.directory, *made_at, options);
  CKPTREE_RETURN_IF_ERROR(
      AdvanceMirror(*cached.store, cached.uuid, cached.directory,
                    kv::Join(root, kSegmentsFolder), options, &point));
  return WritePoint(cached.directory, point, options);
}

}  // namespace ckptree::internal
