// SPDX-License-Identifier: Apache-2.0

#include "core/process/allowed_threads.h"

#include <cstddef>
#include <thread>

#include "absl/base/const_init.h"
#include "absl/synchronization/mutex.h"
#include "tbb/global_control.h"

namespace ckptree::internal {
namespace {

ABSL_CONST_INIT absl::Mutex allowed_mu(absl::kConstInit);

}  // namespace

void AllowThreads(int threads) {
  using Control = tbb::global_control;
  static std::size_t allowed = std::thread::hardware_concurrency();
  static const Control* control = nullptr;  // Leaked: arenas outlive stores.
  const absl::MutexLock lock(&allowed_mu);
  if (static_cast<std::size_t>(threads) <= allowed) return;
  allowed = static_cast<std::size_t>(threads);
  // Of several the smallest counts.
  const Control* const before = control;
  control = new Control(Control::max_allowed_parallelism, allowed);
  delete before;
}

}  // namespace ckptree::internal
