// SPDX-License-Identifier: Apache-2.0

#include "tools/output/byte_sink.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "tools/output/failure.h"
#include "tools/output/interrupt.h"
#include "tools/output/terminal.h"

namespace ckptree::tools {
namespace {

constexpr std::size_t kBufferBytes = 64 << 10;

absl::Status FileError(int error, std::string_view what) {
  const std::string text =
      absl::StrFormat("%s: %s", what, std::strerror(error));
  if (error == ENOSPC || error == EDQUOT) {
    return WithHint(absl::ResourceExhaustedError(text),
                    "free some space there and try again");
  }
  return WithHint(absl::UnknownError(text), "name a place you may write to");
}

// Again where a signal interrupted it, as it can on a file system of the
// network.
int Open(const std::string& path, int flags) {
  int descriptor = -1;
  do {
    descriptor = ::open(path.c_str(), flags | O_CLOEXEC, 0666);
  } while (descriptor < 0 && errno == EINTR);
  return descriptor;
}

// The folder's entry of `path` made durable; an errno, or 0.
int SyncFolderOf(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  const int folder = Open(slash == std::string::npos ? "."
                          : slash == 0               ? "/"
                                                     : path.substr(0, slash),
                          O_RDONLY | O_DIRECTORY);
  if (folder < 0) return errno;
  // Some file systems have no such thing.
  const int error = ::fsync(folder) == 0 || errno == EINVAL ? 0 : errno;
  ::close(folder);
  return error;
}

}  // namespace

void ByteSink::Write(std::string_view text) {
  Write(std::as_bytes(std::span(text.data(), text.size())));
}

void ByteSink::Write(std::span<const std::byte> bytes) {
  if (error_ != 0) return;
  if (buffer_.size() + bytes.size() > kBufferBytes) Drain();
  if (bytes.size() < kBufferBytes || choose_) {
    buffer_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    if (buffer_.size() > kBufferBytes) Drain();
    return;
  }
  while (!bytes.empty() && error_ == 0) {
    const ssize_t n = ::write(descriptor_, bytes.data(), bytes.size());
    if (n >= 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(n));
    } else if (errno != EINTR) {
      error_ = errno;
    }
  }
}

void ByteSink::Choose() {
  if (!choose_ || buffer_.empty()) return;
  descriptor_ = choose_(buffer_);
  choose_ = nullptr;
}

void ByteSink::Drain() {
  Choose();
  std::string_view rest = buffer_;
  while (!rest.empty() && error_ == 0) {
    const ssize_t n = ::write(descriptor_, rest.data(), rest.size());
    if (n >= 0) {
      rest.remove_prefix(static_cast<std::size_t>(n));
    } else if (errno != EINTR) {
      error_ = errno;
    }
  }
  buffer_.clear();
}

absl::Status ByteSink::Flush() {
  Drain();
  if (error_ == 0) return absl::OkStatus();
  return FileError(error_, "the output cannot be written");
}

NewFile::NewFile(std::string path, std::string temporary, int descriptor)
    : path_(std::move(path)),
      temporary_(std::move(temporary)),
      descriptor_(descriptor) {}

NewFile::NewFile(NewFile&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::exchange(other.temporary_, {})),
      descriptor_(std::exchange(other.descriptor_, -1)) {}

NewFile::~NewFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (!temporary_.empty()) {
    ::unlink(temporary_.c_str());
    RemoveOnInterrupt("");
  }
}

absl::StatusOr<NewFile> NewFile::Create(const std::string& path) {
  struct stat there {};
  const bool exists = ::stat(path.c_str(), &there) == 0;
  if (exists && S_ISDIR(there.st_mode)) {
    return FileError(EISDIR, Escape(path));
  }
  if (exists && !S_ISREG(there.st_mode)) {
    const int descriptor = Open(path, O_WRONLY);
    if (descriptor < 0) return FileError(errno, Escape(path));
    return NewFile(path, "", descriptor);
  }
  const std::string temporary = absl::StrFormat("%s.%d.tmp", path, getpid());
  RemoveOnInterrupt(temporary);
  // A new file, whatever lies there: somebody's link, or what a process of this
  // number left when it was killed.
  constexpr int kNew = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW;
  int descriptor = Open(temporary, kNew);
  if (descriptor < 0 && errno == EEXIST && ::unlink(temporary.c_str()) == 0) {
    descriptor = Open(temporary, kNew);
  }
  if (descriptor < 0) {
    const int error = errno;
    RemoveOnInterrupt("");
    return FileError(error, Escape(path));
  }
  return NewFile(path, temporary, descriptor);
}

absl::Status NewFile::Commit() {
  if (temporary_.empty()) return absl::OkStatus();
  if (::fsync(descriptor_) != 0 ||
      ::rename(temporary_.c_str(), path_.c_str()) != 0) {
    return FileError(errno, Escape(path_));
  }
  temporary_.clear();
  RemoveOnInterrupt("");
  if (const int error = SyncFolderOf(path_); error != 0) {
    return FileError(error, Escape(path_));
  }
  return absl::OkStatus();
}

}  // namespace ckptree::tools
