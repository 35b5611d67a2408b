#define CKPTREE_KERNEL kBaselineKernel
#define CKPTREE_KERNEL_NAME "baseline"
#include "schema/digest_kernel.inc"
