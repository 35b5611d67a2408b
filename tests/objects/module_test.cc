// SPDX-License-Identifier: Apache-2.0

#include "kv/objects/module.h"

#include <fstream>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kv/object_store.h"
#include "tests/objects/fixture.h"
#include "tests/testutil/status_matchers.h"

namespace ckptree {
namespace {

using ::ckptree::testing::Soon;
using ::testing::AllOf;
using ::testing::HasSubstr;

// Whether this process has a file mapped whose path has `name` in it.
bool Mapped(const std::string& name) {
  std::ifstream maps("/proc/self/maps");
  std::string line;
  while (std::getline(maps, line)) {
    if (absl::StrContains(line, name)) return true;
  }
  return false;
}

// In this order: nothing has loaded one before.
TEST(ObjectModuleTest, OneIsLoadedByTheFirstAddressOfItsKind) {
  for (const std::string kind : {"s3", "rados"}) {
    if (!kv::HasObjectStore(kind)) continue;
    const std::string library = kind == "s3" ? "/libcurl" : "/librados";
    EXPECT_FALSE(Mapped(library)) << kind;
    // Neither has a server to answer, and neither asks one for long.
    kv::ObjectStoreOptions options;
    options.endpoint = "no endpoint";
    options.ceph_conf = "/no/such/ceph.conf";
    const absl::Status status =
        kv::OpenObjectStore(absl::StrCat(kind, "://place/run"), options, Soon())
            .status();
    EXPECT_FALSE(status.ok());
    EXPECT_TRUE(Mapped(library)) << status;
    // Not a store that is absent.
    EXPECT_FALSE(absl::IsNotFound(status)) << status;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr(kind == "s3" ? "endpoint" : "/no/such/ceph.conf"));
    EXPECT_THAT(kv::LoadObjectModule(kind), testing::IsOk());
  }
}

TEST(ObjectModuleTest, OneThatIsMissingIsNamed) {
  const absl::Status status = kv::LoadObjectModule("nowhere").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("nowhere://"), HasSubstr("ckptree_nowhere.so")));
}

TEST(ObjectModuleTest, OneOfAnotherVersionIsRefusedWithBoth) {
  const absl::Status status = kv::LoadObjectModule("older").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("ckptree_older.so"), HasSubstr("0.0.1"),
                    HasSubstr(CKPTREE_VERSION)));
}

TEST(ObjectModuleTest, ALibraryOfThatNameThatIsNoModuleIsRefused) {
  const absl::Status status = kv::LoadObjectModule("stranger").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("ckptree_stranger.so"));
}

}  // namespace
}  // namespace ckptree
