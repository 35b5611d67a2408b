// SPDX-License-Identifier: Apache-2.0

// What the tests of whole stores share.

#ifndef CKPTREE_TESTS_CORE_FIXTURE_H_
#define CKPTREE_TESTS_CORE_FIXTURE_H_

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "ckptree/ckptree.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testutil/status_matchers.h"
#include "tests/testutil/temp_dir.h"

namespace ckptree::testing {

using Bytes = std::vector<std::byte>;

// A wait that only a hang reaches.
inline constexpr absl::Duration kLong = absl::Seconds(120);
inline constexpr std::size_t kChunk = 64 << 10;

inline Bytes RandomBytes(std::size_t count, std::integral auto seed) {
  std::mt19937_64 random(static_cast<std::uint64_t>(seed));
  Bytes bytes(count);
  // Eight at a time: tests are compiled without optimisation.
  for (std::size_t at = 0; at < count; at += sizeof(std::uint64_t)) {
    const std::uint64_t drawn = random();
    std::memcpy(bytes.data() + at, &drawn, std::min(sizeof(drawn), count - at));
  }
  return bytes;
}

inline Tensor Array(DType dtype, Shape shape, const Bytes& bytes) {
  Tensor tensor;
  tensor.dtype = dtype;
  tensor.shape = std::move(shape);
  tensor.data = bytes.data();
  tensor.size_bytes = bytes.size();
  return tensor;
}

inline Tensor Uint8s(const Bytes& bytes) {
  return Array(DType::kUint8, {static_cast<std::int64_t>(bytes.size())}, bytes);
}

inline std::size_t BytesOf(DType dtype, bool packed, const Shape& shape) {
  return static_cast<std::size_t>(ArrayBytes(dtype, packed, shape).value());
}

inline Path At(std::string_view text) { return Path::Parse(text).value(); }

inline StoreOptions QuietOptions() {
  StoreOptions options;
  options.create_if_missing = true;
  options.threads = 2;
  options.chunk_bytes = kChunk;
  options.log = [](LogSeverity, std::string_view, std::string_view) {};
  return options;
}

inline StoreOptions ToRead(StoreOptions options) {
  options.create_if_missing = false;
  options.read_only = true;
  return options;
}

class CoreTest : public ::testing::Test {
 protected:
  void SetUp() override { Open(); }

  static StoreOptions Options() {
    StoreOptions options = QuietOptions();
    options.collect = false;  // Tests of collection say when.
    return options;
  }
  static StoreOptions ReadOnly() { return ToRead(Options()); }

  // Closes the store there is and opens it again.
  void Open(StoreOptions options = Options()) {
    store_.reset();
    absl::StatusOr<Store> store = Store::Open(path(), std::move(options));
    ASSERT_OK(store);
    store_.emplace(*std::move(store));
  }
  std::string path() const { return dir_ / "store"; }

  // One array of `bytes` called "w".
  SaveHandle Start(std::int64_t step, const Bytes& bytes,
                   SaveOptions options = {}) {
    StepBuilder builder = store_->Begin(step, options);
    builder.Put("w", Uint8s(bytes));
    return std::move(builder).Commit();
  }
  absl::Status Save(std::int64_t step, const Bytes& bytes,
                    SaveOptions options = {}) {
    return Start(step, bytes, options).WaitCommitted(kLong);
  }
  absl::Status Commit(StepBuilder builder) {
    return std::move(builder).Commit().WaitCommitted(kLong);
  }
  Step Restored(const StepSelector& selector) {
    return store_->OpenStep(selector).value();
  }
  Bytes Read(const StepSelector& selector, std::string_view name = "w") {
    absl::StatusOr<Step> step = store_->OpenStep(selector);
    EXPECT_OK(step);
    if (!step.ok()) return {};
    absl::StatusOr<LeafValue> value = step->Value(name);
    EXPECT_OK(value);
    return value.ok() ? std::move(value->bytes) : Bytes();
  }
  std::vector<std::int64_t> StepNumbers() {
    std::vector<std::int64_t> numbers;
    const std::vector<StepInfo> steps = store_->Steps().value();
    for (const StepInfo& info : steps) {
      numbers.push_back(info.step);
    }
    return numbers;
  }

  void ExpectClean() {
    const auto report = store_->Verify({.level = VerifyOptions::Level::kDeep});
    ASSERT_OK(report);
    for (const Finding& finding : report->findings) {
      ADD_FAILURE() << finding.what;
    }
  }

  TempDir dir_;
  std::optional<Store> store_;
};

}  // namespace ckptree::testing

#endif  // CKPTREE_TESTS_CORE_FIXTURE_H_
