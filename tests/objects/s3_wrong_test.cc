// SPDX-License-Identifier: Apache-2.0

// An S3 with something before it, or about it, that is not as it should be
// (wrong_s3.py): which one, servers.py says.

#include <cstddef>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
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
#include "tests/testutil/status_matchers.h"
#include "tests/testutil/temp_dir.h"

namespace ckptree::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class S3WrongTest : public ObjectStoreTest {
 protected:
  absl::Status PutOne(const std::string& name) {
    return store_->Put(name, PatternSource(10, 0), Soon());
  }
  std::optional<std::size_t> SizeOf(const std::string& name) {
    const auto info = store_->Head(name, Soon());
    EXPECT_OK(info);
    if (!info.ok() || !info->has_value()) return std::nullopt;
    return (*info)->size;
  }
  std::vector<std::string> Names(const std::string& prefix) {
    const absl::StatusOr<kv::ObjectPage> page =
        store_->List(prefix, "", Soon());
    EXPECT_OK(page);
    std::vector<std::string> names;
    if (!page.ok()) return names;
    for (const kv::ObjectInfo& info : page->objects) names.push_back(info.name);
    return names;
  }

  // Nobody can say what is there, and that is an error, soon.
  void Headless() {
    EXPECT_OK(PutOne("a/b"));
    std::byte into[10];
    EXPECT_EQ(store_->GetRange("a/b", 0, into, Soon()).value(), 10U);
    EXPECT_EQ(into[3], ByteAt(3, 0));
    EXPECT_THAT(store_->Head("a/b", Soon()),
                StatusIs(absl::StatusCode::kUnavailable,
                         HasSubstr("HEAD a/b (405, and GET has an answer)")));
    EXPECT_EQ(store_->Head("a/none", Soon()).value(), std::nullopt);
  }

  // It is no word on what is there.
  void Absent() {
    EXPECT_OK(PutOne("a/b"));
    EXPECT_EQ(SizeOf("a/b"), 10U);
    EXPECT_EQ(SizeOf("a/none"), std::nullopt);
    const std::string id = kv::NewWriteId();
    EXPECT_EQ(kv::PutSettled(*store_, "a/c", id, id, Soon())->outcome,
              kv::PutOutcome::kCreated);
    std::byte into[10];
    EXPECT_EQ(store_->GetRange("a/b", 0, into, Soon()).value(), 10U);
    EXPECT_THAT(Names("a/"), ElementsAre("a/b", "a/c"));
  }

  // What the shared file has at the time.
  void Rotates() {
    const TempDir dir;
    const std::string path = dir / "credentials";
    const auto write = [&path](const std::string& key) {
      std::ofstream(path) << "[default]\naws_access_key_id = " << key
                          << "\naws_secret_access_key = secret-of-" << key
                          << "\n";
    };
    write("first");
    setenv("AWS_SHARED_CREDENTIALS_FILE", path.c_str(), 1);
    unsetenv("AWS_ACCESS_KEY_ID");
    unsetenv("AWS_SECRET_ACCESS_KEY");
    store_ = Open();
    EXPECT_OK(PutOne("a/b"));
    EXPECT_OK(PutOne("rotate"));
    EXPECT_THAT(PutOne("a/c"), StatusIs(absl::StatusCode::kUnauthenticated,
                                        HasSubstr("InvalidAccessKeyId")));
    write("second");
    const std::string id = kv::NewWriteId();
    EXPECT_EQ(store_->PutIfAbsent("a/d", id, id, Soon())->outcome,
              kv::PutOutcome::kCreated);
    EXPECT_OK(PutOne("a/e"));
    EXPECT_THAT(Names("a/"), ElementsAre("a/b", "a/d", "a/e"));
  }

  // Which is not its end.
  void Empty() {
    EXPECT_OK(PutOne("a/b"));
    EXPECT_OK(PutOne("a/c"));
    EXPECT_THAT(Names("a/"), ElementsAre("a/b", "a/c"));
    EXPECT_THAT(store_->List("cut/", "", Soon()),
                StatusIs(absl::StatusCode::kUnavailable,
                         AllOf(HasSubstr("cut/"), HasSubstr("cut off"))));
  }
};

TEST_F(S3WrongTest, AsServersPySays) {
  const std::map<std::string, std::function<void()>> trials = {
      {"headless", [this] { Headless(); }},
      {"absent", [this] { Absent(); }},
      {"rotates", [this] { Rotates(); }},
      {"empty", [this] { Empty(); }},
  };
  const auto trial = trials.find(Environment("CKPTREE_TEST_WRONG"));
  ASSERT_NE(trial, trials.end());
  trial->second();
}

}  // namespace
}  // namespace ckptree::testing
