#include "schema/dtype.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "schema/limits.h"

namespace ckptree::schema {
namespace {

enum class Family { kNothing, kBoolean, kInteger, kReal, kComplexNumber };

struct Row {
  std::string_view name;
  std::string_view short_name;
  int bits;
  Family family;
};

// Indexed by the number of the type.
constexpr std::array<Row, 35> kRows = {{
    {"none", "", 0, Family::kNothing},
    {"bool", "", 8, Family::kBoolean},
    {"int1", "i1", 1, Family::kInteger},
    {"int2", "i2", 2, Family::kInteger},
    {"int4", "i4", 4, Family::kInteger},
    {"int8", "i8", 8, Family::kInteger},
    {"int16", "i16", 16, Family::kInteger},
    {"int32", "i32", 32, Family::kInteger},
    {"int64", "i64", 64, Family::kInteger},
    {"uint1", "u1", 1, Family::kInteger},
    {"uint2", "u2", 2, Family::kInteger},
    {"uint4", "u4", 4, Family::kInteger},
    {"uint8", "u8", 8, Family::kInteger},
    {"uint16", "u16", 16, Family::kInteger},
    {"uint32", "u32", 32, Family::kInteger},
    {"uint64", "u64", 64, Family::kInteger},
    {"float16", "f16", 16, Family::kReal},
    {"bfloat16", "bf16", 16, Family::kReal},
    {"float32", "f32", 32, Family::kReal},
    {"float64", "f64", 64, Family::kReal},
    {"float8_e4m3fn", "f8e4m3fn", 8, Family::kReal},
    {"float8_e5m2", "f8e5m2", 8, Family::kReal},
    {"float8_e4m3fnuz", "f8e4m3fnuz", 8, Family::kReal},
    {"float8_e5m2fnuz", "f8e5m2fnuz", 8, Family::kReal},
    {"float8_e8m0fnu", "f8e8m0fnu", 8, Family::kReal},
    {"float8_e3m4", "f8e3m4", 8, Family::kReal},
    {"float8_e4m3", "f8e4m3", 8, Family::kReal},
    {"float8_e4m3b11fnuz", "f8e4m3b11fnuz", 8, Family::kReal},
    {"float6_e2m3fn", "f6e2m3fn", 6, Family::kReal},
    {"float6_e3m2fn", "f6e3m2fn", 6, Family::kReal},
    {"float4_e2m1fn", "f4e2m1fn", 4, Family::kReal},
    {"complex32", "c32", 32, Family::kComplexNumber},
    {"bcomplex32", "bc32", 32, Family::kComplexNumber},
    {"complex64", "c64", 64, Family::kComplexNumber},
    {"complex128", "c128", 128, Family::kComplexNumber},
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

std::optional<DType> ParseDType(std::string_view name) {
  if (name.empty()) return std::nullopt;
  for (std::size_t i = 0; i < kRows.size(); ++i) {
    if (name == kRows[i].name || name == kRows[i].short_name) {
      return static_cast<DType>(i);
    }
  }
  return std::nullopt;
}

int BitWidth(DType dtype) { return RowOf(dtype).bits; }

bool IsSubByte(DType dtype) {
  const int bits = BitWidth(dtype);
  return bits > 0 && bits < 8;
}

bool IsFloating(DType dtype) { return RowOf(dtype).family == Family::kReal; }

bool IsComplex(DType dtype) {
  return RowOf(dtype).family == Family::kComplexNumber;
}

bool IsInteger(DType dtype) { return RowOf(dtype).family == Family::kInteger; }

std::optional<std::int64_t> ElementCount(std::span<const std::int64_t> shape) {
  if (shape.size() > static_cast<std::size_t>(kMaxDims)) return std::nullopt;
  bool empty = false;
  for (const std::int64_t dim : shape) {
    if (dim < 0) return std::nullopt;
    if (dim == 0) empty = true;
  }
  // Also where the other dimensions are too large for any product.
  if (empty) return 0;
  std::int64_t count = 1;
  for (const std::int64_t dim : shape) {
    if (dim > kMaxArrayBytes / count) return std::nullopt;
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
  if (*count > kMaxArrayBytes / bytes) return std::nullopt;
  return *count * bytes;
}

}  // namespace ckptree::schema
