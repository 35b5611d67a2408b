// SPDX-License-Identifier: Apache-2.0

// A folder that is an object store, of a share that may be unmounted.

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
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
// What the next link says; 0: how it ended. Whether it is made all the same,
// and whether a look at its file fails then, as everything does that asks a
// server which is away.
int link_error = 0;
bool link_arrives = false;
bool look_fails = false;
// Called once, before the next link.
std::function<void()> before_link;
int failed_looks = 0;

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

extern "C" int link(const char* from, const char* to) {
  namespace faults = ckptree::testing;
  if (faults::before_link) std::exchange(faults::before_link, nullptr)();
  const int error = std::exchange(faults::link_error, 0);
  if (error == 0 || faults::link_arrives) {
    const long made = syscall(SYS_linkat, AT_FDCWD, from, AT_FDCWD, to, 0);
    if (error == 0) return static_cast<int>(made);
  }
  errno = error;
  return -1;
}

extern "C" int stat(const char* path, struct stat* file) {
  namespace faults = ckptree::testing;
  if (faults::look_fails && std::strstr(path, "/.uploads/") != nullptr) {
    ++faults::failed_looks;
    errno = ETIMEDOUT;
    return -1;
  }
  return fstatat(AT_FDCWD, path, file, 0);
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

// A disk has more at its root than objects, and so has a folder of people.
TEST_F(FileStoreTest, NamesThatNoObjectHasArePassedOver) {
  for (const char* name : {"notes (1).txt", "a~", "x+y"}) {
    std::ofstream(fs::path(folder()) / name) << "text";
    std::ofstream(fs::path(folder()) / "run" / name) << "text";
  }
  fs::create_directory(fs::path(folder()) / "lost+found");
  std::ofstream(fs::path(folder()) / "lost+found" / "1234") << "text";
  for (const char* prefix : {"", "run/"}) {
    const auto page = store_->List(prefix, "", Soon());
    ASSERT_OK(page);
    ASSERT_EQ(page->objects.size(), 1u) << prefix;
    EXPECT_EQ(page->objects.front().name, "run/a");
  }
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
  for (const auto& [call, status] : All()) EXPECT_THAT(status, IsOk()) << call;
}

// What stands below a mount point is not what was mounted there.
TEST_F(FileStoreTest, AnotherFolderThatIsNotEmptyIsNotTakenForIt) {
  const std::string away = folder() + ".away";
  const std::string id = kv::NewWriteId();
  std::vector<std::byte> into(10);
  // Known by what was found there, then by what was created last, also where a
  // later one was deleted.
  for (const int known : {0, 1, 2}) {
    SCOPED_TRACE(known);
    if (known == 0) {
      store_ = kv::OpenObjectStore("file://" + folder(), {}, Soon()).value();
      ASSERT_OK(store_->GetRange("run/a", 0, into, Soon()));
    } else {
      const std::string name = known == 1 ? "run/first" : "run/second";
      ASSERT_EQ(store_->PutIfAbsent(name, id, id, Soon())->outcome,
                kv::PutOutcome::kCreated);
      if (known == 2) {
        ASSERT_OK(store_->Delete(std::span(&name, 1), Soon()));
      }
    }
    fs::rename(folder(), away);
    fs::create_directory(folder());
    std::ofstream(folder() + "/NOT_MOUNTED") << "a marker";
    if (known > 0) {  // An older copy of the share.
      fs::create_directory(folder() + "/run");
      fs::copy(away + "/run/a", folder() + "/run/a");
    }
    for (const auto& [call, status] : All()) {
      EXPECT_THAT(status, StatusIs(absl::StatusCode::kUnavailable,
                                   HasSubstr("is its file system mounted?")))
          << call;
    }
    EXPECT_FALSE(fs::exists(folder() + "/run/c"));
    EXPECT_FALSE(fs::exists(folder() + "/.uploads"));
    fs::remove_all(folder());
    fs::rename(away, folder());
    ASSERT_OK(store_->Head("run/a", Soon()));
  }
}

// It goes while an object is put there.
TEST_F(FileStoreTest, WhatIsCreatedInAnotherFolderIsNotSettled) {
  const std::string id = kv::NewWriteId();
  ASSERT_EQ(store_->PutIfAbsent("run/first", id, id, Soon())->outcome,
            kv::PutOutcome::kCreated);
  const std::string away = folder() + ".away";
  before_link = [&] {
    fs::copy(folder(), away, fs::copy_options::recursive);
    fs::remove(folder() + "/run/first");
    fs::rename(folder(), folder() + ".below");
    fs::copy(folder() + ".below", folder(), fs::copy_options::recursive);
  };
  const std::string other = kv::NewWriteId();
  const auto put = store_->PutIfAbsent("run/second", other, other, Soon());
  EXPECT_EQ(before_link, nullptr);
  ASSERT_OK(put);
  EXPECT_EQ(put->outcome, kv::PutOutcome::kUnknown);
  EXPECT_THAT(std::string(put->reason.message()), HasSubstr("mounted?"));
  fs::remove_all(folder());
  fs::rename(away, folder());
  EXPECT_EQ(
      kv::PutSettled(*store_, "run/second", other, other, Soon())->outcome,
      kv::PutOutcome::kCreated);
}

// A server that goes away says of what it did that it failed.
TEST_F(FileStoreTest, ALinkThatMayHaveBeenMadeIsNotSettled) {
  int looks = 0;
  for (const int error : {ETIMEDOUT, EIO, ESTALE, EACCES}) {
    for (const bool arrives : {false, true}) {
      for (const bool fails : {false, true}) {
        SCOPED_TRACE(error);
        const std::string id = kv::NewWriteId();
        const std::string name = "run/" + id;
        link_error = error;
        link_arrives = arrives;
        look_fails = fails;
        const auto put = store_->PutIfAbsent(name, id, id, Soon());
        EXPECT_EQ(link_error, 0);
        look_fails = false;
        if (!fails && !arrives && error == EACCES) {
          // Nothing was created, nor will be.
          EXPECT_THAT(put, StatusIs(absl::StatusCode::kPermissionDenied));
          continue;
        }
        looks += fails;
        ASSERT_OK(put);
        EXPECT_EQ(put->outcome, !fails && arrives ? kv::PutOutcome::kCreated
                                                  : kv::PutOutcome::kUnknown);
        EXPECT_EQ(kv::PutSettled(*store_, name, id, id, Soon())->outcome,
                  kv::PutOutcome::kCreated);
      }
    }
  }
  EXPECT_EQ(failed_looks, looks);
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
