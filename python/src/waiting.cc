// SPDX-License-Identifier: Apache-2.0

#include "python/src/waiting.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <future>

#include "absl/time/clock.h"

namespace nb = nanobind;

namespace ckptree::python {
namespace {

// How soon Ctrl-C is noticed.
constexpr std::chrono::milliseconds kMoment{50};

}  // namespace

absl::Duration ToDuration(std::optional<double> seconds) {
  if (!seconds.has_value()) return absl::InfiniteDuration();
  if (std::isnan(*seconds) || *seconds < 0) {
    throw nb::value_error(
        "a timeout is a number of seconds that is not negative, or None");
  }
  return absl::Seconds(*seconds);
}

absl::Status WaitInterruptibly(
    absl::Duration timeout, const std::function<bool()>& is_done,
    const std::function<absl::Status(absl::Duration)>& wait) {
  const absl::Time end = absl::Now() + timeout;
  while (true) {
    const absl::Duration left =
        std::max(end - absl::Now(), absl::ZeroDuration());
    const absl::Status status = WithoutGil(
        [&] { return wait(std::min(left, absl::FromChrono(kMoment))); });
    if (!absl::IsDeadlineExceeded(status)) return status;
    // It may have been done just after the moment was over.
    if (is_done())
      return WithoutGil([&] { return wait(absl::ZeroDuration()); });
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
    if (left == absl::ZeroDuration()) return status;
  }
}

void RunInterruptibly(
    const std::function<void(const std::atomic<bool>& cancelled)>& work) {
  std::atomic<bool> cancelled = false;
  std::future<void> done =
      std::async(std::launch::async, [&work, &cancelled] { work(cancelled); });
  std::optional<nb::python_error> raised;
  while (WithoutGil([&] { return done.wait_for(kMoment); }) !=
         std::future_status::ready) {
    if (!raised.has_value() && PyErr_CheckSignals() != 0) {
      raised.emplace();
      cancelled = true;
    }
  }
  if (raised.has_value()) throw std::move(*raised);
  done.get();
}

}  // namespace ckptree::python
