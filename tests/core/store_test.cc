// SPDX-License-Identifier: Apache-2.0

// A store from the outside: what is saved comes back, by name, box and step.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "ckptree/ckptree.h"
#include "tests/testutil/status_matchers.h"
#include "tests/testutil/temp_dir.h"

namespace ckptree {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::StatusIs;

constexpr absl::Duration kLong = absl::Seconds(60);

std::vector<float> Floats(std::size_t count, float first) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), first);
  return values;
}

Tensor Array(const std::vector<float>& values, Shape shape) {
  Tensor tensor;
  tensor.dtype = DType::kFloat32;
  tensor.shape = std::move(shape);
  tensor.data = values.data();
  tensor.size_bytes = values.size() * sizeof(float);
  return tensor;
}

class StoreTest : public ::testing::Test {
 protected:
  void SetUp() override { Open(); }

  void Open() {
    store_.reset();
    auto store = Store::Open(path(), {.create_if_missing = true,
                                      .threads = 2,
                                      .chunk_bytes = 64 << 10,
                                      .log = [](auto, auto, auto) {}});
    ASSERT_THAT(store, IsOk());
    store_.emplace(*std::move(store));
  }
  std::string path() const { return dir_.path() + "/store"; }

  absl::Status Commit(StepBuilder builder) {
    return std::move(builder).Commit().WaitCommitted(kLong);
  }
  StepBuilder Begin(std::int64_t step) { return store_->Begin(step); }
  std::vector<float> Read(std::int64_t step, std::string_view name,
                          std::size_t count) {
    std::vector<float> values(count);
    auto open = store_->OpenStep(AtStep(step));
    EXPECT_THAT(open, IsOk());
    if (open.ok()) {
      EXPECT_THAT(open->Read(name, std::as_writable_bytes(std::span(values))),
                  IsOk());
    }
    return values;
  }
  void ExpectClean() {
    const auto report = store_->Verify({.level = VerifyOptions::Level::kDeep});
    ASSERT_THAT(report, IsOk());
    for (const Finding& finding : report->findings) {
      ADD_FAILURE() << finding.what;
    }
  }

  testing::TempDir dir_;
  std::optional<Store> store_;
};

TEST_F(StoreTest, NamesTheFolderThatIsMissingAboveANewStore) {
  const std::string above = dir_.path() + "/no";
  for (const auto& made :
       {Store::Create(above + "/run"),
        Store::Open(above + "/run", {.create_if_missing = true})}) {
    EXPECT_THAT(made, StatusIs(absl::StatusCode::kNotFound,
                               HasSubstr("there is no folder " + above + ";")));
  }
}

TEST_F(StoreTest, SmallSaveComesBackAfterReopen) {
  const auto weights = Floats(1000, 1);
  auto step = Begin(7);
  step.Put("params/w", Array(weights, {10, 100}))
      .PutInt("count", 42)
      .PutString("name", "lm")
      .SetMetric("loss", 0.5);
  ASSERT_THAT(Commit(std::move(step)), IsOk());
  EXPECT_EQ(Read(7, "params/w", 1000), weights);
  ExpectClean();
  Open();
  EXPECT_EQ(Read(7, "params/w", 1000), weights);
  auto open = store_->OpenStep(Latest());
  ASSERT_THAT(open, IsOk());
  EXPECT_EQ(open->Value("count")->Int().value(), 42);
  EXPECT_EQ(open->Value("name")->String().value(), "lm");
  EXPECT_EQ(open->info().metrics[0].second, 0.5);
  ExpectClean();
  // Values in the records of their leaves are bytes that were checked.
  const std::uint64_t small = store_->Verify()->bytes;
  ASSERT_THAT(
      Commit(std::move(
          Begin(8).PutInt("count", 43).PutString("name", "language model"))),
      IsOk());
  EXPECT_EQ(store_->Verify()->bytes, small + 8 + 14);
}

TEST_F(StoreTest, LargeSaveComesBackAndIsSharedByTheNext) {
  auto weights = Floats(1 << 20, 1);  // 4 MiB in chunks of 64 KiB.
  auto first = Begin(1);
  first.Put("params/w", Array(weights, {1024, 1024}));
  ASSERT_THAT(Commit(std::move(first)), IsOk());
  weights[5] = -1;
  auto second = Begin(2);
  second.Put("params/w", Array(weights, {1024, 1024}), Ownership::kBorrow);
  ASSERT_THAT(Commit(std::move(second)), IsOk());
  EXPECT_EQ(Read(2, "params/w", 1 << 20), weights);
  weights[5] = 6;
  EXPECT_EQ(Read(1, "params/w", 1 << 20), weights);
  const auto info = store_->Resolve(AtStep(2));
  ASSERT_THAT(info, IsOk());
  EXPECT_EQ(info->new_bytes, 64u << 10);
  EXPECT_EQ(info->logical_bytes, 4u << 20);
  ExpectClean();
  Open();
  EXPECT_EQ(Read(1, "params/w", 1 << 20), weights);
  ExpectClean();
}

}  // namespace
}  // namespace ckptree
