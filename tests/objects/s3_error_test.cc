// SPDX-License-Identifier: Apache-2.0

// What S3 stores say when they may not, cannot, or are asked wrongly; and that
// none of it has a secret.

#include <time.h>

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kv/conditional_put.h"
#include "kv/object_store.h"
#include "tests/objects/fixture.h"
#include "tests/testutil/shifted_clock.h"
#include "tests/testutil/status_matchers.h"

// Requests are signed with this one.
extern "C" time_t time(time_t* out) noexcept {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (out != nullptr) *out = now.tv_sec;
  return now.tv_sec;
}

namespace ckptree {
namespace {

using ::ckptree::testing::Environment;
using ::ckptree::testing::Soon;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kWrongSecret[] = "thisisnotthesecretbutitissecret";

bool IsCeph() { return !Environment("CKPTREE_TEST_CEPH_CONF").empty(); }

// A variable of the environment while it is in scope.
class Variable {
 public:
  Variable(const char* name, const std::string& value)
      : name_(name), before_(Environment(name)) {
    setenv(name, value.c_str(), 1);
  }
  ~Variable() { setenv(name_, before_.c_str(), 1); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
  const std::string before_;
};

class S3ErrorTest : public testing::ObjectStoreTest {
 protected:
  std::unique_ptr<kv::ObjectStore> OpenAt(const std::string& address) {
    auto opened = kv::OpenObjectStore(address, Options(), Soon());
    EXPECT_THAT(opened, testing::IsOk());
    return opened.ok() ? *std::move(opened) : nullptr;
  }
  // What each call says; all must be of this code.
  std::string Errors(kv::ObjectStore& store, absl::StatusCode code) {
    std::byte into[4];
    const std::string id = kv::NewWriteId();
    const std::vector<std::string> names = {"a/b"};
    const absl::Status all[] = {
        store.Head("a/b", Soon()).status(),
        store.GetRange("a/b", 0, into, Soon()).status(),
        store.PutIfAbsent("a/b", id, id, Soon()).status(),
        store.Put("a/b", testing::PatternSource(10, 0), Soon()),
        store.Put("a/b", testing::PatternSource(70'000'000, 0), Soon()),
        store.List("a/", "", Soon()).status(),
        store.Delete(names, Soon()),
        store.ListUploads("a/", Soon()).status(),
        ProveConditionalPut(store, "", Soon()),
    };
    std::string text;
    for (const absl::Status& status : all) {
      EXPECT_EQ(status.code(), code) << status;
      absl::StrAppend(&text, status.ToString(), "\n");
    }
    EXPECT_THAT(text, HasSubstr("a/b at 127.0.0.1:"));
    EXPECT_THAT(text, Not(HasSubstr(secret_)));
    EXPECT_THAT(text, Not(HasSubstr(key_)));
    EXPECT_THAT(text, Not(HasSubstr("Signature=")));
    EXPECT_THAT(text, Not(HasSubstr(kWrongSecret)));
    return text;
  }

  // Those that the server takes.
  const std::string key_ = Environment("AWS_ACCESS_KEY_ID");
  const std::string secret_ = Environment("AWS_SECRET_ACCESS_KEY");
};

TEST_F(S3ErrorTest, ABucketThatIsNotThere) {
  const auto store = OpenAt("s3://no-such-bucket/run");
  EXPECT_THAT(Errors(*store, absl::StatusCode::kFailedPrecondition),
              ::testing::AllOf(HasSubstr("no such bucket"),
                               HasSubstr("/no-such-bucket:")));
}

TEST_F(S3ErrorTest, CredentialsThatAreWrong) {
  if (!IsCeph()) return;  // moto takes any.
  {
    const Variable secret("AWS_SECRET_ACCESS_KEY", kWrongSecret);
    EXPECT_THAT(Errors(*Open(), absl::StatusCode::kUnauthenticated),
                HasSubstr("does not know these credentials"));
  }
  const Variable key("AWS_ACCESS_KEY_ID", "nobody");
  EXPECT_THAT(Errors(*Open(), absl::StatusCode::kUnauthenticated),
              HasSubstr("InvalidAccessKeyId"));
}

TEST_F(S3ErrorTest, NoCredentialsAtAll) {
  const Variable key("AWS_ACCESS_KEY_ID", "");
  const Variable files("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent");
  const Variable config("AWS_CONFIG_FILE", "/nonexistent");
  const Variable machine("AWS_EC2_METADATA_DISABLED", "true");
  EXPECT_THAT(Errors(*Open(), absl::StatusCode::kUnauthenticated),
              HasSubstr("no credentials for S3"));
}

TEST_F(S3ErrorTest, AClockThatIsADayOff) {
  if (!IsCeph()) return;  // moto looks at no date.
  const auto store = Open();
  for (const int days : {-1, 1}) {
    testing::clock_offset_seconds = days * 86400;
    const std::string errors =
        Errors(*store, absl::StatusCode::kUnauthenticated);
    testing::clock_offset_seconds = 0;
    EXPECT_THAT(errors, HasSubstr("the clock of this machine is wrong"));
  }
  EXPECT_FALSE(IsThere("a/b"));
}

TEST_F(S3ErrorTest, CredentialsOfAProfile) {
  const std::string path = dir_.path() + "/credentials";
  FILE* file = fopen(path.c_str(), "w");
  ASSERT_NE(file, nullptr);
  fprintf(file,
          "# Both.\n[default]\naws_access_key_id = nobody\n"
          "aws_secret_access_key = %s\n\n[ team ]\naws_access_key_id=%s\n"
          "aws_secret_access_key =  %s \n",
          kWrongSecret, key_.c_str(), secret_.c_str());
  fclose(file);
  const Variable no_key("AWS_ACCESS_KEY_ID", "");
  const Variable files("AWS_SHARED_CREDENTIALS_FILE", path);
  if (IsCeph()) {
    Errors(*Open(), absl::StatusCode::kUnauthenticated);
  }
  const Variable profile("AWS_PROFILE", "team");
  const auto store = Open();
  EXPECT_THAT(store->Put("a", testing::PatternSource(10, 0), Soon()),
              testing::IsOk());
}

TEST_F(S3ErrorTest, PlainHttpIsForThisMachine) {
  kv::ObjectStoreOptions options;
  options.endpoint = "http://storage.example.com";
  EXPECT_EQ(kv::OpenObjectStore("s3://b/run", options, Soon()).status().code(),
            absl::StatusCode::kFailedPrecondition);
  options.allow_http = true;
  EXPECT_THAT(kv::OpenObjectStore("s3://b/run", options, Soon()),
              testing::IsOk());
  options.endpoint = absl::StrCat("https://key:", kWrongSecret, "@host");
  const absl::Status status =
      kv::OpenObjectStore("s3://b/run", options, Soon()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.ToString(), Not(HasSubstr(kWrongSecret)));
}

TEST_F(S3ErrorTest, AServerWithoutACertificate) {
  kv::ObjectStoreOptions options = Options();
  options.endpoint = absl::StrCat("https", options.endpoint.substr(4));
  auto opened = kv::OpenObjectStore(Address(), options, Soon());
  ASSERT_THAT(opened, testing::IsOk());
  const absl::Status status =
      (*opened)->Head("a", kv::Call::Within(absl::Seconds(2))).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  EXPECT_THAT(status.ToString(), HasSubstr("127.0.0.1"));
}

}  // namespace
}  // namespace ckptree
