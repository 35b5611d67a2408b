// SPDX-License-Identifier: Apache-2.0

#include "kv/rocks/fresh_table.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "kv/rocks/read_pieces.h"
#include "kv/rocks/table_check.h"
#include "kv/rocks/table_parts.h"
#include "rocksdb/file_system.h"

namespace ckptree::kv {
namespace {

using rocksdb::FSRandomAccessFile;
using rocksdb::IODebugContext;
using rocksdb::IOOptions;
using rocksdb::IOStatus;
using rocksdb::Slice;

constexpr int kAttempts = 3;

// Keeps what it reads until Keep(), gives it to whoever reads it again, and
// keeps nothing any more once the index was read. Thread-safe after Keep().
class KeptOpening : public rocksdb::FSRandomAccessFileOwnerWrapper {
 public:
  using FSRandomAccessFileOwnerWrapper::FSRandomAccessFileOwnerWrapper;

  void Keep(const BlockPlace& index) {
    index_ = index;
    keeping_ = false;
  }

  IOStatus Read(std::uint64_t offset, std::size_t n, const IOOptions& options,
                Slice* result, char* scratch,
                IODebugContext* debug) const override {
    if (any_.load(std::memory_order_acquire) && Find(offset, n, scratch)) {
      *result = Slice(scratch, n);
      return IOStatus::OK();
    }
    IOStatus status = FSRandomAccessFileOwnerWrapper::Read(
        offset, n, options, result, scratch, debug);
    if (keeping_ && status.ok()) {
      const absl::MutexLock lock(&mutex_);
      pieces_.Keep(offset, result->ToStringView());
      any_.store(true, std::memory_order_release);
    }
    return status;
  }

  IOStatus MultiRead(rocksdb::FSReadRequest* requests, std::size_t count,
                     const IOOptions& options, IODebugContext* debug) override {
    if (!any_.load(std::memory_order_acquire)) {
      return FSRandomAccessFileOwnerWrapper::MultiRead(requests, count, options,
                                                       debug);
    }
    for (std::size_t i = 0; i < count; ++i) {
      rocksdb::FSReadRequest& one = requests[i];
      one.status =
          Read(one.offset, one.len, options, &one.result, one.scratch, debug);
    }
    return IOStatus::OK();
  }

 private:
  bool Find(std::uint64_t offset, std::size_t n, char* to) const {
    const absl::MutexLock lock(&mutex_);
    if (!pieces_.Find(offset, n, to)) return false;
    if (!keeping_ && offset == index_.offset && n >= index_.size) {
      any_.store(false, std::memory_order_release);
      pieces_ = ReadPieces();
    }
    return true;
  }

  bool keeping_ = true;
  BlockPlace index_;
  mutable std::atomic<bool> any_{false};
  mutable absl::Mutex mutex_;
  mutable ReadPieces pieces_ ABSL_GUARDED_BY(mutex_);
};

// Nothing where not all of it could be read and is whole.
std::optional<BlockPlace> ReadOpening(FSRandomAccessFile* file,
                                      std::uint64_t file_bytes) {
  if (CheckOpening(file, file_bytes) != Opening::kWhole) return std::nullopt;
  TableTail tail(file, file_bytes);
  if (!tail.ReadIndexBlock().has_value()) return std::nullopt;
  return tail.ReadFooter()->index;
}

}  // namespace

IOStatus OpenFreshTable(rocksdb::FileSystem* files, const std::string& path,
                        const rocksdb::FileOptions& options,
                        std::unique_ptr<FSRandomAccessFile>* file,
                        IODebugContext* debug) {
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    std::uint64_t bytes = 0;
    if (!files->NewRandomAccessFile(path, options, file, debug).ok() ||
        !files->GetFileSize(path, IOOptions(), &bytes, debug).ok()) {
      continue;
    }
    auto kept = std::make_unique<KeptOpening>(std::move(*file));
    const std::optional<BlockPlace> index = ReadOpening(kept.get(), bytes);
    if (index.has_value()) {
      kept->Keep(*index);
      *file = std::move(kept);
      return IOStatus::OK();
    }
    // Advice: a file system that has no such thing reads again.
    kept->InvalidateCache(0, 0).PermitUncheckedError();
  }
  return files->NewRandomAccessFile(path, options, file, debug);
}

}  // namespace ckptree::kv
