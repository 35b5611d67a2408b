// SPDX-License-Identifier: Apache-2.0

#include "core/save/coding_choice.h"

#include <algorithm>

namespace ckptree::internal {
namespace {

// Lanes that slept less of their time did not wait for the disk.
constexpr double kWaits = 0.1;
// So much better it must be, or the next save may say the opposite.
constexpr double kBetter = 0.97;
// A save of less says nothing: most of its time is the sync at the end.
constexpr std::uint64_t kSaysSomething = 16 << 20;

}  // namespace

Coding CodingOf(const StoreOptions& options) {
  if (options.coding.has_value()) return *options.coding;
  return options.remote.empty() ? Coding::kNone : Coding::kPlanes;
}

CodingChoice::Way CodingChoice::Next() const {
  switch (coding_) {
    case Coding::kNone:
      return {};
    case Coding::kPlanes:
      return {.code = true};
    case Coding::kAuto:
      break;
  }
  const absl::MutexLock lock(&mu_);
  return {.code = code_, .measure = true};
}

void CodingChoice::Note(bool code, const LaneTimes& times) {
  if (coding_ != Coding::kAuto || times.bytes < kSaysSomething ||
      times.coded_bytes == 0) {
    return;
  }
  const auto bytes = static_cast<double>(times.bytes);
  const auto tried = static_cast<double>(times.coded_bytes);
  const double share = static_cast<double>(times.coded_to) / tried;
  const double coding = times.coding / tried;
  // A byte that stands on the disk; a payload's byte is `share` of one.
  const double stored = code ? bytes * share : bytes;
  const double computing = times.computed / stored;
  const double all = times.computed + times.waited + (code ? times.coding : 0);
  const absl::MutexLock lock(&mu_);
  if (times.waited >= kWaits * all) disk_ = all / stored;
  const double plain = std::max(computing, disk_);
  const double coded = std::max(computing * share + coding, disk_ * share);
  code_ = coded < kBetter * plain;
}

}  // namespace ckptree::internal
