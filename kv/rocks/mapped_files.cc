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
#include "kv/rocks/instance.h"
#include "kv/rocks/open_files.h"
#include "kv/rocks/rocksdb_options.h"
#include "kv/store_directory.h"
#include "rocksdb/env.h"
#include "rocksdb/iterator.h"
#include "rocksdb/options.h"
#include "rocksdb/sst_file_reader.h"
#include "schema/spaces.h"

namespace ckptree::kv {

class MappedFile {
 public:
  MappedFile(std::shared_ptr<rocksdb::Env> env, schema::Space space)
      : env_(std::move(env)),
        reader_(FileOptionsOf(space, env_.get(), /*map=*/true)) {}

  rocksdb::SstFileReader& reader() const { return reader_; }

  // Whether the value of `key` was found to have this digest.
  bool Has(const std::string& key, const base::Digest& digest) const {
    const absl::MutexLock lock(&mutex_);
    const auto known = digests_.find(key);
    return known != digests_.end() && known->second == digest;
  }
  void Remember(std::string key, const base::Digest& digest) const {
    const absl::MutexLock lock(&mutex_);
    digests_[std::move(key)] = digest;
  }

 private:
  const std::shared_ptr<rocksdb::Env> env_;
  mutable rocksdb::SstFileReader reader_;
  mutable absl::Mutex mutex_;
  // By key; of a file no more than one for 64 KiB.
  mutable std::unordered_map<std::string, base::Digest> digests_
      ABSL_GUARDED_BY(mutex_);
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
  const auto file = std::make_shared<MappedFile>(instance->shared_env(), space);
  const rocksdb::Status opened = file->reader().Open(table->path);
  if (!opened.ok()) {
    return ToStatus(opened, absl::StrFormat("mapping %s", table->path));
  }
  // Each holds a file open; one still in use outlives this.
  if (mapped_.size() >= static_cast<std::size_t>(OpenTableLimit())) {
    mapped_.clear();
  }
  mapped_.emplace(table->path, file);
  return std::shared_ptr<const MappedFile>(file);
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
  std::shared_ptr<const MappedFile> file;  // Outlives the iterator.
  std::unique_ptr<rocksdb::Iterator> iterator;
};

absl::StatusOr<std::optional<MappedRecord>> MappedRecord::Find(
    std::shared_ptr<const MappedFile> file, std::string_view key,
    const Saved* saved) {
  auto impl = std::make_unique<Impl>();
  rocksdb::ReadOptions options;
  // A digest says more than the checksum of the block.
  options.verify_checksums = saved == nullptr;
  options.fill_cache = false;
  impl->iterator.reset(file->reader().NewIterator(options));
  impl->file = std::move(file);
  impl->iterator->Seek(key);
  if (!impl->iterator->status().ok()) {
    return ToStatus(impl->iterator->status(), "mapped file");
  }
  if (!impl->iterator->Valid() || impl->iterator->key() != key) {
    return std::nullopt;
  }
  const std::string_view value = impl->iterator->value().ToStringView();
  if (saved != nullptr && saved->bytes == value.size()) {
    std::string name(key);
    if (!impl->file->Has(name, saved->digest)) {
      if (base::DigestOf(value) != saved->digest) {
        return absl::DataLossError("the bytes are not those that were saved");
      }
      if (value.size() >= kRemembered) {
        impl->file->Remember(std::move(name), saved->digest);
      }
    }
  }
  return std::optional<MappedRecord>(MappedRecord(std::move(impl)));
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

std::string_view MappedRecord::value() const {
  return impl_->iterator->value().ToStringView();
}

}  // namespace ckptree::kv
