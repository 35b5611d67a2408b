// SPDX-License-Identifier: Apache-2.0

#include "python/src/waiting.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <future>

#include "absl/time/time.h"
#include "python/src/in_function.h"

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
  // The time of day may be set while it lasts.
  const auto begun = std::chrono::steady_clock::now();
  while (true) {
    const absl::Duration passed =
        absl::FromChrono(std::chrono::steady_clock::now() - begun);
    const absl::Duration left =
        std::max(timeout - passed, absl::ZeroDuration());
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

void AwaitInterruptibly(
    const std::function<bool(std::chrono::milliseconds moment)>& is_ready) {
  while (!WithoutGil([&] { return is_ready(kMoment); })) {
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  }
}

void RunInterruptibly(const std::function<void(Work&)>& work,
                      nb::handle progress,
                      const std::vector<CancelFlag>& flags) {
  Work state;
  if (IsInFunction()) {
    WithoutGil([&] { work(state); });
    if (!progress.is_none()) progress(state.done(), state.total());
    return;
  }
  std::future<void> done =
      std::async(std::launch::async, [&work, &state] { work(state); });
  std::optional<nb::python_error> raised;
  // Sooner at first: what does not take long is told of, too.
  std::chrono::milliseconds moment{1};
  while (WithoutGil([&] { return done.wait_for(moment); }) !=
         std::future_status::ready) {
    moment = std::min(2 * moment, kMoment);
    if (raised.has_value()) continue;
    try {
      if (PyErr_CheckSignals() != 0) throw nb::python_error();
      if (!progress.is_none()) progress(state.done(), state.total());
    } catch (nb::python_error& error) {
      raised.emplace(std::move(error));
      state.Cancel();
      for (const CancelFlag& flag : flags) flag->fetch_add(1);
    }
  }
  if (raised.has_value()) {
    for (const CancelFlag& flag : flags) flag->fetch_sub(1);
    throw std::move(*raised);
  }
  done.get();
  // What was over before anybody asked.
  if (!progress.is_none()) progress(state.done(), state.total());
}

}  // namespace ckptree::python
