// SPDX-License-Identifier: Apache-2.0

// Reads of many chunks at once, on the threads that are there for it.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/engine/engine.h"
#include "core/engine/store_engine.h"
#include "tests/core/fixture.h"
#include "tests/testutil/flip_byte.h"

namespace ckptree::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::int64_t kRows = 6000;
constexpr std::int64_t kColumns = 3001;

// By threads: one, those of its own for the disk, those of TBB.
class LargeReadTest : public CoreTest,
                      public ::testing::WithParamInterface<int> {
 protected:
  void SetUp() override {
    StoreOptions options = Options();
    options.threads = GetParam();
    Open(options);
    StepBuilder builder = store_->Begin(1);
    builder.Put("v", Array(DType::kUint8, {kRows, kColumns}, v_));
    builder.Put("w", Array(DType::kUint8, {kRows, kColumns}, w_));
    ASSERT_OK(Commit(std::move(builder)));
  }

  static std::vector<ReadRequest> Both(Bytes& v, Bytes& w) {
    return {{At("w"), std::nullopt, w}, {At("v"), std::nullopt, v}};
  }

  static Bytes Box(const Bytes& all, const BoxSpec& box) {
    Bytes part;
    for (std::int64_t r = 0; r < box.shape[0]; ++r) {
      const auto from =
          all.begin() + (box.start[0] + r) * kColumns + box.start[1];
      part.insert(part.end(), from, from + box.shape[1]);
    }
    return part;
  }

  // Quick without optimisation, too.
  static bool Same(std::span<const std::byte> a, std::span<const std::byte> b) {
    return a.size() == b.size() &&
           std::memcmp(a.data(), b.data(), a.size()) == 0;
  }

  inline static const Bytes v_ = RandomBytes(kRows * kColumns, 1);
  inline static const Bytes w_ = RandomBytes(kRows * kColumns, 2);
};

TEST_P(LargeReadTest, EveryByteComes) {
  const Step step = Restored(AtStep(1));
  // At no boundary of a page, and nothing around it is touched.
  const BoxSpec box{{7, 5}, {kRows - 9, kColumns - 11}};
  const Bytes expected = Box(w_, box);
  Bytes v(v_.size() + 2, std::byte{0x5a});
  Bytes w(expected.size());
  const std::vector<ReadRequest> requests = {
      {At("v"), std::nullopt, std::span(v).subspan(1, v_.size())},
      {At("w"), box, w},
  };
  ASSERT_OK(step.ReadMany(requests));
  EXPECT_TRUE(Same(std::span(v).subspan(1, v_.size()), v_));
  EXPECT_EQ(v.front(), std::byte{0x5a});
  EXPECT_EQ(v.back(), std::byte{0x5a});
  EXPECT_TRUE(Same(w, expected));
}

TEST_P(LargeReadTest, DamageIsNamed) {
  const auto files = internal::StoreEngine::Of(*store_).database().LiveFiles();
  ASSERT_OK(files);
  std::string path;
  for (const kv::LiveFile& file : *files) {
    if (file.space == schema::Space::kChunks) path = file.path;
  }
  ASSERT_FALSE(path.empty());
  FlipByte(path, std::filesystem::file_size(path) / 3);
  const Step step = Restored(AtStep(1));
  Bytes v(v_.size());
  Bytes w(w_.size());
  const bool v_is_lost = !step.Read("v", v).ok();
  EXPECT_THAT(step.Read(v_is_lost ? "w" : "v", v_is_lost ? w : v), IsOk());
  EXPECT_TRUE(v_is_lost ? Same(w, w_) : Same(v, v_));
  const std::vector<ReadRequest> both = Both(v, w);
  EXPECT_THAT(step.ReadMany(both),
              StatusIs(absl::StatusCode::kDataLoss,
                       AllOf(HasSubstr("step 1"),
                             HasSubstr(v_is_lost ? "v, chunk" : "w, chunk"))));
}

TEST_P(LargeReadTest, IsFollowed) {
  const Step step = Restored(AtStep(1));
  Bytes v(v_.size());
  Bytes w(w_.size());
  const std::vector<ReadRequest> both = Both(v, w);
  std::vector<std::uint64_t> done;
  ReadOptions options;
  options.on_progress = [&](std::uint64_t so_far, std::uint64_t total) {
    EXPECT_EQ(total, v_.size() + w_.size());
    done.push_back(so_far);
  };
  ASSERT_OK(step.ReadMany(both, options));
  EXPECT_TRUE(Same(v, v_) && Same(w, w_));
  EXPECT_TRUE(std::is_sorted(done.begin(), done.end()));
  ASSERT_FALSE(done.empty());
  EXPECT_EQ(done.back(), v_.size() + w_.size());
  // On the way, not at the end alone.
  EXPECT_LT(done.front(), done.back());
}

TEST_P(LargeReadTest, StopsWhereItIsAskedTo) {
  const Step step = Restored(AtStep(1));
  Bytes v(v_.size());
  Bytes w(w_.size());
  const std::vector<ReadRequest> both = Both(v, w);
  std::uint64_t furthest = 0;
  ReadOptions options;
  options.cancelled = [&] { return furthest > 0; };
  options.on_progress = [&](std::uint64_t done, std::uint64_t) {
    furthest = done;
  };
  const absl::Status stopped = step.ReadMany(both, options);
  if (stopped.ok()) {
    // Other threads were done before the one that asks had a turn.
    EXPECT_GT(GetParam(), 1);
    EXPECT_TRUE(Same(v, v_) && Same(w, w_));
  } else {
    EXPECT_THAT(stopped,
                StatusIs(absl::StatusCode::kCancelled, HasSubstr("step 1")));
    EXPECT_LT(furthest, v_.size() + w_.size());
  }
  // Before anything is read, too; and one leaf as well as many.
  options = {.cancelled = [] { return true; }};
  EXPECT_THAT(step.ReadMany(std::span(both).first(1), options),
              StatusIs(absl::StatusCode::kCancelled));
  EXPECT_THAT(step.ReadMany(both, options),
              StatusIs(absl::StatusCode::kCancelled));
  // The step is as it was.
  ASSERT_OK(step.ReadMany(both));
  EXPECT_TRUE(Same(v, v_) && Same(w, w_));
}

TEST_P(LargeReadTest, WhatIsThrownIsTheError) {
  const Step step = Restored(AtStep(1));
  Bytes v(v_.size());
  const ReadRequest request = {At("v"), std::nullopt, v};
  ReadOptions options;
  options.on_progress = [](std::uint64_t, std::uint64_t) {
    throw std::runtime_error("no more");
  };
  EXPECT_THAT(step.ReadMany(std::span(&request, 1), options),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("no more")));
  options = {.cancelled = []() -> bool { throw std::runtime_error("nor so"); }};
  EXPECT_THAT(step.ReadMany(std::span(&request, 1), options),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("nor so")));
}

INSTANTIATE_TEST_SUITE_P(Threads, LargeReadTest, ::testing::Values(1, 2, 16));

}  // namespace
}  // namespace ckptree::testing
