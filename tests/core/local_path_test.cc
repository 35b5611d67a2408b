// SPDX-License-Identifier: Apache-2.0

// Where stores may be: what names a directory of this machine, and what not.

#include "ckptree/local_path.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "ckptree/ckptree.h"
#include "tests/testutil/status_matchers.h"
#include "tests/testutil/temp_dir.h"

namespace ckptree {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::IsOkAndHolds;
using ::testing::Not;
using testing::StatusIs;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

TEST(LocalPathTest, PathsAreWhatTheyAre) {
  for (const char* path :
       {"/runs/lm", "runs/lm", "./gs://b", "./file:rel", "a:b/c", "run:/b",
        "az:1", "://x", "1s3://x", "a b://c", "/file:///x", "100%25"}) {
    EXPECT_THAT(LocalPath(path), IsOkAndHolds(std::string(path)));
  }
}

TEST(LocalPathTest, WhatNamesNothingIsRefused) {
  for (const std::string& path :
       {std::string(), std::string("/runs\0/lm", 9), std::string("\0", 1)}) {
    EXPECT_THAT(LocalPath(path), StatusIs(absl::StatusCode::kInvalidArgument));
  }
}

TEST(LocalPathTest, AFileUrlIsItsPath) {
  EXPECT_THAT(LocalPath("file:///runs/lm"), IsOkAndHolds("/runs/lm"));
  EXPECT_THAT(LocalPath("FILE:///a%20b%2fc"), IsOkAndHolds("/a b/c"));
  EXPECT_THAT(LocalPath("file:///100%"), IsOkAndHolds("/100%"));
  EXPECT_THAT(LocalPath("file:///%4"), IsOkAndHolds("/%4"));
  EXPECT_THAT(LocalPath("file:///%zz%+1"), IsOkAndHolds("/%zz%+1"));
  EXPECT_THAT(LocalPath("file:/runs/lm"), IsOkAndHolds("/runs/lm"));
  for (const char* url : {"file://", "file://runs/lm", "file://host/runs",
                          "file:///a%00b", "file:rel", "file:", "File:a/b"}) {
    EXPECT_THAT(LocalPath(url), StatusIs(kInvalid, HasSubstr("file:///runs")));
  }
}

TEST(LocalPathTest, TheUserOfAnAddressIsNotShown) {
  for (const char* url : {"https://hunter2@host/b", "file://u:hunter2@host/x",
                          "gs://a:hunter2@b@c?x=@"}) {
    const absl::Status refused = LocalPath(url).status();
    EXPECT_THAT(std::string(refused.message()),
                AllOf(HasSubstr("://***@"), Not(HasSubstr("hunter2"))));
  }
}

TEST(LocalPathTest, OtherUrlsAreRefusedByTheirScheme) {
  EXPECT_THAT(
      LocalPath("gs://b/run"),
      StatusIs(kInvalid, AllOf(HasSubstr("gs://b/run"), HasSubstr("'gs'"))));
  EXPECT_THAT(LocalPath("S3://b"), StatusIs(kInvalid, HasSubstr("'S3'")));
  EXPECT_THAT(LocalPath("a+b-c.1://b"),
              StatusIs(kInvalid, HasSubstr("'a+b-c.1'")));
}

TEST(LocalPathTest, AMistypedAddressIsToldAsSuch) {
  const auto says = [](const char* text) {
    return StatusIs(kInvalid, AllOf(HasSubstr(text), Not(HasSubstr("made"))));
  };
  EXPECT_THAT(LocalPath("s3:b/x"), says("begins with s3://"));
  EXPECT_THAT(LocalPath("s3:/b/x"), says("s3://b/x: a directory"));
  EXPECT_THAT(LocalPath("rados:p"), says("begins with rados://"));
  EXPECT_THAT(LocalPath("S3://b/x"), says("in lower case, s3://"));
  EXPECT_THAT(LocalPath("s4://b/x"), says("'s4' is no scheme of an address"));
  EXPECT_THAT(LocalPath("gcs:/b/x"), says("'gcs' is no scheme"));
  EXPECT_THAT(LocalPath("s3://b/x"), says("has this as its remote"));
}

// In a directory of its own, where nothing may appear.
class NoFolderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    before_ = std::filesystem::current_path();
    std::filesystem::current_path(dir_.path());
  }
  void TearDown() override {
    EXPECT_TRUE(std::filesystem::is_empty("."));
    std::filesystem::current_path(before_);
  }

 private:
  testing::TempDir dir_;
  std::filesystem::path before_;
};

TEST_F(NoFolderTest, NoCallMakesAFolderOfAUrl) {
  const std::string url = "s3://bucket/run";
  const auto refused = StatusIs(kInvalid, HasSubstr("'s3'"));
  EXPECT_THAT(Store::Create(url), refused);
  EXPECT_THAT(Store::Open(url), refused);
  EXPECT_THAT(Store::Open(url, {.create_if_missing = true}), refused);
  EXPECT_THAT(Store::Open("gs://bucket/run", {.read_only = true}),
              StatusIs(kInvalid, HasSubstr("'gs'")));
  EXPECT_THAT(CheckpointManager::Open(url), refused);
  EXPECT_THAT(Recover(url, "here"),
              StatusIs(kInvalid,
                       ::testing::AllOf(HasSubstr(url),
                                        HasSubstr("copied into a new store"))));
  EXPECT_THAT(Recover("here", url), refused);
  EXPECT_THAT(Repair(url), refused);
}

TEST(LocalPathTest, AStoreIsMadeAtAFileUrl) {
  const testing::TempDir dir;
  const std::string url = "file://" + dir.path() + "/a%20b";
  {
    auto store = Store::Create(url);
    ASSERT_THAT(store, IsOk());
    EXPECT_EQ(store->Info().directory, dir.path() + "/a b");
  }
  EXPECT_THAT(Store::Open(dir.path() + "/a b", {.read_only = true}), IsOk());
  EXPECT_THAT(Repair(url), IsOk());
}

}  // namespace
}  // namespace ckptree
