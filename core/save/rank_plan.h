// SPDX-License-Identifier: Apache-2.0

// The part of a plan that the ranks of a save share.

#ifndef CKPTREE_CORE_SAVE_RANK_PLAN_H_
#define CKPTREE_CORE_SAVE_RANK_PLAN_H_

#include <cstdint>
#include <string>

namespace ckptree::internal {

// What a rank must know; plain data, to be sent by whatever the job has.
struct RankPlan {
  std::string staging;  // Folder that all ranks see; exists.
  std::string attempt;
  std::string uuid;
  std::uint64_t incarnation = 0;
  std::uint64_t version = 0;
  std::uint64_t base = 0;  // Every rank must compare with this version,
  bool full = false;       // unless it cannot be read: then with nothing.
  std::int64_t step = 0;
};

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_SAVE_RANK_PLAN_H_
