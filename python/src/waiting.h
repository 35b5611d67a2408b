// SPDX-License-Identifier: Apache-2.0

// Waiting without the GIL, so that other threads run and Ctrl-C works.

#ifndef CKPTREE_PYTHON_SRC_WAITING_H_
#define CKPTREE_PYTHON_SRC_WAITING_H_

#include <nanobind/nanobind.h>

#include <atomic>
#include <functional>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace ckptree::python {

// For what may block for a moment: a lock, a row of the database.
template <typename Work>
auto WithoutGil(Work&& work) {
  const nanobind::gil_scoped_release release;
  return std::forward<Work>(work)();
}

// None: for ever. ValueError where it is negative or no number.
absl::Duration ToDuration(std::optional<double> seconds);

// Calls `wait` again and again, each time for a moment, until it returns
// anything but kDeadlineExceeded or the time is over; Python's signal handlers
// run in between, and what they raise is thrown. `is_done`: what is waited for
// has a result, whatever that is.
absl::Status WaitInterruptibly(
    absl::Duration timeout, const std::function<bool()>& is_done,
    const std::function<absl::Status(absl::Duration)>& wait);

// Runs `work` in a thread of its own, where no Python object may be touched.
// Where a signal handler raises during the wait, `cancelled` becomes true, and
// what it raised is thrown as soon as `work` has returned.
void RunInterruptibly(
    const std::function<void(const std::atomic<bool>& cancelled)>& work);

}  // namespace ckptree::python

#endif  // CKPTREE_PYTHON_SRC_WAITING_H_
