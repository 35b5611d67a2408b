// SPDX-License-Identifier: Apache-2.0

// As many ranks as a large job has, in one process.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "core/engine/engine.h"
#include "core/engine/store_engine.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "schema/keys.h"
#include "tests/ranks/fixture.h"

namespace ckptree::testing {
namespace {

constexpr int kWorld = 1024;
constexpr int kArrays = 10;       // That all ranks have between them.
constexpr std::int64_t kOwn = 3;  // Rows of each array that a rank has.

class ManyRanksTest : public RanksTest {
 protected:
  // In step 2 every hundredth rank has other values.
  static std::int32_t ValueOf(int rank, int array, std::int64_t step) {
    return rank * 100 + array + (step > 1 && rank % 100 == 7 ? 50 : 0);
  }

  std::string Part(const Store& store, const std::string& plan, int rank,
                   std::int64_t step) const {
    std::vector<std::vector<std::int32_t>> rows;
    StepBuilder part = BeginPart(store, plan, rank);
    for (int array = 0; array < kArrays; ++array) {
      rows.emplace_back(static_cast<std::size_t>(kOwn * 4),
                        ValueOf(rank, array, step));
    }
    for (int array = 0; array < kArrays; ++array) {
      Tensor tensor;
      tensor.dtype = DType::kInt32;
      tensor.shape = {kOwn, 4};
      tensor.data = rows[static_cast<std::size_t>(array)].data();
      tensor.start = {rank * kOwn, 0};
      tensor.global_shape = {kWorld * kOwn, 4};
      part.Put(absl::StrFormat("w%d", array), tensor);
    }
    part.PutInt("epoch", step);
    return FinishPart(std::move(part)).value();
  }
};

TEST_F(ManyRanksTest, AStepOfAThousandParts) {
  absl::StatusOr<Store> store = Store::Open(path(), QuietOptions());
  ASSERT_OK(store);
  std::size_t tokens = 0;
  for (const std::int64_t step : {1, 2}) {
    absl::StatusOr<RankedSave> save =
        RankedSave::Begin(store->Begin(step), {.world = kWorld});
    ASSERT_OK(save);
    std::vector<std::string> parts;
    tokens = 0;
    for (int rank = 0; rank < kWorld; ++rank) {
      parts.push_back(Part(*store, save->plan(), rank, step));
      tokens += parts.back().size();
    }
    ASSERT_OK(save->Commit(std::move(parts)).WaitCommitted(kLong));
  }
  // What an unchanged rank says is small.
  EXPECT_LE(tokens / kWorld, 600u);
  const StepInfo info = store->Resolve(AtStep(2)).value();
  EXPECT_EQ(info.new_bytes, std::uint64_t{11 * kArrays * kOwn * 4 * 4 + 8});
  // What a part costs in the step's records.
  const kv::Database& database = internal::StoreEngine::Of(*store).database();
  const auto meta =
      database.Get(schema::Space::kRecords, schema::StepMetaKey(info.version));
  ASSERT_OK(meta);
  EXPECT_LE((*meta)->size(), std::size_t{128 * kWorld});

  const absl::StatusOr<Step> read = store->OpenStep(2);
  ASSERT_OK(read);
  for (int array = 0; array < kArrays; ++array) {
    std::vector<std::int32_t> found(
        static_cast<std::size_t>(kWorld * kOwn * 4));
    ASSERT_OK(read->Read(absl::StrFormat("w%d", array),
                         std::as_writable_bytes(std::span(found))));
    for (int rank = 0; rank < kWorld; ++rank) {
      for (std::size_t i = 0; i < std::size_t{kOwn * 4}; ++i) {
        ASSERT_EQ(found[static_cast<std::size_t>(rank * kOwn * 4) + i],
                  ValueOf(rank, array, 2))
            << rank;
      }
    }
  }
  EXPECT_EQ(read->Metadata()->parts.size(), std::size_t{kWorld});
  const auto report = store->Verify({.level = VerifyOptions::Level::kDeep});
  ASSERT_OK(report);
  for (const Finding& finding : report->findings) {
    ADD_FAILURE() << finding.what;
  }
}

}  // namespace
}  // namespace ckptree::testing
