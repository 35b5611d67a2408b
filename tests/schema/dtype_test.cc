// SPDX-License-Identifier: Apache-2.0

#include "ckptree/dtype.h"

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "schema/limits.h"

namespace ckptree::schema {
namespace {

using Shape = std::vector<std::int64_t>;

TEST(DTypeTest, EveryTypeHasItsOwnNameAndNumber) {
  std::set<std::string> names;
  int number = 0;
  for (const DType dtype : AllDTypes()) {
    EXPECT_EQ(static_cast<int>(dtype), ++number);
    EXPECT_TRUE(IsKnown(dtype));
    EXPECT_TRUE(names.emplace(Name(dtype)).second) << Name(dtype);
    EXPECT_GT(BitWidth(dtype), 0);
    EXPECT_EQ(IsSubByte(dtype), BitWidth(dtype) < 8);
  }
  EXPECT_EQ(number, 34);
}

TEST(DTypeTest, NoneAndUnknownAreNotKnown) {
  EXPECT_FALSE(IsKnown(DType::kNone));
  EXPECT_EQ(Name(DType::kNone), "none");
  EXPECT_EQ(BitWidth(DType::kNone), 0);
  EXPECT_FALSE(IsKnown(static_cast<DType>(35)));
  EXPECT_FALSE(IsKnown(static_cast<DType>(255)));
  EXPECT_FALSE(IsSubByte(static_cast<DType>(255)));
}

TEST(DTypeTest, Names) {
  EXPECT_EQ(Name(DType::kFloat8E4m3fn), "float8_e4m3fn");
  EXPECT_EQ(Name(DType::kBfloat16), "bfloat16");
}

TEST(DTypeTest, Complex) {
  EXPECT_TRUE(IsComplex(DType::kBcomplex32));
  EXPECT_TRUE(IsComplex(DType::kComplex128));
  EXPECT_FALSE(IsComplex(DType::kFloat64));
}

TEST(DTypeTest, BytesOfArrays) {
  EXPECT_EQ(ArrayBytes(DType::kFloat32, false, Shape{2, 3}), 24);
  EXPECT_EQ(ArrayBytes(DType::kFloat32, false, Shape{}), 4);
  EXPECT_EQ(ArrayBytes(DType::kFloat32, false, Shape{5, 0}), 0);
  EXPECT_EQ(ArrayBytes(DType::kComplex128, false, Shape{3}), 48);
  EXPECT_EQ(ArrayBytes(DType::kInt4, false, Shape{3}), 3);
  EXPECT_EQ(ArrayBytes(DType::kInt4, true, Shape{3}), 2);
  EXPECT_EQ(ArrayBytes(DType::kUint1, true, Shape{3, 3}), 2);
  EXPECT_EQ(ArrayBytes(DType::kFloat6E2m3fn, true, Shape{4}), 3);
}

TEST(DTypeTest, RefusesWhatBreaksALimit) {
  const std::int64_t most = kMaxArrayBytes;
  EXPECT_EQ(ArrayBytes(DType::kUint8, false, Shape{most}), most);
  EXPECT_EQ(ArrayBytes(DType::kUint8, false, Shape{most + 1}), std::nullopt);
  EXPECT_EQ(ArrayBytes(DType::kUint16, false, Shape{most}), std::nullopt);
  EXPECT_EQ(ArrayBytes(DType::kUint8, false, Shape{-1}), std::nullopt);
  EXPECT_EQ(ArrayBytes(DType::kUint8, false, Shape{INT64_MAX, INT64_MAX}),
            std::nullopt);
  EXPECT_EQ(ArrayBytes(DType::kUint8, false, Shape{0, -1}), std::nullopt);
  EXPECT_EQ(ArrayBytes(DType::kUint8, false, Shape(64, 1)), 1);
  EXPECT_EQ(ArrayBytes(DType::kUint8, false, Shape(65, 1)), std::nullopt);
  EXPECT_EQ(ArrayBytes(DType::kNone, false, Shape{1}), std::nullopt);
  EXPECT_EQ(ArrayBytes(static_cast<DType>(99), false, Shape{1}), std::nullopt);
  EXPECT_EQ(ArrayBytes(DType::kUint8, true, Shape{1}), std::nullopt);
  constexpr std::int64_t kLarge = std::int64_t{1} << 40;
  EXPECT_EQ(ElementCount(Shape{kLarge, kLarge, 0}), 0);
}

}  // namespace
}  // namespace ckptree::schema
