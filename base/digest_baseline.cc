// SPDX-License-Identifier: Apache-2.0

#define CKPTREE_KERNEL kBaselineKernel
#define CKPTREE_KERNEL_NAME "baseline"
#include "base/digest_kernel.inc"
