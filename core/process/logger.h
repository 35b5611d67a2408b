// SPDX-License-Identifier: Apache-2.0

// Where the engine's messages go.

#ifndef CKPTREE_CORE_PROCESS_LOGGER_H_
#define CKPTREE_CORE_PROCESS_LOGGER_H_

#include <string_view>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "ckptree/options.h"

namespace ckptree::internal {

// Serialises calls to the user's sink. Thread-safe.
class Logger {
 public:
  explicit Logger(LogSink sink) : sink_(std::move(sink)) {}

  void Log(LogSeverity severity, std::string_view where,
           std::string_view text) const;
  // Debian's absl::string_view is a type of its own.
  void Log(LogSeverity severity, std::string_view where,
           const absl::Status& status) const {
    Log(severity, where,
        std::string_view(status.message().data(), status.message().size()));
  }

 private:
  mutable absl::Mutex mu_;
  const LogSink sink_;  // Called under mu_: one call at a time is the contract.
};

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_PROCESS_LOGGER_H_
