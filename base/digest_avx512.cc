// SPDX-License-Identifier: Apache-2.0

#define CKPTREE_KERNEL kAvx512Kernel
#define CKPTREE_KERNEL_NAME "AVX-512"
#include "base/digest_kernel.inc"
