// SPDX-License-Identifier: Apache-2.0

// Hot path: per chunk, and per leaf that is read.

#include "kv/rocks/table_files.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "kv/files/file_system_of.h"
#include "kv/rocks/block_entry.h"
#include "kv/rocks/direct_buffers.h"
#include "kv/rocks/direct_file.h"
#include "kv/rocks/guard.h"
#include "kv/rocks/open_files.h"
#include "kv/rocks/segment_layout.h"
#include "kv/rocks/table_heads.h"
#include "kv/rocks/table_index.h"
#include "kv/rocks/table_parts.h"
#include "kv/segment_writer.h"
#include "kv/store_directory.h"
#include "rocksdb/env.h"
#include "rocksdb/file_system.h"
#include "rocksdb/slice.h"

namespace ckptree::kv {
namespace {

// Above the block of many records that a table of `small` has; one record of
// that size has a block alone, and is RocksDB's to read.
constexpr std::uint64_t kMostShared = std::uint64_t{256} << 10;

// The cache of a processor still has these when they are looked at.
constexpr std::size_t kPieceBytes = std::size_t{256} << 10;

// What reads past the page cache begin and end at.
constexpr std::uint64_t kTablePage = SegmentWriter::kLargeAlignment;
// What stands between two blocks that are read together, and nobody asked for:
// as long as reading it takes less than another read.
constexpr std::uint64_t kMostBetween = std::uint64_t{64} << 10;
// The same between two records, of which many are read at once anyway.
constexpr std::uint64_t kMostBetweenRecords = std::uint64_t{16} << 10;
// Some systems read no more for one call than they read ahead.
constexpr std::uint64_t kMostAhead = std::uint64_t{128} << 10;

}  // namespace

class TableFile {
 public:
  explicit TableFile(const std::string& path) : direct_(path) {}

  // Null where the file cannot be opened, or where it is no table of `small`
  // with a whole index.
  static std::shared_ptr<const TableFile> Open(
      std::shared_ptr<rocksdb::FileSystem> files, schema::Space space,
      const LiveTables::Table& table) {
    const DamagedTablesWelcome welcome;
    auto made = std::make_shared<TableFile>(table.path);
    const rocksdb::IOStatus opened = files->NewRandomAccessFile(
        table.path, rocksdb::FileOptions(), &made->file_, nullptr);
    if (!opened.ok()) return nullptr;
    made->files_ = std::move(files);
    std::optional<TableIndex> index = IndexOf(made->file_.get(), table.bytes);
    // The blocks of such a table say themselves where they stand.
    if (space == schema::Space::kChunks &&
        !(index.has_value() && index->IsWhole())) {
      index = IndexByHeads(made->file_.get(), table.bytes);
    }
    if (!index.has_value()) return nullptr;
    made->index_ = *std::move(index);
    // Reads of `small` ask for a few pages here and there.
    if (space == schema::Space::kSmall) {
      made->file_->Hint(rocksdb::FSRandomAccessFile::kRandom);
    }
    return made;
  }

  // The block of array bytes of `key`; null where this table has none. Each
  // table of `small` ends with the marker, and so its range may have any key:
  // there the index says it, or the head of the block, where the index has a
  // shorter key that is above it.
  std::optional<BlockPlace> Block(schema::Space space,
                                  std::string_view key) const {
    const auto entry = index_.At(index_.Find(key));
    if (!entry.has_value()) return std::nullopt;
    if (space == schema::Space::kChunks || entry->last_key == key) {
      return entry->place;
    }
    std::string head(BytesBefore(key.size(), entry->place.size), '\0');
    if (head.size() > entry->place.size ||
        !ReadAt(entry->place.offset, std::as_writable_bytes(std::span(head)))) {
      return std::nullopt;
    }
    const std::optional<FirstEntry> first = ParseFirst(head);
    if (!first.has_value() ||
        first->key.substr(0, first->key.size() - kKeySuffixBytes) != key) {
      return std::nullopt;
    }
    return entry->place;
  }

  bool Read(const BlockPlace& block, std::size_t key_bytes,
            std::uint64_t value_bytes, std::uint64_t offset,
            std::span<std::byte> destination, DirectBuffers* buffers,
            TableFiles::PieceFn on_piece) const {
    const std::optional<ValuePlace> value = ValueOf(block, key_bytes);
    if (!value.has_value() || value->size != value_bytes ||
        !IsIn(*value, offset, destination.size())) {
      return false;
    }
    const std::uint64_t start = value->offset + offset;
    std::size_t done = direct_.Read(start, destination, buffers, on_piece);
    while (done < destination.size()) {
      const auto piece = destination.subspan(
          done, std::min(kPieceBytes, destination.size() - done));
      if (!ReadAt(start + done, piece)) return false;
      on_piece(piece);
      done += piece.size();
    }
    return true;
  }

  // The first of `blocks` that stand close behind each other, and fit.
  std::size_t ReadRun(std::span<const ArrayBlock> blocks,
                      std::span<std::byte> scratch, BlockFn on_block) const {
    if (scratch.size() < 2 * kTablePage) return 0;
    const std::uint64_t room = scratch.size() - kTablePage;
    std::vector<std::uint64_t> places;
    places.reserve(blocks.size());
    std::uint64_t begin = 0;  // Of what is read: whole pages.
    std::uint64_t end = 0;
    std::size_t at_entry = index_.size();
    std::optional<TableIndex::Entry> entry;
    for (const ArrayBlock& block : blocks) {
      std::optional<TableIndex::Entry> next;
      if (entry.has_value()) next = index_.At(at_entry + 1);
      const bool is_next = next.has_value() && entry->last_key < block.key &&
                           block.key <= next->last_key;
      at_entry = is_next ? at_entry + 1 : index_.Find(block.key);
      entry = is_next ? next : index_.At(at_entry);
      if (!entry.has_value()) break;
      const std::optional<ValuePlace> value =
          ValueOf(entry->place, block.key.size());
      if (!value.has_value() || value->size != block.value_bytes) break;
      const std::uint64_t at = value->offset;
      if (places.empty()) {
        begin = at / kTablePage * kTablePage;
      } else if (at < end || at - end > kMostBetween) {
        break;
      }
      if (at - begin > room || value->size > room - (at - begin)) break;
      places.push_back(at);
      end = at + value->size;
    }
    if (places.empty()) return 0;
    const std::uint64_t there =
        direct_.Read(begin, scratch.first(end - begin),
                     &DirectBuffers::Shared(), [](auto) {});
    for (std::size_t i = 0; i < places.size(); ++i) {
      const auto value =
          scratch.subspan(there > 0 ? places[i] - begin : 0,
                          static_cast<std::size_t>(blocks[i].value_bytes));
      if (there > 0 ? places[i] + value.size() > begin + there
                    : !ReadAt(places[i], value)) {
        return i;
      }
      on_block(i, value);
    }
    return places.size();
  }

  // Valid until the next call on this thread.
  std::optional<std::string_view> ReadChecked(std::string_view key,
                                              NearTable* near) const {
    const std::size_t at = index_.FindNear(key, near->entry + near->apart);
    near->apart = at > near->entry ? at - near->entry : 0;
    near->entry = at;
    const auto entry = index_.At(at);
    if (!entry.has_value() || entry->place.size > kMostShared) {
      return std::nullopt;
    }
    const std::size_t size = entry->place.size;
    // No pages of its own for each read.
    thread_local std::string block;
    block.resize(size + kBlockTrailerBytes);
    if (!ReadAt(entry->place.offset,
                std::as_writable_bytes(std::span(block)))) {
      return std::nullopt;
    }
    const std::string_view bytes = std::string_view(block).substr(0, size);
    if (BlockChecksum(bytes, block[size]) !=
        LittleEndian32(std::string_view(block).substr(size + 1))) {
      return std::nullopt;
    }
    return FindPut(bytes, key);
  }

  std::size_t PrefetchRecords(std::span<const std::string> keys,
                              NearTable near) const {
    std::uint64_t begin = 0;  // Of what is read next.
    std::uint64_t end = 0;
    std::size_t count = 0;
    for (const std::string& key : keys) {
      const std::size_t at = index_.FindNear(key, near.entry + near.apart);
      // A table ends with the marker, which is above all: what this one does
      // not have seems to be in its last two blocks.
      if (at + 2 >= index_.size()) break;
      const auto entry = index_.At(at);
      if (!entry.has_value() || at < near.entry) break;
      near.apart = at - near.entry;
      near.entry = at;
      ++count;
      const std::uint64_t from = entry->place.offset;
      const std::uint64_t to = from + entry->place.size + kBlockTrailerBytes;
      if (count == 1 || from < end || from - end > kMostBetweenRecords ||
          to - begin > kMostAhead) {
        Prefetch(begin, end);
        begin = std::max(from, end);
      }
      end = std::max(to, end);
    }
    Prefetch(begin, end);
    return count;
  }

  std::size_t descriptors() const { return 1 + direct_.descriptors(); }
  // How many more a read of so many bytes may open.
  std::size_t descriptors_for(std::size_t bytes) const {
    const bool may_be_direct = bytes >= SegmentWriter::kLargeValue;
    return may_be_direct && direct_.descriptors() == 0
               ? DirectFile::kDescriptors
               : 0;
  }

  void Prefetch(const BlockPlace& block, std::size_t key_bytes,
                std::uint64_t value_bytes, std::uint64_t offset,
                std::size_t bytes) const {
    const std::optional<ValuePlace> value = ValueOf(block, key_bytes);
    if (!value.has_value()) return;
    if (value->size != value_bytes) {
      if (bytes != value_bytes) return;
      offset = 0;
      bytes = value->size;
    }
    if (!IsIn(*value, offset, bytes)) return;
    const std::uint64_t start = value->offset + offset;
    const DirectFile::Way way = direct_.WayOf(start, bytes);
    if (way != DirectFile::Way::kOther) return;
    Prefetch(start, start + bytes);
  }

  // Where in the file the value of `key` stands, and its bytes.
  std::optional<ValuePlace> Find(std::string_view key) const {
    const auto entry = index_.At(index_.Find(key));
    if (!entry.has_value()) return std::nullopt;
    return ValueOf(entry->place, key.size());
  }

 private:
  static std::optional<TableIndex> IndexOf(rocksdb::FSRandomAccessFile* file,
                                           std::uint64_t file_bytes) {
    auto block = TableTail(file, file_bytes).ReadIndexBlock();
    if (!block.has_value()) return std::nullopt;
    return TableIndex::Of(std::move(block->bytes), block->size);
  }

  static std::optional<ValuePlace> ValueOf(const BlockPlace& block,
                                           std::size_t key_bytes) {
    std::optional<ValuePlace> value = ValueInBlock(key_bytes, block.size);
    if (value.has_value()) value->offset += block.offset;
    return value;
  }

  bool ReadAt(std::uint64_t offset, std::span<std::byte> destination) const {
    auto* const to = reinterpret_cast<char*>(destination.data());
    rocksdb::Slice read;
    const rocksdb::IOStatus status = file_->Read(
        offset, destination.size(), rocksdb::IOOptions(), &read, to, nullptr);
    if (!status.ok() || read.size() != destination.size()) return false;
    if (read.data() != to) std::copy_n(read.data(), read.size(), to);
    return true;
  }

  void Prefetch(std::uint64_t begin, std::uint64_t end) const {
    if (begin >= end) return;
    // Only to be faster.
    file_->Prefetch(begin, end - begin, rocksdb::IOOptions(), nullptr)
        .PermitUncheckedError();
  }

  static bool IsIn(const ValuePlace& value, std::uint64_t offset,
                   std::size_t bytes) {
    return bytes <= value.size && offset <= value.size - bytes;
  }

  std::shared_ptr<rocksdb::FileSystem> files_;  // Outlives the file.
  std::unique_ptr<rocksdb::FSRandomAccessFile> file_;
  TableIndex index_;
  mutable DirectFile direct_;
};

bool TableFiles::Read(const Instance& instance, schema::Space space,
                      std::string_view key, std::uint64_t value_bytes,
                      std::uint64_t offset, std::span<std::byte> destination,
                      PieceFn on_piece) {
  const Files files = Find(instance, space, key, destination.size());
  for (const auto& file : files) {
    const std::optional<BlockPlace> block = file->Block(space, key);
    if (!block.has_value()) continue;
    // What was told of it is of no use for another one.
    return file->Read(*block, key.size(), value_bytes, offset, destination,
                      &DirectBuffers::Shared(), on_piece);
  }
  return false;
}

std::size_t TableFiles::ReadRun(const Instance& instance,
                                std::span<const ArrayBlock> blocks,
                                std::span<std::byte> scratch,
                                BlockFn on_block) {
  if (blocks.empty()) return 0;
  for (const auto& file : Find(instance, schema::Space::kChunks,
                               blocks.front().key, scratch.size())) {
    return file->ReadRun(blocks, scratch, on_block);
  }
  return 0;
}

std::optional<std::uint64_t> TableFiles::ValueBytes(const Instance& instance,
                                                    std::string_view key) {
  for (const auto& file : Find(instance, schema::Space::kChunks, key, 0)) {
    const std::optional<ValuePlace> value = file->Find(key);
    if (value.has_value()) return value->size;
  }
  return std::nullopt;
}

std::optional<std::string_view> TableFiles::ReadChecked(
    const Instance& instance, std::string_view key, NearTable* near) {
  if (near->file != nullptr) {
    if (const auto value = near->file->ReadChecked(key, near)) return value;
  }
  for (const auto& file : Find(instance, schema::Space::kSmall, key, 0)) {
    if (file == near->file) continue;
    NearTable found = {.file = file};
    if (const auto value = file->ReadChecked(key, &found)) {
      *near = std::move(found);
      return value;
    }
  }
  return std::nullopt;
}

std::size_t TableFiles::PrefetchRecords(std::span<const std::string> keys,
                                        const NearTable& near) {
  return near.file == nullptr ? 0 : near.file->PrefetchRecords(keys, near);
}

TableFiles::Files TableFiles::Find(const Instance& instance,
                                   schema::Space space, std::string_view key,
                                   std::size_t bytes) {
  // Held while a file is opened: two threads that want the same one open it
  // once.
  const absl::MutexLock lock(&mutex_);
  Files files;
  for (const LiveTables::Table* const table :
       live_.Find(instance, space, key)) {
    std::shared_ptr<const TableFile> file =
        OpenOne(instance, space, *table, bytes);
    if (file != nullptr) files.push_back(std::move(file));
  }
  return files;
}

std::shared_ptr<const TableFile> TableFiles::OpenOne(
    const Instance& instance, schema::Space space,
    const LiveTables::Table& table, std::size_t bytes) {
  const auto found = open_.find(table.path);
  std::shared_ptr<const TableFile> file;
  if (found != open_.end()) {
    found->second.used = ++uses_;
    file = found->second.file;
    if (file != nullptr) MakeRoom(file->descriptors_for(bytes), table.path);
    return file;
  }
  // Tables of `small` may be in the memory of this process alone.
  file = TableFile::Open(space == schema::Space::kSmall
                             ? instance.env()->GetFileSystem()
                             : FileSystemOf(options_),
                         space, table);
  if (file != nullptr) {
    MakeRoom(file->descriptors() + file->descriptors_for(bytes), table.path);
  }
  open_[table.path] = {file, ++uses_};
  return file;
}

void TableFiles::MakeRoom(std::size_t descriptors, const std::string& but) {
  if (descriptors == 0) return;
  for (const auto& [path, open] : open_) {
    // One that cannot be read is remembered as such.
    descriptors += open.file == nullptr ? 1 : open.file->descriptors();
  }
  while (descriptors > static_cast<std::size_t>(OpenTableLimit())) {
    auto oldest = open_.end();
    for (auto it = open_.begin(); it != open_.end(); ++it) {
      if (it->first == but) continue;
      if (oldest == open_.end() || it->second.used < oldest->second.used) {
        oldest = it;
      }
    }
    if (oldest == open_.end()) return;
    const auto& file = oldest->second.file;
    descriptors -= file == nullptr ? 1 : file->descriptors();
    open_.erase(oldest);
  }
}

void TableFiles::Prefetch(const Instance& instance, schema::Space space,
                          std::string_view key, std::uint64_t value_bytes,
                          std::uint64_t offset, std::size_t bytes) {
  for (const auto& file : Find(instance, space, key, bytes)) {
    const std::optional<BlockPlace> block = file->Block(space, key);
    if (!block.has_value()) continue;
    file->Prefetch(*block, key.size(), value_bytes, offset, bytes);
  }
}

void TableFiles::Forget() {
  const absl::MutexLock lock(&mutex_);
  live_.Forget();
  open_.clear();
}

void TableFiles::NoteChange() {
  const absl::MutexLock lock(&mutex_);
  live_.Forget();
}

void TableFiles::NoteRemoved(std::string_view path) {
  const absl::MutexLock lock(&mutex_);
  // A name that was listed may spell the same folder in another way.
  const std::string_view name = BaseName(path);
  std::erase_if(
      open_, [name](const auto& open) { return BaseName(open.first) == name; });
}

}  // namespace ckptree::kv
