#include "tools/progress_line.h"

#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "tools/interrupt.h"

namespace ckptree::tools {

ProgressLine::ProgressLine(std::string label, bool shown)
    : label_(std::move(label)),
      shown_(shown),
      start_(absl::Now()),
      next_(start_ + absl::Milliseconds(500)) {}

ProgressLine::~ProgressLine() {
  absl::MutexLock lock(&mutex_);
  if (!on_screen_) return;
  std::fputs("\r\x1b[K", stderr);
  SetLineShown(false);
}

void ProgressLine::Update(std::uint64_t done, std::uint64_t total) {
  if (!shown_) return;
  // Held while writing: lines of two threads must not mix.
  absl::MutexLock lock(&mutex_);
  const absl::Time now = absl::Now();
  if (now < next_) return;
  next_ = now + absl::Milliseconds(100);
  std::string text = label_ + ": ";
  if (total == 0) {
    text += "working";
  } else {
    const double part = static_cast<double>(done) / static_cast<double>(total);
    absl::StrAppendFormat(&text, "%.0f%%", 100 * part);
    if (part > 0 && part < 1) {
      const double seconds = absl::ToDoubleSeconds(now - start_);
      absl::StrAppendFormat(&text, ", %.0f s left", seconds / part - seconds);
    }
  }
  absl::FPrintF(stderr, "\r\x1b[K%s", text);
  on_screen_ = true;
  SetLineShown(true);
}

}  // namespace ckptree::tools
