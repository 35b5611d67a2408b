// SPDX-License-Identifier: Apache-2.0

#include "core/remote/remote_segments.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "base/big_endian.h"
#include "base/status_macros.h"
#include "core/remote/fetched_copy.h"
#include "core/remote/remote_objects.h"
#include "core/remote/segment_upload.h"
#include "kv/conditional_put.h"
#include "kv/file_system.h"
#include "kv/store_directory.h"
#include "schema/keys.h"

namespace ckptree::internal {
namespace {

using schema::RemoteLiving;
using schema::RemoteRun;

// Of one record of the list.
constexpr std::size_t kSegmentsInRecord = 4096;

}  // namespace

absl::Status WriteSegmentList(const kv::Options& options,
                              const std::string& path,
                              const LivingSegments& segments) {
  std::string bytes;
  for (auto next = segments.begin(); next != segments.end();) {
    RemoteRun run;
    for (; next != segments.end() && run.segments.size() < kSegmentsInRecord;
         ++next) {
      run.segments.push_back(next->second);
    }
    const std::string record = schema::EncodeRemoteRun(run);
    base::AppendBig(std::uint64_t{record.size()}, &bytes);
    bytes += record;
  }
  const std::string partial = path + "." + kv::NewWriteId();
  absl::Status written = kv::WriteFile(options, partial, bytes);
  if (written.ok()) written = kv::RenameFile(options, partial, path);
  if (!written.ok()) kv::RemoveFile(options, partial).IgnoreError();
  return written;
}

absl::StatusOr<LivingSegments> ReadSegmentList(const kv::Options& options,
                                               const std::string& path) {
  CKPTREE_ASSIGN_OR_RETURN(
      const std::string bytes,
      kv::ReadFile(options, path, std::numeric_limits<std::size_t>::max()));
  const auto cut = [&] {
    return absl::DataLossError(absl::StrFormat("%s is cut short", path));
  };
  LivingSegments segments;
  for (std::string_view rest = bytes; !rest.empty();) {
    if (rest.size() < sizeof(std::uint64_t)) return cut();
    const auto size = base::BigEndianReader(rest).Read<std::uint64_t>();
    rest.remove_prefix(sizeof(std::uint64_t));
    if (size > rest.size()) return cut();
    CKPTREE_ASSIGN_OR_RETURN(RemoteRun run,
                             schema::DecodeRemoteRun(rest.substr(0, size)));
    rest.remove_prefix(size);
    for (RemoteLiving& living : run.segments) {
      std::string key = schema::SegmentKey(living.segment.segment);
      segments[std::move(key)] = std::move(living);
    }
  }
  return segments;
}

struct RemoteSegments::Known : public kv::FarSegment {
  explicit Known(RemoteLiving of, const std::string& uuid)
      : kv::FarSegment(FarSegmentOf(of, uuid)), living(std::move(of)) {
    living.segment.blocks = {};
  }

  RemoteLiving living;  // Without its blocks.
};

RemoteSegments::RemoteSegments(std::shared_ptr<kv::ObjectStore> store,
                               const FarReader& reader, std::string uuid,
                               std::string list, std::string folder,
                               kv::Options options)
    : place_(std::move(store), reader, FarPlace::Times()),
      uuid_(std::move(uuid)),
      list_(std::move(list)),
      folder_(std::move(folder)),
      options_(std::move(options)) {}

absl::Status RemoteSegments::Load() {
  struct stat found;
  if (stat(list_.c_str(), &found) != 0) {
    return absl::ErrnoToStatus(errno, "asking of " + list_);
  }
  const Stamp stamp{found.st_ino,
                    found.st_mtim.tv_sec * std::int64_t{1'000'000'000} +
                        found.st_mtim.tv_nsec};
  CKPTREE_ASSIGN_OR_RETURN(LivingSegments segments,
                           ReadSegmentList(options_, list_));
  const absl::MutexLock lock(&mutex_);
  stamp_ = stamp;
  listed_.clear();
  for (auto& [key, living] : segments) {
    const schema::SegmentKeyFields& fields = living.segment.segment;
    Place place(fields.space, schema::SegmentHeaderKey(fields));
    std::shared_ptr<const Known>& known = known_[place];
    if (known == nullptr ||
        known->living.segment.attempt != living.segment.attempt) {
      known = std::make_shared<const Known>(std::move(living), uuid_);
    }
    listed_.insert(std::move(place));
  }
  return absl::OkStatus();
}

absl::Status RemoteSegments::LoadIfNew() {
  struct stat found;
  if (stat(list_.c_str(), &found) != 0) {
    return absl::ErrnoToStatus(errno, "asking of " + list_);
  }
  {
    const absl::MutexLock lock(&mutex_);
    if (stamp_ ==
        Stamp{found.st_ino, found.st_mtim.tv_sec * std::int64_t{1'000'000'000} +
                                found.st_mtim.tv_nsec}) {
      return absl::OkStatus();
    }
  }
  return Load();
}

std::vector<kv::FarSegmentPtr> RemoteSegments::List() {
  // Rows that are older than the list are what is known of it.
  LoadIfNew().IgnoreError();
  const absl::MutexLock lock(&mutex_);
  std::vector<kv::FarSegmentPtr> segments;
  for (const Place& place : listed_) segments.push_back(known_.at(place));
  return segments;
}

kv::FarSegmentPtr RemoteSegments::FindKnown(schema::Space space,
                                            std::string_view key) {
  const absl::MutexLock lock(&mutex_);
  const auto after = known_.upper_bound(Place(space, key));
  if (after == known_.begin()) return nullptr;
  const auto& [place, segment] = *std::prev(after);
  return place.first == space && key <= segment->last_key ? segment : nullptr;
}

kv::FarSegmentPtr RemoteSegments::Find(schema::Space space,
                                       std::string_view key) {
  kv::FarSegmentPtr segment = FindKnown(space, key);
  // A list is written before the rows that name what is new in it.
  if (segment == nullptr && LoadIfNew().ok()) segment = FindKnown(space, key);
  return segment;
}

kv::FarSegmentPtr RemoteSegments::FindFrom(schema::Space space,
                                           std::string_view key) {
  if (kv::FarSegmentPtr segment = Find(space, key)) return segment;
  const absl::MutexLock lock(&mutex_);
  const auto next = known_.lower_bound(Place(space, key));
  return next != known_.end() && next->first.first == space ? next->second
                                                            : nullptr;
}

absl::Status RemoteSegments::Read(const kv::FarSegment& segment,
                                  std::uint64_t offset,
                                  std::span<std::byte> into) {
  std::size_t read = 0;
  CKPTREE_RETURN_IF_ERROR(Ask([&](kv::ObjectStore& store) -> absl::Status {
    CKPTREE_ASSIGN_OR_RETURN(read, store.GetRange(segment.name, offset, into,
                                                  CallFor(into.size(), {})));
    return absl::OkStatus();
  }));
  if (read == into.size()) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrFormat("%s in %s is shorter than the %d bytes it had",
                      segment.name, place_.address(), segment.bytes));
}

absl::StatusOr<kv::FarSegments::Copy> RemoteSegments::Fetch(
    const kv::FarSegment& segment) {
  const RemoteLiving& living = static_cast<const Known&>(segment).living;
  const bool stays = segment.space == schema::Space::kLeaves;
  const std::string kept = kv::Join(folder_, HexOf(living.segment.attempt));
  std::error_code error;
  bool trusted = true;
  {
    const absl::MutexLock lock(&mutex_);
    if (doubts_ > 0) {
      const auto found = found_.find(living.segment.attempt);
      trusted = found != found_.end();
      if (trusted) CKPTREE_RETURN_IF_ERROR(found->second);
    }
  }
  if (stays && trusted && std::filesystem::exists(kept, error)) {
    return Copy{kept, false};
  }
  const std::string partial = kept + "." + kv::NewWriteId();
  absl::StatusOr<Copy> copy = absl::UnknownError("");
  const absl::Status fetched = Ask([&](kv::ObjectStore& store) {
    copy = FetchCopy(living, uuid_, partial, store);
    return copy.status();
  });
  if (fetched.ok() || absl::IsDataLoss(fetched)) {
    const absl::MutexLock lock(&mutex_);
    if (doubts_ > 0) found_[living.segment.attempt] = fetched;
  }
  CKPTREE_RETURN_IF_ERROR(fetched);
  // What is in memory, or cannot be renamed on a full disk, is not kept.
  if (stays && copy->path == partial &&
      kv::RenameFile(options_, partial, kept).ok()) {
    return Copy{kept, false};
  }
  return copy;
}

void RemoteSegments::Doubt(bool doubt) {
  const absl::MutexLock lock(&mutex_);
  doubts_ += doubt ? 1 : -1;
  found_.clear();
}

absl::Status RemoteSegments::Check(const kv::FarSegment& segment) {
  return Ask([&](kv::ObjectStore& store) {
    return CompareSegment(static_cast<const Known&>(segment).living, uuid_,
                          store, /*cancelled=*/{});
  });
}

}  // namespace ckptree::internal
