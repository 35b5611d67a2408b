// SPDX-License-Identifier: Apache-2.0

#include "tools/output/slice.h"

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testutil/status_matchers.h"
#include "tools/line/address.h"
#include "tools/output/failure.h"

namespace ckptree::tools {
namespace {

using ckptree::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// What `slice` picks of the numbers 0, 1, 2, ... in an array of `shape`, read
// as the command does: the covering box, then the elements in it.
std::vector<std::int32_t> Pick(const std::string& slice, const Shape& shape) {
  const auto items = ParseSlice(slice);
  EXPECT_OK(items);
  const auto selection = Select(*items, shape);
  EXPECT_OK(selection);
  const BoxSpec box = CoveringBox(*selection);
  std::vector<std::int32_t> inside;
  Shape index(shape.size(), 0);
  std::int64_t count = 1;
  for (std::int64_t size : box.shape) count *= size;
  for (std::int64_t i = 0; i < count; ++i) {
    std::int64_t at = 0;
    for (std::size_t d = 0; d < shape.size(); ++d) {
      at = at * shape[d] + box.start[d] + index[d];
    }
    inside.push_back(static_cast<std::int32_t>(at));
    for (std::size_t d = shape.size(); d-- > 0;) {
      if (++index[d] < box.shape[d]) break;
      index[d] = 0;
    }
  }
  std::vector<std::int32_t> out(
      static_cast<std::size_t>(SelectedCount(*selection)));
  Gather(*selection, 4, std::as_bytes(std::span(inside)),
         std::as_writable_bytes(std::span(out)));
  return out;
}

Shape PickedShape(const std::string& slice, const Shape& shape) {
  const auto items = ParseSlice(slice);
  EXPECT_OK(items);
  const auto selection = Select(*items, shape);
  EXPECT_OK(selection);
  return ResultShape(*selection);
}

TEST(SliceTest, ParsesEveryForm) {
  ASSERT_OK_AND_ASSIGN(const auto items,
                       ParseSlice("[0:10, ::2, -1, ..., 5:, :-3:-1]"));
  ASSERT_EQ(items.size(), 6u);
  EXPECT_EQ(items[0], (SliceItem{SliceItem::Kind::kRange, 0, 0, 10, 1}));
  EXPECT_EQ(items[1], (SliceItem{SliceItem::Kind::kRange, 0, {}, {}, 2}));
  EXPECT_EQ(items[2], (SliceItem{SliceItem::Kind::kIndex, -1, {}, {}, 1}));
  EXPECT_EQ(items[3].kind, SliceItem::Kind::kEllipsis);
  EXPECT_EQ(items[4], (SliceItem{SliceItem::Kind::kRange, 0, 5, {}, 1}));
  EXPECT_EQ(items[5], (SliceItem{SliceItem::Kind::kRange, 0, {}, -3, -1}));
}

TEST(SliceTest, BracketsBehindAKeyThatIsThereAreMeantAsASlice) {
  const auto is_key = [](std::string_view text) {
    return text == "w" || text == "opt/[0]";
  };
  for (const char* text : {"w[None]", "w[a]", "w[0][1]", "opt/[0][x]",
                           "w[\x1b]", "w[1.5e]", "w[[0]]"}) {
    const absl::Status status = WrongSliceOf(text, is_key);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << text << status;
    EXPECT_EQ(status.message().find('\x1b'), absl::string_view::npos);
  }
  for (const char* text :
       {"v[None]", "w", "opt/[0]", "[None]", "", "]", "w[0"}) {
    EXPECT_OK(WrongSliceOf(text, is_key)) << text;
  }
}

TEST(SliceTest, RefusesWhatIsNoSlice) {
  for (const char* text :
       {"", "[", "[]", "[ ]", "3", "[a]", "[1:2:3:4]", "[1,,2]", "[.., 1]",
        "[1.5]", "[99999999999999999999]", "[-9223372036854775808]", "[--1]"}) {
    EXPECT_THAT(ParseSlice(text), StatusIs(absl::StatusCode::kInvalidArgument))
        << text;
  }
  EXPECT_THAT(ParseSlice("[::0]"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("step")));
  EXPECT_THAT(ParseSlice("[..., ...]"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("one")));
}

TEST(SliceTest, PicksWhatNumPyPicks) {
  EXPECT_THAT(Pick("[2:5]", {8}), ElementsAre(2, 3, 4));
  EXPECT_THAT(Pick("[-3:]", {8}), ElementsAre(5, 6, 7));
  EXPECT_THAT(Pick("[::3]", {8}), ElementsAre(0, 3, 6));
  EXPECT_THAT(Pick("[::-3]", {8}), ElementsAre(7, 4, 1));
  EXPECT_THAT(Pick("[6:1:-2]", {8}), ElementsAre(6, 4, 2));
  EXPECT_THAT(Pick("[:-100:-1]", {3}), ElementsAre(2, 1, 0));
  EXPECT_THAT(Pick("[100:]", {3}), IsEmpty());
  EXPECT_THAT(Pick("[-100:100]", {3}), ElementsAre(0, 1, 2));
  EXPECT_THAT(Pick("[5:2]", {8}), IsEmpty());
  EXPECT_THAT(Pick("[:]", {0}), IsEmpty());
  EXPECT_THAT(Pick("[1]", {2, 3}), ElementsAre(3, 4, 5));
  EXPECT_THAT(Pick("[:, -1]", {2, 3}), ElementsAre(2, 5));
  EXPECT_THAT(Pick("[..., 0]", {2, 2, 2}), ElementsAre(0, 2, 4, 6));
  EXPECT_THAT(Pick("[0, ..., 1]", {2, 2, 2}), ElementsAre(1, 3));
  EXPECT_THAT(Pick("[::-1, ::2]", {2, 3}), ElementsAre(3, 5, 0, 2));
  EXPECT_THAT(Pick("[...]", {}), ElementsAre(0));
}

TEST(SliceTest, IndicesDropTheirDimension) {
  EXPECT_THAT(PickedShape("[0:10, ::2, -1]", {20, 7, 3}), ElementsAre(10, 4));
  EXPECT_THAT(PickedShape("[3]", {4, 5}), ElementsAre(5));
  EXPECT_THAT(PickedShape("[3, 2]", {4, 5}), IsEmpty());
  EXPECT_THAT(PickedShape("[...]", {4, 5}), ElementsAre(4, 5));
  EXPECT_THAT(PickedShape("[0:0]", {4, 5}), ElementsAre(0, 5));
}

TEST(SliceTest, ReadsNoMoreThanTheCoveringBox) {
  ASSERT_OK_AND_ASSIGN(const auto items, ParseSlice("[10:30:5, -1]"));
  ASSERT_OK_AND_ASSIGN(const Selection selection, Select(items, {100, 50}));
  EXPECT_EQ(CoveringBox(selection), (BoxSpec{{10, 49}, {16, 1}}));
}

TEST(SliceTest, NamesIndexAndDimensionThatDoNotFit) {
  ASSERT_OK_AND_ASSIGN(const auto index, ParseSlice("[0, 7]"));
  EXPECT_THAT(Select(index, {4, 7}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("index 7 is outside dimension 1")));
  EXPECT_THAT(Select(index, {4}), StatusIs(absl::StatusCode::kInvalidArgument,
                                           HasSubstr("1 dimensions")));
}

TEST(SliceTest, IsSplitOffOnlyWhereItCanBeOne) {
  const auto split = SplitSlice("params/w[0:3, -1]");
  ASSERT_TRUE(split);
  EXPECT_EQ(split->first, "params/w");
  EXPECT_EQ(split->second, "[0:3, -1]");
  EXPECT_FALSE(SplitSlice("['params']['w']"));
  EXPECT_FALSE(SplitSlice("params/w"));
  EXPECT_FALSE(SplitSlice(""));
}

TEST(AddressTest, SplitsStepAndKey) {
  const auto parsed = [](const std::string& text) {
    const auto address = ParseAddress(text);
    EXPECT_OK(address) << text;
    if (!address.ok()) return std::string("error");
    return Text(address->step) + "|" + address->key;
  };
  EXPECT_EQ(parsed("1200"), "1200|");
  EXPECT_EQ(parsed("1200:a/b[3]"), "1200|a/b[3]");
  EXPECT_EQ(parsed("latest~2:x"), "latest~2|x");
  EXPECT_EQ(parsed(":x"), "latest|x");
  EXPECT_EQ(parsed(""), "latest|");
  EXPECT_EQ(parsed("@v1:x:y"), "@v1|x:y");
  EXPECT_EQ(parsed("best:acc:max:x"), "best:acc:max|x");
  EXPECT_EQ(parsed("best:acc:max"), "best:acc:max|");
  ASSERT_OK_AND_ASSIGN(const Address best,
                       ParseAddress("best:loss:min:maximum"));
  EXPECT_EQ(best.step.name, "loss");
  EXPECT_EQ(best.key, "maximum");
}

TEST(AddressTest, RefusesWhatIsNoStep) {
  EXPECT_THAT(ParseAddress("params/w"),
              StatusIs(absl::StatusCode::kInvalidArgument));
  const auto misspelt = ParseAddress("lates");
  EXPECT_THAT(misspelt, StatusIs(absl::StatusCode::kInvalidArgument));
  for (const char* form : {"1200", "latest", "best:loss:min", "healthy"}) {
    EXPECT_OK(ParseAddress(form));
    EXPECT_THAT(HintOf(misspelt.status()), HasSubstr(form));
  }
}

}  // namespace
}  // namespace ckptree::tools
