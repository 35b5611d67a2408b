// SPDX-License-Identifier: Apache-2.0

#ifndef CKPTREE_TESTS_CORE_INSTRUCTION_SETS_H_
#define CKPTREE_TESTS_CORE_INSTRUCTION_SETS_H_

#include <gtest/gtest.h>

#include "base/instruction_set.h"
#include "hwy/detect_targets.h"

namespace ckptree {

// Runs `check` once for each instruction set that files are compiled for and
// this machine has.
template <class Check>
void OnEveryInstructionSet(Check check) {
  int count = 0;
  for (base::InstructionSets rest = base::InstructionSetsHere() & HWY_TARGETS;
       rest != 0; rest &= rest - 1) {
    const base::InstructionSets set = rest & -rest;
    SCOPED_TRACE(set);
    base::UseInstructionSetsForTest(set);
    check();
    ++count;
  }
  base::UseInstructionSetsForTest(0);
  EXPECT_GT(count, 0);
}

}  // namespace ckptree

#endif  // CKPTREE_TESTS_CORE_INSTRUCTION_SETS_H_
