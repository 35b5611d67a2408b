// SPDX-License-Identifier: Apache-2.0

#include "tests/fault/fs.h"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "tests/fault/files.h"

namespace ckptree::testing {

using rocksdb::FileOptions;
using rocksdb::IODebugContext;
using rocksdb::IOOptions;
using rocksdb::IOStatus;

namespace {

[[noreturn]] void Die() {
  kill(getpid(), SIGKILL);
  for (;;) pause();
}

IOStatus StatusOf(int error, const std::string& path) {
  if (error == ENOSPC) return IOStatus::NoSpace(path, std::strerror(error));
  return IOStatus::IOError(path, std::strerror(error));
}

}  // namespace

FaultFs::FaultFs(std::string scratch, FaultCounts* counts)
    : FileSystemWrapper(rocksdb::FileSystem::Default()), counts_(counts) {
  if (!scratch.empty()) disk_ = std::make_unique<FaultDisk>(scratch);
}

void FaultFs::Arm(std::vector<FaultPlan> plans) {
  absl::MutexLock lock(&mu_);
  counts_->Reset();
  plans_ = std::move(plans);
  seen_.assign(plans_.size(), 0);
  reads_planned_ = std::ranges::any_of(plans_, [](const FaultPlan& plan) {
    return (plan.kinds & Bit(CallKind::kRead)) != 0;
  });
}

void FaultFs::Disarm() {
  absl::MutexLock lock(&mu_);
  plans_.clear();
  seen_.clear();
  reads_planned_ = false;
}

void FaultFs::CutPower(std::uint64_t seed) {
  absl::MutexLock lock(&mu_);
  ++counts_->fired;
  disk_->CutPower(seed);
  Die();
}

FaultFs::Verdict FaultFs::Enter(CallKind kind, const std::string& path,
                                std::uint64_t length) {
  const FileClass file_class = ClassOf(path);
  ++counts_->calls;
  ++counts_->by_kind[static_cast<std::size_t>(kind)]
                    [static_cast<std::size_t>(file_class)];
  Verdict verdict;
  for (std::size_t i = 0; i < plans_.size(); ++i) {
    const FaultPlan& plan = plans_[i];
    if ((plan.kinds & Bit(kind)) == 0) continue;
    if ((plan.classes & Bit(file_class)) == 0) continue;
    const std::uint64_t n = ++seen_[i];
    if (n != plan.at && !(plan.sticky && n > plan.at)) continue;
    if (counts_->fired++ == 0) {
      counts_->fired_kind = static_cast<int>(kind);
      counts_->fired_class = static_cast<int>(file_class);
      std::snprintf(counts_->fired_path.data(), counts_->fired_path.size(),
                    "%s", path.c_str());
    }
    FaultRandom random(plan.seed + n);
    if (plan.seed % 2 == 1 && length > 0) {
      verdict.partial = random.Below(length);
    }
    verdict.seed = plan.seed;
    switch (plan.mode) {
      case FaultPlan::Mode::kFailAndDrop:
        verdict.drops = true;
        [[fallthrough]];
      case FaultPlan::Mode::kFail:
        verdict.status = StatusOf(plan.error, path);
        break;
      case FaultPlan::Mode::kNotify:
        plan.notify();
        break;
      case FaultPlan::Mode::kLie:
        verdict.lies = true;
        break;
      case FaultPlan::Mode::kPowerCut:
        verdict.cuts = true;
        [[fallthrough]];
      case FaultPlan::Mode::kKill:
        verdict.dies = true;
        break;
    }
  }
  return verdict;
}

IOStatus FaultFs::Fail(const Verdict& verdict) {
  if (verdict.cuts) disk_->CutPower(verdict.seed);
  if (verdict.dies) Die();
  return verdict.status;
}

IOStatus FaultFs::EnterRead(const std::string& path) {
  absl::MutexLock lock(&mu_);
  if (!reads_planned_) return IOStatus::OK();
  return Fail(Enter(CallKind::kRead, path));
}

IOStatus FaultFs::NewSequentialFile(
    const std::string& path, const FileOptions& options,
    std::unique_ptr<rocksdb::FSSequentialFile>* result, IODebugContext* debug) {
  std::unique_ptr<rocksdb::FSSequentialFile> file;
  IOStatus status = target()->NewSequentialFile(path, options, &file, debug);
  if (status.ok()) {
    *result =
        std::make_unique<FaultSequentialFile>(this, path, std::move(file));
  }
  return status;
}

IOStatus FaultFs::NewRandomAccessFile(
    const std::string& path, const FileOptions& options,
    std::unique_ptr<rocksdb::FSRandomAccessFile>* result,
    IODebugContext* debug) {
  std::unique_ptr<rocksdb::FSRandomAccessFile> file;
  IOStatus status = target()->NewRandomAccessFile(path, options, &file, debug);
  if (status.ok()) {
    *result =
        std::make_unique<FaultRandomAccessFile>(this, path, std::move(file));
  }
  return status;
}

template <typename Open>
IOStatus FaultFs::OpenForWriting(
    CallKind kind, const std::string& path, bool truncates, Open open,
    std::unique_ptr<rocksdb::FSWritableFile>* result) {
  absl::MutexLock lock(&mu_);
  const Verdict verdict = Enter(kind, path);
  if (!verdict.passes()) return Fail(verdict);
  std::shared_ptr<FaultDisk::File> file;
  const bool existed = follows() && disk_->Exists(path);
  if (existed) {
    file = disk_->Open(path);
    if (file && truncates) disk_->WillTruncate(*file, 0);
  }
  std::unique_ptr<rocksdb::FSWritableFile> opened;
  IOStatus status = open(&opened);
  if (!status.ok()) return status;
  if (follows() && !existed) {
    disk_->Created(path);
    file = disk_->Open(path);
  }
  std::uint64_t end = file ? disk_->SizeOf(*file) : 0;
  *result = std::make_unique<FaultWritableFile>(this, path, std::move(file),
                                                end, std::move(opened));
  return status;
}

IOStatus FaultFs::NewWritableFile(
    const std::string& path, const FileOptions& options,
    std::unique_ptr<rocksdb::FSWritableFile>* result, IODebugContext* debug) {
  return OpenForWriting(
      CallKind::kOpen, path, /*truncates=*/true,
      [&](auto* file) {
        return target()->NewWritableFile(path, options, file, debug);
      },
      result);
}

IOStatus FaultFs::ReopenWritableFile(
    const std::string& path, const FileOptions& options,
    std::unique_ptr<rocksdb::FSWritableFile>* result, IODebugContext* debug) {
  return OpenForWriting(
      CallKind::kReopen, path, /*truncates=*/false,
      [&](auto* file) {
        return target()->ReopenWritableFile(path, options, file, debug);
      },
      result);
}

IOStatus FaultFs::ReuseWritableFile(
    const std::string& path, const std::string& old_path,
    const FileOptions& options,
    std::unique_ptr<rocksdb::FSWritableFile>* result, IODebugContext* debug) {
  return FileSystem::ReuseWritableFile(path, old_path, options, result, debug);
}

IOStatus FaultFs::NewRandomRWFile(
    const std::string& path, const FileOptions& options,
    std::unique_ptr<rocksdb::FSRandomRWFile>* result, IODebugContext* debug) {
  absl::MutexLock lock(&mu_);
  const Verdict verdict = Enter(CallKind::kReopen, path);
  if (!verdict.passes()) return Fail(verdict);
  const bool existed = follows() && disk_->Exists(path);
  std::unique_ptr<rocksdb::FSRandomRWFile> opened;
  IOStatus status = target()->NewRandomRWFile(path, options, &opened, debug);
  if (!status.ok()) return status;
  std::shared_ptr<FaultDisk::File> file;
  if (follows()) {
    if (!existed) disk_->Created(path);
    file = disk_->Open(path);
  }
  *result = std::make_unique<FaultRandomRWFile>(this, path, std::move(file),
                                                std::move(opened));
  return status;
}

IOStatus FaultFs::NewDirectory(const std::string& path,
                               const IOOptions& options,
                               std::unique_ptr<rocksdb::FSDirectory>* result,
                               IODebugContext* debug) {
  std::unique_ptr<rocksdb::FSDirectory> opened;
  IOStatus status = target()->NewDirectory(path, options, &opened, debug);
  if (status.ok()) {
    *result = std::make_unique<FaultDirectory>(this, path, std::move(opened));
  }
  return status;
}

IOStatus FaultFs::DeleteFile(const std::string& path, const IOOptions& options,
                             IODebugContext* debug) {
  absl::MutexLock lock(&mu_);
  const Verdict verdict = Enter(CallKind::kUnlink, path);
  if (!verdict.passes()) return Fail(verdict);
  std::string hidden = follows() ? disk_->Hide(path) : "";
  IOStatus status = target()->DeleteFile(path, options, debug);
  if (status.ok() && follows()) disk_->Removed(path, std::move(hidden));
  return status;
}

IOStatus FaultFs::Truncate(const std::string& path, std::size_t size,
                           const IOOptions& options, IODebugContext* debug) {
  absl::MutexLock lock(&mu_);
  const Verdict verdict = Enter(CallKind::kTruncate, path);
  if (!verdict.passes()) return Fail(verdict);
  std::shared_ptr<FaultDisk::File> file;
  if (follows() && (file = disk_->Open(path))) disk_->WillTruncate(*file, size);
  return target()->Truncate(path, size, options, debug);
}

IOStatus FaultFs::CreateDir(const std::string& path, const IOOptions& options,
                            IODebugContext* debug) {
  absl::MutexLock lock(&mu_);
  const Verdict verdict = Enter(CallKind::kMakeDirectory, path);
  if (!verdict.passes()) return Fail(verdict);
  IOStatus status = target()->CreateDir(path, options, debug);
  if (status.ok() && follows()) disk_->MadeDirectory(path);
  return status;
}

IOStatus FaultFs::CreateDirIfMissing(const std::string& path,
                                     const IOOptions& options,
                                     IODebugContext* debug) {
  struct stat status {};
  if (stat(path.c_str(), &status) == 0) {
    return target()->CreateDirIfMissing(path, options, debug);
  }
  return CreateDir(path, options, debug);
}

IOStatus FaultFs::DeleteDir(const std::string& path, const IOOptions& options,
                            IODebugContext* debug) {
  absl::MutexLock lock(&mu_);
  const Verdict verdict = Enter(CallKind::kRemoveDirectory, path);
  if (!verdict.passes()) return Fail(verdict);
  IOStatus status = target()->DeleteDir(path, options, debug);
  if (status.ok() && follows()) disk_->RemovedDirectory(path);
  return status;
}

IOStatus FaultFs::RenameFile(const std::string& from, const std::string& to,
                             const IOOptions& options, IODebugContext* debug) {
  absl::MutexLock lock(&mu_);
  const Verdict verdict = Enter(CallKind::kRename, to);
  if (!verdict.passes()) return Fail(verdict);
  std::string hidden =
      follows() && disk_->Exists(to) ? disk_->Hide(to) : std::string();
  IOStatus status = target()->RenameFile(from, to, options, debug);
  if (status.ok() && follows()) disk_->Renamed(from, to, std::move(hidden));
  return status;
}

IOStatus FaultFs::LinkFile(const std::string& from, const std::string& to,
                           const IOOptions& options, IODebugContext* debug) {
  absl::MutexLock lock(&mu_);
  const Verdict verdict = Enter(CallKind::kLink, to);
  if (!verdict.passes()) return Fail(verdict);
  IOStatus status = target()->LinkFile(from, to, options, debug);
  if (status.ok() && follows()) disk_->Linked(to);
  return status;
}

}  // namespace ckptree::testing
