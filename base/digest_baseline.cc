#define CKPTREE_KERNEL kBaselineKernel
#define CKPTREE_KERNEL_NAME "baseline"
#include "base/digest_kernel.inc"
