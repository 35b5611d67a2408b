// SPDX-License-Identifier: Apache-2.0

#include "core/remote/far_rows.h"

#include <filesystem>
#include <iterator>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "core/process/out_of_reach.h"
#include "core/remote/address_cache.h"
#include "core/remote/fetched_copy.h"
#include "core/remote/remote_objects.h"
#include "core/remote/segment_upload.h"
#include "core/version/row_scan.h"
#include "kv/conditional_put.h"
#include "kv/store_directory.h"
#include "schema/spaces.h"

namespace ckptree::internal {
namespace {

constexpr absl::Duration kAnswerTime = absl::Minutes(1);

std::string NameOfFar(const schema::SegmentKeyFields& fields) {
  return schema::DescribeKey(schema::Space::kRecords,
                             schema::SegmentKey(fields));
}

}  // namespace

struct FarRows::Known : public kv::FarSegment {
  Known(schema::FarSegment of, base::Digest of_row, const std::string& uuid)
      : kv::FarSegment(FarSegmentOf(of.living, uuid)),
        far(std::move(of)),
        row(of_row) {
    far.living.segment.blocks = {};
  }

  schema::FarSegment far;  // Without its blocks.
  base::Digest row;        // Of the value that it was made of.
};

FarRows::FarRows(FarPlace::OpenFn open, FarReader reader)
    : open_(std::move(open)), reader_(std::move(reader)) {}

void FarRows::Rest() {
  std::vector<FarPlace*> places;
  {
    const absl::MutexLock lock(&mutex_);
    for (auto& [address, place] : places_) places.push_back(&place);
  }
  for (FarPlace* const place : places) place->attendant().Rest();
}

void FarRows::Begin(const kv::Database* database, const std::string& uuid) {
  database_ = database;
  uuid_ = uuid;
}

void FarRows::Load() {
  const absl::MutexLock loading(&loading_);
  const std::uint64_t view = database_->view() + 1;
  std::map<std::string, std::shared_ptr<const Known>, std::less<>> before;
  {
    const absl::MutexLock lock(&mutex_);
    before = known_;
  }
  std::map<std::string, std::shared_ptr<const Known>, std::less<>> now;
  const absl::Status read = ScanRows(
      *database_, schema::Row::kFar,
      [&](std::string_view key, std::string_view value) -> absl::Status {
        const auto fields = schema::DecodeFarKey(key);
        // What does not decode is told by verify.
        if (!fields.has_value()) return absl::OkStatus();
        std::string first_key = schema::SegmentHeaderKey(*fields);
        const base::Digest row = base::DigestOf(value);
        const auto same = before.find(first_key);
        if (same != before.end() && same->second->row == row) {
          now.emplace(std::move(first_key), same->second);
          return absl::OkStatus();
        }
        absl::StatusOr<schema::FarSegment> far =
            schema::DecodeFarSegment(value);
        if (far.ok()) {
          now.emplace(std::move(first_key), std::make_shared<const Known>(
                                                *std::move(far), row, uuid_));
        }
        return absl::OkStatus();
      });
  // What was known goes on where the rows cannot be read now.
  if (!read.ok()) return;
  any_ = !now.empty();
  {
    const absl::MutexLock lock(&mutex_);
    known_ = std::move(now);
  }
  view_ = view;
}

void FarRows::LoadIfNew() {
  if (database_ != nullptr && database_->view() + 1 != view_) Load();
}

bool FarRows::any() {
  LoadIfNew();
  return any_;
}

std::vector<kv::FarSegmentPtr> FarRows::List() {
  // A writer's own commits are no new view; a read of what they removed is
  // asked for by nobody, but this is a word on what there is.
  if (database_ != nullptr) Load();
  const absl::MutexLock lock(&mutex_);
  std::vector<kv::FarSegmentPtr> segments;
  segments.reserve(known_.size());
  for (const auto& [key, known] : known_) segments.push_back(known);
  return segments;
}

kv::FarSegmentPtr FarRows::Find(schema::Space space, std::string_view key) {
  LoadIfNew();
  if (!any_ || space != schema::Space::kChunks) return nullptr;
  const absl::MutexLock lock(&mutex_);
  const auto after = known_.upper_bound(key);
  if (after == known_.begin()) return nullptr;
  const std::shared_ptr<const Known>& known = std::prev(after)->second;
  return key <= known->last_key ? known : nullptr;
}

kv::FarSegmentPtr FarRows::FindFrom(schema::Space space, std::string_view key) {
  if (kv::FarSegmentPtr segment = Find(space, key)) return segment;
  if (space != schema::Space::kChunks) return nullptr;
  const absl::MutexLock lock(&mutex_);
  const auto next = known_.lower_bound(key);
  return next != known_.end() ? next->second : nullptr;
}

FarPlace& FarRows::PlaceOf(const std::string& address) {
  const absl::MutexLock lock(&mutex_);
  return places_
      .try_emplace(address, address, open_, reader_, FarPlace::Times())
      .first->second;
}

absl::Status FarRows::With(
    const Known& known,
    absl::FunctionRef<absl::Status(kv::ObjectStore& store)> ask) {
  const std::string& address = known.far.address;
  absl::Status status =
      PlaceOf(address).Ask([&](kv::ObjectStore& store) -> absl::Status {
        absl::Status said = ask(store);
        if (absl::IsDataLoss(said)) {
          const auto there =
              store.Head(known.name, kv::Call::Within(kAnswerTime));
          if (there.ok() && !there->has_value()) {
            said = absl::NotFoundError("gone");
          }
        }
        if (!absl::IsNotFound(said)) return said;
        CKPTREE_ASSIGN_OR_RETURN(
            const auto there,
            store.Head(kRemoteStoreName, kv::Call::Within(kAnswerTime)));
        if (there.has_value()) return said;
        // Nobody's word on the segment.
        return absl::UnavailableError(
            "there is no store: is that its address, and its file system "
            "mounted?");
      });
  if (status.ok()) return status;
  const std::string name = NameOfFar(known.far.living.segment.segment);
  if (absl::IsNotFound(status)) {
    // Its row is here, so it is neither removed nor damaged here.
    return absl::FailedPreconditionError(absl::StrFormat(
        "%s is not in this directory any more, and gone from %s: who took the "
        "store over there removed what needed it, or somebody deleted the "
        "object",
        name, address));
  }
  return OfObjectStore(
      absl::Status(
          status.code(),
          absl::StrFormat("%s is not in this directory, but in %s alone: %s",
                          name, address, status.message())),
      address);
}

absl::Status FarRows::Read(const kv::FarSegment& segment, std::uint64_t offset,
                           std::span<std::byte> into) {
  return With(static_cast<const Known&>(segment), [&](kv::ObjectStore& store) {
    CKPTREE_ASSIGN_OR_RETURN(
        const std::size_t read,
        store.GetRange(segment.name, offset, into, CallFor(into.size(), {})));
    return read == into.size()
               ? absl::OkStatus()
               : absl::DataLossError(absl::StrFormat(
                     "it is shorter than the %d bytes it had", segment.bytes));
  });
}

absl::StatusOr<kv::FarSegments::Copy> FarRows::Fetch(
    const kv::FarSegment& segment) {
  const Known& known = static_cast<const Known&>(segment);
  const std::optional<std::string> cache = CacheFolder();
  if (!cache.has_value()) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "%s is not in this directory, and a folder is needed for what is "
        "fetched: set XDG_CACHE_HOME",
        NameOfFar(known.far.living.segment.segment)));
  }
  const std::string folder = kv::Join(*cache, HexOf(uuid_));
  // Where it cannot be made, the file in it cannot.
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  const std::string path =
      kv::Join(folder, "fetched-" + kv::NewWriteId() + ".sst");
  absl::StatusOr<Copy> copy = absl::UnknownError("");
  const absl::Status fetched = With(known, [&](kv::ObjectStore& store) {
    copy = FetchCopy(known.far.living, uuid_, path, store);
    return copy.status();
  });
  CKPTREE_RETURN_IF_ERROR(fetched);
  return copy;
}

absl::Status FarRows::Answers() {
  std::set<std::string> asked;
  for (const kv::FarSegmentPtr& segment : List()) {
    const Known& known = static_cast<const Known&>(*segment);
    if (!asked.insert(known.far.address).second) continue;
    CKPTREE_RETURN_IF_ERROR(
        With(known, [&](kv::ObjectStore& store) -> absl::Status {
          CKPTREE_ASSIGN_OR_RETURN(
              const auto there,
              store.Head(kRemoteStoreName, kv::Call::Within(kAnswerTime)));
          return there.has_value() ? absl::OkStatus()
                                   : absl::NotFoundError("no store");
        }));
  }
  return absl::OkStatus();
}

absl::Status FarRows::Check(const kv::FarSegment& segment) {
  const Known& known = static_cast<const Known&>(segment);
  return With(known, [&](kv::ObjectStore& store) {
    return CompareSegment(known.far.living, uuid_, store, /*cancelled=*/{});
  });
}

}  // namespace ckptree::internal
