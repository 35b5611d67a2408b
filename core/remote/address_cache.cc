// SPDX-License-Identifier: Apache-2.0

#include "core/remote/address_cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/digest.h"
#include "base/status_macros.h"
#include "core/remote/chain.h"
#include "core/remote/chain_rows.h"
#include "core/remote/fetched_copy.h"
#include "core/remote/left_stores.h"
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
// Between two tries to take a turn.
constexpr absl::Duration kTimeOfTurn = absl::Milliseconds(10);
constexpr std::string_view kSegmentsFolder = "segments";
constexpr std::string_view kPartialPrefix = "making-";
constexpr std::string_view kRowsPrefix = "rows-";
constexpr std::size_t kMostPointBytes = 256;

absl::Status ErrorOf(const std::error_code& error, const std::string& what) {
  return absl::ErrnoToStatus(error.value(), what);
}

// Of an address a folder of its own: readers of two that have one uuid would be
// in the way of each other.
absl::StatusOr<std::string> CacheRoot(std::string_view uuid,
                                      const std::string& address) {
  const std::optional<std::string> root = CacheFolder();
  if (!root.has_value()) {
    return absl::FailedPreconditionError(
        "a store that is read by its address needs a folder for what it "
        "fetches: set XDG_CACHE_HOME");
  }
  return kv::Join(kv::Join(*root, HexOf(uuid)), base::DigestOf(address).Hex());
}

bool IsDirectoryName(const std::string& name) {
  return name.starts_with(kRowsPrefix) && !absl::StrContains(name, '.');
}

// ORDINAL-HASH
std::string TextOf(const ChainPoint& point) {
  return absl::StrFormat("%d-%s", point.ordinal, point.hash.Hex());
}

std::optional<ChainPoint> PointOf(const std::string& text) {
  const std::vector<std::string> parts = absl::StrSplit(text, '-');
  ChainPoint point;
  if (parts.size() != 2 || parts[1].size() != 32 ||
      !absl::SimpleAtoi(parts[0], &point.ordinal)) {
    return std::nullopt;
  }
  point.hash = base::Digest::FromBytes(absl::HexStringToBytes(parts[1]));
  return TextOf(point) == text ? std::optional(point) : std::nullopt;
}

// What rows a directory has: all up to one commit, and none that is of a later
// one than the other, which differs while it is brought on, and after a crash.
struct Extent {
  ChainPoint from;
  ChainPoint to;
  bool settled() const { return from == to; }
};

// Of all who use a directory. Null: somebody else has it in a way that does not
// go with `how`, or it is not there; or the disk does not take the lock, which
// `disk` has then, unless it is null.
std::shared_ptr<const void> TryHold(const std::string& directory, int how,
                                    absl::Status* disk = nullptr) {
  const int fd =
      open((directory + ".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (fd < 0) {
    if (disk != nullptr) {
      *disk = absl::ErrnoToStatus(errno, "locking " + directory);
    }
    return nullptr;
  }
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

// A file beside a directory, never half there: its extent.
std::string PointFile(const std::string& directory) {
  return directory + ".point";
}

// Beside a directory, too: the segments of its rows.
std::string ListFile(const std::string& directory) {
  return directory + ".segments";
}

std::optional<Extent> ExtentOf(const std::string& directory,
                               const kv::Options& options) {
  const absl::StatusOr<std::string> text =
      kv::ReadFile(options, PointFile(directory), kMostPointBytes);
  if (!text.ok()) return std::nullopt;
  const std::vector<std::string> points = absl::StrSplit(*text, '\n');
  if (points.size() != 2) return std::nullopt;
  const std::optional<ChainPoint> from = PointOf(points[0]);
  const std::optional<ChainPoint> to = PointOf(points[1]);
  if (!from.has_value() || !to.has_value()) return std::nullopt;
  return Extent{*from, *to};
}

absl::Status WriteExtent(const std::string& directory, const Extent& extent,
                         const kv::Options& options) {
  const std::string partial = PointFile(directory) + "." + kv::NewWriteId();
  absl::Status written = kv::WriteFile(
      options, partial, TextOf(extent.from) + "\n" + TextOf(extent.to));
  if (written.ok()) {
    written = kv::RenameFile(options, partial, PointFile(directory));
  }
  if (!written.ok()) kv::RemoveFile(options, partial).IgnoreError();
  return written;
}

// Of who reads a directory, shared, or brings it on. Waits, which may be as
// long as another process fetches, until nobody wants to wait any more.
absl::StatusOr<CacheTurn> TakeTurn(const std::string& directory, int how,
                                   const std::stop_token& enough) {
  const int fd = open((directory + ".advance").c_str(),
                      O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (fd < 0) return absl::ErrnoToStatus(errno, "locking " + directory);
  while (flock(fd, how | LOCK_NB) != 0) {
    absl::Status failed;
    if (errno != EWOULDBLOCK && errno != EINTR) {
      failed = absl::ErrnoToStatus(errno, "locking " + directory);
    } else if (enough.stop_requested()) {
      failed = absl::CancelledError(absl::StrFormat(
          "cancelled while another process reads what is new into %s",
          directory));
    }
    if (!failed.ok()) {
      close(fd);
      return failed;
    }
    absl::SleepFor(kTimeOfTurn);
  }
  return CacheTurn(static_cast<const void*>(&kTimeOfLook),
                   [fd](const void*) { close(fd); });
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
    if (!IsDirectoryName(name)) continue;
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

// Those that are there, the newest first.
std::vector<std::string> DirectoriesIn(const std::string& root,
                                       const kv::Options& options) {
  std::vector<std::pair<std::uint64_t, std::string>> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(root, error)) {
    if (!IsDirectoryName(entry.path().filename().string())) continue;
    const std::string path = entry.path().string();
    if (const auto extent = ExtentOf(path, options)) {
      found.emplace_back(extent->from.ordinal, path);
    }
  }
  std::sort(found.rbegin(), found.rend());
  std::vector<std::string> directories;
  for (auto& [ordinal, path] : found) directories.push_back(std::move(path));
  return directories;
}

absl::StatusOr<std::optional<std::string>> GetCommit(kv::ObjectStore& store,
                                                     const std::string& uuid,
                                                     std::uint64_t ordinal,
                                                     const kv::Call& call) {
  return GetObject(store, RemoteCommitName(uuid, ordinal),
                   kv::ObjectStore::kMaxConditionalBytes, call);
}

// Whether the very commit is there; then all before it were, too.
absl::StatusOr<bool> IsThere(const ChainPoint& point, kv::ObjectStore& store,
                             const std::string& uuid, const kv::Call& call) {
  // An answer that was damaged on its way is asked for once more.
  for (int reads = 0; reads < 2; ++reads) {
    CKPTREE_ASSIGN_OR_RETURN(const std::optional<std::string> bytes,
                             GetCommit(store, uuid, point.ordinal, call));
    if (!bytes.has_value()) return false;
    if (base::DigestOf(*bytes) == point.hash) return true;
  }
  return false;
}

enum class Standing : std::uint8_t {
  kNewest,   // Nothing was shipped behind it.
  kBehind,   // Something was.
  kForeign,  // It is not of what is there.
};

// Of a commit, which moves on past opens and closes. That nothing is behind it
// says nothing of itself: unless it `is_proven`, it is looked for.
absl::StatusOr<Standing> StandingOf(ChainPoint* at, bool is_proven,
                                    kv::ObjectStore& store,
                                    const std::string& uuid,
                                    const kv::Call& call) {
  ChainPoint& point = *at;
  while (true) {
    CKPTREE_ASSIGN_OR_RETURN(const std::optional<std::string> bytes,
                             GetCommit(store, uuid, point.ordinal + 1, call));
    if (!bytes.has_value()) break;
    const absl::StatusOr<schema::RemoteCommit> commit =
        schema::DecodeRemoteCommit(*bytes);
    // What is wrong with it is told by who reads the chain.
    if (!commit.ok()) return Standing::kBehind;
    if (commit->before != point.hash) return Standing::kForeign;
    if (commit->shape == schema::RemoteCommit::Shape::kShip) {
      return Standing::kBehind;
    }
    point = {point.ordinal + 1, base::DigestOf(*bytes)};
    is_proven = true;
  }
  if (is_proven) return Standing::kNewest;
  CKPTREE_ASSIGN_OR_RETURN(const bool there, IsThere(point, store, uuid, call));
  return there ? Standing::kNewest : Standing::kForeign;
}

}  // namespace

std::optional<std::string> CacheFolder() {
  const char* const named = std::getenv("XDG_CACHE_HOME");
  if (named != nullptr && *named == '/') return kv::Join(named, "ckptree");
  const char* const home = std::getenv("HOME");
  if (home == nullptr || *home != '/') return std::nullopt;
  return kv::Join(kv::Join(home, ".cache"), "ckptree");
}

namespace {

// How segments are read: nobody else hears of the calls to `store`.
struct SegmentReads {
  std::shared_ptr<kv::ObjectStore> store;
  const FarReader& reader;
  std::string folder;
};

absl::StatusOr<std::shared_ptr<RemoteSegments>> SegmentsOf(
    const CachedStore& cached, const SegmentReads& reads,
    const kv::Options& options) {
  auto segments = std::make_shared<RemoteSegments>(
      reads.store, reads.reader, cached.uuid, ListFile(cached.directory),
      reads.folder, options);
  CKPTREE_RETURN_IF_ERROR(segments->Load());
  return segments;
}

// One that is as the store is there now; nothing where there is none.
absl::StatusOr<std::optional<CachedStore>> FindCached(
    CachedStore draft, const std::string& root, const SegmentReads& reads,
    const kv::Options& options, const kv::Call& call, CacheTurn* turn) {
  for (const std::string& directory : DirectoriesIn(root, options)) {
    CachedStore cached = draft;
    cached.directory = directory;
    cached.hold = TryHold(directory, LOCK_SH);
    if (cached.hold == nullptr) continue;
    CKPTREE_ASSIGN_OR_RETURN(
        *turn, TakeTurn(directory, LOCK_SH, cached.trouble->token()));
    const std::optional<Extent> extent = ExtentOf(directory, options);
    auto segments = SegmentsOf(cached, reads, options);
    if (!segments.ok()) {
      // Of no use without its list.
      cached.hold.reset();
      if (const auto alone = TryHold(directory, LOCK_EX)) Remove(directory);
      continue;
    }
    // What a crash left half-way.
    if (!extent.has_value() || !extent->settled()) continue;
    ChainPoint point = extent->to;
    CKPTREE_ASSIGN_OR_RETURN(const Standing standing,
                             StandingOf(&point, /*is_proven=*/false,
                                        *cached.store, cached.uuid, call));
    if (standing == Standing::kForeign) continue;
    if (standing == Standing::kBehind) break;  // Others are more so.
    // The next look begins there. Who fails to say so looks at more.
    if (point != extent->to) {
      WriteExtent(directory, {point, point}, options).IgnoreError();
    }
    cached.segments = *std::move(segments);
    cached.proven->Set(point);
    return cached;
  }
  turn->reset();
  return std::nullopt;
}

absl::StatusOr<CachedStore> MakeCache(const std::string& address,
                                      const kv::Options& options,
                                      std::shared_ptr<RemoteTrouble> trouble,
                                      const FarReader& reader,
                                      CacheTurn* turn) {
  const kv::Call first = kv::Call::Within(kTimeOfFirstLook);
  CKPTREE_ASSIGN_OR_RETURN(std::shared_ptr<kv::ObjectStore> plain,
                           ConnectAttended(address, *trouble, first));
  std::unique_ptr<kv::ObjectStore> store = Attended(plain, trouble);
  CKPTREE_ASSIGN_OR_RETURN(const AtAddress look, LookAtAddress(*store, first));
  if (!look.left.empty()) return NameIsGone(address, look);
  const std::optional<schema::RemoteStore>& there = look.store;
  if (!there.has_value()) {
    return absl::NotFoundError(
        absl::StrFormat("there is no store in %s", address));
  }
  const kv::Call call = kv::Call::Within(kTimeOfLook);
  CKPTREE_ASSIGN_OR_RETURN(const std::string root,
                           CacheRoot(there->uuid, store->address()));
  const SegmentReads reads{.store = std::move(plain),
                           .reader = reader,
                           .folder = kv::Join(root, kSegmentsFolder)};
  std::error_code error;
  fs::create_directories(reads.folder, error);
  if (error) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "%s, where what is fetched is kept, cannot be made (%s): set "
        "XDG_CACHE_HOME to a folder that this user may write to",
        reads.folder, error.message()));
  }
  CachedStore made{.directory = "",
                   .hold = nullptr,
                   .store = std::move(store),
                   .trouble = std::move(trouble),
                   .uuid = there->uuid,
                   .segments = nullptr,
                   .proven = std::make_shared<ProvenPoint>()};
  CKPTREE_ASSIGN_OR_RETURN(std::optional<CachedStore> found,
                           FindCached(made, root, reads, options, call, turn));
  if (found.has_value()) return *std::move(found);
  const std::string id = kv::NewWriteId();
  const std::string partial = kv::Join(root, std::string(kPartialPrefix) + id);
  const absl::Cleanup remove = [&] {
    std::error_code ignored;
    fs::remove_all(partial, ignored);
  };
  ChainPoint point;
  LivingSegments segments;
  CKPTREE_RETURN_IF_ERROR(MakeMirror(*made.store, there->uuid, partial, options,
                                     &segments, &point));
  // A name of its own: one of the same commits may have been brought on since,
  // by a store that has them, too.
  made.directory = kv::Join(root, std::string(kRowsPrefix) + id);
  const auto alone = HoldRoot(root);
  CKPTREE_RETURN_IF_ERROR(
      WriteSegmentList(options, ListFile(made.directory), segments));
  CKPTREE_RETURN_IF_ERROR(WriteExtent(made.directory, {point, point}, options));
  fs::rename(partial, made.directory, error);
  if (error) return ErrorOf(error, "renaming to " + made.directory);
  absl::Status disk;
  made.hold = TryHold(made.directory, LOCK_SH, &disk);
  CKPTREE_RETURN_IF_ERROR(disk);
  if (made.hold == nullptr) {
    return absl::UnavailableError(absl::StrFormat(
        "%s was removed while it was opened: try again", made.directory));
  }
  CKPTREE_ASSIGN_OR_RETURN(
      *turn, TakeTurn(made.directory, LOCK_SH, made.trouble->token()));
  made.proven->Set(point);
  CKPTREE_ASSIGN_OR_RETURN(made.segments, SegmentsOf(made, reads, options));
  Clean(root, std::string(kRowsPrefix) + id, options);
  return made;
}

absl::StatusOr<CacheTurn> Advance(const CachedStore& cached,
                                  const kv::Options& options) {
  const std::string& directory = cached.directory;
  const std::stop_token enough = cached.trouble->token();
  const kv::Call call = kv::Call::Within(kTimeOfLook);
  const auto foreign = [&] {
    return absl::DataLossError(absl::StrFormat(
        "what is in %s does not go on from what was read of it: the objects "
        "were put back or removed, or are another copy's. Open it again",
        cached.store->address()));
  };
  const auto extent_now = [&]() -> absl::StatusOr<Extent> {
    if (const auto extent = ExtentOf(directory, options)) return *extent;
    return absl::UnavailableError(
        absl::StrFormat("%s is gone: open the store again", directory));
  };
  {
    CKPTREE_ASSIGN_OR_RETURN(CacheTurn turn,
                             TakeTurn(directory, LOCK_SH, enough));
    CKPTREE_ASSIGN_OR_RETURN(const Extent extent, extent_now());
    if (extent.settled()) {
      ChainPoint point = extent.to;
      // Who waits for what is new hears soon that nobody answers.
      const kv::Call first = kv::Call::Within(kTimeOfFirstLook);
      const bool is_proven = cached.proven->Is(point);
      CKPTREE_ASSIGN_OR_RETURN(
          const Standing standing,
          StandingOf(&point, is_proven, *cached.store, cached.uuid, first));
      if (standing == Standing::kForeign) return foreign();
      if (standing == Standing::kNewest) {
        if (point != extent.to) {
          WriteExtent(directory, {point, point}, options).IgnoreError();
        }
        if (!is_proven || point != extent.to) cached.proven->Set(point);
        return turn;
      }
    }
  }
  CKPTREE_ASSIGN_OR_RETURN(CacheTurn turn,
                           TakeTurn(directory, LOCK_EX, enough));
  // From where the last one brought it.
  CKPTREE_ASSIGN_OR_RETURN(Extent extent, extent_now());
  if (!extent.settled()) {
    CKPTREE_ASSIGN_OR_RETURN(
        const bool there, IsThere(extent.to, *cached.store, cached.uuid, call));
    if (!there) return foreign();
  }
  const std::string list = ListFile(directory);
  CKPTREE_ASSIGN_OR_RETURN(const LivingSegments segments,
                           ReadSegmentList(options, list));
  LivingSegments newest;
  std::size_t listed = 0;
  const auto keep = [&](const LivingSegments& all,
                        const ChainPoint& to) -> absl::Status {
    newest = all;
    // Rows that name these are there until the others come.
    LivingSegments both = all;
    both.insert(segments.begin(), segments.end());
    listed = both.size();
    CKPTREE_RETURN_IF_ERROR(WriteSegmentList(options, list, both));
    return WriteExtent(directory, {extent.from, to}, options);
  };
  CKPTREE_RETURN_IF_ERROR(AdvanceMirror(*cached.store, cached.uuid, directory,
                                        options, segments, keep, &extent.from));
  if (listed != newest.size()) {
    CKPTREE_RETURN_IF_ERROR(WriteSegmentList(options, list, newest));
  }
  CKPTREE_RETURN_IF_ERROR(
      WriteExtent(directory, {extent.from, extent.from}, options));
  cached.proven->Set(extent.from);
  return turn;
}

}  // namespace

absl::StatusOr<CachedStore> CacheOf(const std::string& address,
                                    const kv::Options& options,
                                    std::shared_ptr<RemoteTrouble> trouble,
                                    const FarReader& reader, CacheTurn* turn) {
  absl::StatusOr<CachedStore> made =
      MakeCache(address, options, std::move(trouble), reader, turn);
  if (!absl::IsResourceExhausted(made.status())) return made;
  return NoRoomInCache(CacheFolder().value_or(""), made.status());
}

absl::StatusOr<CacheTurn> AdvanceCache(const CachedStore& cached,
                                       const kv::Options& options) {
  absl::StatusOr<CacheTurn> turn = Advance(cached, options);
  if (!absl::IsResourceExhausted(turn.status())) return turn;
  return NoRoomInCache(CacheFolder().value_or(cached.directory), turn.status());
}

absl::Status CheckObjects(const CachedStore& cached, bool all,
                          std::vector<std::string>* damage) {
  const kv::Call call = kv::Call::Within(kTimeOfLook);
  RemoteChain chain(cached.store.get(), cached.uuid);
  ChainRows rows(cached.uuid, /*keeps_rows=*/false);
  const auto pass = [](const schema::RemoteRow&) { return absl::OkStatus(); };
  const absl::Status read = all ? rows.ReadOn(&chain, *cached.store, call, pass)
                                : rows.Read(&chain, *cached.store, call, pass,
                                            [] { return absl::OkStatus(); });
  if (absl::IsDataLoss(read)) {
    damage->emplace_back(read.message());
    return absl::OkStatus();
  }
  CKPTREE_RETURN_IF_ERROR(read);
  // After the rows: what they name was there by then.
  std::map<std::string, std::uint64_t> sizes;
  CKPTREE_RETURN_IF_ERROR(ForEachObject(
      *cached.store, RemoteSegmentPrefix(cached.uuid), [&call] { return call; },
      [&sizes](const kv::ObjectInfo& info) { sizes[info.name] = info.size; }));
  for (const auto& [key, living] : rows.index().segments()) {
    const std::string name =
        RemoteSegmentName(cached.uuid, living.era, living.segment);
    const auto found = sizes.find(name);
    if (found == sizes.end()) {
      damage->push_back(absl::StrFormat("%s is missing in %s", name,
                                        cached.store->address()));
    } else if (found->second != living.segment.bytes) {
      damage->push_back(absl::StrFormat("%s in %s has %d bytes instead of %d",
                                        name, cached.store->address(),
                                        found->second, living.segment.bytes));
    }
  }
  return absl::OkStatus();
}

}  // namespace ckptree::internal
