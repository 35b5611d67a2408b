#include "kv/commit_chain.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "kv/commit_log.h"
#include "kv/database.h"
#include "kv/hash.h"
#include "kv/head.h"
#include "kv/instance.h"
#include "kv/status.h"
#include "kv/status_macros.h"
#include "rocksdb/db.h"
#include "rocksdb/iterator.h"
#include "rocksdb/metadata.h"
#include "rocksdb/options.h"
#include "schema/spaces.h"

namespace ckptree::kv {
namespace {

constexpr std::size_t kKeyBytes = 1 + sizeof(std::uint64_t);

std::unique_ptr<rocksdb::Iterator> NewIterator(const Instance& instance) {
  return std::unique_ptr<rocksdb::Iterator>(instance.db()->NewIterator(
      rocksdb::ReadOptions(), instance.family(schema::Space::kRecords)));
}

std::optional<std::uint64_t> OrdinalOf(const rocksdb::Iterator& iterator) {
  if (!iterator.Valid()) return std::nullopt;
  const std::string_view key = iterator.key().ToStringView();
  BigEndianReader reader(key);
  if (key.size() != kKeyBytes ||
      reader.Read<std::uint8_t>() !=
          static_cast<std::uint8_t>(schema::Row::kCommit)) {
    return std::nullopt;
  }
  return reader.Read<std::uint64_t>();
}

absl::Status Lost(std::uint64_t first, std::uint64_t last) {
  return absl::DataLossError(absl::StrFormat(
      "commits %d to %d were acknowledged and are missing", first, last));
}

// All that were kept are there: from the commit at `iterator`, which is `next`,
// back to the oldest. A lost log leaves a hole however many commits follow it,
// and one that held the oldest leaves fewer than trimming does.
absl::Status CheckNoneIsMissing(rocksdb::Iterator* iterator,
                                std::uint64_t next, std::uint64_t newest) {
  for (; next > 0; --next, iterator->Prev()) {
    const std::optional<std::uint64_t> ordinal = OrdinalOf(*iterator);
    if (ordinal == next) continue;
    CKPTREE_RETURN_IF_ERROR(
        ToStatus(iterator->status(), "reading the commits"));
    if (ordinal.has_value()) return Lost(*ordinal + 1, next);
    return newest - next >= kKeptCommits ? absl::OkStatus() : Lost(1, next);
  }
  return absl::OkStatus();
}

// The version at the start of a key of `small`, `leaves` or `chunks`.
std::uint64_t VersionOfKey(std::string_view key) {
  return key.size() < sizeof(std::uint64_t)
             ? 0
             : BigEndianReader(key).Read<std::uint64_t>();
}

std::uint64_t HighestVersionInFiles(const Instance& instance) {
  std::vector<rocksdb::LiveFileMetaData> files;
  instance.db()->GetLiveFilesMetaData(&files);
  std::uint64_t highest = 0;
  for (const rocksdb::LiveFileMetaData& file : files) {
    for (const schema::Space space :
         {schema::Space::kSmall, schema::Space::kLeaves,
          schema::Space::kChunks}) {
      if (file.column_family_name ==
          schema::kSpaceNames[static_cast<std::size_t>(space)]) {
        highest = std::max(highest, VersionOfKey(file.largestkey));
      }
    }
  }
  return highest;
}

}  // namespace

absl::StatusOr<ChainTip> ReadTip(const Instance& instance) {
  const auto iterator = NewIterator(instance);
  iterator->SeekForPrev(
      CommitRecordKey(std::numeric_limits<std::uint64_t>::max()));
  CKPTREE_RETURN_IF_ERROR(
      ToStatus(iterator->status(), "reading the newest commit"));
  const std::optional<std::uint64_t> ordinal = OrdinalOf(*iterator);
  if (!ordinal.has_value()) return ChainTip{};
  return ChainTip{*ordinal, HashOf(iterator->value().ToStringView())};
}

absl::StatusOr<std::uint64_t> OldestOrdinal(const Instance& instance) {
  const auto iterator = NewIterator(instance);
  iterator->Seek(CommitRecordKey(0));
  CKPTREE_RETURN_IF_ERROR(
      ToStatus(iterator->status(), "reading the oldest commit"));
  return OrdinalOf(*iterator).value_or(0);
}

absl::Status CheckChain(const Instance& instance, bool beside_writer,
                        OpenReport* report) {
  const auto iterator = NewIterator(instance);
  iterator->SeekForPrev(
      CommitRecordKey(std::numeric_limits<std::uint64_t>::max()));
  std::optional<std::uint64_t> ordinal = OrdinalOf(*iterator);
  CKPTREE_RETURN_IF_ERROR(
      ToStatus(iterator->status(), "reading the newest commit"));
  const std::uint64_t newest = ordinal.value_or(0);
  if (!report->head_missing && newest < report->head.ordinal) {
    return Lost(newest + 1, report->head.ordinal);
  }
  if (newest == 0) {
    return absl::DataLossError("the store has no commit at all");
  }

  // From the newest one back: each record's `previous` is the next one's hash.
  std::optional<Hash> expected;
  std::vector<CommitRecord> records;
  std::uint64_t next = newest;  // That must come now.
  std::uint64_t small_safe = newest;
  std::uint64_t version = 0;
  while (next > 0 &&
         (newest - next < kCheckedCommits || next > small_safe)) {
    if (ordinal != next) {
      CKPTREE_RETURN_IF_ERROR(
          ToStatus(iterator->status(), "reading the commits"));
      return Lost(ordinal.value_or(0) + 1, next);
    }
    const std::string_view bytes = iterator->value().ToStringView();
    const Hash hash = HashOf(bytes);
    absl::StatusOr<CommitRecord> record = DecodeCommitRecord(bytes);
    if (!record.ok()) return std::move(record).status();
    if (record->ordinal != next || (expected && *expected != hash)) {
      return absl::DataLossError(absl::StrFormat(
          "commit %d is not the one that commit %d followed", next, next + 1));
    }
    if (!report->head_missing && next == report->head.ordinal &&
        hash != report->head.hash) {
      return absl::DataLossError(absl::StrFormat(
          "commit %d is not the one that HEAD acknowledges", next));
    }
    if (next == newest) small_safe = record->small_safe;
    if (next == 1 && record->previous != Hash{}) {
      return absl::DataLossError("the first commit follows another one");
    }
    expected = record->previous;
    version = std::max(version, record->version);
    if (next > small_safe) records.push_back(*std::move(record));
    --next;
    iterator->Prev();
    ordinal = OrdinalOf(*iterator);
  }
  CKPTREE_RETURN_IF_ERROR(CheckNoneIsMissing(iterator.get(), next, newest));
  std::reverse(records.begin(), records.end());

  report->ordinal = newest;
  report->recent = std::move(records);
  report->highest_version =
      std::max({report->highest_version, version, report->head.version_ceiling,
                HighestVersionInFiles(instance)});
  if (report->head_missing) {
    report->read_only_because = absl::FailedPreconditionError(
        "HEAD is gone or unreadable, so nobody can tell whether commits are "
        "missing; `ckptree repair` makes it writable again");
  } else if (newest == report->head.ordinal + 1) {
    // The writer died between the commit and HEAD: never acknowledged, whole.
    report->ahead_by_one = !beside_writer;
  } else if (newest > report->head.ordinal && !beside_writer) {
    report->read_only_because = absl::FailedPreconditionError(absl::StrFormat(
        "HEAD acknowledges commit %d but the newest one is %d: HEAD is an old "
        "copy; `ckptree repair` makes it writable again",
        report->head.ordinal, newest));
  }
  if (!report->read_only_because.ok()) {
    report->warnings.emplace_back(report->read_only_because.message());
  }
  return absl::OkStatus();
}

}  // namespace ckptree::kv
