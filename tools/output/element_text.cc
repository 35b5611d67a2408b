// SPDX-License-Identifier: Apache-2.0

#include "tools/output/element_text.h"

#include <cmath>
#include <complex>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "ckptree/dtype.h"
#include "tools/output/decimal.h"

namespace ckptree::tools {
namespace {

// How a small floating type spends its bits, and what its odd codes mean.
struct FloatFormat {
  enum class Special {
    kIeee,      // All ones in the exponent: infinity and NaN.
    kOnesNan,   // All ones everywhere: NaN; no infinity.
    kMinusNan,  // Minus zero: NaN; no infinity.
    kNone,      // Every code is a number.
  };
  int exponent_bits;
  int mantissa_bits;
  int bias;
  Special special;
};

std::optional<FloatFormat> SmallFloat(DType dtype) {
  using Special = FloatFormat::Special;
  switch (dtype) {
    case DType::kFloat16:
    case DType::kComplex32:
      return FloatFormat{5, 10, 15, Special::kIeee};
    case DType::kBfloat16:
    case DType::kBcomplex32:
      return FloatFormat{8, 7, 127, Special::kIeee};
    case DType::kFloat8E4m3fn:
      return FloatFormat{4, 3, 7, Special::kOnesNan};
    case DType::kFloat8E5m2:
      return FloatFormat{5, 2, 15, Special::kIeee};
    case DType::kFloat8E4m3fnuz:
      return FloatFormat{4, 3, 8, Special::kMinusNan};
    case DType::kFloat8E5m2fnuz:
      return FloatFormat{5, 2, 16, Special::kMinusNan};
    case DType::kFloat8E3m4:
      return FloatFormat{3, 4, 3, Special::kIeee};
    case DType::kFloat8E4m3:
      return FloatFormat{4, 3, 7, Special::kIeee};
    case DType::kFloat8E4m3b11fnuz:
      return FloatFormat{4, 3, 11, Special::kMinusNan};
    case DType::kFloat6E2m3fn:
      return FloatFormat{2, 3, 1, Special::kNone};
    case DType::kFloat6E3m2fn:
      return FloatFormat{3, 2, 3, Special::kNone};
    case DType::kFloat4E2m1fn:
      return FloatFormat{2, 1, 1, Special::kNone};
    default:
      return std::nullopt;
  }
}

double DecodeSmall(const FloatFormat& format, std::uint32_t bits) {
  using Special = FloatFormat::Special;
  const int e_bits = format.exponent_bits;
  const int m_bits = format.mantissa_bits;
  const std::uint32_t sign = (bits >> (e_bits + m_bits)) & 1;
  const std::uint32_t e_ones = (1u << e_bits) - 1;
  const std::uint32_t m_ones = (1u << m_bits) - 1;
  const std::uint32_t exponent = (bits >> m_bits) & e_ones;
  const std::uint32_t mantissa = bits & m_ones;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  if (format.special == Special::kIeee && exponent == e_ones) {
    if (mantissa != 0) return nan;
    const double inf = std::numeric_limits<double>::infinity();
    return sign != 0 ? -inf : inf;
  }
  if (format.special == Special::kOnesNan && exponent == e_ones &&
      mantissa == m_ones) {
    return nan;
  }
  if (format.special == Special::kMinusNan && sign != 0 && exponent == 0 &&
      mantissa == 0) {
    return nan;
  }
  double value = 0;
  if (exponent == 0) {
    value = std::ldexp(mantissa, 1 - format.bias - m_bits);
  } else {
    value = std::ldexp(mantissa + (1u << m_bits),
                       static_cast<int>(exponent) - format.bias - m_bits);
  }
  return sign != 0 ? -value : value;
}

// The fewest digits that a 16-bit type rounds back to the same code.
std::string Text16(const FloatFormat& format, std::uint32_t bits) {
  const double value = DecodeSmall(format, bits);
  if (!std::isfinite(value) || value == 0) return DecimalText(value);
  const std::uint32_t magnitude = bits & 0x7fffu;
  const double size = std::fabs(value);
  const double below = DecodeSmall(format, magnitude - 1);
  double above = DecodeSmall(format, magnitude + 1);
  if (!std::isfinite(above)) above = size + (size - below);
  const std::string text =
      DecimalTextBetween(size, (below + size) / 2, (size + above) / 2);
  return value < 0 ? "-" + text : text;
}

template <typename T>
T Load(const std::byte* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

std::int64_t SignExtend(std::uint32_t bits, int width) {
  const std::uint32_t mask = (1u << width) - 1;
  const std::uint32_t top = 1u << (width - 1);
  const auto value = static_cast<std::int64_t>(bits & mask);
  return (bits & top) != 0 ? value - (std::int64_t{1} << width) : value;
}

double PartValue(DType dtype, const std::byte* bytes) {
  switch (dtype) {
    case DType::kComplex64:
      return Load<float>(bytes);
    case DType::kComplex128:
      return Load<double>(bytes);
    default:
      return DecodeSmall(*SmallFloat(dtype), Load<std::uint16_t>(bytes));
  }
}

// The two numbers of a complex element.
std::string PartText(DType dtype, const std::byte* bytes) {
  switch (dtype) {
    case DType::kComplex64:
      return DecimalText(Load<float>(bytes));
    case DType::kComplex128:
      return DecimalText(Load<double>(bytes));
    default:
      return Text16(*SmallFloat(dtype), Load<std::uint16_t>(bytes));
  }
}

std::string PartData(DType dtype, const std::byte* bytes) {
  return DecimalText(PartValue(dtype, bytes));
}

std::string ComplexText(const std::string& real, const std::string& imaginary) {
  const char* plus = imaginary[0] == '-' ? "" : "+";
  return absl::StrCat(real, plus, imaginary, "j");
}

std::string JsonNumber(const std::string& text) {
  if (text == "nan") return "\"NaN\"";
  if (text == "inf") return "\"Infinity\"";
  if (text == "-inf") return "\"-Infinity\"";
  return text;
}

}  // namespace

int ElementBytes(DType dtype) {
  return IsSubByte(dtype) ? 1 : BitWidth(dtype) / 8;
}

double ElementValue(DType dtype, const std::byte* bytes) {
  switch (dtype) {
    case DType::kFloat32:
      return Load<float>(bytes);
    case DType::kFloat64:
      return Load<double>(bytes);
    case DType::kFloat8E8m0fnu: {
      const int code = std::to_integer<int>(bytes[0]);
      if (code == 0xff) return std::numeric_limits<double>::quiet_NaN();
      return std::ldexp(1.0, code - 127);
    }
    default:
      break;
  }
  const std::optional<FloatFormat> format = SmallFloat(dtype);
  if (!format) return std::numeric_limits<double>::quiet_NaN();
  const std::uint32_t bits = ElementBytes(dtype) == 1
                                 ? std::to_integer<std::uint32_t>(bytes[0])
                                 : Load<std::uint16_t>(bytes);
  return DecodeSmall(*format, bits);
}

double RealValue(DType dtype, const std::byte* bytes) {
  const auto byte = std::to_integer<std::uint32_t>(bytes[0]);
  switch (dtype) {
    case DType::kBool:
      return byte != 0 ? 1 : 0;
    case DType::kInt1:
    case DType::kInt2:
    case DType::kInt4:
      return static_cast<double>(SignExtend(byte, BitWidth(dtype)));
    case DType::kUint1:
    case DType::kUint2:
    case DType::kUint4:
      return byte & ((1u << BitWidth(dtype)) - 1);
    case DType::kInt8:
      return Load<std::int8_t>(bytes);
    case DType::kInt16:
      return Load<std::int16_t>(bytes);
    case DType::kInt32:
      return Load<std::int32_t>(bytes);
    case DType::kInt64:
      return static_cast<double>(Load<std::int64_t>(bytes));
    case DType::kUint8:
      return Load<std::uint8_t>(bytes);
    case DType::kUint16:
      return Load<std::uint16_t>(bytes);
    case DType::kUint32:
      return Load<std::uint32_t>(bytes);
    case DType::kUint64:
      return static_cast<double>(Load<std::uint64_t>(bytes));
    default:
      return ElementValue(dtype, bytes);
  }
}

std::complex<double> ComplexValue(DType dtype, const std::byte* bytes) {
  return {PartValue(dtype, bytes),
          PartValue(dtype, bytes + ElementBytes(dtype) / 2)};
}

std::string ElementText(DType dtype, const std::byte* bytes) {
  const auto byte = std::to_integer<std::uint32_t>(bytes[0]);
  switch (dtype) {
    case DType::kNone:
      return "";
    case DType::kBool:
      return byte != 0 ? "true" : "false";
    case DType::kInt1:
    case DType::kInt2:
    case DType::kInt4:
      return absl::StrCat(SignExtend(byte, BitWidth(dtype)));
    case DType::kUint1:
    case DType::kUint2:
    case DType::kUint4:
      return absl::StrCat(byte & ((1u << BitWidth(dtype)) - 1));
    case DType::kInt8:
      return absl::StrCat(Load<std::int8_t>(bytes));
    case DType::kInt16:
      return absl::StrCat(Load<std::int16_t>(bytes));
    case DType::kInt32:
      return absl::StrCat(Load<std::int32_t>(bytes));
    case DType::kInt64:
      return absl::StrCat(Load<std::int64_t>(bytes));
    case DType::kUint8:
      return absl::StrCat(byte);
    case DType::kUint16:
      return absl::StrCat(Load<std::uint16_t>(bytes));
    case DType::kUint32:
      return absl::StrCat(Load<std::uint32_t>(bytes));
    case DType::kUint64:
      return absl::StrCat(Load<std::uint64_t>(bytes));
    case DType::kFloat16:
    case DType::kBfloat16:
      return Text16(*SmallFloat(dtype), Load<std::uint16_t>(bytes));
    case DType::kFloat32:
      return DecimalText(Load<float>(bytes));
    case DType::kFloat64:
      return DecimalText(Load<double>(bytes));
    case DType::kFloat8E4m3fn:
    case DType::kFloat8E5m2:
    case DType::kFloat8E4m3fnuz:
    case DType::kFloat8E5m2fnuz:
    case DType::kFloat8E8m0fnu:
    case DType::kFloat8E3m4:
    case DType::kFloat8E4m3:
    case DType::kFloat8E4m3b11fnuz:
    case DType::kFloat6E2m3fn:
    case DType::kFloat6E3m2fn:
    case DType::kFloat4E2m1fn:
      return DecimalText(static_cast<float>(ElementValue(dtype, bytes)));
    case DType::kComplex32:
    case DType::kBcomplex32:
    case DType::kComplex64:
    case DType::kComplex128:
      return ComplexText(PartText(dtype, bytes),
                         PartText(dtype, bytes + ElementBytes(dtype) / 2));
  }
  return "?";
}

std::string ElementData(DType dtype, const std::byte* bytes) {
  if (IsComplex(dtype)) {
    return ComplexText(PartData(dtype, bytes),
                       PartData(dtype, bytes + ElementBytes(dtype) / 2));
  }
  const bool is_float = dtype == DType::kFloat32 ||
                        dtype == DType::kFloat8E8m0fnu ||
                        SmallFloat(dtype).has_value();
  return is_float ? DecimalText(ElementValue(dtype, bytes))
                  : ElementText(dtype, bytes);
}

std::string ElementJson(DType dtype, const std::byte* bytes) {
  if (IsComplex(dtype)) {
    return absl::StrCat(
        "[", JsonNumber(PartData(dtype, bytes)), ",",
        JsonNumber(PartData(dtype, bytes + ElementBytes(dtype) / 2)), "]");
  }
  return JsonNumber(ElementData(dtype, bytes));
}

std::vector<std::byte> Unpack(DType dtype, std::span<const std::byte> packed,
                              std::int64_t first, std::int64_t count) {
  const int width = BitWidth(dtype);
  const std::uint32_t mask = (1u << width) - 1;
  std::vector<std::byte> out(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t bit = (first + i) * width;
    const auto at = static_cast<std::size_t>(bit / 8);
    std::uint32_t two = std::to_integer<std::uint32_t>(packed[at]);
    if (at + 1 < packed.size()) {
      two |= std::to_integer<std::uint32_t>(packed[at + 1]) << 8;
    }
    out[static_cast<std::size_t>(i)] =
        static_cast<std::byte>((two >> (bit % 8)) & mask);
  }
  return out;
}

}  // namespace ckptree::tools
