// SPDX-License-Identifier: Apache-2.0

// What a store that ships codes where nothing was said of it.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "ckptree/ckptree.h"
#include "ckptree/ranks.h"
#include "gtest/gtest.h"
#include "tests/core/fixture.h"
#include "tests/objects/fixture.h"
#include "tests/remote/fixture.h"
#include "tests/testutil/temp_dir.h"

namespace ckptree::testing {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kValues = std::size_t{1} << 20;

// Weights, of fp32 or of bf16, which are the high halves.
Bytes Weights(std::size_t width, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 0.02f);
  Bytes bytes(kValues * width);
  for (std::size_t i = 0; i < kValues; ++i) {
    const float value = normal(random);
    std::byte word[sizeof(value)];
    std::memcpy(word, &value, sizeof(value));
    std::memcpy(bytes.data() + i * width, word + sizeof(value) - width, width);
  }
  return bytes;
}

Tensor Rows(DType dtype, const Bytes& bytes, int rank = 0, int world = 1) {
  Tensor tensor;
  tensor.dtype = dtype;
  tensor.shape = {static_cast<std::int64_t>(kValues)};
  tensor.data = bytes.data();
  tensor.start = {rank * static_cast<std::int64_t>(kValues)};
  tensor.global_shape = {world * static_cast<std::int64_t>(kValues)};
  return tensor;
}

class RemoteCodingTest : public ::testing::Test {
 protected:
  StoreOptions Options(const std::string& name,
                       std::optional<Coding> coding = std::nullopt) const {
    StoreOptions options = RemoteOptions("file://" + Far(name));
    options.coding = coding;
    options.durable = Durable::kRemote;
    options.collect = false;
    return options;
  }
  std::string Far(const std::string& name) const {
    return far_ / ("far-" + name);
  }

  std::uint64_t ShippedBytes(const std::string& name) const {
    std::uint64_t bytes = 0;
    for (const auto& path : ObjectsOf(Far(name), "segment")) {
      bytes += fs::file_size(path);
    }
    return bytes;
  }

  // Saves one state, and returns the bytes of the segments that were shipped.
  std::uint64_t Ship(const std::string& name, std::optional<Coding> coding) {
    absl::StatusOr<Store> store =
        Store::Open(disks_ / name, Options(name, coding));
    EXPECT_TRUE(store.ok()) << store.status();
    StepBuilder builder = store->Begin(1);
    builder.Put("w", Rows(DType::kFloat32, fp32_))
        .Put("half", Rows(DType::kBfloat16, bf16_));
    const absl::Status saved = builder.Commit().WaitCommitted(kLong);
    EXPECT_TRUE(saved.ok()) << saved;
    EXPECT_TRUE(store->Close().ok());
    return ShippedBytes(name);
  }

  void ExpectValues(const std::string& name) const {
    fs::remove_all(disks_ / name);
    const absl::StatusOr<Store> store =
        Store::Open(disks_ / name, Options(name));
    ASSERT_TRUE(store.ok()) << store.status();
    const absl::StatusOr<Step> step = store->OpenStep(1);
    ASSERT_TRUE(step.ok()) << step.status();
    Bytes read(fp32_.size());
    EXPECT_TRUE(step->Read("w", std::span(read)).ok());
    EXPECT_TRUE(read == fp32_);
    read.resize(bf16_.size());
    EXPECT_TRUE(step->Read("half", std::span(read)).ok());
    EXPECT_TRUE(read == bf16_);
  }

  const Bytes fp32_ = Weights(4, 1);
  const Bytes bf16_ = Weights(2, 2);
  TempDir disks_;
  TempDir far_;
};

TEST_F(RemoteCodingTest, ShipsFewerBytesWhereNothingWasSaid) {
  const std::uint64_t plain = Ship("plain", Coding::kNone);
  EXPECT_GE(plain, fp32_.size() + bf16_.size());
  const std::uint64_t coded = Ship("usual", std::nullopt);
  EXPECT_LT(static_cast<double>(coded), 0.83 * static_cast<double>(plain));
  EXPECT_NEAR(static_cast<double>(coded),
              static_cast<double>(Ship("planes", Coding::kPlanes)), 4096);
  ExpectValues("usual");
  ExpectValues("plain");
}

TEST_F(RemoteCodingTest, AStoreWithoutARemoteIsAsItWas) {
  StoreOptions options = QuietOptions();
  options.create_if_missing = true;
  absl::StatusOr<Store> store = Store::Open(disks_ / "alone", options);
  ASSERT_TRUE(store.ok()) << store.status();
  StepBuilder builder = store->Begin(1);
  builder.Put("w", Rows(DType::kFloat32, fp32_));
  ASSERT_TRUE(builder.Commit().WaitCommitted(kLong).ok());
  EXPECT_EQ(store->GetStats().bytes_coded, 0);
}

// Rank 0 alone ships; what another one saves goes with it.
TEST_F(RemoteCodingTest, AllRanksCode) {
  constexpr int kWorld = 2;
  const auto rank_does = [&](int rank) {
    RankOptions options;
    options.rank = rank;
    options.world = kWorld;
    options.job = "coding";
    options.deadline = options.open_deadline = kLong;
    options.store = Options("ranks");
    absl::StatusOr<RankGroup> group =
        RankGroup::Open(disks_ / "ranks", options);
    ASSERT_TRUE(group.ok()) << group.status();
    StepBuilder builder = group->Begin(1);
    builder.Put("w", Rows(DType::kFloat32, fp32_, rank, kWorld));
    const absl::Status saved = std::move(builder).Commit().WaitCommitted(kLong);
    EXPECT_TRUE(saved.ok()) << saved;
    EXPECT_TRUE(group->Close().ok());
  };
  std::vector<std::thread> others;
  for (int rank = 1; rank < kWorld; ++rank)
    others.emplace_back(rank_does, rank);
  rank_does(0);
  for (std::thread& other : others) other.join();
  const double all = 2.0 * static_cast<double>(fp32_.size());
  EXPECT_LT(static_cast<double>(ShippedBytes("ranks")), 0.87 * all);
}

}  // namespace
}  // namespace ckptree::testing
