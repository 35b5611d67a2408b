// SPDX-License-Identifier: Apache-2.0

// What a commit was.

#ifndef CKPTREE_KV_COMMIT_KIND_H_
#define CKPTREE_KV_COMMIT_KIND_H_

#include <cstdint>

namespace ckptree::kv {

// ON DISK: never renumber or reuse one.
enum class CommitKind : std::uint8_t {
  kCreate = 1,
  kSave = 2,
  kDelete = 3,
  kTag = 4,
  kPin = 5,
  kOpen = 6,      // The writer moved on after a repair.
  kCollect = 7,   // What nothing needs any more goes.
  kBranch = 8,    // A branch was forked off or dropped.
  kSettings = 9,  // The settings of a branch.
  kAhead = 10,    // Content-addressed rows that the next commit refers to.
  kSeal = 11,     // Of a file of the journal: none follows in it. No commit.
};

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_COMMIT_KIND_H_
