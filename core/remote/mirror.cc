// SPDX-License-Identifier: Apache-2.0

#include "core/remote/mirror.h"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "base/status_macros.h"
#include "core/remote/chain.h"
#include "core/remote/chain_rows.h"
#include "core/remote/left_stores.h"
#include "core/remote/remote_objects.h"
#include "core/remote/segment_upload.h"
#include "core/version/open_check.h"
#include "kv/conditional_put.h"
#include "kv/database.h"
#include "kv/file_system.h"
#include "kv/segment_writer.h"
#include "kv/store_directory.h"
#include "schema/keys.h"
#include "schema/remote_record.h"

namespace ckptree::internal {
namespace {

using schema::RemoteRow;
using schema::Space;

constexpr std::size_t kBatchOfRows = std::size_t{8} << 20;
constexpr std::size_t kSegmentsAtOnce = 8;
constexpr char kFetched[] = "fetched";  // In staging.
// Without an index all commits are read; each has a deadline, too.
constexpr absl::Duration kChainTime = absl::Minutes(30);

// From now on: segments are fetched between two of them, however long.
kv::Call ChainCall() { return kv::Call::Within(kChainTime); }

// Confined to one thread.
class Mirror {
 public:
  Mirror(kv::ObjectStore& store, const std::string& uuid,
         const std::string& directory, const kv::Options& options, bool fetches)
      : store_(store),
        uuid_(uuid),
        directory_(directory),
        options_(options),
        fetches_(fetches),
        chain_(&store, uuid_),
        rows_(uuid, /*keeps_rows=*/false) {
    options_.on_commit = nullptr;
    if (fetches_) return;
    // Rows name segments that are elsewhere.
    options_.far = nullptr;
    options_.all_far = false;
    options_.index_is_whole = nullptr;
    options_.segment_space = nullptr;
  }

  absl::Status Make(ChainPoint* point) {
    CKPTREE_RETURN_IF_ERROR(Clear());
    const auto take = [&](const RemoteRow& row) { return Take(row); };
    CKPTREE_RETURN_IF_ERROR(rows_.Read(&chain_, store_, ChainCall(), take,
                                       [&] { return Clear(); }));
    if (database_ == nullptr) {
      if (chain_.ordinal() == 0) {
        CKPTREE_RETURN_IF_ERROR(CheckNoOther(store_, uuid_, ChainCall()));
      }
      return absl::NotFoundError(
          absl::StrFormat("nothing was shipped to %s yet", store_.address()));
    }
    CKPTREE_RETURN_IF_ERROR(Write());
    if (fetches_) CKPTREE_RETURN_IF_ERROR(FetchSegments());
    if (point != nullptr) *point = {chain_.ordinal(), chain_.hash()};
    return database_->Close();
  }

  absl::Status Advance(const LivingSegments& segments,
                       absl::FunctionRef<absl::Status(const LivingSegments& all,
                                                      const ChainPoint& to)>
                           keep,
                       ChainPoint* point) {
    CKPTREE_ASSIGN_OR_RETURN(
        database_,
        kv::Database::Open(directory_, options_, kv::Mode::kReadWrite,
                           [](const kv::Database&, const kv::OpenReport&) {
                             return absl::OkStatus();
                           }));
    CKPTREE_RETURN_IF_ERROR(KnowSegments(segments));
    CKPTREE_RETURN_IF_ERROR(
        chain_.GoOnFrom(point->ordinal, point->hash, ChainCall()));
    holds_rows_ = true;
    CKPTREE_RETURN_IF_ERROR(
        rows_.ReadOn(&chain_, store_, ChainCall(),
                     [&](const RemoteRow& one) { return Take(one); }));
    const ChainPoint end{chain_.ordinal(), chain_.hash()};
    CKPTREE_RETURN_IF_ERROR(keep(rows_.index().segments(), end));
    CKPTREE_RETURN_IF_ERROR(Write());
    CKPTREE_RETURN_IF_ERROR(database_->Close());
    *point = end;
    return absl::OkStatus();
  }

  const LivingSegments& segments() { return rows_.index().segments(); }
  // Of segments that are not there as they were put.
  std::vector<std::string> TakeLost() { return std::move(lost_); }

 private:
  // Those that rows of the mirror name.
  absl::Status KnowSegments(const LivingSegments& segments) {
    const schema::KeyRange range = schema::AllRows(schema::Row::kSegment);
    CKPTREE_ASSIGN_OR_RETURN(
        kv::Iterator row,
        database_->Scan(Space::kRecords, range.begin, range.end));
    for (; row.Valid(); row.Next()) {
      const auto known = segments.find(std::string(row.key()));
      if (known == segments.end()) {
        return absl::DataLossError(absl::StrFormat(
            "%s has a row of %s, which its list of segments lacks: remove that "
            "folder, it is made anew",
            directory_, schema::DescribeKey(Space::kRecords, row.key())));
      }
      rows_.index().Know(known->first, known->second);
    }
    return row.status();
  }

  absl::Status Clear() {
    database_.reset();
    batch_ = {};
    return kv::RemoveTree(options_, directory_);
  }

  absl::Status Take(const RemoteRow& row) {
    // Somebody else's word on what this directory has.
    if (IsOfTheDirectory(row.space, row.key)) return absl::OkStatus();
    if (database_ == nullptr) return Create(row);
    const std::optional<schema::SmallKeyFields> small =
        row.space == Space::kSmall ? schema::DecodeSmallKey(row.key)
                                   : std::nullopt;
    if (!row.value.has_value()) {
      batch_.Delete(row.space, row.key);
      if (holds_rows_) deleted_.emplace(row.space, row.key);
    } else if (MayComeBefore(row)) {
      TakeBefore(row);
    } else if (small.has_value() && small->kind == schema::BlockKind::kChunk) {
      batch_.PutBlock(row.key, *row.value);
    } else {
      batch_.Put(row.space, row.key, *row.value);
    }
    return holds_rows_ || batch_.bytes() < kBatchOfRows ? absl::OkStatus()
                                                        : Write();
  }

  // Trees and blocks of small saves: most bytes of an update that is seen as a
  // whole. Nothing refers to them before its other rows are there; but for one
  // that goes in the same update, and comes again.
  bool MayComeBefore(const RemoteRow& row) const {
    const bool referred_to =
        row.space == Space::kSmall ||
        row.key.front() == static_cast<char>(schema::Row::kTree) ||
        row.key.front() == static_cast<char>(schema::Row::kTreePage);
    return holds_rows_ && referred_to &&
           !deleted_.contains({row.space, row.key});
  }
  void TakeBefore(const RemoteRow& row) {
    if (before_.empty() || before_.back().bytes() >= kBatchOfRows) {
      before_.emplace_back();
    }
    const auto small = row.space == Space::kSmall
                           ? schema::DecodeSmallKey(row.key)
                           : std::nullopt;
    if (small.has_value() && small->kind == schema::BlockKind::kChunk) {
      before_.back().PutBlock(row.key, *row.value);
    } else {
      before_.back().Put(row.space, row.key, *row.value);
    }
  }

  // The row of the store sorts before all others.
  absl::Status Create(const RemoteRow& row) {
    if (row.space != Space::kRecords || row.key != schema::StoreKey() ||
        !row.value.has_value()) {
      return absl::DataLossError(absl::StrFormat(
          "the first row in %s is not that of the store", store_.address()));
    }
    CKPTREE_ASSIGN_OR_RETURN(
        database_, kv::Database::Create(directory_, options_, uuid_, row.key,
                                        *row.value, kv::WriteBatch()));
    return absl::OkStatus();
  }

  absl::Status Write() {
    kv::CommitRequest request;
    request.kind = kv::CommitKind::kSave;
    request.version = rows_.index().ceiling();
    request.batch = std::exchange(batch_, {});
    request.before = std::exchange(before_, {});
    return database_->Commit(std::move(request)).status;
  }

  absl::Status FetchSegments() {
    if (rows_.index().segments().empty()) return absl::OkStatus();
    CKPTREE_RETURN_IF_ERROR(database_->MakeStaging(kFetched));
    const std::string folder =
        kv::Join(database_->staging_directory(), kFetched);
    std::vector<kv::StagedSegment> staged;
    std::size_t count = 0;
    std::string key;  // The next one to look at stands at it, or behind.
    while (true) {
      const auto& segments = rows_.index().segments();
      const auto next = segments.lower_bound(key);
      if (next == segments.end()) break;
      const auto [row_key, living] = *next;
      key = row_key + '\0';
      if (!fetched_.insert(row_key).second) continue;
      const schema::SegmentKeyFields& fields = living.segment.segment;
      kv::StagedSegment segment;
      segment.space = fields.space;
      segment.path = kv::Join(folder, absl::StrFormat("%d.sst", count++));
      segment.first_key = schema::SegmentHeaderKey(fields);
      segment.last_key = schema::SegmentTableKey(fields);
      segment.file_bytes = living.segment.bytes;
      const absl::Status there =
          DownloadSegment(living.segment, living.era, uuid_, segment.path,
                          store_, /*cancelled=*/{});
      if (absl::IsDataLoss(there)) {
        // Its row may have gone since: then it did, too.
        CKPTREE_RETURN_IF_ERROR(
            rows_.ReadOn(&chain_, store_, ChainCall(),
                         [&](const RemoteRow& row) { return Take(row); }));
        CKPTREE_RETURN_IF_ERROR(Write());
        std::error_code error;
        std::filesystem::remove(segment.path, error);
        if (rows_.index().segments().contains(row_key)) {
          lost_.emplace_back(there.message());
          continue;
        }
        key.clear();  // What came with that is fetched, too.
        continue;
      }
      CKPTREE_RETURN_IF_ERROR(there);
      staged.push_back(std::move(segment));
      if (staged.size() < kSegmentsAtOnce) continue;
      CKPTREE_RETURN_IF_ERROR(database_->Adopt(std::exchange(staged, {})));
    }
    CKPTREE_RETURN_IF_ERROR(database_->Adopt(staged));
    return database_->RemoveStaging(kFetched);
  }

  kv::ObjectStore& store_;
  const std::string uuid_;
  const std::string directory_;
  kv::Options options_;
  const bool fetches_;  // Segments, too.
  RemoteChain chain_;
  ChainRows rows_;
  bool holds_rows_ = false;        // Until all of an update are there.
  std::set<RowName> deleted_;      // In it.
  std::set<std::string> fetched_;  // Keys of rows.
  std::vector<std::string> lost_;
  std::unique_ptr<kv::Database> database_;
  std::vector<kv::WriteBatch> before_;
  kv::WriteBatch batch_;
};

}  // namespace

absl::Status MakeMirror(kv::ObjectStore& store, const std::string& uuid,
                        const std::string& directory,
                        const kv::Options& options, LivingSegments* segments,
                        ChainPoint* point) {
  Mirror mirror(store, uuid, directory, options, /*fetches=*/false);
  CKPTREE_RETURN_IF_ERROR(mirror.Make(point));
  *segments = mirror.segments();
  return absl::OkStatus();
}

absl::Status AdvanceMirror(kv::ObjectStore& store, const std::string& uuid,
                           const std::string& directory,
                           const kv::Options& options,
                           const LivingSegments& segments,
                           absl::FunctionRef<absl::Status(
                               const LivingSegments& all, const ChainPoint& to)>
                               keep,
                           ChainPoint* point) {
  return Mirror(store, uuid, directory, options, /*fetches=*/false)
      .Advance(segments, keep, point);
}

absl::Status FetchStore(kv::ObjectStore& store, const std::string& uuid,
                        const std::string& directory,
                        const kv::Options& options,
                        std::vector<std::string>* lost) {
  const std::string fetched = kv::Join(directory, kv::kFetchingName);
  Mirror mirror(store, uuid, fetched, options, /*fetches=*/true);
  const absl::Status made = mirror.Make(nullptr);
  if (!made.ok()) {
    // It would take the room of what is tried next.
    kv::RemoveTree(options, fetched).IgnoreError();
    return made;
  }
  *lost = mirror.TakeLost();
  return absl::OkStatus();
}

}  // namespace ckptree::internal
