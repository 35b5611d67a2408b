// SPDX-License-Identifier: Apache-2.0

#include "ckptree/dtype.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "schema/limits.h"

namespace ckptree {
namespace {

struct Row {
  std::string_view name;
  int bits;
  bool complex = false;
};

// Indexed by the number of the type.
constexpr std::array<Row, 35> kRows = {{
    {"none", 0},
    {"bool", 8},
    {"int1", 1},
    {"int2", 2},
    {"int4", 4},
    {"int8", 8},
    {"int16", 16},
    {"int32", 32},
    {"int64", 64},
    {"uint1", 1},
    {"uint2", 2},
    {"uint4", 4},
    {"uint8", 8},
    {"uint16", 16},
    {"uint32", 32},
    {"uint64", 64},
    {"float16", 16},
    {"bfloat16", 16},
    {"float32", 32},
    {"float64", 64},
    {"float8_e4m3fn", 8},
    {"float8_e5m2", 8},
    {"float8_e4m3fnuz", 8},
    {"float8_e5m2fnuz", 8},
    {"float8_e8m0fnu", 8},
    {"float8_e3m4", 8},
    {"float8_e4m3", 8},
    {"float8_e4m3b11fnuz", 8},
    {"float6_e2m3fn", 6},
    {"float6_e3m2fn", 6},
    {"float4_e2m1fn", 4},
    {"complex32", 32, true},
    {"bcomplex32", 32, true},
    {"complex64", 64, true},
    {"complex128", 128, true},
}};

constexpr auto kAll = [] {
  std::array<DType, kRows.size() - 1> all{};
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i] = static_cast<DType>(i + 1);
  }
  return all;
}();

const Row& RowOf(DType dtype) {
  const auto number = static_cast<std::size_t>(dtype);
  return kRows[number < kRows.size() ? number : 0];
}

}  // namespace

std::span<const DType> AllDTypes() { return kAll; }

bool IsKnown(DType dtype) {
  const auto number = static_cast<std::size_t>(dtype);
  return number > 0 && number < kRows.size();
}

std::string_view Name(DType dtype) { return RowOf(dtype).name; }

int BitWidth(DType dtype) { return RowOf(dtype).bits; }

bool IsSubByte(DType dtype) {
  const int bits = BitWidth(dtype);
  return bits > 0 && bits < 8;
}

bool IsComplex(DType dtype) { return RowOf(dtype).complex; }

std::optional<std::int64_t> ElementCount(std::span<const std::int64_t> shape) {
  if (shape.size() > static_cast<std::size_t>(schema::kMaxDims))
    return std::nullopt;
  bool empty = false;
  for (const std::int64_t dim : shape) {
    if (dim < 0) return std::nullopt;
    if (dim == 0) empty = true;
  }
  // Also where the other dimensions are too large for any product.
  if (empty) return 0;
  std::int64_t count = 1;
  for (const std::int64_t dim : shape) {
    if (dim > schema::kMaxArrayBytes / count) return std::nullopt;
    count *= dim;
  }
  return count;
}

std::optional<std::int64_t> ArrayBytes(DType dtype, bool packed,
                                       std::span<const std::int64_t> shape) {
  if (!IsKnown(dtype) || (packed && !IsSubByte(dtype))) return std::nullopt;
  const std::optional<std::int64_t> count = ElementCount(shape);
  if (!count.has_value()) return std::nullopt;
  const std::int64_t bits = BitWidth(dtype);
  if (packed) return (*count * bits + 7) / 8;  // Below 2^59 bits.
  const std::int64_t bytes = bits < 8 ? 1 : bits / 8;
  if (*count > schema::kMaxArrayBytes / bytes) return std::nullopt;
  return *count * bytes;
}

}  // namespace ckptree
