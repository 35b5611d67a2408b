// SPDX-License-Identifier: Apache-2.0

#include "base/instruction_set.h"

#include <atomic>

#include "hwy/detect_targets.h"

#if HWY_ARCH_X86
#include <cpuid.h>
#endif

namespace ckptree::base {
namespace {

#if HWY_ARCH_X86

// Compilers do not all know its name.
bool HasF16c() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}

// Each asks for what Highway compiles it with (hwy/ops/set_macros-inl.h).
InstructionSets Detect() {
  InstructionSets sets = HWY_STATIC_TARGET | HWY_EMU128;
  if (!__builtin_cpu_supports("ssse3")) return sets;
  sets |= HWY_SSSE3;
  if (!__builtin_cpu_supports("sse4.1") || !__builtin_cpu_supports("sse4.2") ||
      !__builtin_cpu_supports("aes") || !__builtin_cpu_supports("pclmul")) {
    return sets;
  }
  sets |= HWY_SSE4;
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("bmi") ||
      !__builtin_cpu_supports("bmi2") || !__builtin_cpu_supports("fma") ||
      !HasF16c()) {
    return sets;
  }
  sets |= HWY_AVX2;
  if (!__builtin_cpu_supports("avx512f") ||
      !__builtin_cpu_supports("avx512vl") ||
      !__builtin_cpu_supports("avx512dq") ||
      !__builtin_cpu_supports("avx512bw") ||
      !__builtin_cpu_supports("avx512cd")) {
    return sets;
  }
  return sets | HWY_AVX3;
}

#else

InstructionSets Detect() { return HWY_STATIC_TARGET; }

#endif

std::atomic<InstructionSets>& Used() {
  static std::atomic<InstructionSets> used = InstructionSetsHere();
  return used;
}

}  // namespace

InstructionSets InstructionSetsHere() {
  static const InstructionSets here = Detect();
  return here;
}

InstructionSets UsedInstructionSets() {
  return Used().load(std::memory_order_relaxed);
}

void UseInstructionSetsForTest(InstructionSets sets) {
  Used().store(sets == 0 ? InstructionSetsHere() : sets,
               std::memory_order_relaxed);
}

}  // namespace ckptree::base
