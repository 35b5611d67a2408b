// SPDX-License-Identifier: Apache-2.0

#include "tools/output/byte_sink.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "tools/output/failure.h"
#include "tools/output/terminal.h"

namespace ckptree::tools {
namespace {

constexpr std::size_t kBufferBytes = 64 << 10;

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

bool ByteSink::WaitWhileRead(int milliseconds) {
  // Nothing is waited for but what is told unasked: that the other end closed.
  struct pollfd output = {descriptor_, 0, 0};
  const int ready = ::poll(&output, 1, milliseconds);
  if (ready <= 0) return ready == 0;
  if (error_ == 0) error_ = EPIPE;
  return false;
}

absl::Status ByteSink::Flush() {
  Drain();
  if (error_ == 0) return absl::OkStatus();
  return FileError(error_, (name_.empty() ? "the output" : Escape(name_)) +
                               " cannot be written");
}

}  // namespace ckptree::tools
