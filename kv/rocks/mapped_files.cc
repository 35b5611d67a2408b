// SPDX-License-Identifier: Apache-2.0

// Hot path: per view.

#include "kv/rocks/mapped_files.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "base/status_macros.h"
#include "kv/files/status.h"
#include "kv/process_mark.h"
#include "kv/rocks/block_entry.h"
#include "kv/rocks/guard.h"
#include "kv/rocks/instance.h"
#include "kv/rocks/open_files.h"
#include "kv/rocks/segment_layout.h"
#include "kv/rocks/table_heads.h"
#include "kv/rocks/table_index.h"
#include "kv/rocks/table_parts.h"
#include "kv/store_directory.h"
#include "rocksdb/compression_type.h"
#include "rocksdb/env.h"
#include "rocksdb/file_system.h"
#include "rocksdb/slice.h"
#include "schema/spaces.h"

namespace ckptree::kv {
namespace {

// With the trailer: as it was written, which is without compression.
bool IsWholeBlock(std::string_view block) {
  const std::string_view bytes =
      block.substr(0, block.size() - kBlockTrailerBytes);
  const char type = block[bytes.size()];
  return type == rocksdb::kNoCompression &&
         BlockChecksum(bytes, type) ==
             LittleEndian32(block.substr(bytes.size() + 1));
}

}  // namespace

// RocksDB has no part in it: without a comparison of checksums, which takes as
// long as that of digests, one flipped bit of a block ends the process in it.
class MappedFile {
 public:
  // Null where its file system does not map.
  static absl::StatusOr<std::shared_ptr<const MappedFile>> Open(
      std::shared_ptr<rocksdb::Env> env, schema::Space space,
      const LiveTables::Table& table) {
    const DamagedTablesWelcome welcome;
    auto made = std::make_shared<MappedFile>();
    rocksdb::FileOptions mapping;
    mapping.use_mmap_reads = true;
    rocksdb::IOStatus status = env->GetFileSystem()->NewRandomAccessFile(
        table.path, mapping, &made->file_, nullptr);
    made->env_ = std::move(env);
    // What is mapped is given where it stands, and not written here.
    char no_room = 0;
    rocksdb::Slice all;
    if (status.ok()) {
      status = made->file_->Read(0, sizeof(no_room), rocksdb::IOOptions(), &all,
                                 &no_room, nullptr);
    }
    if (status.ok() && all.data() == &no_room) return nullptr;
    if (status.ok()) {
      status = made->file_->Read(0, table.bytes, rocksdb::IOOptions(), &all,
                                 &no_room, nullptr);
    }
    if (!status.ok()) {
      return ToReadStatus(status, absl::StrFormat("mapping %s", table.path));
    }
    if (all.size() != table.bytes) {
      return absl::DataLossError(
          absl::StrFormat("%s has %d bytes instead of %d", table.path,
                          all.size(), table.bytes));
    }
    made->bytes_ = all.ToStringView();
    std::optional<TableIndex> index = made->Index();
    // The blocks of such a table say themselves where they stand.
    if (space == schema::Space::kChunks &&
        !(index.has_value() && index->IsWhole())) {
      index = IndexByHeads(made->file_.get(), table.bytes);
    }
    if (!index.has_value()) {
      return absl::DataLossError(
          absl::StrFormat("the index of %s is damaged", table.path));
    }
    made->index_ = *std::move(index);
    return std::shared_ptr<const MappedFile>(std::move(made));
  }

  // The block that has `key` where any has, with its trailer.
  std::optional<std::string_view> Block(std::string_view key) const {
    const auto entry = index_.At(index_.Find(key));
    if (!entry.has_value()) return std::nullopt;
    return In(entry->place);
  }

  // The value of `key`, where it was found to be that one.
  std::optional<std::string_view> Known(const std::string& key,
                                        const Saved& saved) const {
    const absl::MutexLock lock(&mutex_);
    const auto known = known_.find(key);
    if (known == known_.end() || known->second.digest != saved.digest ||
        known->second.value.size() != saved.bytes) {
      return std::nullopt;
    }
    return known->second.value;
  }
  void Remember(std::string key, std::string_view value,
                const base::Digest& digest) const {
    const absl::MutexLock lock(&mutex_);
    known_[std::move(key)] = {value, digest};
  }

 private:
  struct Found {
    std::string_view value;
    base::Digest digest;
  };

  // Nothing where it is not within the file.
  std::optional<std::string_view> In(const BlockPlace& place) const {
    const std::uint64_t size = place.size + kBlockTrailerBytes;
    if (size < place.size || size > bytes_.size() ||
        place.offset > bytes_.size() - size) {
      return std::nullopt;
    }
    return bytes_.substr(place.offset, size);
  }

  // Nothing where it is damaged.
  std::optional<TableIndex> Index() const {
    const auto footer = TableTail(file_.get(), bytes_.size()).ReadFooter();
    if (!footer.has_value()) return std::nullopt;
    const std::optional<std::string_view> block = In(footer->index);
    if (!block.has_value() || !IsWholeBlock(*block)) return std::nullopt;
    return TableIndex::In(block->substr(0, footer->index.size));
  }

  std::shared_ptr<rocksdb::Env> env_;  // Outlives the file.
  std::unique_ptr<rocksdb::FSRandomAccessFile> file_;
  std::string_view bytes_;  // All of it.
  TableIndex index_;        // There, where it is whole.
  mutable absl::Mutex mutex_;
  // By key; of a file no more than one for 64 KiB.
  mutable std::unordered_map<std::string, Found> known_ ABSL_GUARDED_BY(mutex_);
};

absl::StatusOr<std::shared_ptr<const MappedFile>> MappedFiles::Find(
    const std::shared_ptr<const Instance>& instance, schema::Space space,
    std::string_view key) {
  // Held while a file is opened: two threads that want the same one map it
  // once.
  const absl::MutexLock lock(&mutex_);
  const bool fresh = !live_.listed();
  auto found = FindListed(instance, space, key);
  // It was written again since the files were listed.
  if (fresh || !absl::IsNotFound(found.status())) return found;
  live_.Forget();
  return FindListed(instance, space, key);
}

absl::StatusOr<std::shared_ptr<const MappedFile>> MappedFiles::FindListed(
    const std::shared_ptr<const Instance>& instance, schema::Space space,
    std::string_view key) {
  const LiveTables::Tables tables = live_.Find(*instance, space, key);
  if (tables.empty()) return nullptr;
  const LiveTables::Table* const table = tables.front();
  if (const auto found = mapped_.find(table->path); found != mapped_.end()) {
    return found->second;
  }
  std::uint64_t bytes = 0;
  const rocksdb::Status measured =
      instance->env()->GetFileSize(table->path, &bytes);
  if (!measured.ok()) return ToStatus(measured, table->path);
  if (bytes != table->bytes) {
    return absl::DataLossError(absl::StrFormat(
        "%s has %d bytes instead of %d", table->path, bytes, table->bytes));
  }
  CKPTREE_ASSIGN_OR_RETURN(
      const std::shared_ptr<const MappedFile> file,
      MappedFile::Open(instance->shared_env(), space, *table));
  if (file == nullptr) return nullptr;
  // Each holds a file open; one still in use outlives this.
  if (mapped_.size() >= static_cast<std::size_t>(OpenTableLimit())) {
    mapped_.clear();
  }
  mapped_.emplace(table->path, file);
  return file;
}

void MappedFiles::Forget() {
  const absl::MutexLock lock(&mutex_);
  live_.Forget();
  mapped_.clear();
}

void MappedFiles::NoteChange() {
  const absl::MutexLock lock(&mutex_);
  live_.Forget();
}

void MappedFiles::NoteRemoved(std::string_view path) {
  const absl::MutexLock lock(&mutex_);
  const std::string_view name = BaseName(path);
  std::erase_if(mapped_, [name](const auto& file) {
    return BaseName(file.first) == name;
  });
}

struct MappedRecord::Impl {
  ProcessMark mark;
  std::shared_ptr<const MappedFile> file;
  std::string_view value;
};

absl::StatusOr<std::optional<MappedRecord>> MappedRecord::Find(
    std::shared_ptr<const MappedFile> file, std::string_view key,
    const Saved* saved) {
  const auto found = [&file](std::string_view value) {
    auto impl = std::make_unique<Impl>();
    impl->file = std::move(file);
    impl->value = value;
    return std::optional<MappedRecord>(MappedRecord(std::move(impl)));
  };
  if (saved != nullptr && saved->bytes >= kRemembered) {
    const auto known = file->Known(std::string(key), *saved);
    if (known.has_value()) return found(*known);
  }
  const std::optional<std::string_view> block = file->Block(key);
  if (!block.has_value()) return std::nullopt;
  const std::uint64_t size = block->size() - kBlockTrailerBytes;
  if (saved != nullptr) {
    const auto place = ValueInBlock(key.size(), size);
    if (place.has_value() && place->size == saved->bytes) {
      const std::string_view value = block->substr(place->offset, place->size);
      if (base::DigestOf(value) == saved->digest) {
        if (value.size() >= kRemembered) {
          file->Remember(std::string(key), value, saved->digest);
        }
        return found(value);
      }
    }
  }
  if (!IsWholeBlock(*block)) {
    return absl::DataLossError("its block fails its checksum");
  }
  const std::optional<std::string_view> value =
      FindPut(block->substr(0, size), key);
  if (!value.has_value()) return std::nullopt;
  if (saved != nullptr && value->size() == saved->bytes &&
      base::DigestOf(*value) != saved->digest) {
    return absl::DataLossError("the bytes are not those that were saved");
  }
  return found(*value);
}

MappedRecord::MappedRecord(std::unique_ptr<Impl> impl)
    : impl_(std::move(impl)) {}
MappedRecord::MappedRecord(MappedRecord&&) noexcept = default;
MappedRecord& MappedRecord::operator=(MappedRecord&&) noexcept = default;

MappedRecord::~MappedRecord() {
  if (impl_ != nullptr && !impl_->mark.Holds()) {
    static_cast<void>(impl_.release());
  }
}

std::string_view MappedRecord::value() const { return impl_->value; }

}  // namespace ckptree::kv
