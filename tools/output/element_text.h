// SPDX-License-Identifier: Apache-2.0

// One element of an array of any type, as text.

#ifndef CKPTREE_TOOLS_OUTPUT_ELEMENT_TEXT_H_
#define CKPTREE_TOOLS_OUTPUT_ELEMENT_TEXT_H_

#include <complex>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ckptree/dtype.h"

namespace ckptree::tools {

// Bytes of an element that is not packed: 1 for types below 8 bits.
int ElementBytes(DType dtype);

// The element at `bytes`, ElementBytes(dtype) of them, little-endian, for
// people. Floats of 16 bits and more: the fewest digits that read back as the
// same value of that type; smaller ones: exact. Complex: "1.0+2.0j". bool:
// "true", "false".
std::string ElementText(DType dtype, const std::byte* bytes);

// The same for programs, most of which read every number as a double: floats of
// all types have the fewest digits that read back as the double of their value.
std::string ElementData(DType dtype, const std::byte* bytes);

// ElementData() as a JSON value: NaN and infinities as strings, complex as a
// pair.
std::string ElementJson(DType dtype, const std::byte* bytes);

// The real value of an element of a floating type.
double ElementValue(DType dtype, const std::byte* bytes);

// Of any type but complex ones, which have none: NaN. bool: 0 and 1.
double RealValue(DType dtype, const std::byte* bytes);

// Both parts of an element of a complex type.
std::complex<double> ComplexValue(DType dtype, const std::byte* bytes);

// Elements [first, first + count) of a packed array, one to a byte.
// REQUIRES: IsSubByte(dtype), enough bytes.
std::vector<std::byte> Unpack(DType dtype, std::span<const std::byte> packed,
                              std::int64_t first, std::int64_t count);

}  // namespace ckptree::tools

#endif  // CKPTREE_TOOLS_OUTPUT_ELEMENT_TEXT_H_
