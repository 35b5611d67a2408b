#define CKPTREE_KERNEL kAvx2Kernel
#define CKPTREE_KERNEL_NAME "AVX2"
#include "schema/digest_kernel.inc"
