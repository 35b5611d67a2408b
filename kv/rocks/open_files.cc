// SPDX-License-Identifier: Apache-2.0

#include "kv/rocks/open_files.h"

#include <sys/resource.h>

#include <algorithm>
#include <cstddef>

namespace ckptree::kv {
namespace {

// Table readers that are kept cost memory and save little beyond this.
constexpr rlim_t kMostTables = 256;
constexpr rlim_t kFewestTables = 8;
// What else a process has open.
constexpr rlim_t kOthers = 256;

}  // namespace

int OpenTableLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return kFewestTables;
  return static_cast<int>(
      std::clamp(limit.rlim_cur / 4, kFewestTables, kMostTables));
}

bool RoomForTables(std::size_t tables) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return false;
  const rlim_t wanted = 2 * static_cast<rlim_t>(tables) + kOthers;
  if (limit.rlim_cur >= wanted) return true;
  if (limit.rlim_max < wanted) return false;
  limit.rlim_cur = std::min(limit.rlim_max, 2 * wanted);
  return setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

}  // namespace ckptree::kv
