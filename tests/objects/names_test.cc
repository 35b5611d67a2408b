// SPDX-License-Identifier: Apache-2.0

#include "kv/objects/names.h"

#include <array>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kv/object_store.h"
#include "tests/objects/fixture.h"
#include "tests/testutil/status_matchers.h"
#include "tests/testutil/temp_dir.h"

namespace ckptree {
namespace {

using ::ckptree::testing::Soon;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(ObjectAddressTest, IsABucketAndAPrefix) {
  const auto parsed = kv::ParseObjectAddress("s3://bucket/team/run-1/");
  ASSERT_THAT(parsed, testing::IsOk());
  EXPECT_EQ(parsed->scheme, "s3");
  EXPECT_EQ(parsed->place, "bucket");
  EXPECT_EQ(parsed->path, "team/run-1");
  EXPECT_EQ(kv::ParseObjectAddress("s3://bucket")->path, "");
  EXPECT_EQ(kv::ParseObjectAddress("rados://pool/space")->path, "space");
  EXPECT_EQ(kv::ParseObjectAddress("file:///a/b")->path, "/a/b");
}

TEST(ObjectAddressTest, HasOneTextForEachPlace) {
  for (const auto& [given, plain] : std::vector<std::array<std::string, 2>>{
           {"s3://bucket/run/", "s3://bucket/run"},
           {"s3://bucket/", "s3://bucket"},
           {"rados://pool/space//", "rados://pool/space"},
           {"file:///a//b/", "file:///a/b"},
           {"file:///", "file:///"},
           {"file:///a b/\u00fc/100%/%zz", "file:///a b/\u00fc/100%/%zz"}}) {
    EXPECT_EQ(kv::PlainAddress(given), plain);
    EXPECT_EQ(kv::PlainAddress(plain), plain);
  }
  // No address: it stays, to be refused as it is.
  EXPECT_EQ(kv::PlainAddress("s3://bucket//run/"), "s3://bucket//run/");
}

TEST(ObjectAddressTest, AFolderIsNamedAsItIs) {
  EXPECT_THAT(kv::ParseObjectAddress("file:///a%20b").status(),
              testing::StatusIs(absl::StatusCode::kInvalidArgument,
                                HasSubstr("file:///a%20b")));
}

TEST(ObjectAddressTest, HoldsNoSecretAndShowsNone) {
  for (const std::string address :
       {"s3://key:hunter2@bucket/run", "s3://bucket/run?X-Amz-Key=hunter2",
        "s3://bucket/run#hunter2", "rados://user:hunter2@pool/space",
        "s3://hunter2%40bucket", "hunter2", "https://x:hunter2@host/b"}) {
    const absl::Status status = kv::ParseObjectAddress(address).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << address;
    EXPECT_THAT(status.ToString(), Not(HasSubstr("hunter2")));
  }
}

TEST(ObjectAddressTest, RefusesWhatIsNone) {
  for (const std::string address :
       {"", "s3://", "s3:///run", "s3://../run", "s3://bucket/../run",
        "s3://bucket/a b", "file://relative", "gcs://bucket/run", "gs:///run",
        "gs://bucket/run?key=x", "s3://bucket//run"}) {
    EXPECT_EQ(kv::ParseObjectAddress(address).status().code(),
              absl::StatusCode::kInvalidArgument)
        << address;
  }
}

TEST(ObjectAddressTest, GoogleIsTakenWhereItsEndpointIsNamedAlone) {
  const std::string address = "gs://bucket/run";
  EXPECT_EQ(kv::ParseObjectAddress(address)->place, "bucket");
  if (!kv::HasObjectStore("gs")) GTEST_SKIP() << "a build without S3";
  unsetenv("CKPTREE_GS_ENDPOINT");
  // That is where s3:// goes.
  setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9", 1);
  const absl::Status status = kv::OpenObjectStore(address, {}, Soon()).status();
  unsetenv("AWS_ENDPOINT_URL_S3");
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(
      std::string(status.message()),
      AllOf(HasSubstr(address), HasSubstr("CKPTREE_GS_ENDPOINT"),
            HasSubstr("GS_ACCESS_KEY_ID"), HasSubstr("GS_SECRET_ACCESS_KEY")));
  setenv("CKPTREE_GS_ENDPOINT", "http://127.0.0.1:9", 1);
  EXPECT_THAT(kv::OpenObjectStore(address, {}, Soon()), testing::IsOk());
  // Plain http to another host.
  setenv("CKPTREE_GS_ENDPOINT", "http://storage.googleapis.com", 1);
  EXPECT_EQ(kv::OpenObjectStore(address, {}, Soon()).status().code(),
            absl::StatusCode::kFailedPrecondition);
  unsetenv("CKPTREE_GS_ENDPOINT");
}

TEST(ObjectAddressTest, TheProfileNamesAServer) {
  if (!kv::HasObjectStore("s3")) GTEST_SKIP() << "a build without S3";
  const testing::TempDir folder;
  const std::string config = folder / "config";
  for (const char* name : {"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL",
                           "AWS_PROFILE", "AWS_SHARED_CREDENTIALS_FILE"}) {
    unsetenv(name);
  }
  setenv("AWS_SHARED_CREDENTIALS_FILE", (folder / "none").c_str(), 1);
  setenv("AWS_CONFIG_FILE", config.c_str(), 1);
  const auto open = [] {
    return kv::OpenObjectStore("s3://bucket/run", {}, Soon()).status();
  };
  // Amazon's own; nothing is asked yet.
  EXPECT_THAT(open(), testing::IsOk());
  // Plain http to another host is refused, by which it is seen.
  std::ofstream(config) << "[default]\nendpoint_url = http://elsewhere.test\n";
  EXPECT_EQ(open().code(), absl::StatusCode::kFailedPrecondition) << open();
  setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9", 1);
  EXPECT_THAT(open(), testing::IsOk());
  for (const char* name :
       {"AWS_ENDPOINT_URL", "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"}) {
    unsetenv(name);
  }
}

TEST(ObjectAddressTest, AKindThatTheBuildIsWithoutIsNamed) {
  for (const char* scheme : {"s3", "gs", "rados"}) {
    if (kv::HasObjectStore(scheme)) continue;
    const absl::Status status =
        kv::OpenObjectStore(absl::StrCat(scheme, "://place/run"), {}, Soon())
            .status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
    EXPECT_THAT(status.ToString(), HasSubstr(absl::StrCat(scheme, "://")));
  }
  EXPECT_TRUE(kv::HasObjectStore("file"));
  EXPECT_FALSE(kv::HasObjectStore("gcs"));
}

}  // namespace
}  // namespace ckptree
