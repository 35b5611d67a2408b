// SPDX-License-Identifier: Apache-2.0

// Which damages a store is tried with.

#ifndef CKPTREE_TESTS_JUDGE_PLAN_H_
#define CKPTREE_TESTS_JUDGE_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tests/judge/files.h"
#include "tests/judge/payload.h"

namespace ckptree::testing {

struct PlannedTrial {
  std::vector<Change> changes;
  std::string shape;  // As it is counted: of two, "two at once".
  std::string where;  // Class of the file: "db/#.sst rows", "db/#.sst payload".
};

// `each` of every shape for every class of files (three times as many flips);
// pairs of them, eight times `each`.
std::vector<PlannedTrial> Plan(const StoreFiles& files,
                               const StoreFiles& earlier,
                               const PayloadMap& payload, std::uint64_t seed,
                               int each);

// A flip in each byte; in what is filled with zeros or read by nobody (logs and
// options of the database), here and there.
std::vector<PlannedTrial> EveryByte(const StoreFiles& files,
                                    const PayloadMap& payload,
                                    std::uint64_t seed);

// Zeros in each 4 KiB that are not zeros.
std::vector<PlannedTrial> EverySector(const StoreFiles& files,
                                      const PayloadMap& payload,
                                      std::uint64_t seed);

// The class of what the changes hit.
std::string WhereOf(const std::vector<Change>& changes, const StoreFiles& files,
                    const StoreFiles& earlier, const PayloadMap& payload);

}  // namespace ckptree::testing

#endif  // CKPTREE_TESTS_JUDGE_PLAN_H_
