// SPDX-License-Identifier: Apache-2.0

#include "kv/rocks/far_tables.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "base/big_endian.h"
#include "base/status_macros.h"
#include "kv/file_system.h"
#include "kv/files/file_system_of.h"
#include "kv/files/status.h"
#include "kv/rocks/block_entry.h"
#include "kv/rocks/fetched_table.h"
#include "kv/rocks/guard.h"
#include "kv/rocks/segment_layout.h"
#include "kv/rocks/table_parts.h"
#include "rocksdb/file_system.h"
#include "rocksdb/iterator.h"
#include "rocksdb/options.h"

namespace ckptree::kv {
namespace {

// Open at once; those in use outlive that.
constexpr std::size_t kTablesOpen = 64;
// What stands between two blocks that are read together: less than another
// request takes.
constexpr std::uint64_t kMostBetweenFar = std::uint64_t{256} << 10;

std::optional<std::uint32_t> NumberOf(std::string_view key) {
  if (key.size() != kSegmentKeyBytes) return std::nullopt;
  return base::BigEndianReader(key.substr(key.size() - sizeof(std::uint32_t)))
      .Read<std::uint32_t>();
}

const BlockInFile* BlockOf(const FarSegment& segment, std::string_view key) {
  const std::optional<std::uint32_t> n = NumberOf(key);
  if (!n.has_value()) return nullptr;
  const auto found = std::lower_bound(
      segment.blocks.begin(), segment.blocks.end(), *n,
      [](const BlockInFile& block, std::uint32_t of) { return block.n < of; });
  return found != segment.blocks.end() && found->n == *n ? &*found : nullptr;
}

absl::Status Absent() { return absl::NotFoundError("it is missing"); }

}  // namespace

absl::StatusOr<std::shared_ptr<FarTables::Table>> FarTables::Fetched::Open(
    const FarSegmentPtr& segment) {
  const std::string& name = segment->name;
  {
    const absl::MutexLock lock(&mutex_);
    const auto there = [&] {
      mutex_.AssertReaderHeld();
      const auto found = tables_.find(name);
      return found == tables_.end() || found->second != nullptr;
    };
    // Two threads that want the same one fetch it once.
    mutex_.Await(absl::Condition(&there));
    if (const auto found = tables_.find(name); found != tables_.end()) {
      return found->second;
    }
    tables_[name] = nullptr;
  }
  const auto open = [&]() -> absl::StatusOr<std::shared_ptr<Table>> {
    auto table = std::make_shared<Table>(options_, segment->space);
    absl::Status opened;
    // Another process may remove a copy that nobody needs.
    for (int attempt = 0; attempt < 3; ++attempt) {
      CKPTREE_ASSIGN_OR_RETURN(const FarSegments::Copy copy,
                               segments_->Fetch(*segment));
      opened = table->Open(copy.path, copy.hold);
      if (copy.goes) RemoveFile(options_, copy.path).IgnoreError();
      if (!absl::IsNotFound(opened)) break;
    }
    CKPTREE_RETURN_IF_ERROR(opened);
    return table;
  };
  absl::StatusOr<std::shared_ptr<Table>> table = open();
  const absl::MutexLock lock(&mutex_);
  if (!table.ok()) {
    tables_.erase(name);
    return table;
  }
  tables_[name] = *table;
  order_.push_back(name);
  checked_.insert(name);
  if (order_.size() > kTablesOpen) {
    tables_.erase(order_.front());
    order_.erase(order_.begin());
  }
  return table;
}

void FarTables::Fetched::Forget() {
  const absl::MutexLock lock(&mutex_);
  // Nothing of which a thread is at it.
  for (const std::string& name : order_) tables_.erase(name);
  order_.clear();
  checked_.clear();
}

bool FarTables::Fetched::TakeChecked(const std::string& name) {
  const absl::MutexLock lock(&mutex_);
  return checked_.erase(name) != 0;
}

bool FarTables::Read(std::string_view key, std::uint64_t value_bytes,
                     std::uint64_t offset, std::span<std::byte> destination,
                     Database::PieceFn on_piece) {
  const FarSegmentPtr segment =
      fetched_->segments().Find(schema::Space::kChunks, key);
  if (segment == nullptr) return false;
  const BlockInFile* const block = BlockOf(*segment, key);
  if (block == nullptr || block->bytes != value_bytes || offset > value_bytes ||
      destination.size() > value_bytes - offset ||
      !fetched_->segments()
           .Read(*segment, block->offset + offset, destination)
           .ok()) {
    return false;
  }
  on_piece(destination);
  return true;
}

std::size_t FarTables::ReadRun(std::span<const ArrayBlock> blocks,
                               std::span<std::byte> scratch, BlockFn on_block) {
  if (blocks.empty()) return 0;
  const FarSegmentPtr segment =
      fetched_->segments().Find(schema::Space::kChunks, blocks.front().key);
  if (segment == nullptr) return 0;
  std::vector<const BlockInFile*> places;
  std::uint64_t end = 0;
  for (const ArrayBlock& wanted : blocks) {
    if (wanted.key < segment->first_key || wanted.key > segment->last_key) {
      break;
    }
    const BlockInFile* const block = BlockOf(*segment, wanted.key);
    if (block == nullptr || block->bytes != wanted.value_bytes) break;
    if (!places.empty() &&
        (block->offset < end || block->offset - end > kMostBetweenFar)) {
      break;
    }
    const std::uint64_t begin =
        places.empty() ? block->offset : places.front()->offset;
    if (block->bytes > scratch.size() ||
        block->offset - begin > scratch.size() - block->bytes) {
      break;
    }
    places.push_back(block);
    end = block->offset + block->bytes;
  }
  if (places.empty()) return 0;
  const std::uint64_t begin = places.front()->offset;
  const std::span<std::byte> read = scratch.first(end - begin);
  if (!fetched_->segments().Read(*segment, begin, read).ok()) return 0;
  for (std::size_t i = 0; i < places.size(); ++i) {
    on_block(i, read.subspan(places[i]->offset - begin, places[i]->bytes));
  }
  return places.size();
}

std::optional<std::uint64_t> FarTables::ValueBytes(std::string_view key) {
  const FarSegmentPtr segment =
      fetched_->segments().Find(schema::Space::kChunks, key);
  if (segment == nullptr) return std::nullopt;
  if (const BlockInFile* const block = BlockOf(*segment, key)) {
    return block->bytes;
  }
  const absl::StatusOr<std::string> value =
      GetFetched(schema::Space::kChunks, key);
  return value.ok() ? std::optional<std::uint64_t>(value->size())
                    : std::nullopt;
}

absl::StatusOr<std::string> FarTables::Get(schema::Space space,
                                           std::string_view key) {
  const FarSegmentPtr segment = fetched_->segments().Find(space, key);
  if (segment == nullptr) return Absent();
  const BlockInFile* const place = BlockOf(*segment, key);
  if (place != nullptr && place->bytes <= segment->bytes) {
    // The whole block, and what RocksDB writes behind it.
    const std::uint64_t before = BytesBefore(key.size(), place->bytes);
    std::string block(before + place->bytes + kBlockTailBytes, '\0');
    const std::size_t size = block.size() - kBlockTrailerBytes;
    if (place->offset >= before &&
        fetched_->segments()
            .Read(*segment, place->offset - before,
                  std::as_writable_bytes(std::span(block)))
            .ok()) {
      const std::string_view bytes = std::string_view(block).substr(0, size);
      const auto first = ParseFirst(bytes);
      if (BlockChecksum(bytes, block[size]) ==
              LittleEndian32(std::string_view(block).substr(size + 1)) &&
          first.has_value() && first->key.starts_with(key) &&
          first->value() == before && first->head.value_bytes == place->bytes) {
        return block.substr(before, place->bytes);
      }
    }
  }
  return GetFetched(space, key);
}

absl::StatusOr<std::string> FarTables::GetFetched(schema::Space space,
                                                  std::string_view key) {
  const FarSegmentPtr segment = fetched_->segments().Find(space, key);
  if (segment == nullptr) return Absent();
  CKPTREE_ASSIGN_OR_RETURN(const std::shared_ptr<Table> table,
                           fetched_->Open(segment));
  return table->Get(key, segment->name);
}

// Segments never overlap: one behind the other.
class FarTables::Scanner : public Cursor {
 public:
  Scanner(std::shared_ptr<Fetched> fetched, schema::Space space,
          std::string_view begin, std::string_view end)
      : fetched_(std::move(fetched)), space_(space), begin_(begin), end_(end) {}

  void Seek(std::string_view key) override {
    status_ = absl::OkStatus();
    GoTo(key < begin_ ? begin_ : std::string(key));
  }
  void Next() override {
    entry_->Next();
    if (!entry_->Valid()) Follow();
  }
  bool Valid() const override {
    return status_.ok() && entry_ != nullptr && entry_->Valid() &&
           (end_.empty() || entry_->key().ToStringView() < end_);
  }
  std::string_view key() const override { return entry_->key().ToStringView(); }
  std::string_view value() const override {
    return entry_->value().ToStringView();
  }
  absl::Status status() const override { return status_; }

 private:
  // To the first entry from `key` on.
  void GoTo(std::string key) {
    while (true) {
      if (segment_ == nullptr || key < segment_->first_key ||
          key > segment_->last_key) {
        entry_.reset();
        segment_ = fetched_->segments().FindFrom(space_, key);
        if (segment_ == nullptr ||
            (!end_.empty() && segment_->first_key >= end_)) {
          segment_ = nullptr;
          return;
        }
        absl::StatusOr<std::shared_ptr<Table>> table = fetched_->Open(segment_);
        if (!table.ok()) {
          status_ = table.status();
          return;
        }
        table_ = *std::move(table);
        entry_ = table_->Entries();
      }
      entry_->Seek(key);
      if (entry_->Valid()) return;
      status_ = ToStatus(entry_->status(), segment_->name);
      if (!status_.ok()) return;
      key = segment_->last_key + '\0';
    }
  }
  void Follow() {
    status_ = ToStatus(entry_->status(), segment_->name);
    if (status_.ok()) GoTo(segment_->last_key + '\0');
  }

  const std::shared_ptr<Fetched> fetched_;
  const schema::Space space_;
  const std::string begin_;
  const std::string end_;
  absl::Status status_;
  FarSegmentPtr segment_;
  std::shared_ptr<Table> table_;
  std::unique_ptr<rocksdb::Iterator> entry_;  // Destroyed before its table.
};

std::unique_ptr<Cursor> FarTables::Scan(schema::Space space,
                                        std::string_view begin,
                                        std::string_view end) {
  return std::make_unique<Scanner>(fetched_, space, begin, end);
}

void FarTables::DoubtFetched(bool doubt) {
  fetched_->segments().Doubt(doubt);
  fetched_->Forget();
}

std::vector<LiveFile> FarTables::LiveFiles() {
  std::vector<LiveFile> files;
  for (const FarSegmentPtr& segment : fetched_->segments().List()) {
    LiveFile& file = files.emplace_back();
    file.space = segment->space;
    file.path = segment->name;
    file.first_key = segment->first_key;
    file.last_key = segment->last_key;
    file.bytes = segment->bytes;
    file.far = true;
  }
  return files;
}

absl::Status FarTables::Check(const LiveFile& file) {
  // A scan of the same check read all of it.
  if (fetched_->TakeChecked(file.path)) return absl::OkStatus();
  const FarSegmentPtr segment =
      fetched_->segments().Find(file.space, file.first_key);
  return segment == nullptr ? Absent() : fetched_->segments().Check(*segment);
}

absl::StatusOr<std::uint64_t> FarTables::CountEntries(const LiveFile& file) {
  const FarSegmentPtr segment =
      fetched_->segments().Find(file.space, file.first_key);
  if (segment == nullptr) return Absent();
  CKPTREE_ASSIGN_OR_RETURN(const std::shared_ptr<Table> table,
                           fetched_->Open(segment));
  return table->count();
}

absl::StatusOr<std::vector<BlockInFile>> BlocksInFile(const Options& options,
                                                      const std::string& path) {
  const auto damaged = [&] {
    return absl::DataLossError(
        absl::StrFormat("%s is no whole segment of chunks", path));
  };
  const DamagedTablesWelcome welcome;
  CKPTREE_ASSIGN_OR_RETURN(const std::uint64_t bytes, FileSize(options, path));
  std::unique_ptr<rocksdb::FSRandomAccessFile> file;
  CKPTREE_RETURN_IF_ERROR(
      ToStatus(FileSystemOf(options)->NewRandomAccessFile(
                   path, rocksdb::FileOptions(), &file, nullptr),
               "opening " + path));
  const auto index = TableTail(file.get(), bytes).ReadIndex();
  if (!index.has_value()) return damaged();
  std::vector<BlockInFile> blocks;
  for (const IndexEntry& entry : *index) {
    // The index may have another key between this block and the next.
    char head[kSegmentKeyBytes + 1 + kKeySuffixBytes + 3 * 10];
    rocksdb::Slice read;
    CKPTREE_RETURN_IF_ERROR(ToStatus(
        file->Read(entry.place.offset,
                   std::min<std::uint64_t>(sizeof(head), entry.place.size),
                   rocksdb::IOOptions(), &read, head, nullptr),
        "reading " + path));
    const auto first = ParseFirst(read.ToStringView());
    if (!first.has_value()) return damaged();
    const auto n =
        NumberOf(first->key.substr(0, first->key.size() - kKeySuffixBytes));
    if (!n.has_value()) continue;  // A gap.
    if (first->end() + kRestartsBytes != entry.place.size ||
        (!blocks.empty() && blocks.back().n >= *n)) {
      return damaged();
    }
    blocks.push_back(
        {*n, entry.place.offset + first->value(), first->head.value_bytes});
  }
  return blocks;
}

}  // namespace ckptree::kv
