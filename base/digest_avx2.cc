// SPDX-License-Identifier: Apache-2.0

#define CKPTREE_KERNEL kAvx2Kernel
#define CKPTREE_KERNEL_NAME "AVX2"
#include "base/digest_kernel.inc"
