// SPDX-License-Identifier: Apache-2.0

// What steps cost: bytes that are theirs alone, and shared ones.

#ifndef CKPTREE_USAGE_H_
#define CKPTREE_USAGE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "ckptree/collect.h"
#include "ckptree/selector.h"

namespace ckptree {

struct StepUsage {
  std::string branch = {};  // Empty: the main branch.
  std::int64_t step = 0;
  std::uint64_t version = 0;
  std::uint64_t logical_bytes = 0;  // Of all its values.
  std::uint64_t new_bytes = 0;      // Of values that its save wrote.
  // Of stored blocks that go when this step alone is deleted; the rest is
  // shared with others.
  std::uint64_t unique_bytes = 0;
};

struct UsageReport {
  std::vector<StepUsage> steps = {};  // By branch and number.
  std::uint64_t logical_bytes = 0;
  // Of what was deleted and can be freed now: Collect() frees just this.
  std::uint64_t pending_bytes = 0;
  // Freed already, and still in files with living neighbours; about right.
  std::uint64_t dead_bytes = 0;
  std::uint64_t files = 0;             // Of arrays and leaves.
  std::uint64_t file_bytes = 0;        // Of all files of the store.
  std::vector<KeptVersion> kept = {};  // Deleted steps that cannot go yet.
};

// What deleting some steps would free, and what it would not.
struct FreedBytes {
  std::uint64_t bytes = 0;
  std::uint64_t blocks = 0;
  std::vector<KeptVersion> kept = {};  // Whose bytes would stay, and why.
};

// A subtree of one step.
struct SubtreeUsage {
  std::string name = {};  // Path in text form; empty: the whole step.
  std::uint64_t leaves = 0;
  std::uint64_t logical_bytes = 0;
  std::uint64_t unique_bytes = 0;  // As of a step; of shared packs its part.
};

}  // namespace ckptree

#endif  // CKPTREE_USAGE_H_
