// SPDX-License-Identifier: Apache-2.0

// An open for writing that takes a store over: past damage in the directory,
// by who waited for it, and where a store stands that holds nothing.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/notification.h"
#include "ckptree/ckptree.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kv/store_lock.h"
#include "tests/core/fixture.h"
#include "tests/objects/counting_store.h"
#include "tests/remote/fixture.h"
#include "tests/testutil/flip_byte.h"
#include "tests/testutil/temp_dir.h"

namespace ckptree::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr std::size_t kSmallSave = 4 << 10;

class TakeoverTest : public ::testing::Test {
 protected:
  TakeoverTest() { fs::create_directory(bucket_ / "run"); }

  std::string Address() { return "file://" + (bucket_ / "run"); }
  StoreOptions Remote() { return RemoteOptions(Address()); }
  // A directory on a disk of its own.
  std::string Disk(const std::string& name) { return disks_ / name; }

  TempDir bucket_;
  TempDir disks_;
};

// A bit of the index flips: the journal and the object store have what stood
// there, so that the open for writing goes on.
TEST_F(TakeoverTest, DamageOfTheIndexIsMendedByTheOpen) {
  constexpr std::int64_t kSteps = 3;
  constexpr std::size_t kBlock = 200 << 10;
  {
    Store store = Store::Open(Disk("a"), Remote()).value();
    for (std::int64_t step = 1; step <= kSteps; ++step) {
      SaveStep(store, step, kBlock);
    }
    ASSERT_TRUE(store.Close().ok());
  }
  fs::rename(Disk("a"), Disk("first"));
  const std::string objects = Address().substr(std::strlen("file://"));
  fs::copy(objects, Disk("objects"), fs::copy_options::recursive);
  std::string largest;
  std::uint64_t size = 0;
  for (const auto& entry : fs::directory_iterator(Disk("first/db"))) {
    if (entry.path().extension() != ".sst" || entry.file_size() < size) {
      continue;
    }
    largest = entry.path().filename();
    size = entry.file_size();
  }
  ASSERT_GT(size, kBlock);
  for (std::uint64_t part = 0; part < 16; ++part) {
    SCOPED_TRACE(part);
    for (const auto& [from, to] : {std::pair(Disk("first"), Disk("a")),
                                   std::pair(Disk("objects"), objects)}) {
      fs::remove_all(to);
      fs::copy(from, to, fs::copy_options::recursive);
    }
    FlipByte(Disk("a/db/" + largest), 100 + (size - 200) * part / 16);
    absl::StatusOr<Store> store = Store::Open(Disk("a"), Remote());
    ASSERT_TRUE(store.ok()) << store.status();
    for (std::int64_t step = 1; step <= kSteps; ++step) {
      ExpectStep(*store, step, kBlock);
    }
    ASSERT_TRUE(store->Close().ok());
  }
}

// While it waits for the lock of its directory, another machine begins a run.
TEST_F(TakeoverTest, WhoWaitedForItsDirectoryEndsNobody) {
  {
    Store store = Store::Open(Disk("a"), Remote()).value();
    SaveStep(store, 1, kSmallSave);
  }
  fs::create_directory(Disk("b"));
  auto lock = kv::StoreLock::Acquire(Disk("b"), 0).value();
  RequestCount count;
  absl::Notification began;
  count.SetHook([&began](const std::string&) {
    if (!began.HasBeenNotified()) began.Notify();
    return absl::OkStatus();
  });
  absl::Status waited;
  std::thread waits([&] {
    StoreOptions options = Remote();
    options.lock_wait = kLong;
    waited = Store::Open(Disk("b"), options).status();
  });
  began.WaitForNotification();
  count.SetHook(nullptr);
  Store healthy = Store::Open(Disk("c"), Remote()).value();
  SaveStep(healthy, 2, kSmallSave);
  lock.reset();
  waits.join();
  EXPECT_TRUE(absl::IsFailedPrecondition(waited)) << waited;
  EXPECT_THAT(std::string(waited.message()), HasSubstr("may still be"));
  SaveStep(healthy, 3, kSmallSave);
  EXPECT_TRUE(healthy.WaitReplicated(kLong).ok());
  EXPECT_TRUE(healthy.Close().ok());
}

// A link stays one, and files of others stay, where a store that nothing was
// saved to makes room for the one that is there.
TEST_F(TakeoverTest, AnEmptyStoreMakesRoomWhereItIs) {
  {
    Store store = Store::Open(Disk("a"), Remote()).value();
    SaveStep(store, 1, kSmallSave);
  }
  fs::create_directory(Disk("volume"));
  fs::create_directory_symlink(Disk("volume"), Disk("run"));
  std::ofstream(Disk("volume/config.yaml")) << "mine";
  ASSERT_TRUE(Store::Open(Disk("run"), QuietOptions()).value().Close().ok());
  Store store = Store::Open(Disk("run"), Remote()).value();
  ExpectStep(store, 1, kSmallSave);
  EXPECT_TRUE(fs::is_symlink(fs::symlink_status(Disk("run"))));
  EXPECT_EQ(fs::file_size(Disk("volume/config.yaml")), 4u);
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(disks_.path())) {
    names.insert(entry.path().filename().string());
  }
  EXPECT_EQ(names, (std::set<std::string>{"a", "run", "volume"}));
}

}  // namespace
}  // namespace ckptree::testing
