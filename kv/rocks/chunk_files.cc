// SPDX-License-Identifier: Apache-2.0

// Hot path: per chunk.

#include "kv/rocks/chunk_files.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "kv/files/file_system_of.h"
#include "kv/rocks/direct_file.h"
#include "kv/rocks/guard.h"
#include "kv/rocks/open_files.h"
#include "kv/rocks/record_scan.h"
#include "kv/rocks/segment_layout.h"
#include "kv/rocks/table_parts.h"
#include "kv/segment_writer.h"
#include "rocksdb/file_system.h"
#include "rocksdb/slice.h"

namespace ckptree::kv {
namespace {

// What the index of a damaged table would be.
std::vector<IndexEntry> IndexByHeads(rocksdb::FSRandomAccessFile* file,
                                     std::uint64_t file_bytes) {
  ScanHow how;
  how.one_record = true;
  how.headers_only = true;
  std::vector<IndexEntry> index;
  for (FoundRecord& record : FindRecords(file, file_bytes, how)) {
    const std::uint64_t before = BytesBefore(record.key.size(), record.size);
    index.push_back(
        {std::move(record.key),
         {record.offset - before, before + record.size + kRestartsBytes}});
  }
  std::sort(index.begin(), index.end(),
            [](const IndexEntry& a, const IndexEntry& b) {
              return a.last_key < b.last_key;
            });
  return index;
}

}  // namespace

class ChunkFile {
 public:
  explicit ChunkFile(const std::string& path) : direct_(path) {}

  // Null where the file cannot be opened.
  static std::shared_ptr<const ChunkFile> Open(
      std::shared_ptr<rocksdb::FileSystem> files,
      const LiveTables::Table& table) {
    const DamagedTablesWelcome welcome;
    auto made = std::make_shared<ChunkFile>(table.path);
    const rocksdb::IOStatus opened = files->NewRandomAccessFile(
        table.path, rocksdb::FileOptions(), &made->file_, nullptr);
    if (!opened.ok()) return nullptr;
    made->files_ = std::move(files);
    TableTail tail(made->file_.get(), table.bytes);
    if (auto index = tail.ReadIndex(); index.has_value()) {
      made->index_ = *std::move(index);
    } else {
      made->index_ = IndexByHeads(made->file_.get(), table.bytes);
    }
    return made;
  }

  bool Read(std::string_view key, std::uint64_t value_bytes,
            std::uint64_t offset, std::span<std::byte> destination) const {
    const std::optional<ValuePlace> value = Find(key);
    if (!value.has_value() || value->size != value_bytes ||
        !IsIn(*value, offset, destination.size())) {
      return false;
    }
    const std::uint64_t start = value->offset + offset;
    const std::size_t done = direct_.Read(start, destination);
    destination = destination.subspan(done);
    if (destination.empty()) return true;
    auto* const to = reinterpret_cast<char*>(destination.data());
    rocksdb::Slice read;
    const rocksdb::IOStatus status =
        file_->Read(start + done, destination.size(), rocksdb::IOOptions(),
                    &read, to, nullptr);
    if (!status.ok() || read.size() != destination.size()) return false;
    if (read.data() != to) std::copy_n(read.data(), read.size(), to);
    return true;
  }

  std::size_t descriptors() const { return 1 + direct_.descriptors(); }
  // How many more a read of so many bytes may open.
  std::size_t descriptors_for(std::size_t bytes) const {
    const bool may_be_direct = bytes >= SegmentWriter::kLargeValue;
    return may_be_direct && direct_.descriptors() == 0
               ? DirectFile::kDescriptors
               : 0;
  }

  void Prefetch(std::string_view key, std::uint64_t value_bytes,
                std::uint64_t offset, std::size_t bytes,
                std::span<const std::byte> destination) const {
    const std::optional<ValuePlace> value = Find(key);
    if (!value.has_value()) return;
    if (value->size != value_bytes) {
      if (bytes != value_bytes) return;
      offset = 0;
      bytes = value->size;
      destination = {};
    }
    if (!IsIn(*value, offset, bytes)) return;
    const std::uint64_t start = value->offset + offset;
    if (direct_.Wants(start, destination)) return;
    // Only to be faster.
    file_->Prefetch(start, bytes, rocksdb::IOOptions(), nullptr)
        .PermitUncheckedError();
  }

  // Where in the file the value of `key` stands, and its bytes.
  std::optional<ValuePlace> Find(std::string_view key) const {
    const auto entry = std::lower_bound(
        index_.begin(), index_.end(), key,
        [](const IndexEntry& e, std::string_view k) { return e.last_key < k; });
    if (entry == index_.end()) return std::nullopt;
    std::optional<ValuePlace> value =
        ValueInBlock(key.size(), entry->place.size);
    if (value.has_value()) value->offset += entry->place.offset;
    return value;
  }

 private:
  static bool IsIn(const ValuePlace& value, std::uint64_t offset,
                   std::size_t bytes) {
    return bytes <= value.size && offset <= value.size - bytes;
  }

  std::shared_ptr<rocksdb::FileSystem> files_;  // Outlives the file.
  std::unique_ptr<rocksdb::FSRandomAccessFile> file_;
  std::vector<IndexEntry> index_;
  mutable DirectFile direct_;
};

bool ChunkFiles::Read(const Instance& instance, std::string_view key,
                      std::uint64_t value_bytes, std::uint64_t offset,
                      std::span<std::byte> destination) {
  const std::shared_ptr<const ChunkFile> file =
      Find(instance, key, destination.size());
  return file != nullptr && file->Read(key, value_bytes, offset, destination);
}

std::optional<std::uint64_t> ChunkFiles::ValueBytes(const Instance& instance,
                                                    std::string_view key) {
  const std::shared_ptr<const ChunkFile> file = Find(instance, key, 0);
  if (file == nullptr) return std::nullopt;
  const std::optional<ValuePlace> value = file->Find(key);
  if (!value.has_value()) return std::nullopt;
  return value->size;
}

std::shared_ptr<const ChunkFile> ChunkFiles::Find(const Instance& instance,
                                                  std::string_view key,
                                                  std::size_t bytes) {
  // Held while a file is opened: two threads that want the same one open it
  // once.
  const absl::MutexLock lock(&mutex_);
  const LiveTables::Table* const table =
      live_.Find(instance, schema::Space::kChunks, key);
  if (table == nullptr) return nullptr;
  std::shared_ptr<const ChunkFile> file;
  if (const auto found = open_.find(table->path); found != open_.end()) {
    file = found->second;
    if (file == nullptr || HasRoom(file->descriptors_for(bytes))) return file;
  } else {
    file = ChunkFile::Open(FileSystemOf(options_), *table);
    const std::size_t more =
        file == nullptr ? 0
                        : file->descriptors() + file->descriptors_for(bytes);
    if (HasRoom(more)) return open_[table->path] = file;
  }
  // Those still in use outlive this.
  open_.clear();
  return open_[table->path] = file;
}

bool ChunkFiles::HasRoom(std::size_t descriptors) const {
  if (descriptors == 0) return true;
  for (const auto& [path, file] : open_) {
    // One that cannot be read is remembered as such.
    descriptors += file == nullptr ? 1 : file->descriptors();
  }
  return descriptors <= static_cast<std::size_t>(OpenTableLimit());
}

void ChunkFiles::Prefetch(const Instance& instance, std::string_view key,
                          std::uint64_t value_bytes, std::uint64_t offset,
                          std::size_t bytes,
                          std::span<const std::byte> destination) {
  const std::shared_ptr<const ChunkFile> file = Find(instance, key, bytes);
  if (file == nullptr) return;
  file->Prefetch(key, value_bytes, offset, bytes, destination);
}

void ChunkFiles::Forget() {
  const absl::MutexLock lock(&mutex_);
  live_.Forget();
  open_.clear();
}

}  // namespace ckptree::kv
