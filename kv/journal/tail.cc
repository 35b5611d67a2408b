// SPDX-License-Identifier: Apache-2.0

#include "kv/journal/tail.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

#include "base/status_macros.h"
#include "kv/file_system.h"
#include "kv/files/file_system_of.h"
#include "kv/journal/preface.h"
#include "kv/journal/record.h"
#include "kv/journal/replay.h"
#include "kv/monotonic.h"
#include "kv/store_directory.h"
#include "rocksdb/file_system.h"

namespace ckptree::kv {
namespace {

// A preface and a record both begin with what is no zero.
constexpr std::size_t kFront = 8;
constexpr absl::Duration kLookAgain = absl::Seconds(1);
// Most records are shorter; what a longer one lacks is read then.
constexpr std::size_t kFirstRead = std::size_t{64} << 10;

}  // namespace

JournalTail::JournalTail(const Options& options, const std::string& directory)
    : options_(options), directory_(Join(directory, kJournalName)) {}

JournalTail::~JournalTail() = default;

void JournalTail::Start(const JournalContent& content) {
  watched_.clear();
  looked_ = kv::MonotonicNow();
  preface_ = content.newest;
  preface_.copy = Copy::kA;
  session_ = content.highest_session;
  durable_ = content.durable;
  if (content.end_file == 0) return;
  watched_.push_back({content.end_file, content.end_offset, true, nullptr});
  // A writer that was killed may have made files ahead: the next one begins
  // behind them.
  for (const JournalFileId& id : content.files) {
    if (id.copy == Copy::kA && id.file > content.end_file) {
      watched_.push_back({id.file, 0, true, nullptr});
    }
  }
  watched_.push_back({std::max(content.highest_file, content.end_file) + 1, 0,
                      false, nullptr});
}

bool JournalTail::WatchesAll() const {
  const absl::StatusOr<std::vector<std::string>> names =
      ListDirectory(options_, directory_);
  if (!names.ok()) return false;
  return std::ranges::all_of(*names, [this](const std::string& name) {
    const std::optional<JournalFileId> id = ParseJournalFileName(name);
    return !id.has_value() || id->file < watched_.front().file ||
           std::ranges::any_of(watched_, [&](const Place& place) {
             return place.file == id->file;
           });
  });
}

absl::StatusOr<bool> JournalTail::IsListed(std::uint64_t file) const {
  CKPTREE_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                           ListDirectory(options_, directory_));
  return std::count(names.begin(), names.end(),
                    JournalFileName(Copy::kA, file)) > 0;
}

bool JournalTail::IsEmpty(Place* place) const {
  if (place->open == nullptr) {
    if (options_.shared_folder && !place->made) {
      const absl::StatusOr<bool> listed = IsListed(place->file);
      if (!listed.ok()) return false;
      if (!*listed) return true;
      place->made = true;
    }
    const std::string path =
        Join(directory_, JournalFileName(Copy::kA, place->file));
    const rocksdb::IOStatus opened =
        FileSystemOf(options_)->NewRandomAccessFile(
            path, rocksdb::FileOptions(), &place->open, nullptr);
    // The next one is not there yet.
    if (!opened.ok()) return opened.IsNotFound() || opened.IsPathNotFound();
  }
  std::array<char, kFront> buffer{};
  rocksdb::Slice read;
  const rocksdb::IOStatus status =
      place->open->Read(place->offset, buffer.size(), rocksdb::IOOptions(),
                        &read, buffer.data(), nullptr);
  if (!status.ok()) return false;
  for (std::size_t i = 0; i < read.size(); ++i) {
    if (read[i] != '\0') return false;
  }
  return true;
}

std::string JournalTail::ReadAt(const Place& place, std::uint64_t offset,
                                std::size_t bytes) const {
  std::string buffer(bytes, '\0');
  rocksdb::Slice read;
  const rocksdb::IOStatus status = place.open->Read(
      offset, bytes, rocksdb::IOOptions(), &read, buffer.data(), nullptr);
  if (!status.ok()) return "";
  if (read.data() != buffer.data())
    return std::string(read.data(), read.size());
  buffer.resize(read.size());
  return buffer;
}

std::optional<JournalRecord> JournalTail::NextRecord(const Place& place) const {
  auto bytes =
      std::make_shared<std::string>(ReadAt(place, place.offset, kFirstRead));
  const auto length = RecordBytes(*bytes);
  if (!length.has_value()) return std::nullopt;
  if (*length > bytes->size()) {
    // Of a length that the file has: it may be damaged.
    const absl::StatusOr<std::uint64_t> size = FileSize(
        options_, Join(directory_, JournalFileName(Copy::kA, place.file)));
    if (!size.ok() || *size < place.offset || *length > *size - place.offset) {
      return std::nullopt;
    }
    *bytes = ReadAt(place, place.offset, *length);
  }
  const auto parsed = ParseRecord(*bytes, 0);
  if (!parsed.has_value() || parsed->header.a_offset != place.offset ||
      parsed->header.file != place.file) {
    return std::nullopt;
  }
  JournalRecord record;
  static_cast<ParsedRecord&>(record) = *parsed;
  record.file = place.file;
  const std::size_t front = kRecordHeaderBytes + record.header.rows_bytes;
  record.blocks =
      std::string_view(*bytes).substr(front, record.header.block_bytes);
  record.held[0] = bytes;
  record.held[1] = std::move(bytes);
  if (!BlocksAreWhole(record)) return std::nullopt;
  return record;
}

std::optional<JournalContent> JournalTail::ReadOn(const ChainPoint& seen) {
  // A journal of which no copy of this file has a preface is to be read whole.
  if (watched_.empty() || preface_.file != watched_.front().file) {
    return std::nullopt;
  }
  JournalContent content;
  content.highest_session = session_;
  content.durable = durable_;
  // Before the records: what it says of is among them then.
  const absl::StatusOr<std::string> note =
      ReadFile(options_, Join(directory_, kTipName), kPrefaceBytes);
  if (!note.ok()) return std::nullopt;
  if (const auto tip = DecodeTip(*note); tip.has_value()) {
    if (tip->uuid != preface_.uuid || tip->session != session_) {
      return std::nullopt;
    }
    content.durable = std::max(content.durable, tip->ordinal);
  }
  for (Place& place : watched_) place.open.reset();
  Place next;
  next.file = watched_.front().file;
  next.offset = watched_.front().offset;
  const rocksdb::IOStatus opened = FileSystemOf(options_)->NewRandomAccessFile(
      Join(directory_, JournalFileName(Copy::kA, next.file)),
      rocksdb::FileOptions(), &next.open, nullptr);
  if (!opened.ok() ||
      DecodePreface(ReadAt(next, 0, kPrefaceBytes)) != preface_) {
    return std::nullopt;
  }
  content.tip = seen;
  while (true) {
    std::optional<JournalRecord> record = NextRecord(next);
    if (!record.has_value()) break;
    const RecordHeader& header = record->header;
    // A seal ends the file, and says that another open begins the next.
    if (header.kind == CommitKind::kSeal || header.session != session_ ||
        header.ordinal != content.tip.ordinal + 1 ||
        header.previous != content.tip.hash) {
      return std::nullopt;
    }
    content.version_ceiling = std::max(
        {content.version_ceiling, header.version_ceiling, header.version});
    content.tip = record->point();
    next.offset = record->a_end();
    content.records[header.ordinal] = *std::move(record);
  }
  // Behind the last one is what was made ahead, and nothing in a later file:
  // whoever began one may have found that these records are void.
  if (content.records.empty() || !IsEmpty(&next) || !WatchesAll() ||
      !std::all_of(watched_.begin() + 1, watched_.end(),
                   [this](Place& place) { return IsEmpty(&place); })) {
    return std::nullopt;
  }
  watched_.front() = std::move(next);
  durable_ = content.durable;
  looked_ = kv::MonotonicNow();
  return content;
}

bool JournalTail::Unchanged() {
  if (watched_.empty() || kv::MonotonicNow() - looked_ > kLookAgain)
    return false;
  if (options_.shared_folder) {
    for (Place& place : watched_) place.open.reset();
  }
  // A writer that came and went removes it, and each file behind it, once all
  // of them is in rows.
  const std::string front = JournalFileName(Copy::kA, watched_.front().file);
  if (!FileSize(options_, Join(directory_, front)).ok()) return false;
  return std::all_of(watched_.begin(), watched_.end(),
                     [this](Place& place) { return IsEmpty(&place); });
}

}  // namespace ckptree::kv
