// SPDX-License-Identifier: Apache-2.0

// Options that no store can have, and places where none can be.

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/fixture.h"

namespace ckptree::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

using BadOptionsTest = CoreTest;

TEST_F(BadOptionsTest, Options) {
  const auto open = [this](StoreOptions options) {
    return Store::Open(dir_ / "other", std::move(options)).status();
  };
  for (const std::size_t bytes :
       {std::size_t{0}, kChunk - 1, (std::size_t{16} << 20) + 1}) {
    StoreOptions options = Options();
    options.chunk_bytes = bytes;
    EXPECT_THAT(open(options),
                StatusIs(kInvalid, AllOf(HasSubstr("chunk_bytes"),
                                         HasSubstr(std::to_string(bytes)))));
  }
  for (const int threads : {-1, 1025}) {
    StoreOptions options = Options();
    options.threads = threads;
    EXPECT_THAT(open(options), StatusIs(kInvalid, HasSubstr("threads is")));
  }
  StoreOptions never_idle = Options();
  StoreOptions odd_coding = QuietOptions();
  odd_coding.coding = static_cast<Coding>(9);
  EXPECT_THAT(Store::Open(path(), odd_coding).status(),
              StatusIs(kInvalid, HasSubstr("coding has the number 9")));
  StoreOptions in_the_past = Options();
  in_the_past.lock_wait = absl::Seconds(-2);
  EXPECT_THAT(open(in_the_past),
              StatusIs(kInvalid, HasSubstr("lock_wait is -2s")));
  never_idle.staging_idle = absl::Seconds(-1);
  EXPECT_THAT(open(never_idle),
              StatusIs(kInvalid, HasSubstr("staging_idle is -1s")));
  for (const bool allocates : {true, false}) {
    StoreOptions options = Options();
    if (allocates) {
      options.host_allocator.allocate = [](std::size_t n) { return malloc(n); };
    } else {
      options.host_allocator.free = [](void* at, std::size_t) { free(at); };
    }
    EXPECT_THAT(open(options), StatusIs(kInvalid, HasSubstr("host_allocator")));
  }
  EXPECT_THAT(Store::Create(dir_ / "other", ReadOnly()),
              StatusIs(kInvalid, HasSubstr("read_only")));
  StoreOptions both = ReadOnly();
  both.create_if_missing = true;
  EXPECT_THAT(open(both), StatusIs(kInvalid, HasSubstr("read_only")));
  EXPECT_FALSE(std::filesystem::exists(dir_ / "other"));
}

TEST_F(BadOptionsTest, Places) {
  StoreOptions options = Options();
  options.create_if_missing = false;
  const std::string nothing = dir_ / "nothing";
  EXPECT_THAT(Store::Open(nothing, options),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr(nothing)));
  EXPECT_THAT(Store::Open(nothing, ReadOnly()),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr(nothing)));
  EXPECT_FALSE(std::filesystem::exists(nothing));

  // The system would end the path at the zero byte, and take another folder.
  const std::string zero = nothing + std::string("\0more", 5);
  EXPECT_THAT(Store::Open(zero, Options()),
              StatusIs(kInvalid, HasSubstr("zero byte")));
  EXPECT_THAT(Store::Create("", Options()),
              StatusIs(kInvalid, HasSubstr("empty")));
  EXPECT_FALSE(std::filesystem::exists(nothing));

  const std::string long_name = dir_ / std::string(300, 'n');
  EXPECT_THAT(Store::Open(long_name, Options()),
              StatusIs(kInvalid, HasSubstr("File name too long")));

  const std::string file = dir_ / "file";
  std::ofstream(file) << "text";
  for (const StoreOptions& how : {options, Options(), ReadOnly()}) {
    const absl::Status status = Store::Open(file, how).status();
    EXPECT_FALSE(status.ok());
    EXPECT_FALSE(absl::IsInternal(status) || absl::IsUnknown(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(file));
  }
  const std::string full = dir_ / "full";
  std::filesystem::create_directory(full);
  std::ofstream(full + "/step_3") << "text";
  EXPECT_THAT(Store::Open(full, options),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr(full)));
  for (const auto& refused : {Store::Open(full, Options()).status(),
                              Store::Create(full, Options()).status()}) {
    EXPECT_THAT(refused, StatusIs(kInvalid,
                                  AllOf(HasSubstr(full), HasSubstr("step_3"))));
  }
  EXPECT_THAT(Store::Create(path(), Options()),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr(path())));
}

}  // namespace
}  // namespace ckptree::testing
