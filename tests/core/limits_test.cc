// SPDX-License-Identifier: Apache-2.0

// The limits of one step (README; FORMAT.md, section 9), each at its size or
// at a scaled one: at the limit a step comes back, one above is an error that
// names it.

#include "schema/limits.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "ckptree/ranks.h"
#include "core/engine/engine.h"
#include "core/engine/store_engine.h"
#include "core/save/block_sink.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/fixture.h"
#include "tests/testutil/sanitizer.h"

namespace ckptree::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class LimitsTest : public CoreTest {
 protected:
  void LimitSegments(const internal::SegmentLimits& limits) {
    internal::StoreEngine::Of(*store_).writer()->LimitSegments(limits);
  }
  static StoreOptions OneThread() {
    StoreOptions options = Options();
    options.threads = 1;
    return options;
  }
};

// 64 GiB of new bytes beside a base were the most that a process could save:
// segments ended at 256 MiB and the 257th was refused. Scaled by 4 096.
TEST_F(LimitsTest, TheSizeOfSegmentsGoesByTheContent) {
  LimitSegments({.bytes = kChunk});
  // The first save of the process has no base, the others have one.
  for (const std::int64_t step : {1, 2, 3}) {
    const std::size_t chunks = step == 3 ? 1500 : 300;
    const Bytes bytes =
        RandomBytes(chunks * kChunk, static_cast<std::uint64_t>(step));
    ASSERT_OK(Save(step, bytes)) << step;
    EXPECT_EQ(Read(AtStep(step)), bytes) << step;
  }
  Open();
  EXPECT_EQ(Read(AtStep(3)), RandomBytes(1500 * kChunk, 3));
  // Small changes beside it do not make the first segments large.
  LimitSegments({.bytes = kChunk});
  const std::uint64_t before = store_->GetStats().segments_written;
  Bytes changed = RandomBytes(1500 * kChunk, 3);
  for (std::size_t i = 0; i < 40; ++i) changed[i * kChunk] ^= std::byte{1};
  ASSERT_OK(Save(4, changed));
  EXPECT_EQ(store_->GetStats().segments_written - before, 40u);
  EXPECT_EQ(Read(AtStep(4)), changed);
  ExpectClean();
}

// Every thread at work has a segment open: with 257 of them the numbers of
// segments ran out at once.
TEST_F(LimitsTest, ManyThreadsDoNotUseUpTheSegments) {
  constexpr int kThreads = 300;
  constexpr int kAtOnce = 32;
  absl::Mutex mu;
  int inside = 0, most = 0, entered = 0;
  internal::SegmentSettings plan;
  plan.staging = dir_.path();
  plan.header.uuid = std::string(16, 'u');
  plan.header.version = 1;
  plan.limits.bytes = 4 * kChunk;
  plan.bytes_at_most = kThreads * 4 * kChunk;
  // Nobody leaves before as many as may be are here.
  plan.make_staging = [&] {
    const absl::MutexLock lock(&mu);
    ++entered;
    most = std::max(most, ++inside);
    const auto full = [&] { return entered >= kAtOnce; };
    mu.Await(absl::Condition(&full));
    --inside;
    return absl::OkStatus();
  };
  internal::BlockSink sink(std::move(plan));
  const Bytes chunk = RandomBytes(kChunk, 1);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 4; ++i) {
        EXPECT_OK(sink.Write(static_cast<std::uint64_t>(4 * t + i), chunk,
                             std::vector<schema::TableSlice>(1)));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  sink.Seal();
  ASSERT_OK(sink.Finish());
  EXPECT_EQ(most, kAtOnce);
  EXPECT_EQ(sink.bytes(), kThreads * 4 * kChunk);
  std::uint64_t blocks = 0;
  for (const internal::BuiltSegment& segment : sink.segments()) {
    blocks += segment.blocks;
  }
  EXPECT_EQ(blocks, kThreads * 4u);
  EXPECT_LE(sink.segments().size(), 256u);
}

// 2^24 - 2 blocks of a segment, scaled to 60; 256 segments.
TEST_F(LimitsTest, BlocksOfAPart) {
  Open(OneThread());
  LimitSegments({.blocks = 60});
  const auto save = [this](std::int64_t step, const Bytes& bytes) {
    StepBuilder builder = store_->Begin(step);
    Tensor tensor = Uint8s(bytes);
    tensor.chunk_shape = {100};
    builder.Put("w", std::move(tensor));
    return Commit(std::move(builder));
  };
  const Bytes bytes = RandomBytes(256 * 60 * 100, 7);
  ASSERT_OK(save(1, bytes));
  EXPECT_EQ(Read(AtStep(1)), bytes);
  EXPECT_THAT(save(2, RandomBytes(bytes.size() + 1, 8)),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("at most 256 segments of 60 blocks"),
                             HasSubstr("larger chunks"))));
  EXPECT_EQ(Read(AtStep(1)), bytes);
  ExpectClean();
}

// The table of a segment is one record, of 64 MiB at most: many tiny leaves of
// many dimensions make it longer before the segment is full. Scaled.
TEST_F(LimitsTest, ATableEndsItsSegment) {
  Open(OneThread());
  LimitSegments({.table_bytes = 1 << 20});
  constexpr int kLeaves = 8000;
  const Bytes bytes = RandomBytes(kLeaves * 300, 9);
  StepBuilder builder = store_->Begin(1);
  Shape shape(60, 1);
  shape.push_back(300);
  for (int i = 0; i < kLeaves; ++i) {
    builder.Put(Path().Key("w").Index(i), {.dtype = DType::kUint8,
                                           .shape = shape,
                                           .data = bytes.data() + 300 * i});
  }
  ASSERT_OK(Commit(std::move(builder)));
  // Each leaf has over 170 bytes in a table.
  EXPECT_GT(store_->GetStats().segments_written, 2u);
  Open();
  const Step step = Restored(AtStep(1));
  for (int i = 0; i < kLeaves; i += 7) {
    const auto value = step.Value(Path().Key("w").Index(i));
    ASSERT_OK(value);
    EXPECT_EQ(std::memcmp(value->bytes.data(), bytes.data() + 300 * i, 300), 0);
  }
  ExpectClean();
}

// JSON of `size` bytes.
std::string Metadata(std::size_t size) {
  return "\"" + std::string(size - 2, 'm') + "\"";
}

// 2^20 leaves, 8 MiB of metadata, 16 metrics and a note of 512 bytes in one
// step; then one of which every second leaf is another.
TEST_F(LimitsTest, AsMuchAsAStepMayHave) {
  if (kAddressSanitizer) GTEST_SKIP() << "a million leaves take too long";
  constexpr std::int64_t kLeaves = schema::kMaxLeaves;
  for (const std::int64_t step : {1, 2}) {
    StepBuilder builder = store_->Begin(step);
    std::vector<PathPart> parts = Path().Key("w").Index(0).parts();
    for (std::int64_t i = 0; i < kLeaves; ++i) {
      parts[1].key.value = i;
      builder.PutInt(Path(parts), i % 2 == 0 ? i : i * step);
    }
    builder.SetCustomMetadata(
        Metadata(std::size_t{schema::kMaxCustomMetadataBytes}));
    for (int i = 0; i < schema::kMaxMetrics; ++i) {
      builder.SetMetric(absl::StrFormat("%064d", i), i);
    }
    builder.SetNote(std::string(std::size_t{schema::kMaxNoteBytes}, 'n'));
    ASSERT_OK(Commit(std::move(builder)));
  }
  Open();
  for (const std::int64_t n : {1, 2}) {
    const Step step = Restored(AtStep(n));
    EXPECT_EQ(step.info().leaf_count, kLeaves);
    EXPECT_EQ(step.info().metrics.size(), 16u);
    EXPECT_EQ(step.info().metrics[15].second, 15);
    EXPECT_EQ(step.info().note.size(), 512u);
    EXPECT_EQ(step.Metadata()->custom,
              Metadata(std::size_t{schema::kMaxCustomMetadataBytes}));
    for (const std::int64_t i :
         {std::int64_t{0}, std::int64_t{1}, std::int64_t{77'777},
          std::int64_t{524'288}, kLeaves - 2, kLeaves - 1}) {
      const auto value = step.Value(Path().Key("w").Index(i));
      ASSERT_OK(value);
      EXPECT_EQ(*value->Int(), i % 2 == 0 ? i : i * n) << i;
    }
  }
  EXPECT_EQ(Restored(AtStep(2)).info().changed_leaves, kLeaves / 2);
}

// Each of them fits, and they fit together: a tree goes ahead of the batch.
TEST_F(LimitsTest, ALargeTreeBesideLargeMetadata) {
  StepBuilder builder = store_->Begin(1);
  constexpr int kLeaves = 30'000;
  const auto name = [](int i) {
    std::mt19937_64 random(static_cast<std::uint64_t>(i));
    std::string text;
    while (text.size() < 240) text += absl::StrFormat("%016x", random());
    return Path().Key("w").Key(text);
  };
  for (int i = 0; i < kLeaves; ++i) builder.PutInt(name(i), i);
  // What rides in the batch, too.
  const Bytes bytes = RandomBytes(1'000'000, 3);
  builder.Put("a", Uint8s(bytes));
  builder.SetCustomMetadata(
      Metadata(std::size_t{schema::kMaxCustomMetadataBytes}));
  ASSERT_OK(Commit(std::move(builder)));
  Open();
  const Step step = Restored(AtStep(1));
  for (int i = 0; i < kLeaves; i += 1'000) {
    EXPECT_EQ(*step.Value(name(i))->Int(), i);
  }
  EXPECT_TRUE(Read(AtStep(1), "a") == bytes);
  EXPECT_EQ(step.Metadata()->custom.size(),
            std::size_t{schema::kMaxCustomMetadataBytes});
  ExpectClean();
}

// As many parts as a step may have, a leaf in each, and one more.
TEST_F(LimitsTest, PartsOfAStep) {
  const Bytes bytes = RandomBytes(schema::kMaxParts + 1, 9);
  const auto slice = [&](int part) {
    return std::span(bytes).subspan(static_cast<std::size_t>(part), 1);
  };
  const auto name = [](int part) { return absl::StrFormat("w%d", part); };
  absl::StatusOr<RankedSave> save =
      RankedSave::Begin(store_->Begin(1), {.world = schema::kMaxParts});
  ASSERT_OK(save);
  absl::StatusOr<Store> rank = Store::Open(path(), ReadOnly());
  ASSERT_OK(rank);
  std::vector<std::string> built;
  for (int part = 0; part < schema::kMaxParts; ++part) {
    StepBuilder builder = BeginPart(*rank, save->plan(), part);
    builder.SetPerRank(Path());
    builder.Put(
        name(part),
        {.dtype = DType::kUint8, .shape = {1}, .data = slice(part).data()},
        Ownership::kBorrow);
    absl::StatusOr<std::string> token = FinishPart(std::move(builder));
    ASSERT_OK(token);
    built.push_back(*std::move(token));
  }
  ASSERT_OK(save->Commit(std::move(built)).WaitCommitted());
  EXPECT_THAT(
      RankedSave::Begin(store_->Begin(2), {.world = schema::kMaxParts + 1})
          .status(),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("4096")));
  Open();
  EXPECT_EQ(StepNumbers(), std::vector<std::int64_t>{1});
  const Step step = Restored(AtStep(1));
  EXPECT_EQ(step.info().leaf_count, schema::kMaxParts);
  for (const int part : {0, 1, 2'000, schema::kMaxParts - 1}) {
    Bytes value(1);
    ASSERT_OK(step.Read(name(part), value));
    EXPECT_EQ(value[0], slice(part)[0]) << part;
  }
}

// A record is 64 MiB at most: an array in more chunks than that is refused by
// name.
TEST_F(LimitsTest, ChunksOfALeaf) {
  const Bytes bytes = RandomBytes(5 << 20, 5);
  const auto save = [&](std::int64_t step, std::size_t size) {
    StepBuilder builder = store_->Begin(step);
    Tensor tensor = Uint8s(bytes);
    tensor.shape = {static_cast<std::int64_t>(size)};
    tensor.chunk_shape = {4};
    builder.Put("w", std::move(tensor));
    return Commit(std::move(builder));
  };
  ASSERT_OK(save(1, 1 << 16));
  Bytes wanted = bytes;
  wanted.resize(1 << 16);
  EXPECT_TRUE(Read(AtStep(1)) == wanted);
  EXPECT_THAT(save(2, bytes.size()),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("w: with 1310720 chunks"),
                             HasSubstr("at most 67108864"),
                             HasSubstr("larger chunks"))));
  EXPECT_TRUE(Read(AtStep(1)) == wanted);
}

// The later steps leave in the commit of the save, or nothing happens at all.
TEST_F(LimitsTest, StepsThatOneSaveDeletes) {
  constexpr std::int64_t kLater = 9'000;
  const auto begin = [&](std::int64_t step, const SaveOptions& options) {
    StepBuilder builder = store_->Begin(step, options);
    builder.PutInt("step", step);
    builder.SetNote(std::string(512, 'n'));
    for (int i = 0; i < 16; ++i) {
      builder.SetMetric(absl::StrFormat("%064d", i), 1.0);
    }
    return builder;
  };
  for (std::int64_t step = 1; step <= kLater; ++step) {
    ASSERT_OK(Commit(begin(step, {})));
  }
  SaveOptions options;
  options.overwrite = true;
  options.delete_later = true;
  EXPECT_THAT(Commit(begin(1, options)),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("at most 16777216"),
                             HasSubstr("delete the later steps before"))));
  std::vector<std::int64_t> wanted(kLater);
  std::iota(wanted.begin(), wanted.end(), 1);
  EXPECT_EQ(StepNumbers(), wanted);
  Open();
  EXPECT_EQ(StepNumbers(), wanted);

  std::vector<StepSelector> later;
  for (std::int64_t step = 2; step <= kLater; ++step) {
    later.push_back(AtStep(step));
  }
  ASSERT_OK(store_->Delete(later));
  ASSERT_OK(Commit(begin(1, options)));
  Open();
  EXPECT_EQ(StepNumbers(), std::vector<std::int64_t>{1});
  ExpectClean();
}

}  // namespace
}  // namespace ckptree::testing
