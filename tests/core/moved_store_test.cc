// SPDX-License-Identifier: Apache-2.0

// A store that is moved away or removed while it is open, and another one that
// is made at its name.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "ckptree/ckptree.h"
#include "tests/testutil/status_matchers.h"
#include "tests/testutil/temp_dir.h"

namespace ckptree {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using testing::StatusIs;

constexpr absl::Duration kLong = absl::Seconds(60);
constexpr std::size_t kBytes = std::size_t{2} << 20;

std::vector<std::uint8_t> Noise(std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::uint8_t> bytes(kBytes);
  for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(random());
  return bytes;
}

// Every file below a directory, by its name.
std::map<std::string, std::string> Files(const std::string& directory) {
  std::map<std::string, std::string> found;
  for (const auto& entry : fs::recursive_directory_iterator(directory)) {
    if (!entry.is_regular_file()) continue;
    std::ifstream file(entry.path(), std::ios::binary);
    found[fs::relative(entry.path(), directory)] =
        std::string(std::istreambuf_iterator<char>(file), {});
  }
  return found;
}

class MovedStoreTest : public ::testing::TestWithParam<bool> {
 protected:
  StoreOptions Options() const {
    StoreOptions options;
    options.create_if_missing = true;
    options.threads = 2;
    options.log = [](auto, auto, auto) {};
    return options;
  }
  std::string Run() const { return dir_.path() + "/run"; }
  std::string Away() const { return dir_.path() + "/away"; }

  // Steps of small leaves, which are in the index, and of large ones.
  static void Save(Store& store, std::uint32_t seed, std::int64_t steps) {
    for (std::int64_t step = 1; step <= steps; ++step) {
      const auto noise = Noise(seed + static_cast<std::uint32_t>(step));
      StepBuilder builder = store.Begin(step);
      builder.PutInt("n", step);
      builder.Put("small", {.dtype = DType::kUint8,
                            .shape = {1000},
                            .data = noise.data(),
                            .size_bytes = 1000});
      builder.Put("w", {.dtype = DType::kUint8,
                        .shape = {static_cast<std::int64_t>(kBytes)},
                        .data = noise.data(),
                        .size_bytes = kBytes});
      ASSERT_OK(builder.Commit().WaitCommitted(kLong));
    }
  }

  void ExpectWhole(const std::string& directory, std::uint32_t seed,
                   std::int64_t steps) const {
    absl::StatusOr<Store> store = Store::Open(directory, Options());
    ASSERT_OK(store);
    for (std::int64_t step = 1; step <= steps; ++step) {
      const absl::StatusOr<Step> open = store->OpenStep(step);
      ASSERT_OK(open);
      const absl::StatusOr<std::vector<std::uint8_t>> read =
          open->Read<std::vector<std::uint8_t>>("w");
      ASSERT_OK(read);
      EXPECT_EQ(*read, Noise(seed + static_cast<std::uint32_t>(step)));
    }
    const auto report = store->Verify({.level = VerifyOptions::Level::kDeep});
    ASSERT_OK(report);
    for (const Finding& finding : report->findings) {
      ADD_FAILURE() << directory << ": " << finding.what;
    }
  }

  const testing::TempDir dir_;
};

TEST_P(MovedStoreTest, TouchesNothingAtItsName) {
  const bool removed = GetParam();
  // As another process would make it at that name: RocksDB refuses to have two
  // of one name in a process.
  const std::string made = dir_.path() + "/made";
  {
    absl::StatusOr<Store> other = Store::Create(made, Options());
    ASSERT_OK(other);
    Save(*other, 100, 8);
    ASSERT_OK(other->Close());
  }
  absl::StatusOr<Store> old = Store::Open(Run(), Options());
  ASSERT_OK(old);
  Save(*old, 1, 3);
  ASSERT_OK(old->Delete(2));  // Something to collect.
  if (removed) {
    fs::remove_all(Run());
  } else {
    fs::rename(Run(), Away());
  }
  fs::rename(made, Run());
  const auto before = Files(Run());
  // What the old one is asked is refused, and so is what it does by itself.
  EXPECT_THAT(
      old->Begin(9).PutInt("n", 9).Commit().WaitCommitted(kLong),
      StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("moved away")));
  EXPECT_THAT(old->Close(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                     HasSubstr("moved away")));
  EXPECT_EQ(Files(Run()) == before, true);
  ExpectWhole(Run(), 100, 8);
  if (removed) return;
  absl::StatusOr<Store> moved = Store::Open(Away(), Options());
  ASSERT_OK(moved);
  for (const std::int64_t step : {1, 3}) {
    const absl::StatusOr<Step> open = moved->OpenStep(step);
    ASSERT_OK(open);
    EXPECT_EQ(*open->Read<std::vector<std::uint8_t>>("w"),
              Noise(1 + static_cast<std::uint32_t>(step)));
  }
  const auto report = moved->Verify({.level = VerifyOptions::Level::kDeep});
  ASSERT_OK(report);
  EXPECT_EQ(report->findings.size(), 0u);
}

INSTANTIATE_TEST_SUITE_P(MovedOrRemoved, MovedStoreTest, ::testing::Bool());

}  // namespace
}  // namespace ckptree
