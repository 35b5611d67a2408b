// SPDX-License-Identifier: Apache-2.0

#include "kv/request_box.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <ctime>
#include <map>
#include <random>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "kv/files/descriptor.h"
#include "kv/files/errno_status.h"
#include "kv/files/permissions.h"
#include "kv/store_directory.h"

namespace ckptree::kv {
namespace {

constexpr std::size_t kIdBytes = 16;
constexpr std::string_view kNew = "new-";
constexpr std::string_view kAsk = "ask-";
constexpr std::string_view kTaken = "taken-";
constexpr std::string_view kLost = "lost-";
constexpr std::string_view kReply = "reply-";
constexpr std::string_view kAnswer = "answer-";

// The name of a file, taken apart.
struct FileName {
  std::string_view prefix;
  std::string id;  // In hexadecimal digits.
  std::int64_t pid = 0;
};

bool IsHex(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
  });
}

// Nothing: it is none of these files, and is left alone.
std::optional<FileName> ParseName(std::string_view name) {
  FileName parsed;
  for (const std::string_view prefix :
       {kNew, kAsk, kTaken, kLost, kReply, kAnswer}) {
    if (name.starts_with(prefix)) parsed.prefix = prefix;
  }
  if (parsed.prefix.empty()) return std::nullopt;
  name.remove_prefix(parsed.prefix.size());
  if (name.size() < 2 * kIdBytes) return std::nullopt;
  parsed.id = std::string(name.substr(0, 2 * kIdBytes));
  name.remove_prefix(2 * kIdBytes);
  if (!IsHex(parsed.id)) return std::nullopt;
  if (parsed.prefix != kTaken && parsed.prefix != kLost) {
    if (!name.empty()) return std::nullopt;
    return parsed;
  }
  if (!name.starts_with('-')) return std::nullopt;
  name.remove_prefix(1);
  const auto [end, error] =
      std::from_chars(name.data(), name.data() + name.size(), parsed.pid);
  if (error != std::errc() || end != name.data() + name.size()) {
    return std::nullopt;
  }
  return parsed;
}

std::string HexOf(std::string_view id) {
  return absl::BytesToHexString({id.data(), id.size()});
}

std::string NameOf(std::string_view prefix, std::string_view hex) {
  return std::string(prefix) + std::string(hex);
}

std::string NameOf(std::string_view prefix, std::string_view hex,
                   std::int64_t pid) {
  return absl::StrFormat("%s%s-%d", prefix, hex, pid);
}

// kNotFound where there is no folder.
absl::StatusOr<std::vector<std::string>> NamesIn(const std::string& folder) {
  DIR* const entries = opendir(folder.c_str());
  if (entries == nullptr) return ErrnoStatus(errno, "listing " + folder);
  std::vector<std::string> names;
  errno = 0;
  while (const dirent* const entry = readdir(entries)) {
    if (entry->d_name[0] != '.') names.emplace_back(entry->d_name);
  }
  const int error = errno;
  closedir(entries);
  if (error != 0) return ErrnoStatus(error, "listing " + folder);
  return names;
}

bool Rename(const std::string& folder, const std::string& from,
            const std::string& to) {
  return rename(Join(folder, from).c_str(), Join(folder, to).c_str()) == 0;
}

void Remove(const std::string& folder, const std::string& name) {
  const std::string path = Join(folder, name);
  // A folder is no request, and goes where it is empty.
  if (unlink(path.c_str()) != 0 && errno == EISDIR) rmdir(path.c_str());
}

bool IsNamed(int fd, const std::string& path) {
  struct stat opened, named;
  return fstat(fd, &opened) == 0 && lstat(path.c_str(), &named) == 0 &&
         opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
}

// True where who made the file lives, or where that cannot be told.
bool IsHeld(const std::string& path) {
  const Descriptor file(
      OpenAt(AT_FDCWD, path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK));
  if (file.get() < 0) return errno != ENOENT && errno != ELOOP;
  return IsLocked(file.get());
}

absl::Status WriteAll(int fd, std::string_view bytes, const std::string& path) {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t size = pwrite(fd, bytes.data() + done, bytes.size() - done,
                                static_cast<off_t>(done));
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) return ErrnoStatus(errno, "writing " + path);
    done += static_cast<std::size_t>(size);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadAll(int fd, std::int64_t most,
                                    const std::string& path) {
  struct stat status;
  if (fstat(fd, &status) != 0) return ErrnoStatus(errno, "reading " + path);
  if (!S_ISREG(status.st_mode) || status.st_nlink != 1) {
    return absl::InvalidArgumentError(path + " is no file of its own");
  }
  if (status.st_size > most) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s has %d bytes: at most %d", path, status.st_size, most));
  }
  std::string bytes(static_cast<std::size_t>(status.st_size), '\0');
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t size = pread(fd, bytes.data() + done, bytes.size() - done,
                               static_cast<off_t>(done));
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return ErrnoStatus(errno, "reading " + path);
    if (size == 0) break;
    done += static_cast<std::size_t>(size);
  }
  bytes.resize(done);
  return bytes;
}

// What root makes belongs to whom the store does.
void GiveTo(int fd, const struct stat& owner) {
  if (geteuid() != 0 || owner.st_uid == 0) return;
  static_cast<void>(!fchown(fd, owner.st_uid, owner.st_gid));
}

absl::Status MayNotAsk(int error, const std::string& directory,
                       const struct stat& owner) {
  if (error != EACCES && error != EPERM && error != EROFS) {
    return ErrnoStatus(error, "asking the writer of " + directory);
  }
  return absl::PermissionDeniedError(absl::StrFormat(
      "%s belongs to %s: nobody else may ask its writer to change it",
      directory, UserName(owner.st_uid)));
}

}  // namespace

std::string RequestFolder(const std::string& directory) {
  return Join(directory, kRequestsName);
}

std::string PostedRequest::NewId() {
  std::random_device device;
  std::string id(kIdBytes, '\0');
  for (char& byte : id) byte = static_cast<char>(device() & 0xff);
  return id;
}

absl::StatusOr<std::unique_ptr<PostedRequest>> PostedRequest::Post(
    const std::string& directory, const std::string& id, std::string_view bytes,
    int permissions) {
  const std::string folder = RequestFolder(directory);
  struct stat owner;
  if (stat(directory.c_str(), &owner) != 0) {
    return ErrnoStatus(errno, "looking at " + directory);
  }
  if (geteuid() != 0 && geteuid() != owner.st_uid) {
    return MayNotAsk(EPERM, directory, owner);
  }
  if (mkdir(folder.c_str(), FolderMode(permissions)) == 0) {
    const Descriptor made(
        OpenAt(AT_FDCWD, folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
    if (made.get() >= 0) GiveTo(made.get(), owner);
  } else if (errno != EEXIST) {
    return MayNotAsk(errno, directory, owner);
  }
  const std::string hex = HexOf(id);
  const std::string path = Join(folder, NameOf(kNew, hex));
  for (int attempt = 0; attempt < 8; ++attempt) {
    Descriptor file(OpenAt(AT_FDCWD, path,
                           O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW,
                           FileMode(permissions)));
    if (file.get() < 0) return MayNotAsk(errno, directory, owner);
    GiveTo(file.get(), owner);
    // The writer may have found it unlocked, and removed it.
    if (!TryLock(file.get())) {
      const int error = errno;
      unlink(path.c_str());
      return ErrnoStatus(error, "locking " + path);
    }
    if (!IsNamed(file.get(), path)) continue;
    if (absl::Status status = WriteAll(file.get(), bytes, path); !status.ok()) {
      unlink(path.c_str());
      return status;
    }
    if (!Rename(folder, NameOf(kNew, hex), NameOf(kAsk, hex))) {
      const int error = errno;
      unlink(path.c_str());
      return ErrnoStatus(error, "naming " + path);
    }
    return std::unique_ptr<PostedRequest>(
        new PostedRequest(folder, hex, file.Release()));
  }
  return absl::UnavailableError("no request could be made in " + folder);
}

PostedRequest::~PostedRequest() {
  RemoveFiles();
  close(fd_);
}

void PostedRequest::RemoveFiles() {
  Remove(folder_, NameOf(kAsk, name_));
  const auto names = NamesIn(folder_);
  if (!names.ok()) return;
  for (const std::string& name : *names) {
    const auto parsed = ParseName(name);
    if (parsed && parsed->id == name_) Remove(folder_, name);
  }
}

absl::StatusOr<PostedRequest::State> PostedRequest::Look() {
  CKPTREE_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                           NamesIn(folder_));
  State state = State::kGone;
  for (const std::string& name : names) {
    const auto parsed = ParseName(name);
    if (!parsed || parsed->id != name_) continue;
    if (parsed->prefix == kAnswer) return State::kAnswered;
    if (parsed->prefix == kAsk) state = State::kWaiting;
    if (parsed->prefix == kTaken || parsed->prefix == kLost) {
      state = parsed->prefix == kTaken ? State::kTaken : State::kLost;
      writer_ = parsed->pid;
    }
  }
  // A listing may miss a file that gets another name just then.
  if (state == State::kGone) {
    struct stat status;
    if (fstat(fd_, &status) == 0 && status.st_nlink > 0) {
      return State::kWaiting;
    }
  }
  return state;
}

bool PostedRequest::Withdraw() {
  return unlink(Join(folder_, NameOf(kAsk, name_)).c_str()) == 0;
}

absl::StatusOr<std::string> PostedRequest::Answer(std::int64_t most) {
  const std::string path = Join(folder_, NameOf(kAnswer, name_));
  const Descriptor file(
      OpenAt(AT_FDCWD, path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK));
  if (file.get() < 0) return ErrnoStatus(errno, "opening " + path);
  return ReadAll(file.get(), most, path);
}

RequestBox::RequestBox(std::string directory, int permissions)
    : directory_(std::move(directory)),
      folder_(RequestFolder(directory_)),
      permissions_(permissions) {}

void RequestBox::DisownOld() {
  const absl::MutexLock lock(&mu_);
  const auto names = NamesIn(folder_);
  if (!names.ok()) return;
  for (const std::string& name : *names) {
    const auto parsed = ParseName(name);
    if (parsed && parsed->prefix == kTaken) {
      static_cast<void>(
          !Rename(folder_, name, NameOf(kLost, parsed->id, getpid())));
    }
    // Who made it just now makes it again.
    if (parsed && parsed->prefix == kNew && !IsHeld(Join(folder_, name))) {
      Remove(folder_, name);
    }
  }
}

absl::StatusOr<std::optional<TakenRequest>> RequestBox::Take(
    std::int64_t most) {
  const absl::MutexLock lock(&mu_);
  const auto names = NamesIn(folder_);
  if (absl::IsNotFound(names.status())) return std::nullopt;
  CKPTREE_RETURN_IF_ERROR(names.status());
  std::map<std::string, std::vector<FileName>> files;  // By id.
  for (const std::string& name : *names) {
    const auto parsed = ParseName(name);
    // What is new has no lock yet for a moment.
    if (parsed && parsed->prefix != kNew) files[parsed->id].push_back(*parsed);
  }
  // When it was written, the nanoseconds of that, its id.
  std::vector<std::tuple<std::time_t, long, std::string>> waiting;
  for (const auto& [id, of_id] : files) {
    bool held = false;
    std::optional<timespec> asked;
    for (const FileName& file : of_id) {
      // What one process makes and another answers: the first holds its file.
      if (file.prefix == kReply || file.prefix == kAnswer) continue;
      const std::string name = file.prefix == kTaken || file.prefix == kLost
                                   ? NameOf(file.prefix, id, file.pid)
                                   : NameOf(file.prefix, id);
      held = held || IsHeld(Join(folder_, name));
      struct stat status;
      if (file.prefix == kAsk &&
          lstat(Join(folder_, name).c_str(), &status) == 0) {
        asked = status.st_mtim;
      }
    }
    if (held && asked) waiting.emplace_back(asked->tv_sec, asked->tv_nsec, id);
    if (held) continue;
    for (const FileName& file : of_id) {
      const bool has_pid = file.prefix == kTaken || file.prefix == kLost;
      Remove(folder_, has_pid ? NameOf(file.prefix, id, file.pid)
                              : NameOf(file.prefix, id));
    }
  }
  std::sort(waiting.begin(), waiting.end());
  for (const auto& [seconds, nanoseconds, id] : waiting) {
    CKPTREE_ASSIGN_OR_RETURN(std::optional<TakenRequest> taken,
                             TakeFile(id, most));
    if (taken) return taken;
  }
  return std::nullopt;
}

absl::StatusOr<std::optional<TakenRequest>> RequestBox::TakeFile(
    const std::string& hex, std::int64_t most) {
  // By a name that was taken before nothing is asked again.
  if (!taken_.insert(hex).second) {
    Remove(folder_, NameOf(kAsk, hex));
    return std::nullopt;
  }
  const std::string name = NameOf(kTaken, hex, getpid());
  if (!Rename(folder_, NameOf(kAsk, hex), name)) {
    const int error = errno;
    taken_.erase(hex);
    if (error == ENOENT) return std::nullopt;  // It was withdrawn.
    return ErrnoStatus(error, "taking a request in " + folder_);
  }
  TakenRequest taken;
  taken.id = absl::HexStringToBytes(hex);
  const std::string path = Join(folder_, name);
  struct stat owner, status;
  if (stat(directory_.c_str(), &owner) != 0 ||
      lstat(path.c_str(), &status) != 0) {
    taken.status = ErrnoStatus(errno, "looking at " + path);
    return taken;
  }
  taken.user = static_cast<std::uint32_t>(status.st_uid);
  if (status.st_uid != owner.st_uid && status.st_uid != 0) {
    taken.status = absl::PermissionDeniedError(absl::StrFormat(
        "the request is of %s: %s belongs to %s, and nobody else may ask its "
        "writer to change it",
        UserName(status.st_uid), directory_, UserName(owner.st_uid)));
    return taken;
  }
  const Descriptor file(
      OpenAt(AT_FDCWD, path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK));
  if (file.get() < 0) {
    taken.status = ErrnoStatus(errno, "opening " + path);
    return taken;
  }
  if (!IsLocked(file.get())) {
    Remove(folder_, name);  // Who asked is gone: nobody wants it any more.
    return std::nullopt;
  }
  struct stat opened;
  if (fstat(file.get(), &opened) != 0 || opened.st_ino != status.st_ino ||
      opened.st_uid != status.st_uid) {
    taken.status = absl::PermissionDeniedError(path + " was replaced");
    return taken;
  }
  auto bytes = ReadAll(file.get(), most, path);
  taken.status = bytes.status();
  if (bytes.ok()) taken.bytes = *std::move(bytes);
  return taken;
}

absl::Status RequestBox::Answer(const std::string& id, std::string_view bytes) {
  const absl::MutexLock lock(&mu_);
  const std::string hex = HexOf(id);
  const std::string path = Join(folder_, NameOf(kReply, hex));
  Remove(folder_, NameOf(kReply, hex));
  const Descriptor file(OpenAt(AT_FDCWD, path,
                               O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW,
                               FileMode(permissions_)));
  if (file.get() < 0) return ErrnoStatus(errno, "making " + path);
  CKPTREE_RETURN_IF_ERROR(WriteAll(file.get(), bytes, path));
  if (!Rename(folder_, NameOf(kReply, hex), NameOf(kAnswer, hex))) {
    return ErrnoStatus(errno, "naming " + path);
  }
  return absl::OkStatus();
}

}  // namespace ckptree::kv
