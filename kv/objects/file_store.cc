// SPDX-License-Identifier: Apache-2.0

#include "kv/objects/file_store.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/status_macros.h"
#include "kv/conditional_put.h"
#include "kv/files/descriptor.h"
#include "kv/files/errno_status.h"
#include "kv/object_store.h"
#include "kv/objects/names.h"
#include "kv/objects/wait.h"

namespace ckptree::kv {
namespace {

constexpr std::size_t kBuffer = std::size_t{4} << 20;
// No name of an object begins with a dot.
constexpr char kUploads[] = ".uploads";

class BytesSource : public ObjectSource {
 public:
  explicit BytesSource(std::string_view bytes) : bytes_(bytes) {}
  std::uint64_t size() const override { return bytes_.size(); }
  absl::Status Read(std::uint64_t offset,
                    std::span<std::byte> into) const override {
    bytes_.copy(reinterpret_cast<char*>(into.data()), into.size(),
                static_cast<std::size_t>(offset));
    return absl::OkStatus();
  }

 private:
  std::string_view bytes_;
};

absl::Status SyncFolder(const std::string& path) {
  const Descriptor folder(OpenAt(AT_FDCWD, path, O_RDONLY | O_DIRECTORY));
  if (folder.get() < 0 || fsync(folder.get()) != 0) {
    return ErrnoStatus(errno, absl::StrCat("syncing ", path));
  }
  return absl::OkStatus();
}

std::string ParentOf(const std::string& path) {
  return path.substr(0, std::max<std::size_t>(1, path.rfind('/')));
}

bool IsFolder(const std::string& path) {
  struct stat found;
  return stat(path.c_str(), &found) == 0 && S_ISDIR(found.st_mode);
}

// Synced where it stands in.
absl::Status MakeIn(const std::string& path) {
  const bool made = mkdir(path.c_str(), 0777) == 0;
  if (!made && errno != EEXIST) {
    return ErrnoStatus(errno, absl::StrCat("making ", path));
  }
  absl::Status synced = SyncFolder(ParentOf(path));
  // Else the next one finds it there, and does not sync it.
  if (made && !synced.ok()) rmdir(path.c_str());
  return synced;
}

// A folder that is not there is made by the first write, in the one above it.
// What is missing there is not made: a file system that is not mounted would be
// filled in its absence.
absl::Status CheckMayBe(const std::string& address, const std::string& path) {
  if (IsFolder(path)) return absl::OkStatus();
  if (struct stat found; lstat(path.c_str(), &found) == 0) {
    return absl::FailedPreconditionError(
        absl::StrCat(address, ": ", path, " is no folder"));
  }
  const std::string above = ParentOf(path);
  if (!IsFolder(above)) {
    return absl::FailedPreconditionError(absl::StrCat(
        address, ": there is no folder ", above,
        ": is its file system mounted? Where it is to be a new one, make it "
        "first"));
  }
  if (access(above.c_str(), W_OK | X_OK) != 0) {
    return ErrnoStatus(errno, absl::StrCat("making ", path));
  }
  return absl::OkStatus();
}

absl::Status WriteAll(int fd, std::span<const std::byte> piece,
                      const std::string& what) {
  while (!piece.empty()) {
    const ssize_t done = write(fd, piece.data(), piece.size());
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) return ErrnoStatus(errno, what);
    piece = piece.subspan(static_cast<std::size_t>(done));
  }
  return absl::OkStatus();
}

absl::Time ModifiedOf(const struct stat& file) {
  return absl::TimeFromTimespec(file.st_mtim);
}

// After these a link that the system calls failed may have been made, or may be
// made yet, whatever a look at the file says: that may be an older answer.
bool MayHaveArrived(int error) {
  return error == EIO || error == ETIMEDOUT || error == ESTALE ||
         error == EINTR || error == EREMOTEIO;
}

// The folder of a store that is open may be that of a share. Where this is not
// mounted any more, nothing is there, or another folder of this disk: what was
// put there would be lost, and what is missing there is not gone. Another
// folder is the share again where it has the object that was created last, or,
// where this process created none, one of the first that were found.
//
// Thread-safe.
class SharedFolder {
 public:
  explicit SharedFolder(std::string path) : path_(std::move(path)) {
    Check().IgnoreError();
  }
  const std::string& path() const { return path_; }

  absl::Status Check() {
    struct stat now;
    if (stat(path_.c_str(), &now) != 0) {
      if (errno != ENOENT && errno != ENOTDIR) {
        return ErrnoStatus(errno, absl::StrCat("looking at ", path_));
      }
      const absl::MutexLock lock(&mu_);
      if (known_) return IsAway("is not there any more");
      return absl::OkStatus();  // Nobody has written yet.
    }
    const absl::MutexLock lock(&mu_);
    if (known_ && now.st_dev == device_ && now.st_ino == number_) {
      return absl::OkStatus();
    }
    if (known_ && !HasWhatWasThere()) {
      return IsAway("is another folder now, without what was there");
    }
    known_ = true;
    device_ = now.st_dev;
    number_ = now.st_ino;
    return absl::OkStatus();
  }

  // What is known of its objects. Those that are created only where they are
  // absent stay, but for what this process deletes.
  void Created(const std::string& name) {
    const absl::MutexLock lock(&mu_);
    std::erase(created_, name);
    if (created_.size() == kMostCreated) created_.erase(created_.begin());
    created_.push_back(name);
  }
  void Found(const std::string& name) {
    const absl::MutexLock lock(&mu_);
    if (found_.size() == kMostFound || IsIn(found_, name)) return;
    found_.push_back(name);
  }
  void Deleted(const std::string& name) {
    const absl::MutexLock lock(&mu_);
    std::erase(created_, name);
    std::erase(found_, name);
  }

  // Makes a folder below it, and what is missing above that; the folder itself
  // where it was never there.
  absl::Status MakeBelow(const std::string& path) {
    if (IsFolder(path)) return absl::OkStatus();
    if (path.size() > path_.size()) {
      CKPTREE_RETURN_IF_ERROR(MakeBelow(ParentOf(path)));
      return MakeIn(path);
    }
    {
      const absl::MutexLock lock(&mu_);
      // Another call may have made it just now.
      if (known_ && !IsFolder(path_)) return IsAway("is not there any more");
    }
    CKPTREE_RETURN_IF_ERROR(MakeIn(path_));
    return Check();
  }

 private:
  using Names = std::vector<std::string>;
  // One that is deleted leaves the one before it.
  static constexpr std::size_t kMostCreated = 4;
  // Somebody else may delete some of them.
  static constexpr std::size_t kMostFound = 4;

  static bool IsIn(const Names& names, const std::string& name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  }
  absl::Status IsAway(const char* how) const {
    return absl::UnavailableError(
        absl::StrCat(path_, " ", how, ": is its file system mounted?"));
  }
  bool HasWhatWasThere() const ABSL_SHARED_LOCKS_REQUIRED(mu_) {
    const auto is_there = [this](const std::string& name) {
      struct stat file;
      return stat(absl::StrCat(path_, "/", name).c_str(), &file) == 0;
    };
    if (!created_.empty()) return is_there(created_.back());
    if (!found_.empty()) {
      return std::any_of(found_.begin(), found_.end(), is_there);
    }
    std::error_code error;
    return !std::filesystem::is_empty(path_, error) || error;
  }

  const std::string path_;
  absl::Mutex mu_;
  Names created_ ABSL_GUARDED_BY(mu_);  // The newest is the last.
  Names found_ ABSL_GUARDED_BY(mu_);
  bool known_ ABSL_GUARDED_BY(mu_) = false;
  dev_t device_ ABSL_GUARDED_BY(mu_) = 0;
  ino_t number_ ABSL_GUARDED_BY(mu_) = 0;
};

class FileStore : public ObjectStore {
 public:
  FileStore(std::string address, std::string folder)
      : address_(std::move(address)), folder_(std::move(folder)) {}

  const std::string& address() const override { return address_; }

  absl::StatusOr<PutAnswer> PutIfAbsent(const std::string& name,
                                        std::string_view bytes,
                                        const std::string& write_id,
                                        const Call& call) override {
    CKPTREE_RETURN_IF_ERROR(CheckConditionalPut(name, bytes, write_id));
    std::string scratch;
    CKPTREE_RETURN_IF_ERROR(Write(name, BytesSource(bytes), call, &scratch));
    const std::string path = PathOf(name);
    const bool linked = link(scratch.c_str(), path.c_str()) == 0;
    const int error = linked ? 0 : errno;
    // Over a network the answer to a link that was made may be lost, and its
    // repetition fails.
    struct stat file;
    const bool looked = stat(scratch.c_str(), &file) == 0;
    const bool made = linked || (looked && file.st_nlink > 1);
    unlink(scratch.c_str());
    if (!made && error != EEXIST) {
      absl::Status failed = ErrnoStatus(error, absl::StrCat("creating ", path));
      if (looked && !MayHaveArrived(error)) return failed;
      return PutAnswer{PutOutcome::kUnknown, std::move(failed)};
    }
    // One that exists may be that of a try whose sync failed.
    if (absl::Status synced = SyncFolder(ParentOf(path)); !synced.ok()) {
      const absl::MutexLock lock(&mu_);
      unsynced_.insert(path);
      return PutAnswer{PutOutcome::kUnknown, std::move(synced)};
    }
    {
      const absl::MutexLock lock(&mu_);
      unsynced_.erase(path);
    }
    // The share may have gone since it was looked at.
    if (absl::Status there = folder_.Check(); !there.ok()) {
      return PutAnswer{PutOutcome::kUnknown, std::move(there)};
    }
    if (made) folder_.Created(name);
    return PutAnswer{made ? PutOutcome::kCreated : PutOutcome::kExists,
                     absl::OkStatus()};
  }

  absl::Status Put(const std::string& name, const ObjectSource& source,
                   const Call& call) override {
    std::string scratch;
    CKPTREE_RETURN_IF_ERROR(Write(name, source, call, &scratch));
    const std::string path = PathOf(name);
    if (std::rename(scratch.c_str(), path.c_str()) != 0) {
      const int error = errno;
      unlink(scratch.c_str());
      return ErrnoStatus(error, absl::StrCat("renaming to ", path));
    }
    CKPTREE_RETURN_IF_ERROR(SyncFolder(ParentOf(path)));
    return folder_.Check();
  }

  absl::StatusOr<std::size_t> GetRange(const std::string& name,
                                       std::uint64_t offset,
                                       std::span<std::byte> into,
                                       const Call& call) override {
    CKPTREE_RETURN_IF_ERROR(CheckObjectName(name));
    CKPTREE_RETURN_IF_ERROR(folder_.Check());
    const std::string path = PathOf(name);
    const Descriptor file(OpenAt(AT_FDCWD, path, O_RDONLY));
    if (file.get() < 0) {
      return ErrnoStatus(errno, absl::StrCat("reading ", path));
    }
    std::size_t have = 0;
    while (have < into.size()) {
      CKPTREE_RETURN_IF_ERROR(CheckCall(call, absl::StrCat("reading ", path)));
      const ssize_t got = pread(file.get(), into.data() + have,
                                std::min(kBuffer, into.size() - have),
                                static_cast<off_t>(offset + have));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return ErrnoStatus(errno, absl::StrCat("reading ", path));
      if (got == 0) break;
      have += static_cast<std::size_t>(got);
    }
    folder_.Found(name);
    return have;
  }

  absl::StatusOr<std::optional<ObjectInfo>> Head(const std::string& name,
                                                 const Call& call) override {
    CKPTREE_RETURN_IF_ERROR(CheckObjectName(name));
    CKPTREE_RETURN_IF_ERROR(folder_.Check());
    const std::string path = PathOf(name);
    CKPTREE_RETURN_IF_ERROR(CheckCall(call, absl::StrCat("asking of ", path)));
    CKPTREE_RETURN_IF_ERROR(SyncName(path));
    struct stat file;
    if (stat(path.c_str(), &file) != 0) {
      if (errno == ENOENT || errno == ENOTDIR) return std::nullopt;
      return ErrnoStatus(errno, absl::StrCat("asking of ", path));
    }
    if (!S_ISREG(file.st_mode)) return std::nullopt;
    folder_.Found(name);
    return ObjectInfo{name, static_cast<std::uint64_t>(file.st_size),
                      ModifiedOf(file), std::nullopt};
  }

  absl::StatusOr<ObjectPage> List(const std::string& prefix,
                                  const std::string& after,
                                  const Call& call) override {
    CKPTREE_RETURN_IF_ERROR(CheckObjectPrefix(prefix));
    CKPTREE_RETURN_IF_ERROR(folder_.Check());
    std::vector<std::string> names;
    const std::size_t slash = prefix.rfind('/');
    const std::string within =
        slash == std::string::npos ? "" : prefix.substr(0, slash);
    CKPTREE_RETURN_IF_ERROR(
        Collect(within.empty() ? folder_.path() : PathOf(within), within,
                /*objects=*/true, call, {}, &names));
    std::ranges::sort(names);
    return PageOf(names, prefix, after,
                  [&](const std::string& name) { return Head(name, call); });
  }

  absl::Status Delete(std::span<const std::string> names,
                      const Call& call) override {
    CKPTREE_RETURN_IF_ERROR(folder_.Check());
    for (const std::string& name : names) {
      CKPTREE_RETURN_IF_ERROR(CheckObjectName(name));
      CKPTREE_RETURN_IF_ERROR(CheckCall(call, absl::StrCat("deleting ", name)));
      const std::string path = PathOf(name);
      if (unlink(path.c_str()) != 0 && errno != ENOENT && errno != ENOTDIR) {
        return ErrnoStatus(errno, absl::StrCat("deleting ", path));
      }
      folder_.Deleted(name);
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<Upload>> ListUploads(const std::string& prefix,
                                                  const Call& call) override {
    CKPTREE_RETURN_IF_ERROR(CheckObjectPrefix(prefix));
    CKPTREE_RETURN_IF_ERROR(folder_.Check());
    std::vector<std::string> names;
    const std::string folder = UploadsFolder();
    CKPTREE_RETURN_IF_ERROR(
        Collect(folder, "", /*objects=*/false, call, {}, &names));
    std::vector<Upload> uploads;
    for (const std::string& file : names) {
      const std::size_t end = file.rfind('~');
      if (end == std::string::npos) continue;  // Not of this engine.
      Upload upload{absl::StrReplaceAll(file.substr(0, end), {{"%", "/"}}),
                    file.substr(end + 1)};
      if (upload.name.starts_with(prefix)) {
        uploads.push_back(std::move(upload));
      }
    }
    return uploads;
  }

  absl::Status AbortUpload(const Upload& upload, const Call& call) override {
    CKPTREE_RETURN_IF_ERROR(CheckObjectName(upload.name));
    CKPTREE_RETURN_IF_ERROR(CheckWriteId(upload.id));
    CKPTREE_RETURN_IF_ERROR(CheckCall(call, "removing an unfinished upload"));
    const std::string path = UploadPath(upload);
    if (unlink(path.c_str()) != 0 && errno != ENOENT) {
      return ErrnoStatus(errno, absl::StrCat("deleting ", path));
    }
    return absl::OkStatus();
  }

 private:
  // Of one that this process put there, and that may be gone after a crash:
  // nobody is told that it is there before.
  absl::Status SyncName(const std::string& path) {
    {
      const absl::MutexLock lock(&mu_);
      if (!unsynced_.contains(path)) return absl::OkStatus();
    }
    CKPTREE_RETURN_IF_ERROR(SyncFolder(ParentOf(path)));
    const absl::MutexLock lock(&mu_);
    unsynced_.erase(path);
    return absl::OkStatus();
  }

  std::string PathOf(const std::string& name) const {
    return absl::StrCat(folder_.path(), "/", name);
  }
  std::string UploadsFolder() const {
    return absl::StrCat(folder_.path(), "/", kUploads);
  }
  // The names of files are shorter than those of objects may be.
  std::string UploadPath(const Upload& upload) const {
    return absl::StrCat(UploadsFolder(), "/",
                        absl::StrReplaceAll(upload.name, {{"/", "%"}}), "~",
                        upload.id);
  }

  // Writes all of it to a scratch file, synced, and makes the folder that the
  // object belongs in.
  absl::Status Write(const std::string& name, const ObjectSource& source,
                     const Call& call, std::string* scratch) {
    CKPTREE_RETURN_IF_ERROR(CheckObjectName(name));
    CKPTREE_RETURN_IF_ERROR(folder_.Check());
    CKPTREE_RETURN_IF_ERROR(folder_.MakeBelow(UploadsFolder()));
    *scratch = UploadPath({name, NewWriteId()});
    const std::string what = absl::StrCat("writing ", PathOf(name));
    absl::Status written = [&]() -> absl::Status {
      const Descriptor file(
          OpenAt(AT_FDCWD, *scratch, O_WRONLY | O_CREAT | O_EXCL, 0666));
      if (file.get() < 0) return ErrnoStatus(errno, what);
      std::vector<std::byte> piece(static_cast<std::size_t>(
          std::min<std::uint64_t>(kBuffer, source.size())));
      for (std::uint64_t at = 0; at < source.size(); at += piece.size()) {
        CKPTREE_RETURN_IF_ERROR(CheckCall(call, what));
        const std::span<std::byte> some(
            piece.data(), static_cast<std::size_t>(std::min<std::uint64_t>(
                              piece.size(), source.size() - at)));
        CKPTREE_RETURN_IF_ERROR(source.Read(at, some));
        CKPTREE_RETURN_IF_ERROR(WriteAll(file.get(), some, what));
      }
      CKPTREE_RETURN_IF_ERROR(CheckCall(call, what));
      if (fsync(file.get()) != 0) return ErrnoStatus(errno, what);
      return folder_.MakeBelow(ParentOf(PathOf(name)));
    }();
    if (!written.ok()) unlink(scratch->c_str());
    return written;
  }

  using FolderId = std::pair<dev_t, ino_t>;

  // Appends the names of all files below `folder`, which stands for `name` and
  // is in those `above`. A link that leads back to one of these is passed over.
  // `objects`: and so is what no object can be called, as "lost+found".
  absl::Status Collect(const std::string& folder, const std::string& name,
                       bool objects, const Call& call,
                       std::vector<FolderId> above,
                       std::vector<std::string>* names) {
    CKPTREE_RETURN_IF_ERROR(CheckCall(call, absl::StrCat("listing ", folder)));
    if (struct stat found; stat(folder.c_str(), &found) == 0) {
      const FolderId id = {found.st_dev, found.st_ino};
      if (std::find(above.begin(), above.end(), id) != above.end()) {
        return absl::OkStatus();
      }
      above.push_back(id);
    }
    std::error_code error;
    std::filesystem::directory_iterator entry(folder, error);
    for (; !error && entry != std::filesystem::directory_iterator();
         entry.increment(error)) {
      const std::string last = entry->path().filename().string();
      const std::string whole =
          name.empty() ? last : absl::StrCat(name, "/", last);
      if (last.starts_with(".")) continue;
      if (objects && !CheckObjectName(whole).ok()) continue;
      std::error_code gone;  // What is deleted in the meantime is not there.
      if (entry->is_directory(gone)) {
        CKPTREE_RETURN_IF_ERROR(Collect(entry->path().string(), whole, objects,
                                        call, above, names));
      } else if (!gone) {
        names->push_back(whole);
      }
    }
    if (error && error != std::errc::no_such_file_or_directory &&
        error != std::errc::not_a_directory) {
      return ErrnoStatus(error.value(), absl::StrCat("listing ", folder));
    }
    return absl::OkStatus();
  }

  const std::string address_;
  SharedFolder folder_;
  absl::Mutex mu_;
  std::set<std::string> unsynced_ ABSL_GUARDED_BY(mu_);
};

}  // namespace

absl::StatusOr<std::unique_ptr<ObjectStore>> OpenFileStore(
    const std::string& address, const std::string& folder) {
  CKPTREE_RETURN_IF_ERROR(CheckMayBe(address, folder));
  return std::make_unique<FileStore>(address, folder);
}

}  // namespace ckptree::kv
