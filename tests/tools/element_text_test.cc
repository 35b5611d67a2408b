// SPDX-License-Identifier: Apache-2.0

#include "tools/output/element_text.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/output/array_text.h"
#include "tools/output/decimal.h"
#include "tools/output/npy.h"
#include "tools/output/safetensors.h"

namespace ckptree::tools {
namespace {

// Text of the element whose bits are `low` (and `high` above 64 bits).
std::string Text(DType dtype, std::uint64_t low, std::uint64_t high = 0) {
  std::array<std::byte, 16> bytes;
  std::memcpy(bytes.data(), &low, 8);
  std::memcpy(bytes.data() + 8, &high, 8);
  return ElementText(dtype, bytes.data());
}

struct Known {
  DType dtype;
  std::uint64_t bits;
  const char* text;
};

// Codes and values from the definitions of the types (IEEE 754, the OCP
// formats for 8, 6 and 4 bits, the fnuz variants).
TEST(ElementTextTest, DecodesEveryType) {
  const std::vector<Known> known = {
      {DType::kBool, 1, "true"},
      {DType::kBool, 0, "false"},
      {DType::kInt1, 1, "-1"},
      {DType::kInt1, 0, "0"},
      {DType::kInt2, 2, "-2"},
      {DType::kInt2, 0xff, "-1"},
      {DType::kInt4, 7, "7"},
      {DType::kInt4, 8, "-8"},
      {DType::kInt4, 0xf8, "-8"},
      {DType::kInt8, 0x80, "-128"},
      {DType::kInt16, 0x8000, "-32768"},
      {DType::kInt32, 0x80000000u, "-2147483648"},
      {DType::kInt64, 0x8000000000000000u, "-9223372036854775808"},
      {DType::kUint1, 0xff, "1"},
      {DType::kUint2, 3, "3"},
      {DType::kUint4, 15, "15"},
      {DType::kUint8, 255, "255"},
      {DType::kUint16, 65535, "65535"},
      {DType::kUint32, 4294967295u, "4294967295"},
      {DType::kUint64, ~0ull, "18446744073709551615"},
      {DType::kFloat16, 0x3c00, "1.0"},
      {DType::kFloat16, 0x2e66, "0.1"},
      {DType::kFloat16, 0x0001, "6e-08"},
      {DType::kFloat16, 0x7bff, "65500.0"},
      {DType::kFloat16, 0xfc00, "-inf"},
      {DType::kFloat16, 0x7e00, "nan"},
      {DType::kFloat16, 0x8000, "-0.0"},
      {DType::kBfloat16, 0x3f80, "1.0"},
      {DType::kBfloat16, 0x3dcd, "0.1"},
      {DType::kBfloat16, 0xc049, "-3.14"},
      {DType::kBfloat16, 0x7f80, "inf"},
      {DType::kBfloat16, 0x7fc0, "nan"},
      {DType::kFloat32, 0x3dcccccd, "0.1"},
      {DType::kFloat32, 0x00000001, "1e-45"},
      {DType::kFloat32, 0x7f7fffff, "3.4028235e+38"},
      {DType::kFloat64, 0x3fb999999999999au, "0.1"},
      {DType::kFloat64, 0x4341c37937e08000u, "1e+16"},
      {DType::kFloat64, 0x430c6bf526340000u, "1000000000000000.0"},
      {DType::kFloat8E4m3fn, 0x38, "1.0"},
      {DType::kFloat8E4m3fn, 0x7e, "448.0"},
      {DType::kFloat8E4m3fn, 0x7f, "nan"},
      {DType::kFloat8E4m3fn, 0x01, "0.001953125"},
      {DType::kFloat8E4m3fn, 0x80, "-0.0"},
      {DType::kFloat8E5m2, 0x3c, "1.0"},
      {DType::kFloat8E5m2, 0x7b, "57344.0"},
      {DType::kFloat8E5m2, 0x7c, "inf"},
      {DType::kFloat8E5m2, 0xfe, "nan"},
      {DType::kFloat8E4m3fnuz, 0x40, "1.0"},
      {DType::kFloat8E4m3fnuz, 0x7f, "240.0"},
      {DType::kFloat8E4m3fnuz, 0x80, "nan"},
      {DType::kFloat8E5m2fnuz, 0x40, "1.0"},
      {DType::kFloat8E5m2fnuz, 0x7f, "57344.0"},
      {DType::kFloat8E5m2fnuz, 0x80, "nan"},
      {DType::kFloat8E8m0fnu, 127, "1.0"},
      {DType::kFloat8E8m0fnu, 131, "16.0"},
      {DType::kFloat8E8m0fnu, 0, "5.877472e-39"},
      {DType::kFloat8E8m0fnu, 255, "nan"},
      {DType::kFloat8E3m4, 0x30, "1.0"},
      {DType::kFloat8E3m4, 0x6f, "15.5"},
      {DType::kFloat8E3m4, 0x70, "inf"},
      {DType::kFloat8E4m3, 0x38, "1.0"},
      {DType::kFloat8E4m3, 0x77, "240.0"},
      {DType::kFloat8E4m3, 0x78, "inf"},
      {DType::kFloat8E4m3b11fnuz, 0x58, "1.0"},
      {DType::kFloat8E4m3b11fnuz, 0x7f, "30.0"},
      {DType::kFloat8E4m3b11fnuz, 0x80, "nan"},
      {DType::kFloat6E2m3fn, 0x08, "1.0"},
      {DType::kFloat6E2m3fn, 0x1f, "7.5"},
      {DType::kFloat6E2m3fn, 0x3f, "-7.5"},
      {DType::kFloat6E3m2fn, 0x0c, "1.0"},
      {DType::kFloat6E3m2fn, 0x1f, "28.0"},
      {DType::kFloat4E2m1fn, 0x2, "1.0"},
      {DType::kFloat4E2m1fn, 0x1, "0.5"},
      {DType::kFloat4E2m1fn, 0xf, "-6.0"},
      {DType::kComplex32, 0x40003c00, "1.0+2.0j"},
      {DType::kBcomplex32, 0xc0003f80, "1.0-2.0j"},
      {DType::kComplex64, 0x400000003f800000u, "1.0+2.0j"},
  };
  std::set<DType> seen;
  for (const Known& k : known) {
    EXPECT_EQ(Text(k.dtype, k.bits), k.text)
        << Name(k.dtype) << " 0x" << std::hex << k.bits;
    seen.insert(k.dtype);
  }
  EXPECT_EQ(Text(DType::kComplex128, 0x3ff0000000000000u, 0xc000000000000000u),
            "1.0-2.0j");
  seen.insert(DType::kComplex128);
  EXPECT_EQ(seen.size(), AllDTypes().size());
}

// Every 16-bit code is read back from its text: the text lies nearer to it
// than to any other.
TEST(ElementTextTest, SixteenBitTextsReadBack) {
  for (const DType dtype : {DType::kFloat16, DType::kBfloat16}) {
    const auto value_of = [&](std::uint32_t code) {
      const auto bits = static_cast<std::uint16_t>(code);
      return ElementValue(dtype, reinterpret_cast<const std::byte*>(&bits));
    };
    for (std::uint32_t code = 1; code < 0x7fff; ++code) {
      const double value = value_of(code);
      const double above = value_of(code + 1);
      const double below = value_of(code - 1);
      if (!std::isfinite(value)) continue;
      const double read = std::stod(Text(dtype, code));
      ASSERT_GT(read, (below + value) / 2) << std::hex << code;
      if (std::isfinite(above)) {
        ASSERT_LT(read, (value + above) / 2) << std::hex << code;
      }
    }
  }
}

// Programs read a double, whatever the type is.
TEST(ElementTextTest, DataReadsBackAsTheSameDouble) {
  for (const DType dtype : AllDTypes()) {
    const int width = BitWidth(dtype);
    if (width > 16 || IsComplex(dtype) || dtype == DType::kNone) continue;
    for (std::uint32_t code = 0; code < 1u << width; ++code) {
      const auto bits = static_cast<std::uint16_t>(code);
      const auto* const bytes = reinterpret_cast<const std::byte*>(&bits);
      const double value = RealValue(dtype, bytes);
      if (dtype == DType::kBool || !std::isfinite(value)) continue;
      const std::string data = ElementData(dtype, bytes);
      ASSERT_EQ(std::stod(data), value) << Name(dtype) << " " << code;
      ASSERT_EQ(ElementJson(dtype, bytes), data);
    }
  }
  // -48288 as float16, -0.462890625 as bfloat16, 0.1 as float32.
  const std::uint16_t half = 0xf9e5, brain = 0xbeed;
  const float single = 0.1f;
  const auto csv = [](DType dtype, const auto& value) {
    return ArrayRows(dtype, {1}, std::as_bytes(std::span(&value, 1)), ',');
  };
  EXPECT_EQ(csv(DType::kFloat16, half), "-48288.0\n");
  EXPECT_EQ(csv(DType::kBfloat16, brain), "-0.462890625\n");
  EXPECT_EQ(csv(DType::kFloat32, single), "0.10000000149011612\n");
  const std::uint16_t parts[] = {half, 0x3c00};
  EXPECT_EQ(csv(DType::kComplex32, parts), "-48288.0+1.0j\n");
  EXPECT_EQ(ArrayJson(DType::kComplex32, {1}, std::as_bytes(std::span(parts))),
            "[[-48288.0,1.0]]");
  EXPECT_EQ(Text(DType::kFloat16, half), "-48300.0");  // For people.
}

TEST(ElementTextTest, JsonHasNoBareNan) {
  const float values[] = {1.5f, NAN, INFINITY, -INFINITY};
  const auto bytes = std::as_bytes(std::span(values));
  EXPECT_EQ(ArrayJson(DType::kFloat32, {2, 2}, bytes),
            R"([[1.5,"NaN"],["Infinity","-Infinity"]])");
  EXPECT_EQ(ArrayJson(DType::kComplex64, {2}, bytes),
            R"([[1.5,"NaN"],["Infinity","-Infinity"]])");
}

TEST(ElementTextTest, UnpacksFromTheLowestBits) {
  const std::array<std::byte, 3> bytes = {std::byte{0x21}, std::byte{0x43},
                                          std::byte{0x65}};
  const auto numbers = [&](DType dtype, std::int64_t first,
                           std::int64_t count) {
    std::vector<int> result;
    for (std::byte b : Unpack(dtype, bytes, first, count)) {
      result.push_back(std::to_integer<int>(b));
    }
    return result;
  };
  EXPECT_THAT(numbers(DType::kUint4, 0, 6),
              ::testing::ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(numbers(DType::kUint4, 3, 2), ::testing::ElementsAre(4, 5));
  EXPECT_THAT(numbers(DType::kUint1, 0, 8),
              ::testing::ElementsAre(1, 0, 0, 0, 0, 1, 0, 0));
  // 0x654321 in groups of six bits, the lowest first.
  EXPECT_THAT(numbers(DType::kFloat6E2m3fn, 0, 4),
              ::testing::ElementsAre(0x21, 0x0c, 0x14, 0x19));
}

TEST(ArrayTextTest, LooksAsNumPyPrints) {
  const std::int32_t values[] = {1, -20, 300, 4, 5, 6, 7, 8};
  const auto bytes = std::as_bytes(std::span(values));
  EXPECT_EQ(ArrayText(DType::kInt32, {8}, {8}, bytes, 75),
            "[  1 -20 300   4   5   6   7   8]");
  EXPECT_EQ(ArrayText(DType::kInt32, {2, 4}, {2, 4}, bytes, 75),
            "[[  1 -20 300   4]\n [  5   6   7   8]]");
  EXPECT_EQ(ArrayText(DType::kInt32, {2, 2, 2}, {2, 2, 2}, bytes, 75),
            "[[[  1 -20]\n  [300   4]]\n\n [[  5   6]\n  [  7   8]]]");
  EXPECT_EQ(ArrayText(DType::kInt32, {}, {}, bytes.first(4), 75), "1");
  EXPECT_EQ(ArrayText(DType::kInt32, {0, 3}, {0, 3}, {}, 75), "[]");
  EXPECT_EQ(ArrayText(DType::kInt32, {2000}, {6}, bytes.first(24), 75),
            "[  1 -20 300 ...   4   5   6]");
  EXPECT_EQ(ArrayText(DType::kInt32, {8}, {8}, bytes, 20),
            "[  1 -20 300   4\n   5   6   7   8]");
}

TEST(ArrayTextTest, RowsOfAtMostTwoDimensions) {
  const std::int16_t values[] = {1, 2, 3, 4, 5, 6};
  const auto bytes = std::as_bytes(std::span(values));
  EXPECT_EQ(ArrayRows(DType::kInt16, {2, 3}, bytes, ','), "1,2,3\n4,5,6\n");
  EXPECT_EQ(ArrayRows(DType::kInt16, {6}, bytes, '\t'), "1\n2\n3\n4\n5\n6\n");
}

TEST(NpyTest, HeaderIsByteForByteNumPys) {
  const std::string header = NpyHeader(DType::kFloat32, {3, 4});
  EXPECT_EQ(header.size(), 128u);
  EXPECT_EQ(header.substr(0, 10), std::string("\x93NUMPY\x01\x00\x76\x00", 10));
  EXPECT_EQ(header.substr(10, 59),
            "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }");
  EXPECT_EQ(header.find_first_not_of(' ', 69), 127u);
  EXPECT_EQ(header.back(), '\n');
}

TEST(NpyTest, ShapesOfNoAndOneDimension) {
  EXPECT_THAT(NpyHeader(DType::kInt64, {}), ::testing::HasSubstr("(), }"));
  EXPECT_THAT(NpyHeader(DType::kInt64, {7}), ::testing::HasSubstr("(7,), }"));
  EXPECT_EQ(NpyHeader(DType::kInt64, Shape(64, 1000000000000)).size() % 64, 0u);
}

TEST(NpyTest, DescriptionsOfTypesThatNumPyHasAndLacks) {
  EXPECT_EQ(NpyDescr(DType::kBool), "|b1");
  EXPECT_EQ(NpyDescr(DType::kInt8), "|i1");
  EXPECT_EQ(NpyDescr(DType::kUint64), "<u8");
  EXPECT_EQ(NpyDescr(DType::kFloat16), "<f2");
  EXPECT_EQ(NpyDescr(DType::kComplex128), "<c16");
  EXPECT_EQ(NpyDescr(DType::kBfloat16), "<V2");
  EXPECT_EQ(NpyDescr(DType::kFloat8E4m3fn), "|V1");
  EXPECT_EQ(NpyDescr(DType::kInt4), "|V1");
}

TEST(DecimalTextTest, OfIntegersOfAnySize) {
  const auto text = [](std::initializer_list<int> bytes) {
    std::vector<std::byte> integer;
    for (const int byte : bytes) integer.push_back(std::byte(byte));
    return DecimalText(std::span<const std::byte>(integer));
  };
  EXPECT_EQ(text({}), "0");
  EXPECT_EQ(text({0, 0}), "0");
  EXPECT_EQ(text({0xff}), "-1");
  EXPECT_EQ(text({0x80}), "-128");
  EXPECT_EQ(text({0x00, 0xca, 0x9a, 0x3b}), "1000000000");
  EXPECT_EQ(text({0x00, 0x36, 0x65, 0xc4}), "-1000000000");
  EXPECT_EQ(text({0, 0, 0, 0, 0, 0, 0, 0, 64}), "1180591620717411303424");
  EXPECT_EQ(text({0, 0, 0, 0, 0, 0, 0, 0, 0x80}), "-2361183241434822606848");
  // Parts in between that are nothing but zeros.
  EXPECT_EQ(text({0, 0, 0, 0, 0x10, 0x9f, 0x4b, 0xb3, 0x15, 0x07, 0xc9, 0x7b,
                  0xce, 0x97, 0xc0, 0}),
            "1000000000000000000000000000000000000");
}

TEST(SafetensorsTest, HeaderIsPaddedToEightBytes) {
  const std::string header = SafetensorsHeader(
      {{"a", DType::kFloat32, {2, 3}, 24}, {"b", DType::kBfloat16, {}, 2}},
      {{"k", "v"}});
  EXPECT_EQ(header.size() % 8, 0u);
  EXPECT_EQ(static_cast<unsigned char>(header[0]), header.size() - 8);
  EXPECT_THAT(header,
              ::testing::HasSubstr(
                  R"({"__metadata__":{"k":"v"},"a":{"dtype":"F32","shape":)"
                  R"([2,3],"data_offsets":[0,24]},"b":{"dtype":"BF16",)"
                  R"("shape":[],"data_offsets":[24,26]}})"));
}

TEST(SafetensorsTest, NamesAreJoinedByDots) {
  EXPECT_EQ(DottedName(Path().Key("layers").Index(0).Attribute("weight")),
            "layers.0.weight");
}

}  // namespace
}  // namespace ckptree::tools
