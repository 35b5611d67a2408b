// SPDX-License-Identifier: Apache-2.0

#include "core/collect/segment_files.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/status_macros.h"
#include "core/coding/block_coder.h"
#include "core/collect/rewrite_coder.h"
#include "core/version/open_check.h"
#include "core/version/row_scan.h"
#include "core/version/store_features.h"
#include "kv/monotonic.h"

namespace ckptree::internal {
namespace {

using schema::Space;

constexpr std::uint64_t kSmallFileBytes = 64 << 20;
constexpr std::uint64_t kMergedFileBytes = 256 << 20;
// More small files than this are merged, until only so many are left: a store
// of many small saves has at most these and one for each 64 MiB.
constexpr std::size_t kManyFiles = 256;
constexpr std::size_t kFewFiles = 192;
// A group of fewer small files is not worth its bytes.
constexpr std::size_t kFewestMerged = 4;
// Versions without a death after which a file is thought settled.
constexpr std::uint64_t kSettled = 16;
// Of its blocks' values a file is larger by keys, index, header and table:
// about this much a block, and at most this much a file otherwise.
constexpr std::uint64_t kOverheadOfBlock = 192;
constexpr std::uint64_t kOverheadOfFile = 4096;
// What says whether a file is worth packing: so many blocks, of each so much.
constexpr std::size_t kSampledBlocks = 16;
constexpr std::uint64_t kSampledBytes = 64 << 10;

bool Before(Space space, std::string_view key, const SegmentFile& file) {
  return std::pair(space, key) <
         std::pair(file.file.space, std::string_view(file.file.first_key));
}

absl::Status AddSegments(const kv::Database& database,
                         std::vector<SegmentFile>* files) {
  return ScanRows(
      database, schema::Row::kSegment,
      [files](std::string_view row_key, std::string_view value) {
        const auto key = schema::DecodeSegmentKey(row_key);
        if (!key.has_value()) return absl::OkStatus();
        const std::string header = schema::SegmentHeaderKey(*key);
        // The last file that begins at or before the header.
        const auto after = std::upper_bound(
            files->begin(), files->end(), header,
            [&key](const std::string& first, const SegmentFile& file) {
              return Before(key->space, first, file);
            });
        if (after == files->begin()) return absl::OkStatus();
        SegmentFile& file = *std::prev(after);
        if (file.file.space != key->space || file.file.last_key < header) {
          return absl::OkStatus();
        }
        auto row = schema::DecodeSegmentRow(value);
        // What cannot be read keeps its file.
        if (!row.ok()) {
          file.damaged = true;
          return absl::OkStatus();
        }
        file.live_bytes += row->bytes - row->dead_bytes;
        file.died_at = std::max(file.died_at, row->died_at);
        file.damaged |= row->damaged;
        file.segments.push_back({*key, *std::move(row)});
        return absl::OkStatus();
      });
}

std::uint64_t Entries(const SegmentFile& file) {
  std::uint64_t entries = 0;
  for (const auto& segment : file.segments) {
    entries += segment.row.block_count - segment.row.dead_count() + 2;
  }
  return entries;
}

// By the index of the file, which says what each value takes.
double ShareOfLiving(const kv::Database& database, const SegmentFile& file) {
  if (file.file.space != Space::kChunks || file.damaged || file.far ||
      file.live_bytes == 0) {
    return 1;
  }
  std::uint64_t stored = 0;
  for (const std::string& key : LivingBlocks(file)) {
    const std::optional<std::uint64_t> bytes =
        database.ValueBytes(Space::kChunks, key);
    if (!bytes.has_value()) return 1;
    stored += *bytes;
  }
  return std::min(
      1.0, static_cast<double>(stored) / static_cast<double>(file.live_bytes));
}

// Records that a rewrite keeps: the living blocks, header and table of every
// segment that has a row. Gaps go: nothing is aligned any more.
class Keep {
 public:
  Keep(const RewriteGroup& group, const RewriteHow& how,
       const std::function<bool()>& hurry)
      : bytes_per_second_(how.bytes_per_second),
        code_up_to_(group.files.front().file.space == Space::kChunks
                        ? how.code_up_to
                        : 0),
        hurry_(hurry) {
    for (const SegmentFile& file : group.files) {
      for (const auto& segment : file.segments) {
        rows_[{segment.key.version, segment.key.part, segment.key.builder}] =
            &segment.row;
      }
      expected_ += Entries(file);
    }
  }

  kv::Rewritten operator()(std::string_view key, std::string_view value,
                           std::string* changed) {
    Throttle(value.size());
    const auto block = schema::DecodeBlockKey(key);
    if (!block.has_value()) {
      return schema::IsGapKey(key) ? kv::Rewritten::kDropped
                                   : kv::Rewritten::kAsItIs;
    }
    const auto row =
        rows_.find({block->version, block->part, schema::BuilderOf(block->n)});
    if (row == rows_.end() ||
        row->second->IsDead(schema::SequenceOf(block->n))) {
      return kv::Rewritten::kDropped;
    }
    ++kept_;
    const std::uint32_t sequence = schema::SequenceOf(block->n);
    const bool is_block = sequence != schema::kHeaderSequence &&
                          sequence != schema::kTableSequence;
    if (!is_block || block->version > code_up_to_ ||
        !coder_.Code(value, changed)) {
      return kv::Rewritten::kAsItIs;
    }
    return kv::Rewritten::kChanged;
  }

  bool complete() const { return kept_ == expected_; }
  std::uint64_t kept() const { return kept_; }
  std::uint64_t expected() const { return expected_; }

 private:
  // A bucket that holds a tenth of a second.
  void Throttle(std::size_t bytes) {
    if (bytes_per_second_ == 0 || hurry_()) return;
    pending_ += bytes;
    if (pending_ < bytes_per_second_ / 10) return;
    const absl::Duration wanted = absl::Seconds(
        static_cast<double>(pending_) / static_cast<double>(bytes_per_second_));
    const absl::Time until = start_ + wanted;
    for (absl::Time now = kv::MonotonicNow(); now < until && !hurry_();
         now = kv::MonotonicNow()) {
      absl::SleepFor(std::min(until - now, absl::Milliseconds(100)));
    }
    start_ = kv::MonotonicNow();
    pending_ = 0;
  }

  using Name = std::tuple<std::uint64_t, std::uint16_t, std::uint8_t>;
  std::map<Name, const schema::SegmentRow*> rows_;
  const std::uint64_t bytes_per_second_;
  const std::uint64_t code_up_to_;
  RewriteCoder coder_;
  const std::function<bool()>& hurry_;
  std::uint64_t expected_ = 0;
  std::uint64_t kept_ = 0;
  std::uint64_t pending_ = 0;
  absl::Time start_ = kv::MonotonicNow();
};

// Finds out which file it is and has its segments left alone from now on.
absl::StatusOr<RewriteResult> MarkDamaged(kv::Database* database,
                                          const RewriteGroup& group,
                                          const absl::Status& why) {
  RewriteResult result;
  kv::CommitRequest request;
  request.kind = kv::CommitKind::kCollect;
  for (const SegmentFile& file : group.files) {
    const absl::Status status =
        group.files.size() == 1 ? why : database->CheckFile(file.file);
    if (status.ok()) continue;
    result.damaged.push_back(absl::StrFormat(
        "%s is damaged and stays as it is; `ckptree verify` says what it "
        "hurts: %s",
        file.file.path, status.message()));
    for (const auto& segment : file.segments) {
      schema::SegmentRow row = segment.row;
      row.damaged = true;
      request.batch.Put(Space::kRecords, schema::SegmentKey(segment.key),
                        schema::EncodeSegmentRow(row));
    }
  }
  if (request.batch.empty()) return why;
  CKPTREE_RETURN_IF_ERROR(database->Commit(std::move(request)).status);
  return result;
}

}  // namespace

absl::StatusOr<std::vector<SegmentFile>> ListSegmentFiles(
    const kv::Database& database,
    const std::function<std::uint64_t()>& version_in_flight) {
  CKPTREE_ASSIGN_OR_RETURN(std::vector<kv::LiveFile> live,
                           SortedLiveFiles(database));
  const std::uint64_t in_flight = version_in_flight ? version_in_flight() : 0;
  std::vector<SegmentFile> files;
  files.reserve(live.size());
  for (kv::LiveFile& file : live) {
    SegmentFile entry;
    const auto last = schema::DecodeBlockKey(file.last_key);
    // What cannot be understood is kept.
    entry.damaged = !file.whole || !last.has_value();
    entry.in_flight =
        in_flight != 0 && last.has_value() && last->version >= in_flight;
    entry.far = file.far;
    entry.file = std::move(file);
    files.push_back(std::move(entry));
  }
  CKPTREE_RETURN_IF_ERROR(AddSegments(database, &files));
  CKPTREE_ASSIGN_OR_RETURN(const bool coded,
                           HasFeature(database, kCodedFeature));
  for (SegmentFile& file : files) {
    if (coded) file.share = ShareOfLiving(database, file);
    bool some_died = file.segments.empty();
    for (const auto& segment : file.segments) {
      some_died |= !segment.row.dead.empty();
    }
    const auto first = schema::DecodeBlockKey(file.file.first_key);
    const auto last = schema::DecodeBlockKey(file.file.last_key);
    // One of several segments may have lost its row.
    some_died |=
        first.has_value() && last.has_value() &&
        (first->version != last->version || first->part != last->part ||
         schema::BuilderOf(first->n) != schema::BuilderOf(last->n));
    if (!some_died || file.damaged || file.in_flight || file.far) continue;
    CKPTREE_ASSIGN_OR_RETURN(const std::uint64_t there,
                             database.CountEntries(file.file));
    const std::uint64_t alive = Entries(file);
    if (there <= alive) continue;
    const auto living = static_cast<std::uint64_t>(
        file.share * static_cast<double>(file.live_bytes));
    const std::uint64_t kept =
        living + alive * kOverheadOfBlock + kOverheadOfFile;
    file.dead_bytes = std::max<std::uint64_t>(
        1, file.file.bytes - std::min(kept, file.file.bytes));
  }
  return files;
}

std::vector<std::string> LivingBlocks(const SegmentFile& file) {
  std::vector<std::string> keys;
  for (const SegmentFile::Segment& segment : file.segments) {
    for (std::uint32_t s = 1; s <= segment.row.block_count; ++s) {
      if (segment.row.IsDead(s)) continue;
      keys.push_back(
          schema::BlockKey(segment.key.version, segment.key.part,
                           schema::BlockNumber(segment.key.builder, s)));
    }
  }
  return keys;
}

bool WorthPacking(const kv::Database& database, const SegmentFile& file,
                  std::uint64_t code_up_to) {
  if (file.file.space != Space::kChunks || file.damaged || file.in_flight ||
      file.far) {
    return false;
  }
  std::vector<std::string> keys = LivingBlocks(file);
  std::erase_if(keys, [&](const std::string& key) {
    const auto block = schema::DecodeBlockKey(key);
    return !block.has_value() || block->version > code_up_to;
  });
  if (keys.empty()) return false;
  const std::size_t count = std::min(keys.size(), kSampledBlocks);
  BlockCoder coder;
  std::vector<std::byte> sample;
  double before = 0;
  double after = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::string& key = keys[i * keys.size() / count];
    const std::optional<std::uint64_t> bytes =
        database.ValueBytes(Space::kChunks, key);
    if (!bytes.has_value() || *bytes == 0) continue;
    sample.resize(std::min(*bytes, kSampledBytes));
    if (!database.ReadUnchecked(Space::kChunks, key, *bytes, 0, sample)) {
      continue;
    }
    // The bytes of a coded block look like noise to the coder, but for its
    // head: no need to know which it is.
    const auto size = static_cast<double>(*bytes);
    before += size;
    after += size * coder.ShareBySample(sample);
  }
  return before > 0 && after <= BlockCoder::kMostOfRaw * before;
}

std::vector<RewriteGroup> ChooseRewrites(const std::vector<SegmentFile>& files,
                                         const RewriteLimits& limits) {
  if (limits.min_dead_fraction >= 1) return {};
  std::size_t small = 0;
  for (const SegmentFile& file : files) {
    small +=
        file.file.bytes < kSmallFileBytes && !file.damaged && !file.far ? 1 : 0;
  }
  std::size_t too_many = small > kManyFiles ? small - kFewFiles : 0;

  const auto worth_it = [&limits](const SegmentFile& file) {
    if (file.dead_bytes == 0) return false;
    if (file.segments.empty()) return true;
    if (limits.min_dead_fraction <= 0) return true;
    const double dead = static_cast<double>(file.dead_bytes) /
                        static_cast<double>(file.file.bytes);
    const bool settled = file.died_at + kSettled <= limits.newest;
    return dead >= std::max(0.5, limits.min_dead_fraction) ||
           (settled && dead >= limits.min_dead_fraction);
  };
  std::vector<RewriteGroup> groups;
  RewriteGroup group;
  std::uint64_t bytes = 0;
  std::size_t dirty = 0;
  const auto close = [&] {
    if (dirty > 0 || group.files.size() >= kFewestMerged) {
      if (dirty == 0) too_many -= std::min(too_many, group.files.size() - 1);
      groups.push_back(std::move(group));
    }
    group = {};
    bytes = 0;
    dirty = 0;
  };
  for (const SegmentFile& file : files) {
    const bool closed = file.damaged || file.in_flight || file.far;
    const bool is_dirty = !closed && worth_it(file);
    const bool is_small =
        !closed && too_many > 0 && file.file.bytes < kSmallFileBytes;
    if (!is_dirty && !is_small) {
      close();
      continue;
    }
    // Large files are written again one by one: merging them gains nothing.
    const bool fits = bytes + file.live_bytes <= kMergedFileBytes &&
                      (group.files.empty() ||
                       group.files.back().file.space == file.file.space);
    if (!fits) close();
    group.files.push_back(file);
    bytes += file.live_bytes;
    dirty += is_dirty ? 1 : 0;
    if (dirty == 0 && group.files.size() > too_many) close();
  }
  close();
  return groups;
}

absl::StatusOr<RewriteResult> RewriteGroupOf(
    kv::Database* database, const RewriteGroup& group, const RewriteHow& how,
    const std::function<bool()>& hurry) {
  std::vector<kv::LiveFile> files;
  for (const SegmentFile& file : group.files) files.push_back(file.file);
  Keep keep(group, how, hurry);
  const absl::StatusOr<std::uint64_t> written = database->Rewrite(
      files.front().space, files,
      [&keep](std::string_view key, std::string_view value,
              std::string* changed) { return keep(key, value, changed); });
  if (absl::IsDataLoss(written.status())) {
    return MarkDamaged(database, group, written.status());
  }
  CKPTREE_RETURN_IF_ERROR(written.status());
  if (!keep.complete()) {
    return absl::DataLossError(absl::StrFormat(
        "%s had %d records instead of %d when it was written again; run "
        "`ckptree verify`",
        files.front().path, keep.kept(), keep.expected()));
  }
  RewriteResult result;
  result.bytes_written = *written;
  return result;
}

}  // namespace ckptree::internal
