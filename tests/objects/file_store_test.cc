// SPDX-License-Identifier: Apache-2.0

// A folder that is an object store, of a share that may be unmounted.

#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
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

// So many syncs of a folder fail from now on.
int failing_syncs = 0;

}  // namespace
}  // namespace ckptree::testing

// In place of the C library's.
extern "C" int fsync(int fd) {
  struct stat file;
  if (ckptree::testing::failing_syncs > 0 && fstat(fd, &file) == 0 &&
      S_ISDIR(file.st_mode)) {
    --ckptree::testing::failing_syncs;
    errno = EIO;
    return -1;
  }
  return static_cast<int>(syscall(SYS_fsync, fd));
}

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

// One that may be gone after a crash is not said to be there.
TEST_F(FileStoreTest, WhatIsNotDurableIsNotSettled) {
  const std::string id = kv::NewWriteId();
  failing_syncs = 2;
  const auto put = store_->PutIfAbsent("run/c", id, id, Soon());
  ASSERT_OK(put);
  EXPECT_EQ(put->outcome, kv::PutOutcome::kUnknown);
  EXPECT_FALSE(store_->Head("run/c", Soon()).ok());
  EXPECT_EQ(failing_syncs, 0);
  EXPECT_TRUE(store_->Head("run/c", Soon()).value().has_value());

  // Nor by whoever asks for it again.
  const std::string other = kv::NewWriteId();
  failing_syncs = 3;
  EXPECT_EQ(store_->PutIfAbsent("run/d", other, other, Soon())->outcome,
            kv::PutOutcome::kUnknown);
  EXPECT_EQ(store_->PutIfAbsent("run/d", other, other, Soon())->outcome,
            kv::PutOutcome::kUnknown);
  EXPECT_FALSE(store_->Head("run/d", Soon()).ok());
  EXPECT_EQ(failing_syncs, 0);
  EXPECT_EQ(kv::PutSettled(*store_, "run/d", other, other, Soon())->outcome,
            kv::PutOutcome::kCreated);
}

TEST_F(FileStoreTest, AFolderThatIsNotDurableIsMadeAgain) {
  failing_syncs = 1;
  EXPECT_FALSE(store_->Put("new/a", Bytes10(), Soon()).ok());
  EXPECT_EQ(failing_syncs, 0);
  EXPECT_FALSE(fs::exists(folder() + "/new"));
  EXPECT_OK(store_->Put("new/a", Bytes10(), Soon()));
}

}  // namespace
}  // namespace ckptree::testing
