// SPDX-License-Identifier: Apache-2.0

// Waiting without the GIL, so that other threads run and Ctrl-C works.

#ifndef CKPTREE_PYTHON_SRC_WAITING_H_
#define CKPTREE_PYTHON_SRC_WAITING_H_

#include <nanobind/nanobind.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "python/src/in_function.h"
#include "python/src/interpreter_lock.h"
#include "python/src/log_thread.h"

namespace ckptree::python {

// For what may block for a moment: a lock, a row of the database.
template <typename Work>
auto WithoutGil(Work&& work) {
  const StartsLogs after;  // With the GIL again.
  const Unlocked unlocked;
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

// Of a store: how many have enough of it by now. It asks while it waits for its
// object store.
using CancelFlag = std::shared_ptr<std::atomic<int>>;

// What a thread that works and the one that waits for it tell each other.
// Thread-safe. What it returns must not outlive it.
class Work {
 public:
  Work() = default;
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;

  std::function<bool()> Cancelled() const {
    return [this] { return cancelled_.load(); };
  }
  std::function<void(std::uint64_t, std::uint64_t)> OnProgress() {
    return [this](std::uint64_t done, std::uint64_t total) {
      done_.store(done);
      total_.store(total);
    };
  }

  void Cancel() { cancelled_.store(true); }
  std::uint64_t done() const { return done_.load(); }
  std::uint64_t total() const { return total_.load(); }

 private:
  std::atomic<bool> cancelled_ = false;
  std::atomic<std::uint64_t> done_ = 0;
  std::atomic<std::uint64_t> total_ = 0;
};

// Runs `work` in a thread of its own, where no Python object may be touched.
// `progress`, unless it is None, is called now and then on this thread with
// what is done and the total. Where that raises, or a signal handler does, the
// work is cancelled, and what was raised is thrown as soon as it has returned.
// From then until that `flags` count one more: whatever else waits for the
// object stores of these stores ends, too.
void RunInterruptibly(const std::function<void(Work&)>& work,
                      nanobind::handle progress = nanobind::none(),
                      const std::vector<CancelFlag>& flags = {});

// Until `is_ready`, a moment at a time; throws what a signal handler raises.
void AwaitInterruptibly(
    const std::function<bool(std::chrono::milliseconds moment)>& is_ready);

// Runs what nobody can cancel in a thread of its own. Where a signal handler
// raises, that is thrown at once; the work goes on, and its result is dropped:
// so `work` owns all that it uses, or keeps it alive.
template <typename Function>
auto LeaveOnSignal(Function work) -> decltype(work()) {
  using Result = decltype(work());
  if (IsInFunction()) return WithoutGil(work);
  auto promise = std::make_shared<std::promise<Result>>();
  std::future<Result> result = promise->get_future();
  std::thread([promise, work = std::optional(std::move(work))]() mutable {
    try {
      Result made = (*work)();
      work.reset();  // Whoever has the result may drop what it used, too.
      promise->set_value(std::move(made));
    } catch (...) {
      work.reset();
      promise->set_exception(std::current_exception());
    }
  }).detach();
  AwaitInterruptibly([&result](std::chrono::milliseconds moment) {
    return result.wait_for(moment) == std::future_status::ready;
  });
  return result.get();
}

}  // namespace ckptree::python

#endif  // CKPTREE_PYTHON_SRC_WAITING_H_
