// SPDX-License-Identifier: Apache-2.0

#include "core/process/thread_times.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <ctime>

namespace ckptree::internal {
namespace {

double SecondsOf(clockid_t clock) {
  timespec time = {};
  if (clock_gettime(clock, &time) != 0) return 0;
  return static_cast<double>(time.tv_sec) +
         1e-9 * static_cast<double>(time.tv_nsec);
}

// The second number of the file is nanoseconds.
double SecondsQueued() {
  const int file = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  char text[96] = {};
  const ssize_t bytes = read(file, text, sizeof(text) - 1);
  close(file);
  unsigned long long computed = 0, queued = 0;
  if (bytes <= 0 || std::sscanf(text, "%llu %llu", &computed, &queued) != 2) {
    return 0;
  }
  return 1e-9 * static_cast<double>(queued);
}

}  // namespace

ThreadTimes ThreadTimes::Now() {
  return {SecondsOf(CLOCK_MONOTONIC), SecondsOf(CLOCK_THREAD_CPUTIME_ID),
          SecondsQueued()};
}

}  // namespace ckptree::internal
