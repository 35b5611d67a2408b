// SPDX-License-Identifier: Apache-2.0

// gs://, through an S3 that stands where Google's endpoint would.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "ckptree/ckptree.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kv/conditional_put.h"
#include "kv/object_store.h"
#include "tests/core/fixture.h"
#include "tests/remote/fixture.h"
#include "tests/testutil/temp_dir.h"

namespace ckptree::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr std::size_t kBytes = 3 << 20;

class FileSource : public kv::ObjectSource {
 public:
  explicit FileSource(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    bytes_.assign(std::istreambuf_iterator<char>(file), {});
  }
  std::uint64_t size() const override { return bytes_.size(); }
  absl::Status Read(std::uint64_t offset,
                    std::span<std::byte> into) const override {
    const auto from = std::as_bytes(std::span(bytes_));
    std::ranges::copy(from.subspan(offset, into.size()), into.begin());
    return absl::OkStatus();
  }

 private:
  std::string bytes_;
};

class GoogleTest : public ::testing::Test {
 protected:
  // Only gs:// has an endpoint and keys here, and what is of AWS is wrong.
  void SetUp() override {
    setenv("XDG_CACHE_HOME", (dir_ / "cache").c_str(), 1);
    setenv("CKPTREE_GS_ENDPOINT", Environment("CKPTREE_TEST_S3").c_str(), 1);
    setenv("GS_ACCESS_KEY_ID", key_.c_str(), 1);
    setenv("GS_SECRET_ACCESS_KEY", secret_.c_str(), 1);
    setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9", 1);
    setenv("AWS_REGION", "no region!", 1);
    setenv("AWS_ACCESS_KEY_ID", "aws", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "hunter2", 1);
    setenv("AWS_SESSION_TOKEN", "hunter3", 1);
  }
  void TearDown() override {
    setenv("AWS_ACCESS_KEY_ID", key_.c_str(), 1);
    setenv("AWS_SECRET_ACCESS_KEY", secret_.c_str(), 1);
    unsetenv("AWS_SESSION_TOKEN");
  }

  absl::StatusOr<Store> Write(const std::string& disk,
                              const std::string& address) {
    return Store::Open(dir_ / disk, RemoteOptions(address));
  }
  absl::StatusOr<Store> Read() {
    StoreOptions options = QuietOptions();
    options.create_if_missing = false;
    options.read_only = true;
    return Store::Open(address_, options);
  }
  std::unique_ptr<kv::ObjectStore> Objects() {
    return kv::OpenObjectStore(address_, {}, Soon()).value();
  }
  std::vector<std::string> Names() {
    std::vector<std::string> names;
    const kv::ObjectPage page = Objects()->List("", "", Soon()).value();
    for (const kv::ObjectInfo& object : page.objects) {
      names.push_back(object.name);
    }
    return names;
  }

  TempDir dir_;
  const std::string key_ = Environment("AWS_ACCESS_KEY_ID");
  const std::string secret_ = Environment("AWS_SECRET_ACCESS_KEY");
  const std::string address_ = absl::StrCat(
      "gs://", Environment("CKPTREE_TEST_BUCKET"), "/run-", kv::NewWriteId());
};

TEST_F(GoogleTest, IsWrittenAndReadWhereTheBucketCreatesConditionally) {
  {
    Store store = Write("a", address_).value();
    SaveStep(store, 1, kBytes);
    SaveStep(store, 2, kBytes);
    ASSERT_OK(store.WaitReplicated(kLong));
    ASSERT_OK(store.Close());
  }
  Store there = Read().value();
  EXPECT_THAT(StepsOf(there), ElementsAre(1, 2));
  ExpectStep(there, 2, kBytes);
  ExpectWhole(there);
  // From an empty directory it goes on.
  Store next = Write("b", address_).value();
  ExpectStep(next, 1, kBytes);
  SaveStep(next, 3, kBytes);
  ASSERT_OK(next.WaitReplicated(kLong));
  ASSERT_OK(there.Refresh());
  ExpectStep(there, 3, kBytes);
}

TEST_F(GoogleTest, KeysAreThoseOfGoogleAlone) {
  unsetenv("GS_SECRET_ACCESS_KEY");
  for (const absl::Status& status :
       {Read().status(), Write("a", address_).status()}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kUnauthenticated) << status;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("GS_ACCESS_KEY_ID"),
                      HasSubstr("GS_SECRET_ACCESS_KEY")));
  }
  EXPECT_FALSE(fs::exists(dir_ / "a"));
}

TEST_F(GoogleTest, KeysThatTheServerDoesNotKnowAreNamedAsGoogles) {
  if (Environment("CKPTREE_TEST_CEPH_CONF").empty()) {
    GTEST_SKIP() << "moto takes any";
  }
  setenv("GS_SECRET_ACCESS_KEY", "hunter4", 1);
  const std::string said(Read().status().message());
  EXPECT_THAT(said, AllOf(HasSubstr("GS_ACCESS_KEY_ID"), Not(HasSubstr("AWS_")),
                          Not(HasSubstr("hunter"))));
}

TEST_F(GoogleTest, AnEndpointThatIsNoneIsNamedAndNotShown) {
  setenv("CKPTREE_GS_ENDPOINT", "https://user:hunter2@host", 1);
  const absl::Status status = Read().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(
      std::string(status.message()),
      AllOf(HasSubstr("CKPTREE_GS_ENDPOINT"), Not(HasSubstr("hunter2"))));
}

// Where a PUT with If-None-Match replaces, or is refused.
class WithoutConditionTest : public GoogleTest {
 protected:
  void ExpectRefused(const absl::Status& status) {
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr(address_), HasSubstr("If-None-Match"),
                      HasSubstr("can be read")));
  }
};

TEST_F(WithoutConditionTest, NoStoreIsBegunThere) {
  ExpectRefused(Write("a", address_).status());
  EXPECT_THAT(Names(), IsEmpty());
  EXPECT_FALSE(fs::exists(dir_ / "a"));
  // So is a directory that has steps, which loses nothing.
  {
    StoreOptions options = QuietOptions();
    options.create_if_missing = true;
    Store store = Store::Open(dir_ / "b", options).value();
    SaveStep(store, 1, kBytes);
    ASSERT_OK(store.Close());
  }
  ExpectRefused(Write("b", address_).status());
  EXPECT_THAT(Names(), IsEmpty());
  Store store = Store::Open(dir_ / "b", QuietOptions()).value();
  ExpectStep(store, 1, kBytes);
  SaveStep(store, 2, kBytes);
}

TEST_F(WithoutConditionTest, AStoreThatWasCopiedThereIsReadAndNotWritten) {
  const fs::path far = dir_ / "far";
  {
    Store store = Write("a", absl::StrCat("file://", far.string())).value();
    SaveStep(store, 1, kBytes);
    SaveStep(store, 2, kBytes);
    ASSERT_OK(store.WaitReplicated(kLong));
    ASSERT_OK(store.Close());
  }
  const auto objects = Objects();
  for (const auto& entry : fs::recursive_directory_iterator(far)) {
    if (!entry.is_regular_file()) continue;
    const std::string name = fs::relative(entry.path(), far).string();
    ASSERT_OK(objects->Put(name, FileSource(entry.path()), Soon()));
  }
  const std::vector<std::string> before = Names();
  ASSERT_THAT(before, Not(IsEmpty()));
  // Neither from an empty directory nor from the one that shipped it.
  ExpectRefused(Write("b", address_).status());
  EXPECT_FALSE(fs::exists(dir_ / "b"));
  ExpectRefused(Write("a", address_).status());
  EXPECT_EQ(Names(), before);
  Store there = Read().value();
  EXPECT_THAT(StepsOf(there), ElementsAre(1, 2));
  ExpectStep(there, 1, kBytes);
  ExpectWhole(there);
}

using WithoutStartAfterTest = GoogleTest;

TEST_F(WithoutStartAfterTest, AListThatBeginsAnewIsNoneOfWhatIsBehind) {
  const auto objects = Objects();
  for (const std::string name : {"a", "b"}) {
    const std::string id = kv::NewWriteId();
    ASSERT_OK(objects->PutIfAbsent(name, id, id, Soon()));
  }
  EXPECT_EQ(Names(), (std::vector<std::string>{"a", "b"}));
  const absl::Status status = objects->List("", "a", Soon()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr(address_), HasSubstr("start-after")));
}

}  // namespace
}  // namespace ckptree::testing
