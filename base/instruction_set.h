// SPDX-License-Identifier: Apache-2.0

// For files that Highway compiles once for each instruction set: which of them
// runs. Highway's own choice is in a library that measures a clock when it is
// loaded, some milliseconds of every process.

#ifndef CKPTREE_BASE_INSTRUCTION_SET_H_
#define CKPTREE_BASE_INSTRUCTION_SET_H_

#include <cstdint>

namespace ckptree::base {

// Highway's bits of them, HWY_AVX2 and others; the lower one is the better one.
using InstructionSets = std::int64_t;

// Those that this processor has.
InstructionSets InstructionSetsHere();

// Those that may run: all that are here, but in a test.
InstructionSets UsedInstructionSets();
// 0: all that are here.
void UseInstructionSetsForTest(InstructionSets sets);

// The functions of a file that is compiled for `kSets`, Compiled<set>::
// kFunctions for each of them: of the best one of `used`, else of the last,
// which the compiler may use everywhere.
template <template <InstructionSets> class Compiled, InstructionSets kSets>
constexpr auto BestOf(InstructionSets used) {
  constexpr InstructionSets kBest = kSets & -kSets;
  if constexpr (kSets == kBest) {
    return Compiled<kBest>::kFunctions;
  } else {
    if ((used & kBest) != 0) return Compiled<kBest>::kFunctions;
    return BestOf<Compiled, (kSets & ~kBest)>(used);
  }
}

}  // namespace ckptree::base

#endif  // CKPTREE_BASE_INSTRUCTION_SET_H_
