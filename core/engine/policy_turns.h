// SPDX-License-Identifier: Apache-2.0

// Whose policy a branch has, where several managers work on one open store.

#ifndef CKPTREE_CORE_ENGINE_POLICY_TURNS_H_
#define CKPTREE_CORE_ENGINE_POLICY_TURNS_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "ckptree/policy.h"

namespace ckptree::internal {

// A manager that begins a save brings its own policy; what was set by hand
// since it was opened stays.
struct PolicyTurns {
  // Who brought a policy last, and what the branch had then.
  struct Turn {
    const void* manager = nullptr;  // Null: none that is there.
    std::string text;
    bool from_program = false;
    std::int64_t created_ns = 0;  // Of the branch: another may have its name.

    bool IsOf(const PolicyInfo& policy) const {
      return text == policy.text && from_program == policy.from_program;
    }
  };

  // Held while a policy is compared and set, before the lock of the commits.
  absl::Mutex mu;
  // Null: nobody brought one to the branch that was made then.
  const Turn* Find(const std::string& branch, std::int64_t created_ns) const
      ABSL_SHARED_LOCKS_REQUIRED(mu) {
    const auto turn = last.find(branch);
    const bool is_of =
        turn != last.end() && turn->second.created_ns == created_ns;
    return is_of ? &turn->second : nullptr;
  }
  std::map<std::string, Turn> last ABSL_GUARDED_BY(mu);  // By branch.
};

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_ENGINE_POLICY_TURNS_H_
