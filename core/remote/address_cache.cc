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
#include <set>
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
#include "core/remote/remote_segments.h"
#include "core/remote/row_index.h"
#include "kv/conditional_put.h"
#include "kv/file_system.h"
#include "kv/object_store.h"
#include "kv/store_directory.h"
#include "schema/remote_record.h"

namespace ckptree::internal {
namespace {

namespace fs = std::filesystem;

// Whether anybody answers there, and which store it is.
constexpr absl::Duration kTimeOfFirstLook = absl::Minutes(1);
// Without an index all commits are read.
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

// rows-ORDINAL-HASH
std::string NameOf(const ChainPoint& point) {
  return absl::StrFormat("rows-%d-%s", point.ordinal, point.hash.Hex());
}

std::optional<ChainPoint> PointOf(const std::string& name) {
  const std::vector<std::string> parts = absl::StrSplit(name, '-');
  ChainPoint point;
  if (parts.size() != 3 || parts[0] != "rows" || parts[2].size() != 32 ||
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

// Of who makes or removes directories: one at a time. Null: it cannot be had.
std::shared_ptr<const void> HoldRoot(const std::string& root) {
  const int fd = open(kv::Join(root, "making.lock").c_str(),
                      O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (fd < 0) return nullptr;
  if (flock(fd, LOCK_EX) != 0) {
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

// Beside a directory, too: the segments of its rows.
std::string ListFile(const std::string& directory) {
  return directory + ".segments";
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

void Remove(const std::string& directory) {
  std::error_code error;
  fs::remove_all(directory, error);
  for (const char* beside : {".point", ".segments", ".advance", ".lock"}) {
    fs::remove(directory + beside, error);
  }
}

// Older directories that nobody has, and segments that no directory has.
void Clean(const std::string& root, const std::string& kept,
           const kv::Options& options) {
  std::error_code error;
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(root, error)) {
    names.push_back(entry.path().filename().string());
  }
  std::set<std::string> needed;
  for (const std::string& name : names) {
    const std::string path = kv::Join(root, name);
    if (!PointOf(name).has_value()) continue;
    if (name != kept) {
      if (const auto alone = TryHold(path, LOCK_EX)) {
        Remove(path);
        continue;
      }
    }
    const auto segments = ReadSegmentList(options, ListFile(path));
    if (!segments.ok()) return;  // Somebody is at it.
    for (const auto& [key, living] : *segments) {
      needed.insert(HexOf(living.segment.attempt));
    }
  }
  for (const auto& entry :
       fs::directory_iterator(kv::Join(root, kSegmentsFolder), error)) {
    if (entry.path().extension().empty() &&
        !needed.contains(entry.path().filename().string())) {
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

// Whether nothing was shipped behind the commit, which moves on past opens and
// closes. False where the chain does not go on from it.
absl::StatusOr<bool> IsNewest(ChainPoint* at, kv::ObjectStore& store,
                              const std::string& uuid, const kv::Call& call) {
  ChainPoint& point = *at;
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

namespace {

// Where its rows are in a folder that is as it was left.
absl::StatusOr<bool> IsUpToDate(const std::string& directory, ChainPoint point,
                                kv::ObjectStore& store, const std::string& uuid,
                                const kv::Options& options,
                                const kv::Call& call) {
  const ChainPoint before = point;
  CKPTREE_ASSIGN_OR_RETURN(const bool is_newest,
                           IsNewest(&point, store, uuid, call));
  // The next look begins there. Who fails to say so looks at more.
  if (is_newest && point.ordinal != before.ordinal) {
    WritePoint(directory, point, options).IgnoreError();
  }
  return is_newest;
}

absl::StatusOr<std::shared_ptr<RemoteSegments>> SegmentsOf(
    const CachedStore& cached, const std::string& folder,
    const kv::Options& options) {
  auto segments = std::make_shared<RemoteSegments>(
      cached.store, cached.uuid, ListFile(cached.directory), folder, options);
  CKPTREE_RETURN_IF_ERROR(segments->Load());
  return segments;
}

}  // namespace

absl::StatusOr<CachedStore> CacheOf(const std::string& address,
                                    const kv::Options& options) {
  const kv::Call first = kv::Call::Within(kTimeOfFirstLook);
  CKPTREE_ASSIGN_OR_RETURN(
      std::unique_ptr<kv::ObjectStore> store,
      kv::OpenObjectStore(address, kv::ObjectStoreOptions(), first));
  CKPTREE_ASSIGN_OR_RETURN(const std::optional<schema::RemoteStore> there,
                           FindRemoteStore(*store, first));
  if (!there.has_value()) {
    return absl::NotFoundError(
        absl::StrFormat("there is no store in %s", address));
  }
  const kv::Call call = kv::Call::Within(kTimeOfLook);
  CKPTREE_ASSIGN_OR_RETURN(const std::string root, CacheRoot(there->uuid));
  const std::string folder = kv::Join(root, kSegmentsFolder);
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) return ErrorOf(error, "making " + folder);
  const std::shared_ptr<kv::ObjectStore> shared = std::move(store);
  if (const std::optional<ChainPoint> newest = NewestOf(root)) {
    CachedStore cached{kv::Join(root, NameOf(*newest)), nullptr, shared,
                       there->uuid, nullptr};
    cached.hold = TryHold(cached.directory, LOCK_SH);
    if (cached.hold != nullptr) {
      auto segments = SegmentsOf(cached, folder, options);
      bool is_newest = false;
      if (segments.ok()) {
        CKPTREE_ASSIGN_OR_RETURN(
            is_newest, IsUpToDate(cached.directory,
                                  PointIn(cached.directory, *newest, options),
                                  *shared, there->uuid, options, call));
        cached.segments = *std::move(segments);
      }
      if (is_newest) return cached;
      cached.hold.reset();
      // Of no use without its list, and in the way of the new one.
      if (cached.segments == nullptr) {
        const auto turn = HoldRoot(root);
        if (const auto alone = TryHold(cached.directory, LOCK_EX)) {
          Remove(cached.directory);
        }
      }
    }
  }
  const std::string partial =
      kv::Join(root, std::string(kPartialPrefix) + kv::NewWriteId());
  const absl::Cleanup remove = [&] {
    std::error_code ignored;
    fs::remove_all(partial, ignored);
  };
  ChainPoint point;
  LivingSegments segments;
  CKPTREE_RETURN_IF_ERROR(
      MakeMirror(*shared, there->uuid, partial, options, &segments, &point));
  const std::string directory = kv::Join(root, NameOf(point));
  auto turn = HoldRoot(root);
  // Else another process made the same, or brought it on: its list has more.
  if (!fs::exists(directory, error)) {
    CKPTREE_RETURN_IF_ERROR(
        WriteSegmentList(options, ListFile(directory), segments));
    fs::rename(partial, directory, error);
    if (error && !fs::exists(directory)) {
      return ErrorOf(error, "renaming to " + directory);
    }
  }
  CachedStore made{directory, TryHold(directory, LOCK_SH), shared, there->uuid,
                   nullptr};
  if (made.hold == nullptr) {
    return absl::UnavailableError(absl::StrFormat(
        "%s was removed while it was opened: try again", directory));
  }
  CKPTREE_ASSIGN_OR_RETURN(made.segments, SegmentsOf(made, folder, options));
  Clean(root, NameOf(point), options);
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
  CKPTREE_ASSIGN_OR_RETURN(
      const bool is_newest,
      IsUpToDate(cached.directory, PointIn(cached.directory, *made_at, options),
                 *cached.store, cached.uuid, options, call));
  if (is_newest) return absl::OkStatus();
  // One process at a time: from where the last one brought it.
  const int fd = open((cached.directory + ".advance").c_str(),
                      O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (fd < 0) return absl::ErrnoToStatus(errno, "locking " + cached.directory);
  const absl::Cleanup unlock = [fd] { close(fd); };
  if (flock(fd, LOCK_EX) != 0) {
    return absl::ErrnoToStatus(errno, "locking " + cached.directory);
  }
  ChainPoint point = PointIn(cached.directory, *made_at, options);
  const std::string list = ListFile(cached.directory);
  CKPTREE_ASSIGN_OR_RETURN(const LivingSegments segments,
                           ReadSegmentList(options, list));
  LivingSegments newest;
  std::size_t listed = 0;
  CKPTREE_RETURN_IF_ERROR(AdvanceMirror(
      *cached.store, cached.uuid, cached.directory, options, segments,
      [&](const LivingSegments& all) {
        newest = all;
        // Rows that name these are there until the others come.
        LivingSegments both = all;
        both.insert(segments.begin(), segments.end());
        listed = both.size();
        return WriteSegmentList(options, list, both);
      },
      &point));
  if (listed != newest.size()) {
    CKPTREE_RETURN_IF_ERROR(WriteSegmentList(options, list, newest));
  }
  return WritePoint(cached.directory, point, options);
}

}  // namespace ckptree::internal
