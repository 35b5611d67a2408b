// SPDX-License-Identifier: Apache-2.0

// How many processors this process may use.

#ifndef CKPTREE_CORE_PROCESS_PROCESSORS_H_
#define CKPTREE_CORE_PROCESS_PROCESSORS_H_

#include <string>

namespace ckptree::internal {

// Those of the affinity mask of the thread that calls, and no more than the
// quota of the process's cgroup, or of one above it, is worth, rounded up; 1 at
// least. Reads files of /proc and /sys.
int Processors();

// The quota alone: `cgroups` is what /proc/self/cgroup says, `mount` where the
// cgroups are mounted. `most` where there is none, or less. Versions 1 and 2.
int ProcessorsOfQuota(const std::string& cgroups, const std::string& mount,
                      int most);

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_PROCESS_PROCESSORS_H_
