// SPDX-License-Identifier: Apache-2.0

// Element types of arrays, by the names of NumPy and ml_dtypes.
//
// The engine moves elements and never converts them: an array comes back with
// the type and the bits that it was saved with, NaNs with their payload. It
// looks into elements only to make statistics of them. Elements are in
// little-endian byte order, on disk and in memory.

#ifndef CKPTREE_DTYPE_H_
#define CKPTREE_DTYPE_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "ckptree/export.h"

namespace ckptree {

// ON DISK: never renumber or reuse one.
enum class DType : std::uint8_t {
  kNone = 0,  // Not an array.
  kBool = 1,
  kInt1 = 2,
  kInt2 = 3,
  kInt4 = 4,
  kInt8 = 5,
  kInt16 = 6,
  kInt32 = 7,
  kInt64 = 8,
  kUint1 = 9,
  kUint2 = 10,
  kUint4 = 11,
  kUint8 = 12,
  kUint16 = 13,
  kUint32 = 14,
  kUint64 = 15,
  kFloat16 = 16,
  kBfloat16 = 17,
  kFloat32 = 18,
  kFloat64 = 19,
  kFloat8E4m3fn = 20,
  kFloat8E5m2 = 21,
  kFloat8E4m3fnuz = 22,
  kFloat8E5m2fnuz = 23,
  kFloat8E8m0fnu = 24,
  kFloat8E3m4 = 25,
  kFloat8E4m3 = 26,
  kFloat8E4m3b11fnuz = 27,
  kFloat6E2m3fn = 28,
  kFloat6E3m2fn = 29,
  kFloat4E2m1fn = 30,
  kComplex32 = 31,
  kBcomplex32 = 32,
  kComplex64 = 33,
  kComplex128 = 34,
};

// Every element type, in the order of its number; kNone is not among them. The
// result is valid for the life of the program.
CKPTREE_EXPORT std::span<const DType> AllDTypes();

// True for a value that the format defines, kNone excluded. A store of a newer
// engine may have others.
CKPTREE_EXPORT bool IsKnown(DType dtype);

// "float32", "bfloat16", "float8_e4m3fn", ...; "none" for kNone.
CKPTREE_EXPORT std::string_view Name(DType dtype);

// Bits of one element: 1, 2, 4, 6, 8 ... 128. 0 for kNone. Complex elements
// count both parts.
CKPTREE_EXPORT int BitWidth(DType dtype);

// Types below 8 bits are stored one element per byte (as NumPy and JAX hold
// them) unless the array is marked packed; then elements follow each other
// without gaps, the first in the lowest bits, and rows are not aligned.
CKPTREE_EXPORT bool IsSubByte(DType dtype);

CKPTREE_EXPORT bool IsComplex(DType dtype);

// Bytes of an array with `shape` (row-major), or nothing where a dimension is
// negative, there are more than 64, the dtype is unknown, or the product
// exceeds 2^56. A shape with a zero gives 0; an empty shape is one element.
// `packed` REQUIRES IsSubByte(dtype).
CKPTREE_EXPORT std::optional<std::int64_t> ArrayBytes(
    DType dtype, bool packed, std::span<const std::int64_t> shape);

// The product of the dimensions under the same checks: 1 for an empty shape, 0
// where a dimension is 0.
CKPTREE_EXPORT std::optional<std::int64_t> ElementCount(
    std::span<const std::int64_t> shape);

}  // namespace ckptree

#endif  // CKPTREE_DTYPE_H_
