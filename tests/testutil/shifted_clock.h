// SPDX-License-Identifier: Apache-2.0

// A wall clock that a test sets off, for the engine's threads and RocksDB's,
// too: the functions stand in front of the C library's. For one file of a
// program.

#ifndef CKPTREE_TESTS_TESTUTIL_SHIFTED_CLOCK_H_
#define CKPTREE_TESTS_TESTUTIL_SHIFTED_CLOCK_H_

#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

namespace ckptree::testing {

// Added to the wall clock of this process.
inline std::atomic<std::int64_t> clock_offset_seconds{0};
// And to the clock that counts while the machine sleeps.
inline std::atomic<std::int64_t> boot_offset_seconds{0};

}  // namespace ckptree::testing

extern "C" int clock_gettime(clockid_t clock, timespec* now) noexcept {
  const long result = syscall(SYS_clock_gettime, clock, now);
  if (result == 0 && clock == CLOCK_REALTIME) {
    now->tv_sec += ckptree::testing::clock_offset_seconds.load();
  }
  if (result == 0 && clock == CLOCK_BOOTTIME) {
    now->tv_sec += ckptree::testing::boot_offset_seconds.load();
  }
  return static_cast<int>(result);
}

#endif  // CKPTREE_TESTS_TESTUTIL_SHIFTED_CLOCK_H_
