// SPDX-License-Identifier: Apache-2.0

// A ship for which there is no memory, wherever that is found: nothing is said
// to be there that is not, and the next ship goes on.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <new>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "ckptree/ckptree.h"
#include "gtest/gtest.h"
#include "tests/core/fixture.h"
#include "tests/fault/fs_interrupt.h"
#include "tests/objects/counting_store.h"
#include "tests/remote/fixture.h"
#include "tests/testutil/store_on.h"
#include "tests/testutil/temp_dir.h"

namespace ckptree::testing {
namespace {

// Allocations until one fails, of threads that are counted in this round; 0:
// none fails.
std::atomic<int> allocations_left = 0;
std::atomic<int> round = 1;
thread_local int counted_in = 0;

// Smaller ones come, too: Abseil formats short texts in functions that must not
// throw, which ends any process.
constexpr std::size_t kLeastCounted = 112;

bool FailsNow(std::size_t size) {
  if (size < kLeastCounted || counted_in != round.load()) return false;
  int left = allocations_left.load();
  while (left > 0 && !allocations_left.compare_exchange_weak(left, left - 1)) {
  }
  return left == 1;
}

}  // namespace
}  // namespace ckptree::testing

// In place of the C++ library's.
void* operator new(std::size_t size) {
  void* const memory = ckptree::testing::FailsNow(size)
                           ? nullptr
                           : std::malloc(size == 0 ? 1 : size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace ckptree::testing {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kSmall = 4 << 10;
constexpr std::size_t kWithSegments = 2 << 20;

bool IsCommit(const std::string& what) {
  return what.starts_with("create ") && absl::StrContains(what, "/commit/");
}

// The file system of a store, which calls `writing` before the note of what is
// shipped is written anew.
std::shared_ptr<kv::InterruptedFs> DiskWith(std::function<void()> writing) {
  auto disk = std::make_shared<kv::InterruptedFs>();
  disk->BeforeEachWriting("/remote.tmp", std::move(writing));
  return disk;
}

class ThrownTest : public ::testing::Test {
 protected:
  void SetUp() override {
    setenv("XDG_CACHE_HOME", std::string(dir_ / "cache").c_str(), 1);
  }
  void TearDown() override {
    allocations_left = 0;
    count_.SetHook(nullptr);
    count_.SetAnsweredHook(nullptr);
  }
  std::string Folder() const { return dir_ / "remote"; }
  std::string Directory() const { return dir_ / "run"; }
  StoreOptions Remote() { return RemoteOptions("file://" + Folder()); }
  // All of them, by somebody who knows nothing of the store yet.
  void ExpectThere(std::int64_t last, std::size_t size) {
    fs::remove_all(dir_ / "cache");
    StoreOptions options = QuietOptions();
    options.create_if_missing = false;
    options.read_only = true;
    absl::StatusOr<Store> there =
        Store::Open("file://" + Folder(), std::move(options));
    ASSERT_TRUE(there.ok()) << there.status();
    for (std::int64_t step = 1; step <= last; ++step) {
      ExpectStep(*there, step, size);
    }
    ExpectWhole(*there);
  }
  // The directory goes on, and who takes over from it has all.
  void ExpectGoesOn(std::int64_t last, std::size_t size) {
    {
      absl::StatusOr<Store> store = Store::Open(Directory(), Remote());
      ASSERT_TRUE(store.ok()) << store.status();
      SaveStep(*store, last + 1, size);
      ASSERT_OK(store->WaitReplicated(kLong));
      ASSERT_OK(store->Close());
    }
    ExpectThere(last + 1, size);
    absl::StatusOr<Store> other = Store::Open(dir_ / "other", Remote());
    ASSERT_TRUE(other.ok()) << other.status();
    for (std::int64_t step = 1; step <= last + 1; ++step) {
      ExpectStep(*other, step, size);
    }
    ExpectWhole(*other);
  }

  TempDir dir_;
  RequestCount count_;
};

TEST_F(ThrownTest, WhileACommitIsAnnounced) {
  std::atomic<int> throws = 0;
  std::atomic<int> thrown = 0;
  const auto disk = DiskWith([&] {
    if (throws == 0) return;
    --throws;
    ++thrown;
    throw std::bad_alloc();
  });
  {
    Store store = OpenStoreOn(disk, Directory(), Remote()).value();
    SaveStep(store, 1, kSmall);
    ASSERT_OK(store.WaitReplicated(kLong));
    for (std::int64_t step = 2; step <= 4; ++step) {
      throws = static_cast<int>(step) - 1;
      SaveStep(store, step, kSmall);
      ASSERT_OK(store.WaitReplicated(kLong));
      EXPECT_EQ(throws, 0);
      ExpectThere(step, kSmall);
    }
    ASSERT_OK(store.Close());
  }
  EXPECT_EQ(thrown, 1 + 2 + 3);
  ExpectGoesOn(4, kSmall);
}

// From the writing of the note to the request, and from its answer to where the
// commit is said to be there: each allocation fails once.
TEST_F(ThrownTest, AroundTheRequest) {
  for (const std::size_t size : {kSmall, kWithSegments}) {
    SCOPED_TRACE(size);
    fs::remove_all(Folder());
    fs::remove_all(Directory());
    fs::remove_all(dir_ / "other");
    // Not of an open or a close, which are calls of this thread.
    const auto count = [here = std::this_thread::get_id()](bool begins) {
      const bool counts = begins && std::this_thread::get_id() != here;
      counted_in = counts ? round.load() : 0;
    };
    count_.SetHook([&](const std::string&) {
      count(false);
      return absl::OkStatus();
    });
    count_.SetAnsweredHook(
        [&](const std::string& what) { count(IsCommit(what)); });
    const auto disk = DiskWith([&] { count(true); });
    std::int64_t step = 0;
    {
      Store store = OpenStoreOn(disk, Directory(), Remote()).value();
      bool fired = true;
      while (fired) {
        ++round;
        allocations_left = static_cast<int>(++step);
        SaveStep(store, step, size);
        ASSERT_OK(store.WaitReplicated(kLong));
        fired = allocations_left.exchange(0) == 0;
      }
      ASSERT_OK(store.Close());
    }
    EXPECT_GE(step, 20);
    EXPECT_EQ(ObjectsOf(Folder(), "segment").empty(), size == kSmall);
    ExpectThere(step, size);
    ExpectGoesOn(step, size);
  }
}

// Before a request is sent, or when it was answered: each of them once.
TEST_F(ThrownTest, InARequest) {
  for (const bool answered : {false, true}) {
    SCOPED_TRACE(answered);
    fs::remove_all(Folder());
    fs::remove_all(Directory());
    fs::remove_all(dir_ / "other");
    std::atomic<int> left = 0;
    const auto request = [&left] {
      int now = left.load();
      while (now > 0 && !left.compare_exchange_weak(now, now - 1)) {
      }
      if (now == 1) throw std::bad_alloc();
    };
    std::int64_t step = 0;
    {
      Store store = Store::Open(Directory(), Remote()).value();
      if (answered) {
        count_.SetAnsweredHook([&](const std::string&) { request(); });
      } else {
        count_.SetHook([&](const std::string&) {
          request();
          return absl::OkStatus();
        });
      }
      bool fired = true;
      for (int nth = 1; fired; ++nth) {
        left = nth;
        // An index comes behind three of them.
        for (int saves = 0; saves < 3; ++saves) {
          SaveStep(store, ++step, kWithSegments);
          ASSERT_OK(store.WaitReplicated(kLong));
        }
        fired = left.exchange(0) == 0;
      }
      count_.SetHook(nullptr);
      count_.SetAnsweredHook(nullptr);
      ASSERT_OK(store.Close());
    }
    EXPECT_GE(step, 6 * 3);
    ExpectThere(step, kWithSegments);
    ExpectGoesOn(step, kWithSegments);
  }
}

// Rows that stand in objects of their own are put before a commit is asked for.
TEST_F(ThrownTest, BeforeARequest) {
  constexpr int kSteps = 40;
  constexpr std::size_t kRow = 250 << 10;
  std::atomic<bool> away = false;
  std::atomic<int> thrown = 0;
  {
    Store store = Store::Open(Directory(), Remote()).value();
    SaveStep(store, 1, kRow);
    ASSERT_OK(store.WaitReplicated(kLong));
    count_.SetHook([&](const std::string& what) -> absl::Status {
      if (away && IsCommit(what)) return absl::UnavailableError("not now");
      if (absl::StrContains(what, "/rows/") && thrown++ == 0) {
        throw std::bad_alloc();
      }
      return absl::OkStatus();
    });
    away = true;
    for (int step = 2; step <= kSteps; ++step) SaveStep(store, step, kRow);
    away = false;
    ASSERT_OK(store.WaitReplicated(kLong));
    EXPECT_GE(thrown, 2);
    ExpectThere(kSteps, kRow);
    count_.SetHook(nullptr);
    ASSERT_OK(store.Close());
  }
  ExpectGoesOn(kSteps, kRow);
}

// Commits, and pieces of a segment, are read on threads of their own.
TEST_F(ThrownTest, WhereManyAreReadAtOnce) {
  constexpr std::int64_t kSteps = 16;
  constexpr std::size_t kPieces = 30 << 20;
  {
    Store store = Store::Open(Directory(), Remote()).value();
    for (std::int64_t step = 1; step <= kSteps; ++step) {
      SaveStep(store, step, step == kSteps ? kPieces : kSmall);
      ASSERT_OK(store.WaitReplicated(kLong));
    }
    ASSERT_OK(store.Close());
  }
  for (const fs::path& index : ObjectsOf(Folder(), "index")) fs::remove(index);
  for (const std::string kind : {"/commit/", "/segment/"}) {
    SCOPED_TRACE(kind);
    std::atomic<int> thrown = 0;
    count_.SetHook(
        [&, here = std::this_thread::get_id()](const std::string& what) {
          if (what.starts_with("get ") && absl::StrContains(what, kind) &&
              std::this_thread::get_id() != here) {
            ++thrown;
            throw std::bad_alloc();
          }
          return absl::OkStatus();
        });
    const absl::Status opened = Store::Open(dir_ / "new", Remote()).status();
    EXPECT_TRUE(absl::IsResourceExhausted(opened)) << opened;
    EXPECT_GE(thrown, 1);
  }
  count_.SetHook(nullptr);
  Store store = Store::Open(dir_ / "new", Remote()).value();
  ExpectStep(store, kSteps, kPieces);
  ExpectWhole(store);
}

// What is done where no commit waits is done later.
TEST_F(ThrownTest, WhileNothingIsShipped) {
  StoreOptions options = Remote();
  options.local_keep = LatestN{1};
  {
    Store store = Store::Open(Directory(), options).value();
    SaveStep(store, 1, kWithSegments);
    ASSERT_OK(store.Close());
  }
  std::atomic<int> thrown = 0;
  count_.SetHook([&](const std::string& what) {
    if (what.starts_with("list ") && absl::StrContains(what, "/segment/")) {
      ++thrown;
      thrown.notify_all();
      throw std::bad_alloc();
    }
    return absl::OkStatus();
  });
  {
    Store store = Store::Open(Directory(), options).value();
    thrown.wait(0);
    SaveStep(store, 2, kWithSegments);
    ASSERT_OK(store.WaitReplicated(kLong));
    ASSERT_OK(store.Close());
  }
  count_.SetHook(nullptr);
  ExpectGoesOn(2, kWithSegments);
}

}  // namespace
}  // namespace ckptree::testing
