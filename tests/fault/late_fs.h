// SPDX-License-Identifier: Apache-2.0

// One client of a file system that several share, and that shows late what the
// others do: what NFS does with its caches of names and attributes.

#ifndef CKPTREE_TESTS_FAULT_LATE_FS_H_
#define CKPTREE_TESTS_FAULT_LATE_FS_H_

#include <rocksdb/file_system.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace ckptree::testing {

// The real file system below. What this client does itself it sees at once. Of
// what others do it sees late, each time by `late`:
//
// * a name that was looked for when it was not there;
// * what was listed in a directory;
// * the size of a file that was asked for by its name.
//
// An open file has the size that it had when it was opened. Opening a file that
// was there before shows all of it ("close to open").
//
// Thread-safe.
class LateFs : public rocksdb::FileSystemWrapper {
 public:
  LateFs();

  // From now on; what was seen before is as old as it is.
  void Delay(absl::Duration names, absl::Duration rest);

  // From now on reads of files whose path ends so fail, and say why; empty:
  // none of them.
  void Hide(const std::string& ending, const std::string& why = "it is hidden");
  // The same of what is this file now, under any name; an empty path: of none.
  // Without `opens` it can be opened, and reads of it fail.
  void HideFile(const std::string& path, const std::string& why, bool opens);
  // The read at a place that is the `nth` from now on of files with `part` in
  // their path fails, or with `flips` gives a flipped bit; the others are well,
  // or with `stays` only those before it.
  void FailRead(const std::string& part, int nth, bool flips,
                bool stays = false);
  // The same of all reads, also of those that read on in a file; they fail as
  // those of a disk that gives nothing (EIO).
  void FailAnyRead(const std::string& part, int nth, bool flips);
  // From now on so many of a hundred reads at a place of files with `part` in
  // their path give a flipped bit. `seed` says which and where; 0 percent:
  // none.
  void FlipSome(const std::string& part, int percent, std::uint64_t seed);
  // How many did.
  std::uint64_t hidden() const { return hidden_; }

  // From now on who syncs a file that is changed in place waits, until that is
  // let go: with an error, or well.
  void HoldSyncs();
  void LetSyncsGo(bool fail);
  // How many were held.
  std::uint64_t held_syncs() const { return held_syncs_; }

  // How often something old was shown: a test asserts that it was.
  std::uint64_t missed_names() const { return missed_names_; }
  std::uint64_t old_lists() const { return old_lists_; }
  std::uint64_t old_sizes() const { return old_sizes_; }

  const char* Name() const override { return "LateFs"; }

  rocksdb::IOStatus NewSequentialFile(
      const std::string& path, const rocksdb::FileOptions& options,
      std::unique_ptr<rocksdb::FSSequentialFile>* result,
      rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus NewRandomAccessFile(
      const std::string& path, const rocksdb::FileOptions& options,
      std::unique_ptr<rocksdb::FSRandomAccessFile>* result,
      rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus FileExists(const std::string& path,
                               const rocksdb::IOOptions& options,
                               rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus GetChildren(const std::string& path,
                                const rocksdb::IOOptions& options,
                                std::vector<std::string>* names,
                                rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus GetFileSize(const std::string& path,
                                const rocksdb::IOOptions& options,
                                std::uint64_t* size,
                                rocksdb::IODebugContext* debug) override;

  rocksdb::IOStatus NewWritableFile(
      const std::string& path, const rocksdb::FileOptions& options,
      std::unique_ptr<rocksdb::FSWritableFile>* result,
      rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus ReopenWritableFile(
      const std::string& path, const rocksdb::FileOptions& options,
      std::unique_ptr<rocksdb::FSWritableFile>* result,
      rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus NewRandomRWFile(
      const std::string& path, const rocksdb::FileOptions& options,
      std::unique_ptr<rocksdb::FSRandomRWFile>* result,
      rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus DeleteFile(const std::string& path,
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
  template <typename Value>
  struct Seen {
    Value value = {};
    absl::Time at;
  };

  // OK where the name may be looked for; kNotFound where it was missing, an
  // error of I/O where it is hidden.
  rocksdb::IOStatus Look(const std::string& path);
  // Remembers that the name was missing, where `status` says that.
  rocksdb::IOStatus Looked(const std::string& path, rocksdb::IOStatus status);
  friend class LateFile;
  friend class LateSequentialFile;
  friend class HeldFile;
  // `flip`: a bit to flip, modulo those that are read.
  rocksdb::IOStatus LookAtCount(const std::string& path, bool at_place,
                                std::optional<std::uint64_t>* flip);
  rocksdb::IOStatus LookAtRead(const std::string& path, std::uint64_t inode);
  rocksdb::IOStatus WaitForSync();
  // This client changed the name; with `writes`, it writes the file.
  void Forget(const std::string& path, bool writes = false);

  absl::Mutex mu_;
  absl::Duration names_ ABSL_GUARDED_BY(mu_);
  absl::Duration rest_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, absl::Time> missing_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, Seen<std::vector<std::string>>> lists_
      ABSL_GUARDED_BY(mu_);
  std::map<std::string, Seen<std::uint64_t>> sizes_ ABSL_GUARDED_BY(mu_);
  std::set<std::string> written_ ABSL_GUARDED_BY(mu_);
  std::string hides_ ABSL_GUARDED_BY(mu_);
  std::string why_ ABSL_GUARDED_BY(mu_);
  std::uint64_t hidden_inode_ ABSL_GUARDED_BY(mu_) = 0;
  bool hides_opens_ ABSL_GUARDED_BY(mu_) = true;
  std::string counts_ ABSL_GUARDED_BY(mu_);
  int reads_left_ ABSL_GUARDED_BY(mu_) = 0;
  bool flips_ ABSL_GUARDED_BY(mu_) = false;
  bool stays_ ABSL_GUARDED_BY(mu_) = false;
  bool counts_all_ ABSL_GUARDED_BY(mu_) = false;
  int flip_percent_ ABSL_GUARDED_BY(mu_) = 0;
  std::mt19937_64 random_ ABSL_GUARDED_BY(mu_);
  std::atomic<std::uint64_t> hidden_ = 0;
  bool holds_ ABSL_GUARDED_BY(mu_) = false;
  bool fails_ ABSL_GUARDED_BY(mu_) = false;
  std::atomic<std::uint64_t> held_syncs_ = 0;
  std::atomic<std::uint64_t> missed_names_ = 0;
  std::atomic<std::uint64_t> old_lists_ = 0;
  std::atomic<std::uint64_t> old_sizes_ = 0;
};

}  // namespace ckptree::testing

#endif  // CKPTREE_TESTS_FAULT_LATE_FS_H_
