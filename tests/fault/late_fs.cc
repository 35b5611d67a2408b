// SPDX-License-Identifier: Apache-2.0

#include "tests/fault/late_fs.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <string_view>
#include <system_error>
#include <utility>

namespace ckptree::testing {

using rocksdb::FileOptions;
using rocksdb::IODebugContext;
using rocksdb::IOOptions;
using rocksdb::IOStatus;

namespace {

std::string Normal(std::string_view path) {
  while (path.size() > 1 && path.ends_with('/')) path.remove_suffix(1);
  return std::string(path);
}

std::string ParentOf(const std::string& path) {
  return path.substr(0, path.rfind('/'));
}

absl::Time Now() {  // Whatever is done to the time of day.
  return absl::UnixEpoch() +
         absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
}

bool IsOld(absl::Time at, absl::Duration late) { return Now() - at >= late; }

// 0: there is none.
std::uint64_t InodeOf(const std::string& path) {
  struct stat found;
  return stat(path.c_str(), &found) == 0 ? found.st_ino : 0;
}

// A bit of what was read.
void Flip(std::uint64_t bit, rocksdb::Slice* result, char* scratch) {
  if (result->empty()) return;
  if (result->data() != scratch) {
    std::copy_n(result->data(), result->size(), scratch);
  }
  bit %= 8 * result->size();
  scratch[bit / 8] ^= static_cast<char>(1 << bit % 8);
  *result = rocksdb::Slice(scratch, result->size());
}

}  // namespace

// A file that ends where it did when it was opened.
class LateFile : public rocksdb::FSRandomAccessFileOwnerWrapper {
 public:
  LateFile(std::unique_ptr<rocksdb::FSRandomAccessFile> file,
           const std::string& path, std::uint64_t size, LateFs* fs)
      : FSRandomAccessFileOwnerWrapper(std::move(file)),
        path_(path),
        inode_(InodeOf(path)),
        size_(size),
        fs_(fs) {}

  IOStatus Read(std::uint64_t offset, std::size_t n, const IOOptions& options,
                rocksdb::Slice* result, char* scratch,
                IODebugContext* debug) const override {
    if (IOStatus status = fs_->LookAtRead(path_, inode_); !status.ok()) {
      return status;
    }
    const std::uint64_t end = std::max(offset, size_);
    if (offset == end) {
      *result = rocksdb::Slice(scratch, 0);
      return IOStatus::OK();
    }
    std::optional<std::uint64_t> flip;
    if (IOStatus status = fs_->LookAtCount(path_, /*at_place=*/true, &flip);
        !status.ok()) {
      return status;
    }
    IOStatus status = FSRandomAccessFileOwnerWrapper::Read(
        offset, std::min<std::uint64_t>(n, end - offset), options, result,
        scratch, debug);
    if (flip.has_value() && status.ok()) Flip(*flip, result, scratch);
    return status;
  }
  IOStatus MultiRead(rocksdb::FSReadRequest* requests, std::size_t count,
                     const IOOptions& options, IODebugContext* debug) override {
    for (std::size_t i = 0; i < count; ++i) {
      requests[i].status =
          Read(requests[i].offset, requests[i].len, options,
               &requests[i].result, requests[i].scratch, debug);
    }
    return IOStatus::OK();
  }

 private:
  const std::string path_;
  const std::uint64_t inode_;
  const std::uint64_t size_;
  LateFs* const fs_;
};

// One whose reads may fail.
class LateSequentialFile : public rocksdb::FSSequentialFileOwnerWrapper {
 public:
  LateSequentialFile(std::unique_ptr<rocksdb::FSSequentialFile> file,
                     const std::string& path, LateFs* fs)
      : FSSequentialFileOwnerWrapper(std::move(file)),
        path_(path),
        inode_(InodeOf(path)),
        fs_(fs) {}

  IOStatus Read(std::size_t n, const IOOptions& options, rocksdb::Slice* result,
                char* scratch, IODebugContext* debug) override {
    if (IOStatus status = fs_->LookAtRead(path_, inode_); !status.ok()) {
      return status;
    }
    std::optional<std::uint64_t> flip;
    if (IOStatus status = fs_->LookAtCount(path_, /*at_place=*/false, &flip);
        !status.ok()) {
      return status;
    }
    IOStatus status =
        FSSequentialFileOwnerWrapper::Read(n, options, result, scratch, debug);
    if (flip.has_value() && status.ok()) Flip(*flip, result, scratch);
    return status;
  }

 private:
  const std::string path_;
  const std::uint64_t inode_;
  LateFs* const fs_;
};

// One whose syncs may be held.
class HeldFile : public rocksdb::FSRandomRWFileOwnerWrapper {
 public:
  HeldFile(std::unique_ptr<rocksdb::FSRandomRWFile> file, LateFs* fs)
      : FSRandomRWFileOwnerWrapper(std::move(file)), fs_(fs) {}

  IOStatus Sync(const IOOptions& options, IODebugContext* debug) override {
    if (IOStatus status = fs_->WaitForSync(); !status.ok()) return status;
    return FSRandomRWFileOwnerWrapper::Sync(options, debug);
  }

 private:
  LateFs* const fs_;
};

LateFs::LateFs() : FileSystemWrapper(rocksdb::FileSystem::Default()) {}

void LateFs::Delay(absl::Duration names, absl::Duration rest) {
  const absl::MutexLock lock(&mu_);
  names_ = names;
  rest_ = rest;
}

void LateFs::HoldSyncs() {
  const absl::MutexLock lock(&mu_);
  holds_ = true;
}

void LateFs::LetSyncsGo(bool fail) {
  const absl::MutexLock lock(&mu_);
  holds_ = false;
  fails_ = fail;
}

IOStatus LateFs::WaitForSync() {
  const absl::MutexLock lock(&mu_);
  if (!holds_) return IOStatus::OK();
  ++held_syncs_;
  const auto goes = [this]()
                        ABSL_SHARED_LOCKS_REQUIRED(mu_) { return !holds_; };
  mu_.Await(absl::Condition(&goes));
  return fails_ ? IOStatus::IOError("the sync failed") : IOStatus::OK();
}

void LateFs::Hide(const std::string& ending, const std::string& why) {
  const absl::MutexLock lock(&mu_);
  hides_ = ending;
  why_ = why;
}

void LateFs::HideFile(const std::string& path, const std::string& why,
                      bool opens) {
  const absl::MutexLock lock(&mu_);
  hidden_inode_ = InodeOf(path);
  hides_opens_ = opens;
  why_ = why;
}

void LateFs::FailRead(const std::string& part, int nth, bool flips,
                      bool stays) {
  const absl::MutexLock lock(&mu_);
  counts_ = part;
  reads_left_ = nth;
  flips_ = flips;
  stays_ = stays;
  counts_all_ = false;
}

void LateFs::FailAnyRead(const std::string& part, int nth, bool flips) {
  FailRead(part, nth, flips);
  const absl::MutexLock lock(&mu_);
  counts_all_ = true;
}

void LateFs::FlipSome(const std::string& part, int percent,
                      std::uint64_t seed) {
  const absl::MutexLock lock(&mu_);
  counts_ = percent > 0 ? part : "";
  counts_all_ = false;
  flip_percent_ = percent;
  random_.seed(seed);
}

IOStatus LateFs::LookAtCount(const std::string& path, bool at_place,
                             std::optional<std::uint64_t>* flip) {
  const absl::MutexLock lock(&mu_);
  if (counts_.empty() || path.find(counts_) == path.npos ||
      (!at_place && !counts_all_)) {
    return IOStatus::OK();
  }
  if (flip_percent_ > 0) {
    const bool hit = random_() % 100 < static_cast<unsigned>(flip_percent_);
    if (hit) *flip = random_();
    hidden_ += hit ? 1 : 0;
    return IOStatus::OK();
  }
  --reads_left_;
  if (reads_left_ > 0 || (reads_left_ < 0 && !stays_)) return IOStatus::OK();
  ++hidden_;
  if (!flips_) {
    return IOStatus::IOError(path, counts_all_
                                       ? std::generic_category().message(EIO)
                                       : "it is hidden");
  }
  *flip = random_();
  return IOStatus::OK();
}

IOStatus LateFs::LookAtRead(const std::string& path, std::uint64_t inode) {
  const absl::MutexLock lock(&mu_);
  if (hides_opens_ || hidden_inode_ == 0 || hidden_inode_ != inode) {
    return IOStatus::OK();
  }
  ++hidden_;
  return IOStatus::IOError(path, why_);
}

IOStatus LateFs::Look(const std::string& path) {
  const absl::MutexLock lock(&mu_);
  if ((!hides_.empty() && path.ends_with(hides_)) ||
      (hides_opens_ && hidden_inode_ != 0 && InodeOf(path) == hidden_inode_)) {
    ++hidden_;
    return IOStatus::IOError(path, why_);
  }
  const auto missing = missing_.find(Normal(path));
  if (missing == missing_.end()) return IOStatus::OK();
  if (IsOld(missing->second, names_)) {
    missing_.erase(missing);
    return IOStatus::OK();
  }
  if (FileSystemWrapper::FileExists(path, IOOptions(), nullptr).ok()) {
    ++missed_names_;
  }
  return IOStatus::NotFound(path, "as it was seen before");
}

IOStatus LateFs::Looked(const std::string& path, IOStatus status) {
  if (status.IsNotFound() || status.IsPathNotFound()) {
    const absl::MutexLock lock(&mu_);
    missing_.emplace(Normal(path), Now());
  }
  return status;
}

void LateFs::Forget(const std::string& path, bool writes) {
  const absl::MutexLock lock(&mu_);
  const std::string name = Normal(path);
  if (writes) written_.insert(name);
  missing_.erase(name);
  lists_.erase(name);
  lists_.erase(ParentOf(name));
  sizes_.erase(name);
}

IOStatus LateFs::NewSequentialFile(
    const std::string& path, const FileOptions& options,
    std::unique_ptr<rocksdb::FSSequentialFile>* result, IODebugContext* debug) {
  if (IOStatus status = Look(path); !status.ok()) return status;
  std::unique_ptr<rocksdb::FSSequentialFile> file;
  IOStatus status = Looked(
      path, FileSystemWrapper::NewSequentialFile(path, options, &file, debug));
  if (status.ok()) {
    *result = std::make_unique<LateSequentialFile>(std::move(file), path, this);
  }
  return status;
}

IOStatus LateFs::NewRandomAccessFile(
    const std::string& path, const FileOptions& options,
    std::unique_ptr<rocksdb::FSRandomAccessFile>* result,
    IODebugContext* debug) {
  if (IOStatus status = Look(path); !status.ok()) return status;
  std::unique_ptr<rocksdb::FSRandomAccessFile> file;
  IOStatus status = Looked(path, FileSystemWrapper::NewRandomAccessFile(
                                     path, options, &file, debug));
  if (!status.ok()) return status;
  std::uint64_t size = 0;
  status = FileSystemWrapper::GetFileSize(path, IOOptions(), &size, debug);
  if (!status.ok()) return status;
  *result = std::make_unique<LateFile>(std::move(file), path, size, this);
  return status;
}

IOStatus LateFs::FileExists(const std::string& path, const IOOptions& options,
                            IODebugContext* debug) {
  if (IOStatus status = Look(path); !status.ok()) return status;
  return Looked(path, FileSystemWrapper::FileExists(path, options, debug));
}

IOStatus LateFs::GetChildren(const std::string& path, const IOOptions& options,
                             std::vector<std::string>* names,
                             IODebugContext* debug) {
  if (IOStatus status = Look(path); !status.ok()) return status;
  std::vector<std::string> now;
  IOStatus status =
      Looked(path, FileSystemWrapper::GetChildren(path, options, &now, debug));
  if (!status.ok()) return status;
  std::sort(now.begin(), now.end());
  const absl::MutexLock lock(&mu_);
  Seen<std::vector<std::string>>& seen = lists_[Normal(path)];
  if (seen.at == absl::Time() || IsOld(seen.at, rest_)) {
    seen = {std::move(now), Now()};
  } else if (seen.value != now) {
    ++old_lists_;
  }
  *names = seen.value;
  return status;
}

IOStatus LateFs::GetFileSize(const std::string& path, const IOOptions& options,
                             std::uint64_t* size, IODebugContext* debug) {
  if (IOStatus status = Look(path); !status.ok()) return status;
  std::uint64_t now = 0;
  IOStatus status =
      Looked(path, FileSystemWrapper::GetFileSize(path, options, &now, debug));
  if (!status.ok()) return status;
  const absl::MutexLock lock(&mu_);
  Seen<std::uint64_t>& seen = sizes_[Normal(path)];
  if (written_.contains(Normal(path)) || seen.at == absl::Time() ||
      IsOld(seen.at, rest_)) {
    seen = {now, Now()};
  } else if (seen.value != now) {
    ++old_sizes_;
  }
  *size = seen.value;
  return status;
}

IOStatus LateFs::NewWritableFile(
    const std::string& path, const FileOptions& options,
    std::unique_ptr<rocksdb::FSWritableFile>* result, IODebugContext* debug) {
  Forget(path, /*writes=*/true);
  return FileSystemWrapper::NewWritableFile(path, options, result, debug);
}

IOStatus LateFs::ReopenWritableFile(
    const std::string& path, const FileOptions& options,
    std::unique_ptr<rocksdb::FSWritableFile>* result, IODebugContext* debug) {
  Forget(path, /*writes=*/true);
  return FileSystemWrapper::ReopenWritableFile(path, options, result, debug);
}

IOStatus LateFs::NewRandomRWFile(
    const std::string& path, const FileOptions& options,
    std::unique_ptr<rocksdb::FSRandomRWFile>* result, IODebugContext* debug) {
  Forget(path, /*writes=*/true);
  std::unique_ptr<rocksdb::FSRandomRWFile> file;
  IOStatus status =
      FileSystemWrapper::NewRandomRWFile(path, options, &file, debug);
  if (status.ok()) {
    *result = std::make_unique<HeldFile>(std::move(file), this);
  }
  return status;
}

IOStatus LateFs::DeleteFile(const std::string& path, const IOOptions& options,
                            IODebugContext* debug) {
  Forget(path);
  return FileSystemWrapper::DeleteFile(path, options, debug);
}

IOStatus LateFs::CreateDir(const std::string& path, const IOOptions& options,
                           IODebugContext* debug) {
  Forget(path);
  return FileSystemWrapper::CreateDir(path, options, debug);
}

IOStatus LateFs::CreateDirIfMissing(const std::string& path,
                                    const IOOptions& options,
                                    IODebugContext* debug) {
  Forget(path);
  return FileSystemWrapper::CreateDirIfMissing(path, options, debug);
}

IOStatus LateFs::DeleteDir(const std::string& path, const IOOptions& options,
                           IODebugContext* debug) {
  Forget(path);
  return FileSystemWrapper::DeleteDir(path, options, debug);
}

IOStatus LateFs::RenameFile(const std::string& from, const std::string& to,
                            const IOOptions& options, IODebugContext* debug) {
  Forget(from);
  Forget(to);
  return FileSystemWrapper::RenameFile(from, to, options, debug);
}

IOStatus LateFs::LinkFile(const std::string& from, const std::string& to,
                          const IOOptions& options, IODebugContext* debug) {
  Forget(to);
  return FileSystemWrapper::LinkFile(from, to, options, debug);
}

}  // namespace ckptree::testing
