// SPDX-License-Identifier: Apache-2.0

// XXH3 as compiled for one instruction set.
//
// Included by files built for instructions this processor may lack: no inline
// function of a library may be instantiated here, for the linker could keep
// that copy for everybody.

#ifndef CKPTREE_BASE_DIGEST_KERNEL_H_
#define CKPTREE_BASE_DIGEST_KERNEL_H_

#include <stddef.h>
#include <stdint.h>

namespace ckptree::base {

// Room for the state of a hash in progress.
struct alignas(64) DigestState {
  unsigned char bytes[640];
};

struct DigestKernel {
  const char* name;
  void (*digest)(const void* data, size_t size, unsigned char* out16);
  uint64_t (*checksum)(const void* data, size_t size);
  // Of `a` and `b` one after the other.
  uint64_t (*checksum_of_pair)(const void* a, size_t a_size, const void* b,
                               size_t b_size);
  void (*begin)(DigestState* state);
  void (*update)(DigestState* state, const void* data, size_t size);
  void (*finish)(const DigestState* state, unsigned char* out16);
};

extern const DigestKernel kBaselineKernel;  // SSE2 on x86-64.
#if defined(__x86_64__)
extern const DigestKernel kAvx2Kernel;
extern const DigestKernel kAvx512Kernel;
#endif

// The kernels that this processor can run, the best last; never empty.
struct DigestKernels {
  const DigestKernel* kernels[3];
  int count;
};
DigestKernels KernelsHere();

// The best of them, chosen once.
const DigestKernel& ChosenKernel();

}  // namespace ckptree::base

#endif  // CKPTREE_BASE_DIGEST_KERNEL_H_
