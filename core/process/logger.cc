// SPDX-License-Identifier: Apache-2.0

#include "core/process/logger.h"

#include <cstdio>

#include "core/process/guarded_call.h"

namespace ckptree::internal {

void Logger::Log(LogSeverity severity, std::string_view where,
                 std::string_view text) const {
  absl::MutexLock lock(&mu_);
  if (sink_) {
    // There is nowhere to say that a sink throws.
    GuardedCall("log", [&] { sink_(severity, where, text); }).IgnoreError();
    return;
  }
  if (severity == LogSeverity::kInfo) return;
  std::fprintf(stderr, "ckptree: %s: %.*s: %.*s\n",
               severity == LogSeverity::kWarning ? "warning" : "error",
               static_cast<int>(where.size()), where.data(),
               static_cast<int>(text.size()), text.data());
}

}  // namespace ckptree::internal
