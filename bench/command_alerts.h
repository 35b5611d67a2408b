// SPDX-License-Identifier: Apache-2.0

// A part of the case `command`: what `log -f` takes to tell somebody.

#ifndef CKPTREE_BENCH_COMMAND_ALERTS_H_
#define CKPTREE_BENCH_COMMAND_ALERTS_H_

#include <string>

#include "bench/measure.h"

namespace ckptree::bench {

// Follows a store that this process saves to with `program`, and prints how
// long after a commit, and after a stall, the command of --exec ran.
void MeasureAlerts(const Settings& settings, const std::string& program);

}  // namespace ckptree::bench

#endif  // CKPTREE_BENCH_COMMAND_ALERTS_H_
