// SPDX-License-Identifier: Apache-2.0

// Whatever is wrong with what a caller gives is refused with a code that says
// what sort of fault it is and a message that names the thing.

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>

#include "core/engine/engine.h"
#include "core/engine/store_engine.h"
#include "core/version/open_check.h"
#include "kv/database.h"
#include "schema/keys.h"
#include "schema/limits.h"
#include "schema/store_record.h"
#include "tests/core/fixture.h"

namespace ckptree::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr auto kPrecondition = absl::StatusCode::kFailedPrecondition;

class BadInputTest : public CoreTest {
 protected:
  void SetUp() override {
    CoreTest::SetUp();
    ASSERT_OK(Save(1, bytes_));
  }
  void TearDown() override {
    // Nothing of it was saved, and the store goes on.
    if (!store_.has_value() || store_->Info().read_only) return;
    EXPECT_THAT(store_->Flush(), IsOk());
    EXPECT_THAT(StepNumbers(), ElementsAre(1));
    EXPECT_OK(Save(2, bytes_));
    ExpectClean();
  }

  // The mistake that `put` makes: out of the builder or out of the save.
  absl::Status Mistake(const std::function<void(StepBuilder&)>& put) {
    StepBuilder step = store_->Begin(7);
    put(step);
    const absl::Status early = step.status();
    const absl::Status late = std::move(step).Commit().WaitCommitted(kLong);
    EXPECT_THAT(std::string(late.message()), HasSubstr("step 7"));
    if (!early.ok()) {
      EXPECT_THAT(late, StatusIs(early.code(),
                                 HasSubstr(std::string(early.message()))));
    }
    return late;
  }
  absl::Status MistakeOf(Tensor tensor, std::string_view name = "a/w") {
    return Mistake([&](StepBuilder& step) { step.Put(name, tensor); });
  }
  Tensor Floats(Shape shape) const {
    Tensor tensor = Array(DType::kFloat32, std::move(shape), bytes_);
    return tensor;
  }

  const Bytes bytes_ = RandomBytes(1000, 1);
};

TEST_F(BadInputTest, PathsThatClash) {
  EXPECT_THAT(Mistake([](StepBuilder& step) {
                step.PutInt("a/x", 1).PutInt("a/x", 2);
              }),
              StatusIs(kInvalid, HasSubstr("a/x was put twice")));
  // Of no element, and too long all the same.
  EXPECT_THAT(
      store_->Begin(9)
          .Put("a", {.dtype = DType::kUint8,
                     .shape = {0, std::numeric_limits<std::int64_t>::max()}})
          .status(),
      StatusIs(kInvalid, HasSubstr("is not possible")));
  EXPECT_THAT(Mistake([this](StepBuilder& step) {
                step.Put("a/x", Floats({3})).Put("a/x", Floats({3}));
              }),
              StatusIs(kInvalid, HasSubstr("a/x")));
  EXPECT_THAT(Mistake([this](StepBuilder& step) {
                step.Put("a/x", Floats({3})).PutString("a/x", "s");
              }),
              StatusIs(kInvalid, HasSubstr("a/x was put twice")));
  EXPECT_THAT(
      Mistake(
          [](StepBuilder& step) { step.PutInt("a/x", 1).PutInt("a/x/y", 2); }),
      StatusIs(kInvalid, AllOf(HasSubstr("a/x/y"), HasSubstr("below a/x"))));
  EXPECT_THAT(Mistake([](StepBuilder& step) {
                step.PutNode("a/x", EntryKind::kNone).PutInt("a/x/y", 1);
              }),
              StatusIs(kInvalid, AllOf(HasSubstr("a/x/y"),
                                       HasSubstr("below a/x, which is None"))));
  EXPECT_THAT(Mistake([](StepBuilder& step) {
                step.PutNode("a/x", EntryKind::kNone).PutInt("a/x", 2);
              }),
              StatusIs(kInvalid, HasSubstr("a/x")));
  EXPECT_THAT(
      Mistake([](StepBuilder& step) { step.Tie("a/x", "a/nowhere"); }),
      StatusIs(kInvalid, AllOf(HasSubstr("a/x"), HasSubstr("a/nowhere"))));
  EXPECT_THAT(Mistake([](StepBuilder& step) {
                step.PutInt("a/i", 1).Tie("a/x", "a/i").Tie("a/y", "a/x");
              }),
              StatusIs(kInvalid, HasSubstr("a/y")));
}

TEST_F(BadInputTest, HostileNames) {
  const std::string nul("a\0b", 3);
  for (const std::string& name :
       {std::string("a//b"), std::string("/a"), std::string("a/"),
        std::string("a b"), std::string("a/\"x"), std::string("\xff\xfe"), nul,
        std::string("a/[x]"), std::string("a/{}"),
        std::string("a/[99999999999999999999]"), std::string("a/\n")}) {
    SCOPED_TRACE(name);
    const absl::Status status =
        Mistake([&](StepBuilder& step) { step.PutInt(name, 1); });
    EXPECT_THAT(status, StatusIs(kInvalid, HasSubstr("'")));
    for (const char c : status.message()) {
      EXPECT_GE(static_cast<unsigned char>(c), 0x20);
      EXPECT_LT(static_cast<unsigned char>(c), 0x7f);
    }
  }
  EXPECT_THAT(Mistake([](StepBuilder& step) { step.PutInt("", 1); }),
              StatusIs(kInvalid, HasSubstr("path")));
  EXPECT_THAT(Mistake([](StepBuilder& step) { step.PutInt("[3]", 1); }),
              StatusIs(kInvalid, HasSubstr("[3]")));
  EXPECT_THAT(Mistake([](StepBuilder& step) {
                step.PutInt(Path().Key("a").Key("\xc3("), 1);
              }),
              StatusIs(kInvalid, HasSubstr("UTF-8")));
  EXPECT_THAT(Mistake([](StepBuilder& step) {
                step.PutInt(Path().Key("a").Index(-3), 1);
              }),
              StatusIs(kInvalid, HasSubstr("-3")));
}

TEST_F(BadInputTest, LimitsOfPaths) {
  Path deep;
  for (int i = 0; i < schema::kMaxPathDepth; ++i) deep.Key("d");
  Path longest = Path().Key("a");
  longest.Key(
      std::string(schema::kMaxPathBytes - longest.Encode().size() - 3, 'x'));
  StepBuilder fits = store_->Begin(9);
  fits.PutInt(deep, 1).PutInt(longest, 2);
  EXPECT_OK(fits.status());
  EXPECT_THAT(
      Mistake([&](StepBuilder& step) { step.PutInt(Path(deep).Key("e"), 1); }),
      StatusIs(kInvalid, AllOf(HasSubstr("257 parts"), HasSubstr("at most 256"),
                               HasSubstr("'d/d/d"))));
  EXPECT_THAT(Mistake([&](StepBuilder& step) {
                step.PutInt(Path(longest).Index(0), 1);
              }),
              StatusIs(kInvalid, HasSubstr("at most 4096")));
  EXPECT_THAT(Mistake([](StepBuilder& step) {
                step.PutInt(Path().Key(std::string(129, 'i')).Key("x"), 1);
              }),
              StatusIs(kInvalid, HasSubstr("longer than 128")));
}

TEST_F(BadInputTest, TooManyLeaves) {
  EXPECT_THAT(Mistake([](StepBuilder& step) {
                Path path = Path().Key("a").Index(0);
                std::vector<PathPart> parts = path.parts();
                for (std::int64_t i = 0; i <= schema::kMaxLeaves; ++i) {
                  parts[1].key.value = i;
                  step.PutBool(Path(parts), true);
                }
              }),
              StatusIs(kInvalid, AllOf(HasSubstr("1048577 leaves"),
                                       HasSubstr("at most 1048576"))));
}

TEST_F(BadInputTest, LimitsOfWhatIsSaidOfAStep) {
  const auto with = [this](const std::function<void(StepBuilder&)>& set) {
    return Mistake([&](StepBuilder& step) {
      step.PutInt("a", 1);
      set(step);
    });
  };
  EXPECT_THAT(with([](StepBuilder& step) {
                for (int i = 0; i < 17; ++i) {
                  step.SetMetric("metric" + std::to_string(i), i);
                }
              }),
              StatusIs(kInvalid,
                       AllOf(HasSubstr("metric16"), HasSubstr("at most 16"))));
  EXPECT_THAT(
      with([](StepBuilder& step) { step.SetMetric(std::string(129, 'm'), 1); }),
      StatusIs(kInvalid, HasSubstr("metric")));
  EXPECT_THAT(
      with([](StepBuilder& step) { step.SetNote(std::string(513, 'n')); }),
      StatusIs(kInvalid, AllOf(HasSubstr("note of 513"), HasSubstr("512"))));
  EXPECT_THAT(with([](StepBuilder& step) {
                step.SetCustomMetadata(std::string((8 << 20) + 1, ' '));
              }),
              StatusIs(kInvalid, HasSubstr("custom metadata of 8388609")));
  EXPECT_THAT(
      with([](StepBuilder& step) { step.SetItemType("", ItemType::kJson); }),
      StatusIs(kInvalid, HasSubstr("item")));
  EXPECT_THAT(with([](StepBuilder& step) {
                step.PutNode("b", EntryKind::kCustom, std::string(5000, 't'));
              }),
              StatusIs(kInvalid, AllOf(HasSubstr("b"), HasSubstr("tag"))));
  const std::string latin = "caf\xe9";
  EXPECT_THAT(with([&](StepBuilder& step) { step.SetNote(latin); }),
              StatusIs(kInvalid, HasSubstr("note")));
  EXPECT_THAT(with([&](StepBuilder& step) { step.SetMetric(latin, 1); }),
              StatusIs(kInvalid, HasSubstr("caf\\xe9")));
  EXPECT_THAT(with([&](StepBuilder& step) { step.PutString("b", latin); }),
              StatusIs(kInvalid, HasSubstr("b: a str is UTF-8")));
  EXPECT_THAT(with([&](StepBuilder& step) { step.PutJson("c", latin); }),
              StatusIs(kInvalid, HasSubstr("c: a json is UTF-8")));
}

TEST_F(BadInputTest, ShapesThatAreNone) {
  constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();
  for (const Shape& shape :
       {Shape{-1}, Shape{3, -2}, Shape{kHuge, 2}, Shape{kHuge, kHuge, kHuge},
        Shape{std::int64_t{1} << 32, std::int64_t{1} << 32},
        Shape{std::int64_t{1} << 55}, Shape(65, 1)}) {
    EXPECT_THAT(
        MistakeOf(Floats(shape)),
        StatusIs(kInvalid, AllOf(HasSubstr("a/w"), HasSubstr("float32"))));
  }
  EXPECT_THAT(MistakeOf(Floats({251})),
              StatusIs(kInvalid, AllOf(HasSubstr("a/w"), HasSubstr("1000"),
                                       HasSubstr("1004"))));
  Tensor tensor = Floats({10});
  tensor.data = nullptr;
  EXPECT_THAT(MistakeOf(tensor), StatusIs(kInvalid, HasSubstr("a/w: no data")));
  for (const int dtype : {0, 35, 255}) {
    tensor = Floats({1});
    tensor.dtype = static_cast<DType>(dtype);
    EXPECT_THAT(MistakeOf(tensor),
                StatusIs(kInvalid, AllOf(HasSubstr("a/w"),
                                         HasSubstr(std::to_string(dtype)))));
  }
  tensor = Floats({1});
  tensor.packed = true;
  EXPECT_THAT(
      MistakeOf(tensor),
      StatusIs(kInvalid, AllOf(HasSubstr("a/w"), HasSubstr("float32"))));
  for (const Shape& chunk : {Shape{1, 1}, Shape{0}, Shape{-4}, Shape{kHuge}}) {
    tensor = Floats({10});
    tensor.chunk_shape = chunk;
    EXPECT_THAT(
        MistakeOf(tensor),
        StatusIs(kInvalid, AllOf(HasSubstr("a/w"), HasSubstr("chunk shape"),
                                 HasSubstr("of float32[10]"),
                                 HasSubstr("each at least 1"))));
  }
}

TEST_F(BadInputTest, StridesOutsideTheBuffer) {
  constexpr std::int64_t kMin = std::numeric_limits<std::int64_t>::min();
  constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
  const auto strided = [this](std::vector<std::int64_t> strides) {
    Tensor tensor = Floats({10, 10});
    tensor.strides = std::move(strides);
    return MistakeOf(tensor);
  };
  for (const std::vector<std::int64_t>& strides :
       std::vector<std::vector<std::int64_t>>{
           {100, 12}, {-112, 4}, {kMax, 4}, {kMin, 4}, {kMax / 9, kMax / 9}}) {
    EXPECT_THAT(strided(strides),
                StatusIs(kInvalid, AllOf(HasSubstr("a/w"), HasSubstr("strides"),
                                         HasSubstr("1000 bytes"))));
  }
  EXPECT_THAT(strided({4}), StatusIs(kInvalid, AllOf(HasSubstr("a/w"),
                                                     HasSubstr("1 strides"))));
  // Also where nobody says how long the buffer is.
  for (const std::vector<std::int64_t>& strides :
       std::vector<std::vector<std::int64_t>>{
           {kMax, 4}, {kMin, 4}, {kMax / 9, kMax / 9}}) {
    Tensor endless = Floats({10, 10});
    endless.size_bytes = 0;
    endless.strides = strides;
    EXPECT_THAT(MistakeOf(endless),
                StatusIs(kInvalid, AllOf(HasSubstr("a/w"), HasSubstr("strides"),
                                         HasSubstr("addressed"))));
  }
  Tensor tensor = Floats({2, 2});
  tensor.strides = {8, 4};
  tensor.copy = [](std::uint64_t, std::span<std::byte>) {
    return absl::OkStatus();
  };
  EXPECT_THAT(MistakeOf(tensor), StatusIs(kInvalid, HasSubstr("a/w")));
}

TEST_F(BadInputTest, BoxesThatDoNotFit) {
  const auto box = [this](Shape start, Shape shape, Shape whole = {8, 8}) {
    Tensor tensor = Floats(std::move(shape));
    tensor.start = std::move(start);
    tensor.global_shape = std::move(whole);
    return tensor;
  };
  for (const Tensor& tensor :
       {box({0, 0}, {9, 1}), box({7, 7}, {1, 2}), box({-1, 0}, {1, 1}),
        box({0}, {1, 1}), box({0, 0}, {1}), box({9, 0}, {0, 0}),
        box({std::numeric_limits<std::int64_t>::max(), 0}, {2, 2}),
        box({0, 0}, {1, 1}, {})}) {
    EXPECT_THAT(MistakeOf(tensor), StatusIs(kInvalid, HasSubstr("a/w")));
  }
  EXPECT_THAT(
      Mistake([&](StepBuilder& step) {
        step.Put("a/w", box({0, 0}, {4, 8}));
        step.Put("a/w", box({3, 7}, {5, 1}));
      }),
      StatusIs(kInvalid, AllOf(HasSubstr("a/w"), HasSubstr("[0, 0]"),
                               HasSubstr("[3, 7]"), HasSubstr("overlap"))));
}

TEST_F(BadInputTest, BoxesOfTwoTypes) {
  const auto box = [&](DType dtype, std::int64_t at, Shape whole) {
    Tensor tensor = Array(dtype, {4}, bytes_);
    tensor.start = {at};
    tensor.global_shape = std::move(whole);
    return tensor;
  };
  const auto mistake = [&](DType dtype, Shape whole) {
    return Mistake([&](StepBuilder& step) {
      step.Put("a/w", box(DType::kFloat32, 0, {8}));
      step.Put("a/w", box(dtype, 4, whole));
    });
  };
  EXPECT_THAT(mistake(DType::kInt32, {8}),
              StatusIs(kInvalid, HasSubstr("float32 of shape [8] and int32 of "
                                           "shape [8]; boxes of one array")));
  EXPECT_THAT(mistake(DType::kFloat32, {9}),
              StatusIs(kInvalid, HasSubstr("shape [9]; boxes of one array")));
  EXPECT_THAT(Mistake([&](StepBuilder& step) {
                for (const std::string tag : {"first", "second"}) {
                  Tensor tensor =
                      box(DType::kFloat32, tag == "first" ? 0 : 4, {8});
                  tensor.tag = tag;
                  step.Put("a/w", std::move(tensor));
                }
              }),
              StatusIs(kInvalid,
                       HasSubstr("shape [8] with the tag first and float32 of "
                                 "shape [8] with the tag second; boxes")));
}

TEST_F(BadInputTest, DataBesideACopyFunction) {
  Tensor tensor = Floats({4});
  tensor.copy = [](std::uint64_t, std::span<std::byte>) {
    return absl::OkStatus();
  };
  EXPECT_THAT(MistakeOf(tensor),
              StatusIs(kInvalid, HasSubstr("a/w: data and a copy function")));
}

TEST_F(BadInputTest, ValuesOfNoEnumeration) {
  EXPECT_THAT(store_->OpenStep(Best("loss", static_cast<BestMode>(9))).status(),
              StatusIs(kInvalid, HasSubstr("9 is no mode of a best step")));
  EXPECT_THAT(store_->OpenStep(BestByPolicy()).status(),
              StatusIs(kInvalid, HasSubstr("asked of a CheckpointManager")));
  for (const int kind : {31, 77, 200}) {
    EXPECT_THAT(
        store_->Begin(9).PutNode("a", static_cast<EntryKind>(kind)).status(),
        StatusIs(kInvalid,
                 HasSubstr(absl::StrFormat("(%d) is not the kind of a "
                                           "node",
                                           kind))));
  }
  for (const int level : {-1, 3, 9}) {
    const auto none = static_cast<VerifyOptions::Level>(level);
    EXPECT_THAT(store_->Verify({.level = none}).status(),
                StatusIs(kInvalid, HasSubstr("no level of VerifyOptions")))
        << level;
  }
  EXPECT_EQ(Text(BestN{.metric = "loss", .n = 2}), "best(loss, no mode, 2)");
}

TEST_F(BadInputTest, StepsAndTags) {
  EXPECT_THAT(Save(-1, bytes_), StatusIs(kInvalid, HasSubstr("step -1")));
  EXPECT_THAT(Save(1, bytes_), StatusIs(absl::StatusCode::kAlreadyExists,
                                        HasSubstr("step 1 exists")));
  EXPECT_THAT(store_->Delete(9),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("no step 9")));
  EXPECT_THAT(store_->Pin(9), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(store_->Tag("t", 9), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(store_->Untag("t"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("'t'")));
  for (const std::string& name :
       {std::string(), std::string("a b"), std::string("a\n"),
        std::string("a@b"), std::string("a:b"), std::string("a~1"),
        std::string("\0", 1), std::string("\xff"), std::string(129, 't')}) {
    SCOPED_TRACE(name);
    EXPECT_THAT(store_->Tag(name, 1), StatusIs(kInvalid, HasSubstr("tag")));
  }
  EXPECT_THAT(store_->Tags().value(), IsEmpty());
  StepSelector odd;
  odd.kind = static_cast<StepSelector::Kind>(77);
  EXPECT_THAT(store_->Resolve(odd), StatusIs(kInvalid, HasSubstr("77")));
  odd = Latest();
  odd.back = -1;
  EXPECT_THAT(store_->OpenStep(odd), StatusIs(kInvalid, HasSubstr("-1")));
  for (const absl::Time time : {absl::InfiniteFuture(), absl::InfinitePast()}) {
    EXPECT_THAT(Save(3, bytes_, {.time = time}),
                StatusIs(kInvalid, HasSubstr("its time is infinite")));
  }
  const auto new_year = [](int year) {
    return absl::FromCivil(absl::CivilYear(year), absl::UTCTimeZone());
  };
  for (const absl::Time time :
       {new_year(1678) - absl::Nanoseconds(1), new_year(2262)}) {
    EXPECT_THAT(Save(3, bytes_, {.time = time}),
                StatusIs(kInvalid, HasSubstr("the years 1678 to 2261")));
  }
  for (const char* text : {"", "x", "-1", "latest~", "latest~-1", "best:", "@",
                           "~2", "1e5", "99999999999999999999"}) {
    EXPECT_THAT(ParseSelector(text),
                StatusIs(kInvalid, HasSubstr("'" + std::string(text) + "'")));
  }
}

TEST_F(BadInputTest, FormatsFromLaterOn) {
  int number = 0;
  const auto store = [&](schema::StoreRecord record) {
    record.uuid = std::string(16, 'u');
    const std::string directory = dir_ / ("f" + std::to_string(number++));
    kv::WriteBatch batch;
    batch.Put(schema::Space::kRecords, schema::BranchKey(0),
              schema::EncodeBranchRecord({0}));
    EXPECT_OK(kv::Database::Create(
        directory, {}, record.uuid, schema::StoreKey(),
        schema::EncodeStoreRecord(record), std::move(batch)));
    return directory;
  };
  schema::StoreRecord record;
  EXPECT_OK(Store::Open(store(record), Options()));
  // That of engines before the first release is read, and raised by a writer.
  record.format = 0;
  const std::string older = store(record);
  const auto format_of = [&] {
    const Store reader = Store::Open(older, ReadOnly()).value();
    return internal::ReadStoreRecord(
               internal::StoreEngine::Of(reader).database())
        .value()
        .format;
  };
  EXPECT_EQ(format_of(), 0u);
  EXPECT_OK(Store::Open(older, Options()));
  EXPECT_EQ(format_of(), schema::kFormatNumber);
  record.format = schema::kFormatNumber + 1;
  const std::string next = store(record);
  record.format = 99;
  const std::string newer = store(record);
  record.format = schema::kFormatNumber;
  record.incompat = {"striped-chunks"};
  const std::string incompatible = store(record);
  for (const StoreOptions& how : {Options(), ReadOnly()}) {
    EXPECT_THAT(Store::Open(next, how),
                StatusIs(kPrecondition,
                         HasSubstr("format 2, this engine reads up to 1: use "
                                   "a newer one")));
    EXPECT_THAT(Store::Open(newer, how),
                StatusIs(kPrecondition, HasSubstr("format 99")));
    EXPECT_THAT(Store::Open(incompatible, how),
                StatusIs(kPrecondition, HasSubstr("'striped-chunks'")));
  }
  record.incompat.clear();
  record.ro_compat = {"zone-maps"};
  const std::string readable = store(record);
  EXPECT_THAT(Store::Open(readable, Options()),
              StatusIs(kPrecondition, HasSubstr("zone-maps")));
  EXPECT_OK(Store::Open(readable, ReadOnly()));
  record.ro_compat.clear();
  record.compat = {"colours"};
  EXPECT_OK(Store::Open(store(record), Options()));
}

TEST_F(BadInputTest, SecondWriter) {
  const std::string pid = "pid " + std::to_string(getpid());
  EXPECT_THAT(Store::Open(path(), Options()),
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr(path()), HasSubstr(pid))));
  EXPECT_OK(Store::Open(path(), ReadOnly()));
  const pid_t child = fork();
  if (child == 0) {
    const absl::Status status = Store::Open(path(), Options()).status();
    // Not that it is busy: a forked child never writes.
    _exit(!absl::IsFailedPrecondition(status) ? 2
          : std::string(status.message()).find("spawn") == std::string::npos
              ? 3
              : 0);
  }
  int ended = -1;
  ASSERT_EQ(waitpid(child, &ended, 0), child);
  EXPECT_EQ(ended, 0);
}

TEST_F(BadInputTest, ReadOnlyAndClosedStoresRefuse) {
  const auto refuses = [this](const char* why) {
    const auto refused =
        StatusIs(kPrecondition, AllOf(HasSubstr(path()), HasSubstr(why)));
    StepBuilder step = store_->Begin(5);
    step.PutInt("a", 1);
    EXPECT_THAT(step.status(), refused);
    EXPECT_THAT(std::move(step).Commit().WaitStaged(kLong), refused);
    EXPECT_THAT(store_->Delete(1), refused);
    EXPECT_THAT(store_->Tag("t", 1), refused);
    EXPECT_THAT(store_->Untag("t"), refused);
    EXPECT_THAT(store_->Pin(1), refused);
    EXPECT_THAT(store_->Unpin(1), refused);
    EXPECT_THAT(store_->Flush(), refused);
  };
  Open(ReadOnly());
  refuses("read only");
  EXPECT_TRUE(Read(Latest()) == bytes_);
  EXPECT_OK(store_->Refresh());
  Open();
  StepBuilder open = store_->Begin(5);
  open.PutInt("a", 1);
  SaveHandle behind = Start(6, bytes_);
  // What is still being put together does not hold up the close.
  EXPECT_OK(store_->Close());
  EXPECT_OK(behind.WaitCommitted(kLong));
  EXPECT_THAT(std::move(open).Commit().WaitCommitted(kLong),
              StatusIs(kPrecondition, HasSubstr("was closed")));
  refuses("was closed");
  EXPECT_THAT(store_->Steps(), StatusIs(kPrecondition));
  EXPECT_THAT(store_->OpenStep(Latest()), StatusIs(kPrecondition));
  EXPECT_THAT(store_->Resolve(Latest()), StatusIs(kPrecondition));
  EXPECT_THAT(store_->Tags(), StatusIs(kPrecondition));
  EXPECT_THAT(store_->Verify(), StatusIs(kPrecondition));
  EXPECT_THAT(store_->Refresh(), StatusIs(kPrecondition));
  EXPECT_OK(store_->Close());
  Open();
  EXPECT_OK(store_->Delete(6));
}

}  // namespace
}  // namespace ckptree::testing
