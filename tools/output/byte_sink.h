// SPDX-License-Identifier: Apache-2.0

// Where results go: standard output, or a file.

#ifndef CKPTREE_TOOLS_OUTPUT_BYTE_SINK_H_
#define CKPTREE_TOOLS_OUTPUT_BYTE_SINK_H_

#include <cerrno>
#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"

namespace ckptree::tools {

// Buffered bytes to a descriptor, which it does not own. Keeps the first error;
// what is written after it is dropped. Confined to one thread.
class ByteSink {
 public:
  // `name`: what errors call it; empty: the output.
  explicit ByteSink(int descriptor, std::string name = "")
      : descriptor_(descriptor), name_(std::move(name)) {}
  ByteSink(const ByteSink&) = delete;
  ByteSink& operator=(const ByteSink&) = delete;

  // Asks where the bytes go before the first are written: `choose` is given
  // what there is by then.
  ByteSink(int descriptor, std::function<int(std::string_view)> choose)
      : descriptor_(descriptor), choose_(std::move(choose)) {}

  void Write(std::string_view text);
  void Write(std::span<const std::byte> bytes);

  // kUnknown or kResourceExhausted where anything could not be written.
  absl::Status Flush();

  // Lets time pass; false, and sooner, where the reader goes or a signal comes.
  // Nothing needs to be written for that.
  bool WaitWhileRead(int milliseconds);

  // The reader of a pipe is gone: nobody reads what follows.
  bool broken_pipe() const { return error_ == EPIPE; }
  bool failed() const { return error_ != 0; }
  int descriptor() const { return descriptor_; }

 private:
  void Drain();

  // Asks `choose_`, once.
  void Choose();

  int descriptor_;
  std::string name_;
  std::function<int(std::string_view)> choose_;
  int error_ = 0;
  std::string buffer_;
};

}  // namespace ckptree::tools

#endif  // CKPTREE_TOOLS_OUTPUT_BYTE_SINK_H_
