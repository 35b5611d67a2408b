// SPDX-License-Identifier: Apache-2.0

// What steps cost: bytes that are theirs alone, and shared ones.
//
//   absl::StatusOr<ckptree::UsageReport> usage = store.Usage();
//   absl::StatusOr<ckptree::FreedBytes> freed =
//       store.WouldFree({ckptree::AtStep(100), ckptree::AtStep(200)});
//
// Computed from records and the indexes of files: no array is read, and nothing
// is changed.

#ifndef CKPTREE_USAGE_H_
#define CKPTREE_USAGE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "ckptree/collect.h"
#include "ckptree/selector.h"

namespace ckptree {

// Steps share the bytes of what did not change between them, so what a step
// "costs" has two answers: what its values would need alone (logical), and what
// is gone when it alone is deleted (unique). The unique bytes of all steps
// together are less than the store: the rest is shared.
struct StepUsage {
  std::string branch = {};  // Empty: the main branch.
  std::int64_t step = 0;
  std::uint64_t version = 0;
  std::uint64_t logical_bytes = 0;  // Of all its values.
  std::uint64_t new_bytes = 0;      // Of values that its save wrote.
  // Of stored blocks that go when this step alone is deleted, wherever they
  // are; the rest is shared with others. It may be more than logical_bytes:
  // records of leaves are among them, packs of small leaves of which the step
  // needs some, and what deleted steps left that only it holds. Exactly whose
  // values these are Subtrees() says.
  std::uint64_t unique_bytes = 0;
  // What these take on this disk: less where arrays are coded, nothing where
  // they left it. About right.
  std::uint64_t unique_stored_bytes = 0;
};

// All steps, and what the store has on disk beside them.
struct UsageReport {
  std::vector<StepUsage> steps = {};  // By branch and number.
  std::uint64_t logical_bytes = 0;    // Of all steps together.
  // Of what was deleted and can be freed now: Collect() frees just this.
  std::uint64_t pending_bytes = 0;
  std::uint64_t pending_stored_bytes = 0;  // What these take there, about.
  // Freed already, and still in files with living neighbours; about right.
  std::uint64_t dead_bytes = 0;
  // Of objects of arrays that left this disk (StoreOptions::local_keep).
  std::uint64_t far_bytes = 0;
  // On disk now. The journal and the tables of records are in file_bytes and
  // not in files.
  std::uint64_t files = 0;       // Of arrays and leaves.
  std::uint64_t file_bytes = 0;  // Of all files of the store.
  // Of the living blocks in those of arrays and leaves, and what they take
  // there.
  std::uint64_t living_bytes = 0;
  std::uint64_t living_stored_bytes = 0;
  std::vector<KeptVersion> kept = {};  // Deleted steps that cannot go yet.
};

// What deleting some steps would free, and what it would not.
struct FreedBytes {
  std::uint64_t bytes = 0;         // Of arrays and leaf records on this disk.
  std::uint64_t stored_bytes = 0;  // What these take there, about.
  // Of objects in the remote that nothing would need any more, those of what
  // left this disk (StoreOptions::local_keep) among them: whoever writes
  // deletes them `remote_grace` later. 0 of a store that was not shipped. About
  // right.
  std::uint64_t remote_bytes = 0;
  std::uint64_t blocks = 0;  // Pieces of arrays, and records of leaves.
  std::vector<KeptVersion> kept = {};  // Whose bytes would stay, and why.
};

// A subtree of one step: where its bytes are.
struct SubtreeUsage {
  std::string name = {};  // Path in text form; empty: the whole step.
  std::uint64_t leaves = 0;
  std::uint64_t logical_bytes = 0;
  std::uint64_t unique_bytes = 0;  // As of a step; of shared packs its part.
  std::uint64_t unique_value_bytes = 0;  // Of these its values: no records.
};

}  // namespace ckptree

#endif  // CKPTREE_USAGE_H_
