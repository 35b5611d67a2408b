// SPDX-License-Identifier: Apache-2.0

// How far a long command is, on one line of standard error.

#ifndef CKPTREE_TOOLS_OUTPUT_PROGRESS_LINE_H_
#define CKPTREE_TOOLS_OUTPUT_PROGRESS_LINE_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace ckptree::tools {

// Shown after half a second, at most ten times a second, cleared at the end.
// Thread-safe.
class ProgressLine {
 public:
  // Shows nothing at all unless `shown`.
  ProgressLine(std::string label, bool shown);
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  // In any unit; a total of 0 is not known.
  void Update(std::uint64_t done, std::uint64_t total);
  // Work of which nobody knows the end.
  void Say(std::string_view text);

 private:
  // True where a line is due.
  bool Due() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Show(std::string_view text) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string label_;
  const bool shown_;
  const absl::Time start_;
  absl::Mutex mutex_;
  absl::Time next_ ABSL_GUARDED_BY(mutex_);
  bool on_screen_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace ckptree::tools

#endif  // CKPTREE_TOOLS_OUTPUT_PROGRESS_LINE_H_
