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

// Confined to one thread.
class Mirror {
 public:
  Mirror(kv::ObjectStore& store, const std::string& uuid,
         const std::string& directory, const std::string& known,
         const kv::Options& options, std::stop_token cancelled)
      : store_(store),
        uuid_(uuid),
        directory_(directory),
        known_(known),
        options_(options),
        cancelled_(std::move(cancelled)),
        call_(kv::Call::Within(kChainTime, cancelled_)),
        chain_(&store, uuid_),
        rows_(uuid, "", /*keeps_rows=*/false) {
    options_.on_commit = nullptr;
  }

  absl::Status Make(ChainPoint* point) {
    CKPTREE_RETURN_IF_ERROR(Clear());
    const auto take = [&](const RemoteRow& row) { return Take(row); };
    CKPTREE_RETURN_IF_ERROR(
        rows_.Read(&chain_, store_, call_, take, [&] { return Clear(); }));
    if (database_ == nullptr) {
      return absl::NotFoundError(
          absl::StrFormat("nothing was shipped to %s yet", store_.address()));
    }
    CKPTREE_RETURN_IF_ERROR(Write());
    CKPTREE_RETURN_IF_ERROR(FetchSegments());
    if (point != nullptr) *point = {chain_.ordinal(), chain_.hash()};
    return database_->Close();
  }

  // Segments come first, so that no row is seen without its own.
  absl::Status Advance(ChainPoint* point) {
    CKPTREE_ASSIGN_OR_RETURN(
        database_,
        kv::Database::Open(directory_, options_, kv::Mode::kReadWrite,
                           [](const kv::Database&, const kv::OpenReport&) {
                             return absl::OkStatus();
                           }));
    CKPTREE_RETURN_IF_ERROR(KnowSegments());
    CKPTREE_RETURN_IF_ERROR(database_->RemoveStaging(kFetched));
    // What an update brought that did not come to its end.
    CKPTREE_ASSIGN_OR_RETURN(const std::vector<kv::LiveFile> files,
                             SortedLiveFiles(*database_));
    CKPTREE_RETURN_IF_ERROR(
        chain_.GoOnFrom(point->ordinal, point->hash, call_));
    holds_rows_ = true;
    CKPTREE_RETURN_IF_ERROR(
        rows_.ReadOn(&chain_, store_, call_,
                     [&](const RemoteRow& one) { return Take(one); }));
    for (const auto& [key, living] : rows_.index().segments()) {
      const auto fields = schema::DecodeSegmentKey(key);
      if (fields.has_value() && FileOfSegment(files, *fields) != nullptr) {
        fetched_.insert(key);
      }
    }
    CKPTREE_RETURN_IF_ERROR(FetchSegments());
    holds_rows_ = false;
    CKPTREE_RETURN_IF_ERROR(Write());
    // What removed steps had alone.
    CKPTREE_RETURN_IF_ERROR(DropUnlistedFiles(database_.get()).status());
    *point = {chain_.ordinal(), chain_.hash()};
    return database_->Close();
  }

 private:
  // Those that the mirror has.
  absl::Status KnowSegments() {
    const schema::KeyRange range = schema::AllRows(schema::Row::kSegment);
    CKPTREE_ASSIGN_OR_RETURN(
        kv::Iterator row,
        database_->Scan(Space::kRecords, range.begin, range.end));
    for (; row.Valid(); row.Next()) {
      fetched_.insert(std::string(row.key()));
      rows_.index().Know(std::string(row.key()));
    }
    return row.status();
  }

  absl::Status Clear() {
    database_.reset();
    batch_ = {};
    return kv::RemoveTree(options_, directory_);
  }

  absl::Status Take(const RemoteRow& row) {
    if (database_ == nullptr) return Create(row);
    const std::optional<schema::SmallKeyFields> small =
        row.space == Space::kSmall ? schema::DecodeSmallKey(row.key)
                                   : std::nullopt;
    if (!row.value.has_value()) {
      batch_.Delete(row.space, row.key);
    } else if (small.has_value() && small->kind == schema::BlockKind::kChunk) {
      batch_.PutBlock(row.key, *row.value);
    } else {
      batch_.Put(row.space, row.key, *row.value);
    }
    return holds_rows_ || batch_.bytes() < kBatchOfRows ? absl::OkStatus()
                                                        : Write();
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
      const absl::Status there = Fetch(living, segment.path);
      if (absl::IsDataLoss(there)) {
        // Its row may have gone since: then it did, too.
        CKPTREE_RETURN_IF_ERROR(
            rows_.ReadOn(&chain_, store_, call_,
                         [&](const RemoteRow& row) { return Take(row); }));
        if (!holds_rows_) CKPTREE_RETURN_IF_ERROR(Write());
        if (rows_.index().segments().contains(row_key)) return there;
        std::error_code error;
        std::filesystem::remove(segment.path, error);
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

  absl::Status Fetch(const schema::RemoteLiving& living,
                     const std::string& path) {
    const auto download = [&](const std::string& to) {
      return DownloadSegment(living.segment, living.era, uuid_, to, store_,
                             cancelled_);
    };
    if (known_.empty()) return download(path);
    const std::string kept = kv::Join(known_, HexOf(living.segment.attempt));
    std::error_code error;
    // Another process may remove it between the two, as one that nobody has.
    for (int attempt = 0; attempt < 3; ++attempt) {
      if (!std::filesystem::exists(kept, error)) {
        const std::string partial = kept + "." + kv::NewWriteId();
        CKPTREE_RETURN_IF_ERROR(download(partial));
        std::filesystem::rename(partial, kept, error);
      }
      // A second name of the same bytes; adoption takes that one.
      if (!error) std::filesystem::create_hard_link(kept, path, error);
      if (!error) return absl::OkStatus();
      if (error != std::errc::no_such_file_or_directory) break;
    }
    return absl::ErrnoToStatus(error.value(), "linking " + kept);
  }

  kv::ObjectStore& store_;
  const std::string uuid_;
  const std::string directory_;
  const std::string known_;
  kv::Options options_;
  const std::stop_token cancelled_;
  const kv::Call call_;
  RemoteChain chain_;
  ChainRows rows_;
  bool holds_rows_ = false;        // Until the segments are there.
  std::set<std::string> fetched_;  // Keys of rows.
  std::unique_ptr<kv::Database> database_;
  kv::WriteBatch batch_;
};

}  // namespace

absl::Status MakeMirror(kv::ObjectStore& store, const std::string& uuid,
                        const std::string& directory, const std::string& known,
                        const kv::Options& options, std::stop_token cancelled,
                        ChainPoint* point) {
  return Mirror(store, uuid, directory, known, options, std::move(cancelled))
      .Make(point);
}

absl::Status AdvanceMirror(kv::ObjectStore& store, const std::string& uuid,
                           const std::string& directory,
                           const std::string& known, const kv::Options& options,
                           ChainPoint* point) {
  return Mirror(store, uuid, directory, known, options, {}).Advance(point);
}

absl::Status FetchStore(kv::ObjectStore& store, const std::string& uuid,
                        const std::string& directory,
                        const kv::Options& options) {
  const std::string whole = kv::AbsolutePath(directory);
  const std::string partial = whole + ".fetching";
  CKPTREE_RETURN_IF_ERROR(MakeMirror(store, uuid, partial, "", options, {}));
  std::error_code error;
  std::filesystem::rename(partial, whole, error);
  if (error) {
    return absl::ErrnoToStatus(
        error.value(), absl::StrFormat("renaming %s to %s", partial, whole));
  }
  return kv::SyncDirectory(options,
                           std::filesystem::path(whole).parent_path().string());
}

}  // namespace ckptree::internal
