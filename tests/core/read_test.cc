// SPDX-License-Identifier: Apache-2.0

// Every way of reading a step gives what the plainest way gives.

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <string>

#include "tests/core/fixture.h"

namespace ckptree::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::Pair;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr auto kNotFound = absl::StatusCode::kNotFound;

using Random = std::mt19937_64;

std::int64_t Below(Random& random, std::int64_t n) {
  return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(n));
}

// The elements of `box` one by one.
Bytes BoxOf(const Bytes& whole, const Shape& shape, const BoxSpec& box,
            std::size_t element) {
  Bytes out;
  Shape index(shape.size(), 0);
  if (std::count(box.shape.begin(), box.shape.end(), 0) > 0) return out;
  while (true) {
    std::size_t at = 0;
    for (std::size_t d = 0; d < shape.size(); ++d) {
      at = at * static_cast<std::size_t>(shape[d]) +
           static_cast<std::size_t>(box.start[d] + index[d]);
    }
    const auto first = whole.begin() + static_cast<long>(at * element);
    out.insert(out.end(), first, first + static_cast<long>(element));
    std::size_t d = shape.size();
    while (d > 0 && ++index[d - 1] == box.shape[d - 1]) index[--d] = 0;
    if (d == 0) return out;
  }
}

BoxSpec RandomBox(Random& random, const Shape& shape) {
  BoxSpec box;
  for (const std::int64_t n : shape) {
    box.start.push_back(Below(random, n + 1));
    box.shape.push_back(Below(random, n - box.start.back() + 1));
  }
  return box;
}

class ReadTest : public CoreTest {};

TEST_F(ReadTest, AnyBoxOfAnyArray) {
  struct Case {
    DType dtype;
    Shape shape;
    Shape chunk;
  };
  const Case cases[] = {{DType::kFloat32, {5, 7}, {}},
                        {DType::kInt4, {40, 50}, {}},
                        {DType::kComplex128, {50, 7, 30}, {}},
                        {DType::kBfloat16, {90, 80, 20}, {}},
                        {DType::kInt8, {300, 400}, {64, 48}},
                        {DType::kInt64, {30, 31, 32}, {7, 31, 5}},
                        {DType::kUint16, {200'000}, {}},
                        {DType::kFloat64, {1, 40'000, 1}, {}},
                        {DType::kFloat64, {}, {}}};
  std::vector<Bytes> values;
  StepBuilder step = store_->Begin(1);
  for (std::size_t i = 0; i < std::size(cases); ++i) {
    const Case& c = cases[i];
    values.push_back(RandomBytes(BytesOf(c.dtype, false, c.shape), i));
    Tensor tensor = Array(c.dtype, c.shape, values.back());
    tensor.chunk_shape = c.chunk;
    step.Put("a/c" + std::to_string(i), tensor);
  }
  ASSERT_OK(Commit(std::move(step)));
  for (int opened = 0; opened < 2; ++opened, Open()) {
    const Step read = Restored(Latest());
    for (std::uint64_t seed = 1; seed <= 60; ++seed) {
      SCOPED_TRACE("seed " + std::to_string(seed));
      Random random(seed);
      std::vector<ReadRequest> requests;
      std::vector<Bytes> got, want;
      for (std::size_t i = 0; i < std::size(cases); ++i) {
        const Case& c = cases[i];
        const BoxSpec box = RandomBox(random, c.shape);
        const Path path = At("a/c" + std::to_string(i));
        want.push_back(
            BoxOf(values[i], c.shape, box, BytesOf(c.dtype, false, {})));
        got.emplace_back(want.back().size());
        EXPECT_OK(read.ReadBox(path, box, got.back()));
        EXPECT_TRUE(got.back() == want.back()) << path.Text();
        got.back().assign(got.back().size(), std::byte{0});
        requests.push_back({path, box, got.back()});
      }
      std::shuffle(requests.begin(), requests.end(), random);
      EXPECT_OK(read.ReadMany(requests));
      for (std::size_t i = 0; i < got.size(); ++i) {
        EXPECT_TRUE(got[i] == want[i]) << i;
      }
    }
  }
}

TEST_F(ReadTest, BoxesAcrossTheBoxesOfALeaf) {
  constexpr std::int64_t kRows = 120, kColumns = 90;
  const Bytes whole = RandomBytes(kRows * kColumns * 4, 1);
  const Shape shape = {kRows, kColumns};
  std::vector<Bytes> parts;
  StepBuilder step = store_->Begin(1);
  for (std::int64_t row = 0; row < kRows; row += 50) {
    for (std::int64_t column = 0; column < kColumns; column += 35) {
      const BoxSpec box = {{row, column},
                           {std::min<std::int64_t>(50, kRows - row),
                            std::min<std::int64_t>(35, kColumns - column)}};
      parts.push_back(BoxOf(whole, shape, box, 4));
      Tensor tensor = Array(DType::kInt32, box.shape, parts.back());
      tensor.start = box.start;
      tensor.global_shape = shape;
      step.Put("w", tensor);
    }
  }
  ASSERT_OK(Commit(std::move(step)));
  const Step read = Restored(Latest());
  EXPECT_TRUE(read.Value("w")->bytes == whole);
  EXPECT_EQ(read.Detail(At("w"))->boxes.size(), parts.size());
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    Random random(seed);
    const BoxSpec box = RandomBox(random, shape);
    const Bytes want = BoxOf(whole, shape, box, 4);
    Bytes got(want.size());
    ASSERT_OK(read.ReadBox(At("w"), box, got)) << "seed " << seed;
    ASSERT_TRUE(got == want) << "seed " << seed;
  }
}

TEST_F(ReadTest, WhatDoesNotFitIsNamed) {
  const Bytes bytes = RandomBytes(6000, 1);
  StepBuilder put = store_->Begin(3);
  put.Put("params/dense/kernel", Array(DType::kInt8, {60, 100}, bytes))
      .PutString("name", "lm")
      .PutNode("params/none", EntryKind::kNone);
  Tensor packed = Array(DType::kInt4, {60, 200}, bytes);
  packed.packed = true;
  put.Put("params/packed", packed);
  ASSERT_OK(Commit(std::move(put)));
  const Step step = Restored(Latest());
  Bytes out(6000);
  const Path kernel = At("params/dense/kernel");
  EXPECT_THAT(
      step.Read("params/dense/kernal", out),
      StatusIs(kNotFound,
               AllOf(HasSubstr("step 3"), HasSubstr("params/dense/kernal"),
                     HasSubstr("did you mean params/dense/kernel?"))));
  EXPECT_THAT(step.Value("quite/another"),
              StatusIs(kNotFound, Not(HasSubstr("did you mean"))));
  EXPECT_FALSE(step.Find("nam").value().has_value());
  EXPECT_THAT(step.Detail("nam"), StatusIs(kNotFound, HasSubstr("name?")));
  EXPECT_THAT(step.Read("a//b", out), StatusIs(kInvalid));
  EXPECT_THAT(step.Read(kernel, std::span(out).first(10)),
              StatusIs(kInvalid, AllOf(HasSubstr("params/dense/kernel"),
                                       HasSubstr("6000 bytes"),
                                       HasSubstr("destination 10"))));
  EXPECT_THAT(step.Read("name", out),
              StatusIs(kInvalid, AllOf(HasSubstr("name has 2 bytes"))));
  EXPECT_THAT(
      step.Read("params/none", out),
      StatusIs(kInvalid, HasSubstr("params/none is of kind none: it has")));
  EXPECT_THAT(step.ReadBox(At("name"), {{0}, {1}}, std::span(out).first(1)),
              StatusIs(kInvalid, HasSubstr("name is of kind str: only")));
  EXPECT_THAT(step.ReadBox(At("params/packed"), {{0, 0}, {1, 2}},
                           std::span(out).first(1)),
              StatusIs(kInvalid, HasSubstr("params/packed is packed")));
  const std::span<std::byte> null(static_cast<std::byte*>(nullptr), 2);
  const ReadRequest request = {At("name"), std::nullopt, null};
  EXPECT_THAT(step.Read("name", null),
              StatusIs(kInvalid, HasSubstr("name: a destination of 2 bytes")));
  EXPECT_THAT(step.ReadMany({{request, request}}),
              StatusIs(kInvalid, HasSubstr("that is null")));
  EXPECT_OK(step.Read("params/packed", out));
  EXPECT_TRUE(out == bytes);
  constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
  for (const BoxSpec& box :
       {BoxSpec{{0}, {1}}, BoxSpec{{60, 0}, {1, 1}}, BoxSpec{{0, 99}, {1, 2}},
        BoxSpec{{-1, 0}, {1, 1}}, BoxSpec{{0, 0}, {1, -1}},
        BoxSpec{{kMax, 0}, {kMax, 1}}, BoxSpec{{}, {}}}) {
    EXPECT_THAT(step.ReadBox(kernel, box, out),
                StatusIs(kInvalid, HasSubstr("params/dense/kernel")));
  }
  const std::vector<ReadRequest> requests = {
      {kernel, std::nullopt, out}, {At("params/gone"), std::nullopt, out}};
  EXPECT_THAT(step.ReadMany(requests),
              StatusIs(kNotFound, HasSubstr("params/gone")));
  EXPECT_OK(step.ReadMany({}));
}

TEST_F(ReadTest, AsTypes) {
  const std::vector<float> floats = {1.5f, -2, 3, 4, 5, 6};
  const std::vector<std::int64_t> ints = {-1, 2};
  StepBuilder put = store_->Begin(1);
  put.Put("f", {DType::kFloat32, {2, 3}, floats.data()})
      .Put("i", {DType::kInt64, {2}, ints.data()})
      .Put("none", {DType::kFloat32, {0, 4}, nullptr})
      .PutBool("b", true)
      .PutInt("n", -7)
      .PutFloat("x", 0.25)
      .PutString("s", "text")
      .Tie("tied", "f");
  ASSERT_OK(Commit(std::move(put)));
  const Step step = Restored(Latest());
  EXPECT_THAT(step.Read<std::vector<float>>("f"), IsOkAndHolds(floats));
  EXPECT_THAT(step.Read<std::vector<float>>("tied"), IsOkAndHolds(floats));
  EXPECT_THAT(step.Read<std::vector<float>>(At("none")),
              IsOkAndHolds(std::vector<float>()));
  EXPECT_THAT(step.Read<std::vector<std::int64_t>>("i"), IsOkAndHolds(ints));
  EXPECT_THAT(step.Read<bool>("b"), IsOkAndHolds(true));
  EXPECT_THAT(step.Read<std::int64_t>("n"), IsOkAndHolds(-7));
  EXPECT_THAT(step.Read<double>("x"), IsOkAndHolds(0.25));
  EXPECT_THAT(step.Read<std::string>("s"), IsOkAndHolds("text"));
  // Nothing is converted.
  constexpr auto kOther = absl::StatusCode::kFailedPrecondition;
  EXPECT_THAT(step.Read<std::vector<double>>("f"),
              StatusIs(kOther, HasSubstr("f is an array of float32, and was "
                                         "read as an array of float64")));
  EXPECT_THAT(step.Read<double>("n"),
              StatusIs(kOther, HasSubstr("n is of kind int")));
  EXPECT_THAT(step.Read<std::string>("f"), StatusIs(kOther));
  EXPECT_THAT(step.Read<std::vector<float>>("n"), StatusIs(kOther));
  EXPECT_THAT(step.Read<double>("y"), StatusIs(kNotFound));
}

TEST_F(ReadTest, LeavesByGlob) {
  StepBuilder put = store_->Begin(1);
  for (const char* name : {"params/a/kernel", "params/a/bias",
                           "params/b/kernel", "opt/mu/[10]", "opt/mu/[9]"}) {
    put.PutInt(name, 1);
  }
  ASSERT_OK(Commit(std::move(put)));
  const Step step = Restored(Latest());
  const auto names = [&step](std::string_view glob) {
    std::vector<std::string> found;
    const std::vector<LeafInfo> leaves = step.Leaves(glob).value();
    for (const LeafInfo& leaf : leaves) found.push_back(leaf.name);
    return found;
  };
  EXPECT_THAT(names(""),
              ElementsAre("opt/mu/[9]", "opt/mu/[10]", "params/a/bias",
                          "params/a/kernel", "params/b/kernel"));
  EXPECT_THAT(names("**"), ::testing::SizeIs(5));
  EXPECT_THAT(names("params/a"),
              ElementsAre("params/a/bias", "params/a/kernel"));
  EXPECT_THAT(names("params/*/kernel"),
              ElementsAre("params/a/kernel", "params/b/kernel"));
  EXPECT_THAT(names("re:k.rnel$"),
              ElementsAre("params/a/kernel", "params/b/kernel"));
  EXPECT_THAT(names("nothing"), IsEmpty());
  EXPECT_THAT(step.Leaves("re:("), StatusIs(kInvalid));
}

TEST_F(ReadTest, DetailsSayWhatIsStored) {
  std::vector<float> values(50'000);
  std::iota(values.begin(), values.end(), -10.0f);
  values[3] = std::numeric_limits<float>::quiet_NaN();
  values[4] = std::numeric_limits<float>::infinity();
  Tensor tensor;
  tensor.dtype = DType::kFloat32;
  tensor.shape = {100, 500};
  tensor.data = values.data();
  const auto save = [&](std::int64_t number) {
    StepBuilder put = store_->Begin(number);
    put.Put("w", tensor).PutInt("n", number).PutNode("x", EntryKind::kNone);
    ASSERT_OK(Commit(std::move(put)));
  };
  save(1);
  save(2);
  for (int opened = 0; opened < 2; ++opened, Open()) {
    const Step step = Restored(Latest());
    const std::vector<LeafInfo> leaves = step.Leaves().value();
    const std::vector<LeafDetail> details = step.Details(leaves).value();
    ASSERT_EQ(details.size(), 3u);
    EXPECT_EQ(leaves[0].name, "n");
    EXPECT_EQ(details[0].bytes, 8u);
    EXPECT_EQ(details[0].since_step, 2);
    EXPECT_FALSE(details[0].statistics.has_value());
    const LeafDetail& w = details[1];
    EXPECT_EQ(w.bytes, 200'000u);
    EXPECT_EQ(w.since_step, 1);
    EXPECT_EQ(w.stored_bytes, 200'000u);
    EXPECT_EQ(w.boxes, (std::vector<BoxSpec>{{{0, 0}, {100, 500}}}));
    ASSERT_TRUE(w.statistics.has_value());
    EXPECT_EQ(w.statistics->count, 50'000u);
    EXPECT_EQ(w.statistics->nan, 1u);
    EXPECT_EQ(w.statistics->inf, 1u);
    EXPECT_EQ(w.statistics->zero, 1u);
    EXPECT_EQ(w.statistics->min, -10);
    EXPECT_EQ(w.statistics->max, 49'989);
    EXPECT_EQ(w.digest, step.Detail(At("w"))->digest);
    EXPECT_EQ(w.digest, Restored(AtStep(1)).Detail(At("w"))->digest);
    EXPECT_EQ(details[2].bytes, 0u);
    EXPECT_EQ(step.info().nan_count, 1u);
    EXPECT_EQ(step.info().inf_count, 1u);
    EXPECT_EQ(step.info().nonfinite_leaves, 1u);
  }
}

TEST_F(ReadTest, ExpectListsEveryDifference) {
  const Bytes bytes = RandomBytes(400, 1);
  StepBuilder put = store_->Begin(1);
  for (const char* name : {"a", "b", "c", "d"}) {
    put.Put(name, Array(DType::kFloat32, {10, 10}, bytes));
  }
  put.PutInt("e", 1).Tie("t", "a").PutNode("n", EntryKind::kTuple);
  ASSERT_OK(Commit(std::move(put)));
  const Step step = Restored(Latest());
  std::vector<LeafInfo> expected = step.Leaves().value();
  EXPECT_OK(step.Expect(expected));
  std::map<std::string, LeafInfo*> by_name;
  for (LeafInfo& leaf : expected) by_name[leaf.name] = &leaf;
  // As who does not know of the tie expects it.
  LeafInfo& tied = *by_name["t"];
  tied = *by_name["a"];
  tied.path = At("t");
  tied.name = "t";
  EXPECT_OK(step.Expect(expected));
  tied.shape = {9, 9};
  EXPECT_THAT(step.Expect(expected),
              StatusIs(kInvalid, HasSubstr("\n  t: saved as float32[10, 10], "
                                           "expected float32[9, 9]")));
  tied.shape = {10, 10};
  by_name["a"]->shape = {100};
  by_name["b"]->dtype = DType::kBfloat16;
  by_name["e"]->kind = EntryKind::kFloat;
  by_name["n"]->kind = EntryKind::kList;
  by_name["c"]->path = At("missing");
  by_name["c"]->name.clear();
  const absl::Status status = step.Expect(expected);
  EXPECT_THAT(
      status,
      StatusIs(kInvalid,
               AllOf(HasSubstr("step 1"),
                     HasSubstr("\n  a: saved as float32[10, 10], expected "
                               "float32[100]"),
                     HasSubstr("\n  b: saved as float32[10, 10], expected "
                               "bfloat16[10, 10]"),
                     HasSubstr("\n  e: saved as int, expected float"),
                     HasSubstr("\n  n: saved as tuple, expected list"),
                     HasSubstr("\n  missing: missing in the step"),
                     HasSubstr("\n  c: not expected"))));
  EXPECT_EQ(std::count(status.message().begin(), status.message().end(), '\n'),
            6);
}

TEST_F(ReadTest, Metadata) {
  StepBuilder put = store_->Begin(1);
  put.PutInt("params/x", 1)
      .PutInt("params/y/z", 1)
      .PutJson("config", "{}")
      .PutInt("opt/x", 1)
      .PutInt("opt2/x", 1)  // Begins as another one.
      .SetItemType("config", ItemType::kJson)
      .SetItemType("blobs", ItemType::kFiles)
      .SetCustomMetadata(R"({"run": "a"})")
      .SetNote("a note")
      .SetLineage("commit", "0000")
      .SetLineage("commit", "1234")
      .SetLineage("host", "elsewhere")
      .SetMetric("loss", 0.25)
      .SetMetric("loss", 0.5)
      .SetMetric("acc", -1);
  ASSERT_OK(Commit(std::move(put)));
  for (int opened = 0; opened < 2; ++opened, Open()) {
    const Step step = Restored(Latest());
    const StepMetadata metadata = step.Metadata().value();
    EXPECT_THAT(metadata.items,
                ElementsAre(Pair("blobs", "files"), Pair("config", "json"),
                            Pair("opt", "tree"), Pair("opt2", "tree"),
                            Pair("params", "tree")));
    EXPECT_EQ(metadata.custom, R"({"run": "a"})");
    std::map<std::string, std::string> lineage(metadata.lineage.begin(),
                                               metadata.lineage.end());
    EXPECT_EQ(lineage["pid"], std::to_string(getpid()));
    EXPECT_THAT(lineage["command"], HasSubstr("core_read_test"));
    EXPECT_EQ(lineage["commit"], "1234");
    EXPECT_EQ(lineage["host"], "elsewhere");
    EXPECT_EQ(lineage.size(), metadata.lineage.size());
    const StepInfo& info = step.info();
    EXPECT_EQ(info.note, "a note");
    EXPECT_EQ(info.saved_by, Version());
    EXPECT_THAT(info.metrics, ElementsAre(Pair("loss", 0.5), Pair("acc", -1)));
    EXPECT_LE(info.begun, info.staged);
    EXPECT_LE(info.staged, info.committed);
    EXPECT_EQ(info.leaf_count, 5u);
    EXPECT_EQ(info.digest.size(), 32u);
  }
}

TEST_F(ReadTest, LineageHasLimits) {
  StepBuilder step = store_->Begin(1);
  step.SetLineage("plan", std::string((1 << 20) + 1, ' '));
  EXPECT_THAT(step.status(),
              StatusIs(kInvalid, HasSubstr("lineage plan of 1048577")));
  step = store_->Begin(1);
  step.SetLineage("", "x");
  EXPECT_THAT(step.status(), StatusIs(kInvalid, HasSubstr("lineage has 1 to")));
}

TEST(SelectorTest, ItsTextNamesIt) {
  for (const char* text : {"best:a:min:min", "best:a:max:min", "best:a:max:max",
                           "best:a~1:min~0", "@a~1~0", "best:a:min:min~3"}) {
    const StepSelector selector = ParseSelector(text).value();
    EXPECT_EQ(Text(selector), text);
  }
}

TEST(SelectorTest, TheBestSaysWhichIsBest) {
  for (const char* text : {"best:loss", "best:loss~1", "best:loss:least"}) {
    EXPECT_THAT(ParseSelector(text),
                StatusIs(kInvalid, HasSubstr("add :min or :max")))
        << text;
  }
}

TEST_F(ReadTest, Selectors) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInf = std::numeric_limits<double>::infinity();
  const std::vector<double> losses = {kNan, 3, 1, 1, kNan, 2, -kInf};
  for (std::size_t i = 0; i < losses.size(); ++i) {
    StepBuilder put = store_->Begin(static_cast<std::int64_t>(10 * i));
    put.PutInt("x", 1).SetMetric("nan", kNan);
    put.SetMetric(i == 6 ? "other" : "loss", losses[i]);
    ASSERT_OK(Commit(std::move(put)));
  }
  ExpectClean();  // A NaN equals nothing, and is no damage.
  ASSERT_OK(store_->Tag("best-so-far", 20));
  ASSERT_OK(store_->Tag("best-so-far", 20));
  EXPECT_THAT(store_->Tag("best-so-far", 30),
              StatusIs(absl::StatusCode::kAlreadyExists,
                       AllOf(HasSubstr("best-so-far"), HasSubstr("step 20"))));
  ASSERT_OK(store_->Tag("best-so-far", 30, {.move = true}));
  ASSERT_OK(store_->Tag("old", 0));
  for (int opened = 0; opened < 2; ++opened, Open()) {
    const std::map<std::string, std::int64_t> expected = {
        {"20", 20},
        {"latest", 60},
        {"latest~0", 60},
        {"latest~2", 40},
        {"latest~6", 0},
        {"best:loss:min", 30},
        {"best:loss:max", 10},
        {"best:loss:min~1", 20},
        {"best:other:max", 60},
        {"@best-so-far", 30},
        {"@best-so-far~3", 0},
        {"@old", 0}};
    for (const auto& [text, step] : expected) {
      const StepSelector selector = ParseSelector(text).value();
      const auto info = store_->Resolve(selector);
      ASSERT_OK(info) << text;
      EXPECT_EQ(info->step, step) << text;
      EXPECT_EQ(Restored(selector).step(), step) << text;
      EXPECT_EQ(store_->Resolve(ParseSelector(Text(selector)).value())->step,
                step);
    }
    const std::map<std::string, std::string> missing = {
        {"21", "no step 21; the store has 7 steps from 0 to 60"},
        {"latest~7", "only 6 saves"},
        {"best:nan:min", "'nan'"},
        {"best:gone:max", "'gone'"},
        {"@gone", "'gone'"}};
    for (const auto& [text, why] : missing) {
      EXPECT_THAT(store_->OpenStep(ParseSelector(text).value()),
                  StatusIs(kNotFound, HasSubstr(why)));
    }
    EXPECT_TRUE(std::isnan(store_->Resolve(AtStep(0))->metrics[1].second));
    EXPECT_THAT(store_->Resolve(AtStep(30))->tags, ElementsAre("best-so-far"));
    const std::vector<TagInfo> tags = store_->Tags().value();
    ASSERT_EQ(tags.size(), 2u);
    EXPECT_EQ(tags[0].name, "best-so-far");
    EXPECT_EQ(tags[0].step, 30);
  }
  ASSERT_OK(store_->Delete(30, {.tagged = true}));
  ASSERT_OK(store_->Untag("old"));
  EXPECT_THAT(store_->Tags().value(), IsEmpty());
  EXPECT_EQ(store_->Resolve(Best("loss", BestMode::kMin))->step, 20);
}

TEST_F(ReadTest, AReaderFollowsAWriter) {
  const Bytes bytes = RandomBytes(300'000, 1);
  ASSERT_OK(Save(1, bytes));
  Store reader = Store::Open(path(), ReadOnly()).value();
  EXPECT_TRUE(reader.Info().read_only);
  const Step held = reader.OpenStep(AtStep(1)).value();
  ASSERT_OK(Save(2, bytes));
  ASSERT_OK(store_->Delete(1));
  EXPECT_THAT(reader.OpenStep(AtStep(2)), StatusIs(kNotFound));
  ASSERT_OK(reader.Refresh());
  EXPECT_TRUE(reader.OpenStep(AtStep(2))->Value("w")->bytes == bytes);
  EXPECT_THAT(reader.OpenStep(AtStep(1)), StatusIs(kNotFound));
  EXPECT_TRUE(held.Value("w")->bytes == bytes);
}

// All that a reader is told of what is there.
std::string Told(const Store& store) {
  std::string told;
  const std::vector<BranchInfo> branches = store.Branches().value();
  for (const BranchInfo& branch : branches) {
    told += "branch " + branch.name;
    const auto policy = store.Policy(branch.name);
    if (policy.ok()) told += " " + Text(policy->policy);
    told += "\n";
    const std::vector<StepInfo> steps = store.Steps(branch.name).value();
    for (const StepInfo& step : steps) {
      told += std::to_string(step.step) + " " + std::to_string(step.version) +
              " " + step.note + (step.pinned ? " pinned" : "");
      for (const std::string& tag : step.tags) told += " " + tag;
      told += "\n";
    }
  }
  const std::vector<TagInfo> tags = store.Tags().value();
  for (const TagInfo& tag : tags) {
    told += tag.name + " " + std::to_string(tag.version) + "\n";
  }
  return told;
}

TEST_F(ReadTest, ARefreshShowsWhatAnOpenShows) {
  ASSERT_OK(Save(1, RandomBytes(100, 1)));
  auto opened = Store::Open(path(), ReadOnly());
  ASSERT_OK(opened);
  Store reader = *std::move(opened);
  std::set<std::string> seen;
  const auto expect_same = [&](int line) {
    ASSERT_OK(reader.Refresh());
    auto fresh = Store::Open(path(), ReadOnly());
    ASSERT_OK(fresh);
    EXPECT_EQ(Told(reader), Told(*fresh)) << "line " << line;
    EXPECT_TRUE(seen.insert(Told(reader)).second) << "line " << line;
  };
  expect_same(__LINE__);
  for (int step = 2; step < 7; ++step) {
    ASSERT_OK(Save(step, RandomBytes(100, 1)));
    expect_same(__LINE__);
  }
  ASSERT_OK(store_->Tag("good", 3));
  expect_same(__LINE__);
  ASSERT_OK(store_->Pin(4));
  expect_same(__LINE__);
  ASSERT_OK(store_->Unpin(4));
  ASSERT_OK(store_->Tag("better", 4));
  expect_same(__LINE__);
  ASSERT_OK(store_->Delete(2));
  expect_same(__LINE__);
  ASSERT_OK(store_->Delete(3, {.tagged = true}));
  expect_same(__LINE__);
  ASSERT_OK(Save(4, RandomBytes(100, 2), {.overwrite = true, .tagged = true}));
  expect_same(__LINE__);
  ASSERT_OK(store_->Fork(5, "side"));
  expect_same(__LINE__);
  ASSERT_OK(Save(6, RandomBytes(100, 3), {.branch = "side"}));
  expect_same(__LINE__);
  ASSERT_OK(store_->SetPolicy(LatestN{2}));
  expect_same(__LINE__);
  // The policy removes steps in the commit of the save.
  ASSERT_OK(Save(9, RandomBytes(100, 4)));
  expect_same(__LINE__);
  ASSERT_OK(store_->DropBranch("side"));
  expect_same(__LINE__);
}

}  // namespace
}  // namespace ckptree::testing
