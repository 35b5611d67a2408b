// SPDX-License-Identifier: Apache-2.0

// A store that is read by its address, on a machine whose disk for what is
// fetched is full.

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ckptree/ckptree.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fault/shimmed_program.h"
#include "tests/remote/fixture.h"
#include "tests/tools/command_runner.h"

namespace ckptree {
namespace {

namespace fs = std::filesystem;

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::ShimPlan;
using testing::ShimResult;

constexpr std::size_t kLargeSave = 3 << 20;

class FullCacheTest : public CommandRunner {
 protected:
  void SetUp() override {
    fs::create_directory(far_ / "scratch");
    setenv("XDG_CACHE_HOME", cache_.c_str(), 1);
    ASSERT_OK_AND_ASSIGN(
        Store store,
        Store::Open(far_ / "run", testing::RemoteOptions(address_)));
    Save(store, 1);
    Save(store, 2);
    ASSERT_OK(store.Close());
    right_ = Run({"-C", far_ / "run", "get", "1:params/w", "-o", "raw"});
    ASSERT_EQ(right_.code, 0) << right_.err;
    ASSERT_EQ(right_.out.size(), kLargeSave);
  }

  // Of so many leaves that their records are a segment of their own.
  static void Save(Store& store, std::int64_t step) {
    const testing::Bytes bytes = testing::RandomBytes(kLargeSave, step);
    StepBuilder builder = store.Begin(step);
    builder.Put("params/w", testing::Uint8s(bytes));
    const float value = static_cast<float>(step);
    for (int i = 0; i < 8000; ++i) {
      builder.Put(absl::StrCat("bias/", i),
                  {.dtype = DType::kFloat32, .data = &value});
    }
    ASSERT_OK(std::move(builder).Commit().WaitCommitted(testing::kLong));
  }

  ShimResult Get(const std::string& does, std::uint64_t at = 0,
                 const std::string& only = "") {
    const ShimPlan plan{
        .under = cache_, .does = does, .at = at, .value = ENOSPC, .only = only};
    return testing::RunShimmed(
        {CKPTREE_BINARY, "-C", address_, "get", "1:params/w", "-o", "raw"},
        plan, far_ / "scratch");
  }
  void ExpectRight(const ShimResult& got) {
    EXPECT_EQ(got.code, 0) << got.fired_at << ": " << got.err;
    EXPECT_TRUE(got.out == right_.out) << got.fired_at;
  }

  testing::TempDir far_;
  const std::string cache_ = far_ / "cache";
  const std::string address_ = "file://" + (far_ / "bucket");
  Result right_;
};

// The rows are there, and no segment of leaf records.
TEST_F(FullCacheTest, WhatIsReadNeedsNoRoom) {
  ASSERT_FALSE(testing::ObjectsOf(far_ / "bucket", "segment").empty());
  ASSERT_EQ(Run({"-C", address_, "log"}).code, 0);
  const ShimResult got = Get("fail_on", 1, "write");
  EXPECT_GT(got.fired, 0u);
  ExpectRight(got);
}

// From any call on.
TEST_F(FullCacheTest, ItIsReadRightOrSaidWhatToDo) {
  const ShimResult all = Get("count");
  ExpectRight(all);
  int said = 0;
  constexpr std::uint64_t kTries = 16;
  for (std::uint64_t i = 0; i < kTries; ++i) {
    fs::remove_all(cache_);
    const ShimResult got = Get("fail_on", 1 + i * all.calls / kTries);
    if (got.code == 0) {
      ExpectRight(got);
    } else {
      ++said;
      EXPECT_THAT(got.err,
                  AllOf(HasSubstr(cache_), HasSubstr("XDG_CACHE_HOME")))
          << got.fired_at;
      EXPECT_EQ(got.out, "");
    }
    ExpectRight(Get("count"));
    if (HasFailure()) break;
  }
  EXPECT_GT(said, 0);
}

// What a refresh brings, too.
TEST_F(FullCacheTest, ARefreshSaysWhatToDo) {
  ASSERT_EQ(Run({"-C", address_, "log"}).code, 0);
  {
    ASSERT_OK_AND_ASSIGN(
        Store store,
        Store::Open(far_ / "run", testing::RemoteOptions(address_)));
    Save(store, 3);
    ASSERT_OK(store.Close());
  }
  const ShimResult got = Get("fail_on", 1, "write");
  EXPECT_NE(got.code, 0);
  EXPECT_THAT(got.err, AllOf(HasSubstr(cache_), HasSubstr("XDG_CACHE_HOME")));
  ExpectRight(Get("count"));
}

}  // namespace
}  // namespace ckptree
