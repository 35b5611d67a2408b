// SPDX-License-Identifier: Apache-2.0

// A file system whose n-th call fails, kills the process or loses power.

#ifndef CKPTREE_TESTS_FAULT_FS_H_
#define CKPTREE_TESTS_FAULT_FS_H_

#include <rocksdb/file_system.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "tests/fault/disk.h"
#include "tests/fault/plan.h"
#include "tests/fault/random.h"

namespace ckptree::testing {

// The real file system below, with faults from plans. One change at a time goes
// through it, so that what a power cut may lose is known exactly.
//
// Thread-safe. Files made by it must be destroyed before it.
class FaultFs : public rocksdb::FileSystemWrapper {
 public:
  // `scratch`: see FaultDisk; where empty, power cuts are not followed (faster)
  // and must not be planned. `counts` must outlive it.
  FaultFs(std::string scratch, FaultCounts* counts);

  // Counts from here; replaces the plans before it.
  void Arm(std::vector<FaultPlan> plans);
  // No plan any more: every call succeeds again.
  void Disarm();

  // At once: loses a random part of what is not durable, and dies.
  [[noreturn]] void CutPower(std::uint64_t seed);

  const char* Name() const override { return "FaultFs"; }

  rocksdb::IOStatus NewSequentialFile(
      const std::string& path, const rocksdb::FileOptions& options,
      std::unique_ptr<rocksdb::FSSequentialFile>* result,
      rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus NewRandomAccessFile(
      const std::string& path, const rocksdb::FileOptions& options,
      std::unique_ptr<rocksdb::FSRandomAccessFile>* result,
      rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus NewWritableFile(
      const std::string& path, const rocksdb::FileOptions& options,
      std::unique_ptr<rocksdb::FSWritableFile>* result,
      rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus ReopenWritableFile(
      const std::string& path, const rocksdb::FileOptions& options,
      std::unique_ptr<rocksdb::FSWritableFile>* result,
      rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus ReuseWritableFile(
      const std::string& path, const std::string& old_path,
      const rocksdb::FileOptions& options,
      std::unique_ptr<rocksdb::FSWritableFile>* result,
      rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus NewRandomRWFile(
      const std::string& path, const rocksdb::FileOptions& options,
      std::unique_ptr<rocksdb::FSRandomRWFile>* result,
      rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus NewDirectory(const std::string& path,
                                 const rocksdb::IOOptions& options,
                                 std::unique_ptr<rocksdb::FSDirectory>* result,
                                 rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus DeleteFile(const std::string& path,
                               const rocksdb::IOOptions& options,
                               rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus Truncate(const std::string& path, std::size_t size,
                             const rocksdb::IOOptions& options,
                             rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus CreateDir(const std::string& path,
                              const rocksdb::IOOptions& options,
                              rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus CreateDirIfMissing(const std::string& path,
                                       const rocksdb::IOOptions& options,
                                       rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus DeleteDir(const std::string& path,
                              const rocksdb::IOOptions& options,
                              rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus RenameFile(const std::string& from, const std::string& to,
                               const rocksdb::IOOptions& options,
                               rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus LinkFile(const std::string& from, const std::string& to,
                             const rocksdb::IOOptions& options,
                             rocksdb::IODebugContext* debug) override;

 private:
  friend class FaultWritableFile;
  friend class FaultRandomRWFile;
  friend class FaultDirectory;
  friend class FaultRandomAccessFile;
  friend class FaultSequentialFile;

  // What becomes of a call.
  struct Verdict {
    rocksdb::IOStatus status;  // Not OK: the call fails with it.
    bool drops = false;        // And so do the bytes of the failed sync.
    bool lies = false;         // A sync that makes nothing durable.
    bool dies = false;         // SIGKILL; power goes first where `cuts`.
    bool cuts = false;
    // Where set, a failing or dying write writes this many of `length` bytes.
    std::optional<std::uint64_t> partial;
    std::uint64_t seed = 0;

    bool passes() const { return status.ok() && !dies; }
  };
  Verdict Enter(CallKind kind, const std::string& path,
                std::uint64_t length = 0) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Dies where the verdict says so; otherwise gives its status.
  rocksdb::IOStatus Fail(const Verdict& verdict)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Of a call that reads.
  rocksdb::IOStatus EnterRead(const std::string& path);

  template <typename Open>
  rocksdb::IOStatus OpenForWriting(
      CallKind kind, const std::string& path, bool truncates, Open open,
      std::unique_ptr<rocksdb::FSWritableFile>* result);
  bool follows() const { return disk_ != nullptr; }

  absl::Mutex mu_;
  std::vector<FaultPlan> plans_ ABSL_GUARDED_BY(mu_);
  std::vector<std::uint64_t> seen_ ABSL_GUARDED_BY(mu_);  // Of each plan.
  bool reads_planned_ ABSL_GUARDED_BY(mu_) = false;
  std::unique_ptr<FaultDisk> disk_;  // Used under mu_.
  FaultCounts* const counts_;
};

}  // namespace ckptree::testing

#endif  // CKPTREE_TESTS_FAULT_FS_H_
