// SPDX-License-Identifier: Apache-2.0

// A folder that is an object store, of a share that may be unmounted.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kv/conditional_put.h"
#include "kv/object_store.h"
#include "tests/objects/fixture.h"
#include "tests/testutil/status_matchers.h"
#include "tests/testutil/temp_dir.h"

namespace ckptree::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class Bytes10 : public kv::ObjectSource {
 public:
  std::uint64_t size() const override { return 10; }
  absl::Status Read(std::uint64_t, std::span<std::byte> into) const override {
    for (std::byte& byte : into) byte = std::byte{7};
    return absl::OkStatus();
  }
};

class FileStoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    store_ = kv::OpenObjectStore("file://" + folder(), {}, Soon()).value();
    ASSERT_OK(store_->Put("run/a", Bytes10(), Soon()));
  }
  std::string folder() const { return dir_ / "share"; }
  // What each call says.
  std::vector<std::pair<std::string, absl::Status>> All() {
    std::vector<std::byte> into(10);
    const std::string name = "run/gone";
    return {
        {"Put", store_->Put("run/b", Bytes10(), Soon())},
        {"PutIfAbsent",
         store_->PutIfAbsent("run/c", "bytes", kv::NewWriteId(), Soon())
             .status()},
        {"GetRange", store_->GetRange("run/a", 0, into, Soon()).status()},
        {"Head", store_->Head("run/a", Soon()).status()},
        {"List", store_->List("run/", "", Soon()).status()},
        {"Delete", store_->Delete(std::span(&name, 1), Soon())},
        {"ListUploads", store_->ListUploads("", Soon()).status()},
    };
  }

  TempDir dir_;
  std::unique_ptr<kv::ObjectStore> store_;
};

TEST_F(FileStoreTest, LinksThatLeadBackAreNotFollowed) {
  for (const char* link : {"up", "again", "once more"}) {
    fs::create_directory_symlink(folder(), fs::path(folder()) / "run" / link);
  }
  const auto page = store_->List("run/", "", Soon());
  ASSERT_OK(page);
  ASSERT_EQ(page->objects.size(), 1u);
  EXPECT_EQ(page->objects.front().name, "run/a");
}

TEST_F(FileStoreTest, WhatIsAwayIsNotMadeNorTakenForEmpty) {
  const std::string away = folder() + ".away";
  fs::rename(folder(), away);
  for (const auto& [call, status] : All()) {
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kUnavailable,
                                 HasSubstr(folder() + " is not there")))
        << call;
  }
  EXPECT_FALSE(fs::exists(folder()));
  fs::create_directory(folder());  // Where it is to be mounted.
  for (const auto& [call, status] : All()) {
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kUnavailable,
                                 HasSubstr("is its file system mounted?")))
        << call;
  }
  EXPECT_TRUE(fs::is_empty(folder()));
  fs::remove(folder());
  fs::rename(away, folder());
  for (const auto& [call, status] : All()) EXPECT_THAT(status, IsOk()) << call;
  // Mounted again it may be another one by its numbers.
  fs::rename(folder(), away);
  fs::copy(away, folder(), fs::copy_options::recursive);
  fs::remove(folder() + "/run/c");
  for (const auto& [call, status] : All()) EXPECT_THAT(status, IsOk()) << call;
}

}  // namespace
}  // namespace ckptree::testing
