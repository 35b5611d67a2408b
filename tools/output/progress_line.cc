// SPDX-License-Identifier: Apache-2.0

#include "tools/output/progress_line.h"

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_format.h"
#include "tools/output/clock.h"
#include "tools/output/interrupt.h"

namespace ckptree::tools {

ProgressLine::ProgressLine(std::string label, bool shown)
    : label_(std::move(label)),
      shown_(shown),
      start_(NowForWaits()),
      next_(start_ + absl::Milliseconds(500)) {}

ProgressLine::~ProgressLine() {
  absl::MutexLock lock(&mutex_);
  if (!on_screen_) return;
  std::fputs("\r\x1b[K", stderr);
  SetLineShown(false);
}

bool ProgressLine::Due() {
  const absl::Time now = NowForWaits();
  if (now < next_) return false;
  next_ = now + absl::Milliseconds(100);
  return true;
}

void ProgressLine::Show(std::string_view text) {
  absl::FPrintF(stderr, "\r\x1b[K%s: %s", label_, text);
  on_screen_ = true;
  SetLineShown(true);
}

void ProgressLine::Say(std::string_view text) {
  if (!shown_) return;
  absl::MutexLock lock(&mutex_);
  if (Due()) Show(text);
}

void ProgressLine::Update(std::uint64_t done, std::uint64_t total) {
  if (!shown_) return;
  // Held while writing: lines of two threads must not mix.
  absl::MutexLock lock(&mutex_);
  if (!Due()) return;
  std::string text;
  if (total == 0) {
    text = "working";
  } else {
    const double part = static_cast<double>(done) / static_cast<double>(total);
    absl::StrAppendFormat(&text, "%.0f%%", 100 * part);
    if (part > 0 && part < 1) {
      const double seconds = absl::ToDoubleSeconds(NowForWaits() - start_);
      absl::StrAppendFormat(&text, ", %.0f s left", seconds / part - seconds);
    }
  }
  Show(text);
}

}  // namespace ckptree::tools
