// SPDX-License-Identifier: Apache-2.0

// Which process a handle belongs to.

#ifndef CKPTREE_KV_PROCESS_MARK_H_
#define CKPTREE_KV_PROCESS_MARK_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace ckptree::kv {

std::string HostName();

// Remembers the process that made it. A forked child shares descriptors with
// its parent but none of its threads: what it does to a handle hangs or
// destroys the parent's data. Made and asked without a system call: each read
// asks several times.
//
// Thread-safe.
class ProcessMark {
 public:
  ProcessMark();

  // True in the process that made the mark.
  bool Holds() const;

  // kFailedPrecondition, naming the process that opened it, elsewhere.
  absl::Status Check() const;

 private:
  std::uint64_t number_;  // 0: the system gives none.
  std::uint64_t forks_;
  std::int64_t pid_;
};

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_PROCESS_MARK_H_
