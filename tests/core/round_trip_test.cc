// SPDX-License-Identifier: Apache-2.0

// Whatever a step can hold comes back bit by bit: after the save, after a
// reopen, and beside saves that share it.

#include <algorithm>
#include <cmath>
#include <deque>
#include <functional>
#include <limits>
#include <memory>
#include <numeric>

#include "tests/core/fixture.h"

namespace ckptree::testing {
namespace {

using ::testing::ElementsAre;

// What is put into a step and expected of it. Holds the memory of a save until
// the next one.
class Content {
 public:
  struct Leaf {
    Path path;
    EntryKind kind;
    Bytes bytes;  // Row-major.
    DType dtype = DType::kNone;
    bool packed = false;
    Shape shape = {};
    std::string tag = {};
    std::function<void(StepBuilder&, Leaf&)> put;
  };

  Leaf& AddArray(Path path, DType dtype, Shape shape, bool packed = false) {
    Leaf leaf;
    leaf.path = std::move(path);
    leaf.kind = EntryKind::kArray;
    leaf.bytes = RandomBytes(BytesOf(dtype, packed, shape), ++seed_);
    leaf.dtype = dtype;
    leaf.packed = packed;
    leaf.shape = std::move(shape);
    leaf.put = [](StepBuilder& step, Leaf& l) {
      step.Put(l.path, TensorOf(l));
    };
    return leaves_.emplace_back(std::move(leaf));
  }
  // Given by strides: `dims` are the array's dimensions in the order they have
  // in memory; those in `reversed` run backwards, those of `repeated` have
  // stride 0.
  void AddStrided(Path path, Shape shape, std::vector<std::size_t> dims,
                  std::vector<bool> reversed, std::vector<bool> repeated) {
    Leaf& added = AddArray(std::move(path), DType::kInt32, std::move(shape));
    const std::size_t rank = added.shape.size();
    std::vector<std::int64_t> strides(rank, 0);
    std::int64_t step = 4, origin = 0;
    for (std::size_t i = rank; i-- > 0;) {
      const std::size_t d = dims[i];
      if (repeated[d]) continue;
      strides[d] = reversed[d] ? -step : step;
      if (reversed[d]) origin += step * (added.shape[d] - 1);
      step *= added.shape[d];
    }
    auto memory = std::make_shared<Bytes>(
        RandomBytes(static_cast<std::size_t>(step), ++seed_));
    ForEachIndex(added.shape, [&](std::size_t n, const Shape& index) {
      std::int64_t at = origin;
      for (std::size_t d = 0; d < rank; ++d) at += index[d] * strides[d];
      std::memcpy(added.bytes.data() + 4 * n, memory->data() + at, 4);
    });
    added.put = [memory, strides, origin](StepBuilder& builder, Leaf& leaf) {
      Tensor tensor = TensorOf(leaf);
      tensor.data = memory->data() + origin;
      tensor.size_bytes = memory->size();
      tensor.strides = strides;
      builder.Put(leaf.path, std::move(tensor));
    };
  }
  void AddCopied(Path path, Shape shape) {
    AddArray(std::move(path), DType::kUint16, std::move(shape)).put =
        [](StepBuilder& builder, Leaf& leaf) {
          Tensor tensor = TensorOf(leaf);
          tensor.data = nullptr;
          tensor.copy = [&leaf](std::uint64_t offset,
                                std::span<std::byte> destination) {
            std::copy_n(leaf.bytes.begin() + static_cast<long>(offset),
                        destination.size(), destination.begin());
            return absl::OkStatus();
          };
          builder.Put(leaf.path, std::move(tensor));
        };
  }
  Leaf& AddValue(Path path, EntryKind kind, std::string bytes) {
    Leaf leaf;
    leaf.path = std::move(path);
    leaf.kind = kind;
    const auto raw = std::as_bytes(std::span(bytes));
    leaf.bytes.assign(raw.begin(), raw.end());
    leaf.put = [](StepBuilder& step, Leaf& l) {
      std::string text(reinterpret_cast<const char*>(l.bytes.data()),
                       l.bytes.size());
      if (l.kind == EntryKind::kStr) step.PutString(l.path, std::move(text));
      if (l.kind == EntryKind::kBytes) step.PutBytes(l.path, std::move(text));
      if (l.kind == EntryKind::kJson) step.PutJson(l.path, std::move(text));
      if (l.kind == EntryKind::kProto)
        step.PutProto(l.path, l.tag, std::move(text));
      if (l.kind == EntryKind::kFile) step.PutFile(l.path, std::move(text));
    };
    return leaves_.emplace_back(std::move(leaf));
  }

  void Put(StepBuilder& builder) {
    for (Leaf& leaf : leaves_) leaf.put(builder, leaf);
  }
  void ExpectIn(const Step& step) const {
    std::vector<LeafInfo> expected;
    for (const Leaf& leaf : leaves_) {
      SCOPED_TRACE(leaf.path.Text());
      const absl::StatusOr<LeafValue> value = step.Value(leaf.path);
      ASSERT_OK(value);
      EXPECT_EQ(value->info.kind, leaf.kind);
      EXPECT_EQ(value->info.dtype, leaf.dtype);
      EXPECT_EQ(value->info.packed, leaf.packed);
      EXPECT_EQ(value->info.shape, leaf.shape);
      EXPECT_EQ(value->info.tag, leaf.tag);
      EXPECT_TRUE(value->bytes == leaf.bytes);
      Bytes read(leaf.bytes.size());
      EXPECT_OK(step.Read(leaf.path, read));
      EXPECT_TRUE(read == leaf.bytes);
      expected.push_back(value->info);
    }
    EXPECT_OK(step.Expect(expected));
  }
  std::deque<Leaf>& leaves() { return leaves_; }

  static Tensor TensorOf(const Leaf& leaf) {
    Tensor tensor = Array(leaf.dtype, leaf.shape, leaf.bytes);
    tensor.packed = leaf.packed;
    tensor.tag = leaf.tag;
    return tensor;
  }

 private:
  static void ForEachIndex(
      const Shape& shape,
      const std::function<void(std::size_t, const Shape&)>& fn) {
    Shape index(shape.size(), 0);
    const auto count = static_cast<std::size_t>(ElementCount(shape).value());
    for (std::size_t n = 0; n < count; ++n) {
      fn(n, index);
      for (std::size_t d = shape.size(); d-- > 0;) {
        if (++index[d] < shape[d]) break;
        index[d] = 0;
      }
    }
  }

  std::deque<Leaf> leaves_;  // Stay where they are.
  std::uint64_t seed_ = 0;
};

class RoundTripTest : public CoreTest {
 protected:
  void Save(Content& content, std::int64_t number) {
    StepBuilder step = store_->Begin(number);
    content.Put(step);
    ASSERT_OK(Commit(std::move(step)));
  }

  // Twice the same, then with one byte of `changed` flipped.
  void RoundTrip(Content& content, std::size_t changed = 0) {
    Save(content, 1);
    content.ExpectIn(Restored(AtStep(1)));
    ExpectClean();
    Open();
    content.ExpectIn(Restored(AtStep(1)));
    Save(content, 2);
    const StepInfo first = store_->Resolve(AtStep(1)).value();
    const StepInfo second = store_->Resolve(AtStep(2)).value();
    EXPECT_EQ(second.new_bytes, 0u);
    EXPECT_EQ(second.changed_leaves, 0u);
    EXPECT_EQ(second.digest, first.digest);
    EXPECT_EQ(second.logical_bytes, first.logical_bytes);
    content.ExpectIn(Restored(AtStep(2)));
    ExpectClean();

    const Content before = content;
    content.leaves()[changed].bytes.back() ^= std::byte{1};
    Save(content, 3);
    const StepInfo third = store_->Resolve(AtStep(3)).value();
    EXPECT_EQ(third.changed_leaves, 1u);
    EXPECT_GT(third.new_bytes, 0u);
    EXPECT_LE(third.new_bytes, kChunk);
    EXPECT_NE(third.digest, first.digest);
    ExpectClean();
    Open();
    for (const int step : {1, 2}) before.ExpectIn(Restored(AtStep(step)));
    content.ExpectIn(Restored(AtStep(3)));
    ExpectClean();
  }
};

TEST_F(RoundTripTest, EveryElementType) {
  Content content;
  const Shape shapes[] = {{7}, {}, {0}, {3, 0, 2}, {33, 65}, {1, 1, 1, 70000}};
  for (const DType dtype : AllDTypes()) {
    for (const bool packed : {false, true}) {
      if (packed && !IsSubByte(dtype)) continue;
      for (std::size_t s = 0; s < std::size(shapes); ++s) {
        Path path = At("params");
        path.Key(Name(dtype)).Key(packed ? "packed" : "plain");
        content.AddArray(path.Index(static_cast<std::int64_t>(s)), dtype,
                         shapes[s], packed);
      }
    }
  }
  RoundTrip(content);
}

TEST_F(RoundTripTest, EveryKindOfValue) {
  Content content;
  content.AddArray(At("rng/key"), DType::kUint32, {4, 2}).tag =
      "prng:threefry2x32";
  const std::string nul("a\0b\xff", 4), large(100'000, 'x');
  content.AddValue(At("s/empty"), EntryKind::kStr, "");
  content.AddValue(At("s/text"), EntryKind::kStr, "na\xc3\xafve");
  content.AddValue(At("s/large"), EntryKind::kStr, large);
  content.AddValue(At("b/bytes"), EntryKind::kBytes, nul);
  content.AddValue(At("b/large"), EntryKind::kBytes, large + nul);
  content.AddValue(At("config"), EntryKind::kJson, R"({"a": [1, null]})");
  content.AddValue(At("message"), EntryKind::kProto, nul).tag = "pkg.Message";
  content.AddValue(At("file"), EntryKind::kFile, nul + large);
  RoundTrip(content, 2);
}

TEST_F(RoundTripTest, EveryScalar) {
  StepBuilder step = store_->Begin(1);
  step.PutBool("a/t", true).PutBool("a/f", false);
  step.PutInt("a/min", std::numeric_limits<std::int64_t>::min());
  step.PutInt("a/max", std::numeric_limits<std::int64_t>::max());
  step.PutFloat("a/zero", -0.0);
  step.PutFloat("a/nan", std::numeric_limits<double>::quiet_NaN());
  step.PutFloat("a/inf", -std::numeric_limits<double>::infinity());
  step.PutComplex(At("a/z"), 1.5, -2.5);
  ASSERT_OK(Commit(std::move(step)));
  for (int opened = 0; opened < 2; ++opened) {
    const Step back = Restored(Latest());
    EXPECT_TRUE(back.Value("a/t")->Bool().value());
    EXPECT_FALSE(back.Value("a/f")->Bool().value());
    EXPECT_EQ(back.Value("a/min")->Int().value(),
              std::numeric_limits<std::int64_t>::min());
    EXPECT_EQ(back.Value("a/max")->Int().value(),
              std::numeric_limits<std::int64_t>::max());
    EXPECT_TRUE(std::signbit(back.Value("a/zero")->Float().value()));
    EXPECT_TRUE(std::isnan(back.Value("a/nan")->Float().value()));
    EXPECT_EQ(back.Value("a/inf")->Float().value(),
              -std::numeric_limits<double>::infinity());
    const LeafValue complex = back.Value("a/z").value();
    EXPECT_EQ(complex.info.kind, EntryKind::kComplex);
    double parts[2] = {};
    ASSERT_EQ(complex.bytes.size(), sizeof(parts));
    std::memcpy(parts, complex.bytes.data(), sizeof(parts));
    EXPECT_EQ(parts[0], 1.5);
    EXPECT_EQ(parts[1], -2.5);
    EXPECT_THAT(back.Value("a/z")->Int(),
                StatusIs(absl::StatusCode::kFailedPrecondition));
  }
  ExpectClean();
}

TEST_F(RoundTripTest, EveryKindOfNodeAndTies) {
  const Bytes bytes = RandomBytes(1000, 1);
  for (const int number : {1, 2}) {
    StepBuilder step = store_->Begin(number);
    step.PutNode("m/none", EntryKind::kNone)
        .PutNode("m/dict", EntryKind::kDict)
        .PutNode("m/list", EntryKind::kList)
        .PutNode("m/tuple", EntryKind::kTuple)
        .PutNode("m/point", EntryKind::kNamedTuple, "Point(x,y)")
        .PutInt("m/point/.x", 1)
        .PutInt("m/point/.y", 2)
        .PutNode("m/object", EntryKind::kObject, "Module")
        .PutNode("m/custom", EntryKind::kCustom, "pkg.Node")
        .PutInt("m/custom/<0>", 3)
        .Put("m/w", Uint8s(bytes))
        .Tie("m/tied", "m/w")
        .Tie("z/tied", "m/point/.x");
    ASSERT_OK(Commit(std::move(step)));
  }
  EXPECT_EQ(store_->Resolve(AtStep(2))->new_bytes, 0u);
  for (int opened = 0; opened < 2; ++opened, Open()) {
    const Step step = Restored(Latest());
    std::vector<std::string> seen;
    const std::vector<LeafInfo> leaves = step.Leaves().value();
    for (const LeafInfo& leaf : leaves) {
      seen.push_back(leaf.name + " " + std::string(Name(leaf.kind)) +
                     (leaf.tag.empty() ? "" : " " + leaf.tag) +
                     (leaf.is_leaf() ? "" : "!"));
    }
    EXPECT_THAT(
        seen,
        ElementsAre("m/custom custom pkg.Node!", "m/custom/<0> int",
                    "m/dict dict!", "m/list list!", "m/none none!",
                    "m/object object Module!", "m/point namedtuple Point(x,y)!",
                    "m/point/.x int", "m/point/.y int", "m/tied tie!",
                    "m/tuple tuple!", "m/w array", "z/tied tie!"));
    EXPECT_TRUE(step.Value("m/tied")->bytes == bytes);
    EXPECT_EQ(step.Value("z/tied")->Int().value(), 1);
    EXPECT_EQ((*step.Find(At("m/tied")))->tie_to, At("m/w"));
    EXPECT_EQ(step.Detail(At("m/tied"))->digest,
              step.Detail(At("m/w"))->digest);
    EXPECT_OK(step.Expect(leaves));
    ExpectClean();
  }
}

TEST_F(RoundTripTest, DictKeysOfEveryKindAreApart) {
  Content content;
  const Key keys[] = {{Key::None{}},
                      {false},
                      {true},
                      {std::int64_t{1}},
                      {std::int64_t{-1}},
                      {std::numeric_limits<std::int64_t>::min()},
                      {1.0},
                      {-0.0},
                      {0.0},
                      {std::numeric_limits<double>::quiet_NaN()},
                      {std::string("1")},
                      {std::string("true")},
                      {std::string()},
                      {std::string("a/b")},
                      {std::string("a\0\x01\n\"", 5)},
                      {std::string("..")},
                      {std::string("\xc3\xa9")},
                      {Key::Bytes{"1"}},
                      {Key::Tuple{}},
                      {Key::Tuple{{std::int64_t{1}}, {std::string("1")}}},
                      {Key::Tuple{{Key::Tuple{{true}}}}}};
  for (const Key& key : keys) {
    content.AddArray(At("d").Key(key), DType::kUint8, {9});
  }
  content.AddArray(At("d").Index(1), DType::kUint8, {9});
  content.AddArray(At("d").Attribute("1"), DType::kUint8, {9});
  content.AddArray(At("d").Flattened(1), DType::kUint8, {9});
  RoundTrip(content);
  const Step step = Restored(Latest());
  for (const Content::Leaf& leaf : content.leaves()) {
    const std::string text = leaf.path.Text();
    EXPECT_TRUE(step.Value(text)->bytes == leaf.bytes) << text;
    for (const char c : text) EXPECT_GE(static_cast<unsigned char>(c), 0x20);
  }
}

// Inline, pack, chunk and small-save limits, and one to either side of each.
TEST_F(RoundTripTest, SizesAroundEveryLimit) {
  std::int64_t number = 10;
  Content all;
  for (const std::int64_t limit : {1 << 8, 32 << 10, 64 << 10, 1 << 20}) {
    for (const std::int64_t size : {limit - 1, limit, limit + 1}) {
      SCOPED_TRACE(size);
      const std::string text(static_cast<std::size_t>(size), 'v');
      const std::string name = std::to_string(size);
      Content alone;
      for (Content* content : {&all, &alone}) {
        content->AddArray(At("a").Key(name), DType::kInt8, {size});
        content->AddValue(At("v").Key(name), EntryKind::kBytes, text);
      }
      Save(alone, number);
      alone.ExpectIn(Restored(AtStep(number++)));
      alone.leaves()[0].bytes[0] ^= std::byte{1};
      Save(alone, number);
      alone.ExpectIn(Restored(AtStep(number)));
      const StepInfo info = store_->Resolve(AtStep(number++)).value();
      EXPECT_EQ(info.changed_leaves, 1u);
      EXPECT_LE(info.new_bytes, kChunk);
    }
  }
  ExpectClean();
  RoundTrip(all);
}

TEST_F(RoundTripTest, StridesOfAnySign) {
  Content content;
  const Shape shapes[] = {{3, 4, 5}, {11, 13, 17}, {40, 30, 50}};
  for (std::size_t s = 0; s < std::size(shapes); ++s) {
    const auto add = [&](const char* name, std::vector<std::size_t> dims,
                         std::vector<bool> reversed,
                         std::vector<bool> repeated) {
      content.AddStrided(At("s").Index(static_cast<std::int64_t>(s)).Key(name),
                         shapes[s], std::move(dims), std::move(reversed),
                         std::move(repeated));
    };
    const std::vector<bool> none(3, false);
    add("dense", {0, 1, 2}, none, none);
    add("transposed", {2, 1, 0}, none, none);
    add("reversed", {0, 1, 2}, {true, true, true}, none);
    add("mixed", {1, 2, 0}, {true, false, true}, none);
    add("broadcast", {0, 1, 2}, none, {true, false, false});
    add("scalar", {0, 1, 2}, none, {true, true, true});
    add("both", {2, 0, 1}, {false, true, false}, {false, false, true});
  }
  content.AddArray(At("t"), DType::kInt8, {5});
  RoundTrip(content, content.leaves().size() - 1);
}

TEST_F(RoundTripTest, CopyFunctions) {
  Content content;
  content.AddCopied(At("c/none"), {0});
  content.AddCopied(At("c/inline"), {3, 5});
  content.AddCopied(At("c/packed"), {100, 7});
  content.AddCopied(At("c/chunked"), {1000, 333});
  RoundTrip(content, 3);
}

TEST_F(RoundTripTest, UserChunkShapes) {
  Content content;
  const auto add = [&](const char* name, Shape shape, Shape chunk) {
    content.AddArray(At("c").Key(name), DType::kInt32, std::move(shape)).put =
        [chunk](StepBuilder& step, Content::Leaf& leaf) {
          Tensor tensor = Content::TensorOf(leaf);
          tensor.chunk_shape = chunk;
          step.Put(leaf.path, std::move(tensor));
        };
  };
  add("tiles", {300, 200}, {64, 64});
  add("columns", {100, 50}, {100, 1});
  add("rows", {100, 50}, {1, 50});
  add("larger", {100, 50}, {1000, 1000});
  add("small", {4, 4}, {2, 2});
  add("none", {4, 0}, {2, 2});
  RoundTrip(content);
  const LeafDetail detail = Restored(Latest()).Detail(At("c/tiles")).value();
  EXPECT_EQ(detail.chunk_count, 5u * 4);
  EXPECT_THAT(detail.chunk_shape, ElementsAre(64, 64));
  // One byte of "tiles" was changed, in its last and smallest tile.
  EXPECT_EQ(store_->Resolve(AtStep(3))->new_bytes, (300 - 256) * 8u * 4);
}

TEST_F(RoundTripTest, BoxesMakeUpALeaf) {
  const Bytes top = RandomBytes(100 * 300, 1);
  const Bytes left = RandomBytes(200 * 130, 2);
  const Bytes right = RandomBytes(200 * 170, 3);
  const auto box = [](const Bytes& bytes, Shape start, Shape shape) {
    Tensor tensor = Array(DType::kInt8, std::move(shape), bytes);
    tensor.start = std::move(start);
    tensor.global_shape = {300, 300};
    return tensor;
  };
  const Tensor boxes[] = {box(top, {0, 0}, {100, 300}),
                          box(left, {100, 0}, {200, 130}),
                          box(right, {100, 130}, {200, 170})};
  Bytes whole(300 * 300);
  std::copy(top.begin(), top.end(), whole.begin());
  for (int row = 0; row < 200; ++row) {
    std::copy_n(left.begin() + row * 130, 130,
                whole.begin() + (100 + row) * 300);
    std::copy_n(right.begin() + row * 170, 170,
                whole.begin() + (100 + row) * 300 + 130);
  }
  int order[] = {0, 1, 2};
  std::int64_t number = 1;
  do {
    StepBuilder step = store_->Begin(number);
    for (const int i : order) step.Put("w", boxes[i]);
    ASSERT_OK(Commit(std::move(step)));
    EXPECT_TRUE(Read(AtStep(number)) == whole);
    const StepInfo info = store_->Resolve(AtStep(number)).value();
    EXPECT_EQ(info.new_bytes, number == 1 ? whole.size() : 0);
    EXPECT_EQ(info.digest, store_->Resolve(AtStep(1))->digest);
    ++number;
  } while (std::next_permutation(std::begin(order), std::end(order)));
  // No part of the array could be read.
  StepBuilder part = store_->Begin(number);
  part.Put("w", boxes[1]).Put("w", box({}, {0, 0}, {0, 300}));
  EXPECT_THAT(Commit(std::move(part)),
              StatusIs(absl::StatusCode::kInvalidArgument));
  StepBuilder nothing = store_->Begin(number + 1);
  nothing.Put("empty", box({}, {10, 10}, {0, 5}));
  EXPECT_THAT(Commit(std::move(nothing)),
              StatusIs(absl::StatusCode::kInvalidArgument));
  Open();
  EXPECT_TRUE(Read(AtStep(1)) == whole);
}

TEST_F(RoundTripTest, OneElementIsOneChunk) {
  Bytes bytes = RandomBytes(3 << 20, 1);
  ASSERT_OK(CoreTest::Save(1, bytes));
  for (std::int64_t number = 2; number < 8; ++number) {
    bytes[static_cast<std::size_t>(number) * 400'000] ^= std::byte{0x80};
    ASSERT_OK(CoreTest::Save(number, bytes));
    const StepInfo info = store_->Resolve(AtStep(number)).value();
    EXPECT_EQ(info.new_bytes, kChunk);
    EXPECT_EQ(info.base, info.version - 1);
    const LeafDetail detail = Restored(AtStep(number)).Detail(At("w")).value();
    EXPECT_EQ(detail.since_step, number);
    EXPECT_EQ(detail.chunk_count, 48u);
  }
  EXPECT_TRUE(Read(AtStep(7)) == bytes);
  ExpectClean();
}

}  // namespace
}  // namespace ckptree::testing
