// SPDX-License-Identifier: Apache-2.0

#include "base/instruction_set.h"

#include <gtest/gtest.h>

#include "hwy/detect_targets.h"

namespace ckptree::base {
namespace {

template <InstructionSets kSet>
struct Compiled {
  static constexpr InstructionSets kFunctions = kSet;
};

TEST(InstructionSetTest, TheBestOfThoseThatMayRunElseTheLast) {
  constexpr InstructionSets kSets = 0b11010;
  EXPECT_EQ((BestOf<Compiled, kSets>(0b11111)), 0b00010);
  EXPECT_EQ((BestOf<Compiled, kSets>(0b11101)), 0b01000);
  EXPECT_EQ((BestOf<Compiled, kSets>(0b00101)), 0b10000);
  EXPECT_EQ((BestOf<Compiled, kSets>(0)), 0b10000);
}

TEST(InstructionSetTest, WhatTheCompilerUsesIsHere) {
  EXPECT_NE(InstructionSetsHere() & HWY_STATIC_TARGET, 0);
}

#if HWY_ARCH_X86
TEST(InstructionSetTest, ABetterOneIsHereOnlyWithThoseItIsMadeOf) {
  bool last = true;
  for (const InstructionSets set :
       {HWY_EMU128, HWY_SSSE3, HWY_SSE4, HWY_AVX2, HWY_AVX3}) {
    const bool here = (InstructionSetsHere() & set) != 0;
    EXPECT_TRUE(last || !here) << set;
    last = here;
  }
  EXPECT_EQ((InstructionSetsHere() & HWY_AVX2) != 0,
            __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"));
}
#endif

TEST(InstructionSetTest, ATestMayTakeSomeAway) {
  UseInstructionSetsForTest(HWY_STATIC_TARGET);
  EXPECT_EQ(UsedInstructionSets(), HWY_STATIC_TARGET);
  UseInstructionSetsForTest(0);
  EXPECT_EQ(UsedInstructionSets(), InstructionSetsHere());
}

}  // namespace
}  // namespace ckptree::base
