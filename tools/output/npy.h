// SPDX-License-Identifier: Apache-2.0

// The head of a NumPy .npy file.

#ifndef CKPTREE_TOOLS_OUTPUT_NPY_H_
#define CKPTREE_TOOLS_OUTPUT_NPY_H_

#include <string>

#include "ckptree/tensor.h"

namespace ckptree::tools {

// NumPy's name of the type. Types that NumPy lacks (bfloat16, float8, int4,
// ...) are what ml_dtypes calls them in a file: "<V2", "|V1", one element to 1,
// 2 or 4 bytes; read them with numpy.load(f).view(ml_dtypes.bfloat16).
std::string NpyDescr(DType dtype);

// What an export writes behind the head of a type that NumPy lacks, which the
// name alone does not tell: "# ckptree: int4". Empty for others, and bfloat16.
std::string NpyNote(DType dtype);

// Everything before the elements: version 1.0, or 2.0 where the text is longer
// than that allows; a multiple of 64 bytes.
std::string NpyHeader(DType dtype, const Shape& shape);

}  // namespace ckptree::tools

#endif  // CKPTREE_TOOLS_OUTPUT_NPY_H_
