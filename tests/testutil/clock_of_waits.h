// SPDX-License-Identifier: Apache-2.0

// The clock of shifted_clock.h for waits, too: the kernel's wait until a time
// of day ends when that is reached by the clock as a test has set it, also
// where that is set while somebody waits. For one file of a program.

#ifndef CKPTREE_TESTS_TESTUTIL_CLOCK_OF_WAITS_H_
#define CKPTREE_TESTS_TESTUTIL_CLOCK_OF_WAITS_H_

#include <dlfcn.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdint>

#include "tests/testutil/shifted_clock.h"

namespace ckptree::testing {

// How many waits until a time of day began.
inline std::atomic<int> waits_by_clock{0};

inline std::int64_t NanosOf(const timespec& time) {
  return std::int64_t{1'000'000'000} * time.tv_sec + time.tv_nsec;
}

}  // namespace ckptree::testing

// Abseil makes its waits by it.
extern "C" long syscall(long number, ...) noexcept {
  using Call = long (*)(long, ...);
  static const Call real = reinterpret_cast<Call>(dlsym(RTLD_NEXT, "syscall"));
  va_list list;
  va_start(list, number);
  long args[6];
  for (long& arg : args) arg = va_arg(list, long);
  va_end(list);
  const auto* const end = reinterpret_cast<const timespec*>(args[3]);
  const bool waits = number == SYS_futex && end != nullptr &&
                     (args[1] & FUTEX_CMD_MASK) == FUTEX_WAIT_BITSET &&
                     (args[1] & FUTEX_CLOCK_REALTIME) != 0;
  if (!waits) {
    return real(number, args[0], args[1], args[2], args[3], args[4], args[5]);
  }
  ++ckptree::testing::waits_by_clock;
  constexpr std::int64_t kSlice = 10'000'000;
  while (true) {
    timespec now{};
    clock_gettime(CLOCK_REALTIME, &now);
    const std::int64_t left =
        ckptree::testing::NanosOf(*end) - ckptree::testing::NanosOf(now);
    if (left <= 0) {
      errno = ETIMEDOUT;
      return -1;
    }
    real(SYS_clock_gettime, CLOCK_REALTIME, &now);
    const std::int64_t until =
        ckptree::testing::NanosOf(now) + std::min(left, kSlice);
    const timespec slice{.tv_sec = until / 1'000'000'000,
                         .tv_nsec = until % 1'000'000'000};
    const long result =
        real(number, args[0], args[1], args[2], &slice, args[4], args[5]);
    if (result == 0 || errno != ETIMEDOUT) return result;
  }
}

#endif  // CKPTREE_TESTS_TESTUTIL_CLOCK_OF_WAITS_H_
