// SPDX-License-Identifier: Apache-2.0

// The examples of AWS's documentation of signatures in headers, which name the
// key, the requests and what they are signed with.

#include "kv/objects/s3_signature.h"

#include <string>
#include <string_view>

#include "absl/time/civil_time.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kv/objects/aws_credentials.h"
#include "kv/objects/http.h"
#include "kv/objects/secret.h"

namespace ckptree {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

kv::AwsKeys Keys() {
  return {"AKIAIOSFODNN7EXAMPLE",
          kv::SecretOf("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"), ""};
}

void Sign(const kv::AwsKeys& keys, kv::HttpRequest* request) {
  kv::SignS3Request(
      keys, "us-east-1",
      absl::FromCivil(absl::CivilDay(2013, 5, 24), absl::UTCTimeZone()),
      request);
}

// What is signed, and the signature.
std::string Signed(kv::HttpRequest request) {
  Sign(Keys(), &request);
  const std::string& last = request.headers.back();
  return last.substr(last.find(",SignedHeaders="));
}

TEST(S3SignatureTest, ARangeOfAnObject) {
  kv::HttpRequest request{
      .method = "GET",
      .url = "https://examplebucket.s3.amazonaws.com/test.txt",
      .headers = {"Range: bytes=0-9"}};
  Sign(Keys(), &request);
  EXPECT_THAT(
      request.headers,
      ElementsAre(
          "Range: bytes=0-9", "Host: examplebucket.s3.amazonaws.com",
          "x-amz-content-sha256: "
          "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
          "x-amz-date: 20130524T000000Z",
          "Authorization: AWS4-HMAC-SHA256 "
          "Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/"
          "aws4_request,"
          "SignedHeaders=host;range;x-amz-content-sha256;x-amz-date,"
          "Signature="
          "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"));
}

TEST(S3SignatureTest, AnObjectThatIsPut) {
  EXPECT_EQ(Signed({.method = "PUT",
                    .url = "https://examplebucket.s3.amazonaws.com/"
                           "test%24file.text",
                    .headers = {"Date: Fri, 24 May 2013 00:00:00 GMT",
                                "x-amz-storage-class: REDUCED_REDUNDANCY"},
                    .body = "Welcome to Amazon S3."}),
            ",SignedHeaders=date;host;x-amz-content-sha256;x-amz-date;"
            "x-amz-storage-class,Signature="
            "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd");
}

TEST(S3SignatureTest, AParameterWithoutAValue) {
  EXPECT_EQ(
      Signed({.method = "GET",
              .url = "https://examplebucket.s3.amazonaws.com/?lifecycle="}),
      ",SignedHeaders=host;x-amz-content-sha256;x-amz-date,Signature="
      "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543");
}

TEST(S3SignatureTest, TwoParameters) {
  EXPECT_EQ(Signed({.method = "GET",
                    .url = "https://examplebucket.s3.amazonaws.com/"
                           "?max-keys=2&prefix=J"}),
            ",SignedHeaders=host;x-amz-content-sha256;x-amz-date,Signature="
            "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7");
}

// The port of its scheme is not named, as in what arrives.
TEST(S3SignatureTest, ThePortIsPartOfTheHost) {
  const auto host = [](const std::string& url) {
    kv::HttpRequest request{.method = "GET", .url = url};
    Sign(Keys(), &request);
    return request.headers.front();
  };
  EXPECT_EQ(host("https://host/b/o"), "Host: host");
  EXPECT_EQ(host("https://host:443/b/o"), "Host: host");
  EXPECT_EQ(host("https://host:80/b/o"), "Host: host:80");
  EXPECT_EQ(host("http://host:80/b/o"), "Host: host");
  EXPECT_EQ(host("http://[::1]:9000/b/o"), "Host: [::1]:9000");
}

TEST(S3SignatureTest, ATokenOfASessionIsSent) {
  kv::AwsKeys keys = Keys();
  keys.token = "a token";
  kv::HttpRequest request{.method = "GET", .url = "https://host/b/o"};
  Sign(keys, &request);
  EXPECT_THAT(request.headers, Contains("x-amz-security-token: a token"));
  EXPECT_THAT(request.headers.back(),
              HasSubstr("x-amz-date;x-amz-security-token,"));
  // Two lines would be two headers.
  keys.token = "a\r\ntoken: b";
  kv::HttpRequest other{.method = "GET", .url = "https://host/b/o"};
  Sign(keys, &other);
  EXPECT_THAT(other.headers,
              ::testing::Not(Contains(StartsWith("x-amz-security-token"))));
}

// Longer than a block of the digest: it is digested itself. Python's hmac came
// to the same.
TEST(S3SignatureTest, ALongSecret) {
  kv::AwsKeys keys = Keys();
  keys.secret = kv::SecretOf(std::string(100, 's'));
  kv::HttpRequest request{.method = "GET", .url = "https://host/b/o"};
  Sign(keys, &request);
  EXPECT_THAT(request.headers.back(),
              HasSubstr("Signature=803de0b7253c25f6462c"
                        "d4b52a125e6a362c28dbc3a88b0fcf7ba85b4fec40b0"));
}

}  // namespace
}  // namespace ckptree
