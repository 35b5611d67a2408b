// Hot path: per chunk.

#include "kv/chunk_files.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "kv/open_files.h"
#include "kv/segment_layout.h"
#include "kv/table_parts.h"
#include "rocksdb/env.h"
#include "rocksdb/file_system.h"
#include "rocksdb/slice.h"

namespace ckptree::kv {
namespace {

struct IndexEntry {
  std::string last_key;  // Not below the key of the block, below the next one.
  BlockPlace place;
};

// The index of a table of format 4 or later with a restart at each entry: no
// key leaves out what it shares with the one before, no place is a difference.
// Nothing where it is another one, or contradicts itself.
std::optional<std::vector<IndexEntry>> ParseIndex(std::string_view index) {
  BlockReader reader(BlockEntries(index));
  std::vector<IndexEntry> entries;
  std::uint64_t end = 0;
  while (!reader.empty()) {
    const auto shared = reader.Varint();
    const auto key_bytes = reader.Varint();
    if (!shared.has_value() || *shared != 0 || !key_bytes.has_value()) {
      return std::nullopt;
    }
    const auto key = reader.Bytes(*key_bytes);
    const auto place = reader.Place();
    if (!key.has_value() || !place.has_value() || place->offset != end) {
      return std::nullopt;
    }
    end = place->offset + place->size + kBlockTrailerBytes;
    entries.push_back({std::string(*key), *place});
  }
  return entries;
}

}  // namespace

class ChunkFile {
 public:
  // Null where the file is not as expected.
  static std::shared_ptr<const ChunkFile> Open(
      std::shared_ptr<rocksdb::Env> env, const LiveTables::Table& table) {
    auto made = std::make_shared<ChunkFile>();
    const rocksdb::IOStatus opened = env->GetFileSystem()->NewRandomAccessFile(
        table.path, rocksdb::FileOptions(), &made->file_, nullptr);
    if (!opened.ok()) return nullptr;
    TableTail tail(made->file_.get(), table.bytes);
    const std::optional<TableTail::Footer> footer = tail.ReadFooter();
    if (!footer.has_value()) return nullptr;
    const std::optional<TableTail::Block> block = tail.ReadBlock(footer->index);
    if (!block.has_value() || !block->whole) return nullptr;
    std::optional<std::vector<IndexEntry>> index = ParseIndex(block->bytes);
    if (!index.has_value()) return nullptr;
    made->env_ = std::move(env);
    made->index_ = *std::move(index);
    return made;
  }

  bool Read(std::string_view key, std::uint64_t offset,
            std::span<std::byte> destination) const {
    const std::optional<std::uint64_t> start =
        Locate(key, offset, destination.size());
    if (!start.has_value()) return false;
    auto* const to = reinterpret_cast<char*>(destination.data());
    rocksdb::Slice read;
    const rocksdb::IOStatus status = file_->Read(
        *start, destination.size(), rocksdb::IOOptions(), &read, to, nullptr);
    if (!status.ok() || read.size() != destination.size()) return false;
    if (read.data() != to) std::copy_n(read.data(), read.size(), to);
    return true;
  }

  void Prefetch(std::string_view key, std::uint64_t offset,
                std::size_t bytes) const {
    const std::optional<std::uint64_t> start = Locate(key, offset, bytes);
    if (!start.has_value()) return;
    // Only to be faster.
    file_->Prefetch(*start, bytes, rocksdb::IOOptions(), nullptr)
        .PermitUncheckedError();
  }

 private:
  // Where in the file these bytes of the value of `key` stand.
  std::optional<std::uint64_t> Locate(std::string_view key,
                                      std::uint64_t offset,
                                      std::size_t bytes) const {
    const auto entry = std::lower_bound(
        index_.begin(), index_.end(), key,
        [](const IndexEntry& e, std::string_view k) { return e.last_key < k; });
    if (entry == index_.end()) return std::nullopt;
    const std::optional<ValuePlace> value =
        ValueInBlock(key.size(), entry->place.size);
    if (!value.has_value() || bytes > value->size ||
        offset > value->size - bytes) {
      return std::nullopt;
    }
    return entry->place.offset + value->offset + offset;
  }

  std::shared_ptr<rocksdb::Env> env_;  // Outlives the file.
  std::unique_ptr<rocksdb::FSRandomAccessFile> file_;
  std::vector<IndexEntry> index_;
};

bool ChunkFiles::Read(const Instance& instance, std::string_view key,
                      std::uint64_t offset, std::span<std::byte> destination) {
  const std::shared_ptr<const ChunkFile> file = Find(instance, key);
  return file != nullptr && file->Read(key, offset, destination);
}

std::shared_ptr<const ChunkFile> ChunkFiles::Find(const Instance& instance,
                                                  std::string_view key) {
  // Held while a file is opened: two threads that want the same one open it
  // once.
  const absl::MutexLock lock(&mutex_);
  const LiveTables::Table* const table =
      live_.Find(instance, schema::Space::kChunks, key);
  if (table == nullptr) return nullptr;
  if (const auto found = open_.find(table->path); found != open_.end()) {
    return found->second;
  }
  // One still in use outlives this.
  if (open_.size() >= static_cast<std::size_t>(OpenTableLimit())) open_.clear();
  return open_[table->path] = ChunkFile::Open(instance.shared_env(), *table);
}

void ChunkFiles::Prefetch(const Instance& instance, std::string_view key,
                          std::uint64_t offset, std::size_t bytes) {
  const std::shared_ptr<const ChunkFile> file = Find(instance, key);
  if (file != nullptr) file->Prefetch(key, offset, bytes);
}

void ChunkFiles::Forget() {
  const absl::MutexLock lock(&mutex_);
  live_.Forget();
  open_.clear();
}

}  // namespace ckptree::kv
