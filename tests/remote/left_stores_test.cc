// SPDX-License-Identifier: Apache-2.0

// Addresses of which nothing says whose they are, or of which two say it at
// once.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "ckptree/ckptree.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kv/conditional_put.h"
#include "kv/object_store.h"
#include "tests/core/fixture.h"
#include "tests/objects/counting_store.h"
#include "tests/objects/fixture.h"
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

constexpr std::size_t kSave = 4 << 10;

class LeftStoresTest : public ObjectStoreTest {
 protected:
  void SetUp() override {
    UseServers();
    setenv("XDG_CACHE_HOME", Disk("cache").c_str(), 1);
  }

  StoreOptions Remote(bool take_over = false) {
    StoreOptions options = RemoteOptions(Address());
    options.take_over = take_over;
    return options;
  }
  static StoreOptions Local() {
    StoreOptions options = QuietOptions();
    options.create_if_missing = true;
    return options;
  }
  std::string Disk(const std::string& name) { return disks_ / name; }

  // A store with step 1, closed; its uuid in hexadecimal.
  std::string Ship(const std::string& name) {
    Store store = Store::Open(Disk(name), Remote()).value();
    SaveStep(store, 1, kSave);
    const absl::Status closed = store.Close();
    EXPECT_TRUE(closed.ok()) << closed;
    for (const std::string& object : Objects()) {
      const std::size_t at = object.find("/commit/");
      if (at != std::string::npos) return object.substr(0, at);
    }
    ADD_FAILURE() << "no commit";
    return "";
  }

  std::unique_ptr<kv::ObjectStore> Objects(const std::string& address) {
    return kv::OpenObjectStore(address, {}, kv::Call::Within(kLong)).value();
  }
  std::vector<std::string> Objects() {
    const auto store = Objects(Address());
    std::vector<std::string> names;
    const kv::ObjectPage page =
        store->List("", "", kv::Call::Within(kLong)).value();
    for (const kv::ObjectInfo& info : page.objects) {
      names.push_back(info.name);
    }
    return names;
  }
  void LoseName() {
    const std::string name = "store";
    const absl::Status gone = Objects(Address())->Delete(
        std::span(&name, 1), kv::Call::Within(kLong));
    ASSERT_TRUE(gone.ok()) << gone;
  }
  absl::Status Read() {
    StoreOptions read = QuietOptions();
    read.create_if_missing = false;
    read.read_only = true;
    return Store::Open(Address(), read).status();
  }
  // What lies beside the caches, and begins so.
  std::vector<std::string> DisksOf(const std::string& name) {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(disks_.path())) {
      const std::string one = entry.path().filename();
      if (one.starts_with(name)) found.push_back(one);
    }
    return found;
  }

  // What else opens while `name` is about to be the first at the address.
  absl::StatusOr<Store> OpenBehind(const std::string& name,
                                   const StoreOptions& options,
                                   const std::function<void()>& first) {
    bool fired = false;
    count_.SetHook([&](const std::string& what) {
      if (what == "create store" && !std::exchange(fired, true)) first();
      return absl::OkStatus();
    });
    absl::StatusOr<Store> opened = Store::Open(name, options);
    EXPECT_TRUE(fired);
    count_.SetHook(nullptr);
    return opened;
  }

  RequestCount count_;
  TempDir disks_;
};

TEST_F(LeftStoresTest, NoStoreIsBegunBesideOneThatLostItsName) {
  const std::string uuid = Ship("a");
  LoseName();
  const absl::Status begun = Store::Open(Disk("new"), Remote()).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(begun)) << begun;
  EXPECT_THAT(std::string(begun.message()),
              AllOf(HasSubstr(uuid), HasSubstr("take_over")));
  const absl::Status created = Store::Create(Disk("new"), Remote()).status();
  EXPECT_THAT(std::string(created.message()), HasSubstr(uuid));
  EXPECT_THAT(DisksOf("new"), IsEmpty());
  const absl::Status read = Read();
  EXPECT_TRUE(absl::IsFailedPrecondition(read)) << read;
  EXPECT_THAT(std::string(read.message()), HasSubstr(uuid));
  {
    // Another store is told the same.
    Store other = Store::Open(Disk("other"), Local()).value();
    SaveStep(other, 7, kSave);
  }
  EXPECT_THAT(
      std::string(Store::Open(Disk("other"), Remote()).status().message()),
      HasSubstr(uuid));
}

// As attempts of ranks may be, until the next writer ships: a list has a
// thousand names.
TEST_F(LeftStoresTest, OneBehindThousandsOfOtherObjectsIsFound) {
  const std::string uuid = Ship("a");
  {
    const auto store = Objects(Address());
    for (int i = 0; i < 1001; ++i) {
      const kv::Call call = kv::Call::Within(kLong);
      const std::string name =
          absl::StrFormat("%s/attempt/job/say/%06d", uuid, i);
      ASSERT_TRUE(
          kv::PutSettled(*store, name, "x", kv::NewWriteId(), call).ok());
      ASSERT_TRUE(kv::PutSettled(*store, absl::StrFormat("0/%06d", i), "x",
                                 kv::NewWriteId(), call)
                      .ok());
    }
  }
  LoseName();
  const absl::Status begun = Store::Open(Disk("new"), Remote()).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(begun)) << begun;
  EXPECT_THAT(std::string(begun.message()), HasSubstr(uuid));
  EXPECT_THAT(DisksOf("new"), IsEmpty());
}

TEST_F(LeftStoresTest, TheDirectoryThatShippedThereNamesItAgain) {
  Ship("a");
  LoseName();
  {
    absl::StatusOr<Store> store = Store::Open(Disk("a"), Remote());
    ASSERT_TRUE(store.ok()) << store.status();
    SaveStep(*store, 2, kSave);
  }
  Store store = Store::Open(Disk("b"), Remote()).value();
  EXPECT_THAT(StepsOf(store), ElementsAre(1, 2));
}

TEST_F(LeftStoresTest, WhoTakesOverNamesItAgain) {
  Ship("a");
  LoseName();
  {
    absl::StatusOr<Store> store =
        Store::Open(Disk("b"), Remote(/*take_over=*/true));
    ASSERT_TRUE(store.ok()) << store.status();
    EXPECT_THAT(StepsOf(*store), ElementsAre(1));
    SaveStep(*store, 2, kSave);
  }
  const absl::Status read = Read();
  EXPECT_TRUE(read.ok()) << read;
}

TEST_F(LeftStoresTest, OfTwoNobodyKnowsWhichItWas) {
  const std::string uuid = Ship("a");
  const std::string other = "00112233445566778899aabbccddeeff";
  const std::string name = other + "/index/x";
  ASSERT_TRUE(Objects(Address())
                  ->PutIfAbsent(name, "00112233445566778899aabbccddeeff",
                                "00112233445566778899aabbccddeeff",
                                kv::Call::Within(kLong))
                  .ok());
  LoseName();
  const absl::Status status =
      Store::Open(Disk("b"), Remote(/*take_over=*/true)).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(
      std::string(status.message()),
      AllOf(HasSubstr(uuid), HasSubstr(other), Not(HasSubstr("take_over"))));
}

TEST_F(LeftStoresTest, ANewStoreCostsOneListForThat) {
  Store store = Store::Open(Disk("a"), Remote()).value();
  std::vector<std::string> lists;
  for (const std::string& request : count_.requests()) {
    if (request == "create store") break;
    if (request.starts_with("list ")) lists.push_back(request);
  }
  // The open of the missing directory, and that of the one that is made.
  EXPECT_THAT(lists, ElementsAre("list ", "list "));
}

TEST_F(LeftStoresTest, WhoLosesTheRaceForANewAddressGetsWhatIsThere) {
  absl::StatusOr<Store> store =
      OpenBehind(Disk("b"), Remote(), [this] { Ship("a"); });
  ASSERT_TRUE(store.ok()) << store.status();
  EXPECT_THAT(StepsOf(*store), ElementsAre(1));
  SaveStep(*store, 2, kSave);
  ASSERT_TRUE(store->Close().ok());
  EXPECT_THAT(DisksOf("b"), ElementsAre("b"));
  Store other = Store::Open(Disk("c"), Remote()).value();
  EXPECT_THAT(StepsOf(other), ElementsAre(1, 2));
}

TEST_F(LeftStoresTest, WhoLosesTheRaceToOneThatLivesComesAgain) {
  std::optional<Store> winner;
  const absl::Status lost = OpenBehind(Disk("b"), Remote(), [&] {
                              winner = Store::Open(Disk("a"), Remote()).value();
                              SaveStep(*winner, 1, kSave);
                              ASSERT_TRUE(winner->WaitReplicated(kLong).ok());
                            }).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(lost)) << lost;
  EXPECT_THAT(std::string(lost.message()), HasSubstr("still be training"));
  // The directory is there, as nobody knows whose it is, and has no store.
  EXPECT_TRUE(absl::IsNotFound(
      Store::Open(Disk("b"), ToRead(QuietOptions())).status()));
  ASSERT_TRUE(winner->Close().ok());
  absl::StatusOr<Store> store = Store::Open(Disk("b"), Remote());
  ASSERT_TRUE(store.ok()) << store.status();
  EXPECT_THAT(StepsOf(*store), ElementsAre(1));
}

// As one that is killed between the two leaves it.
TEST_F(LeftStoresTest, AStoreWithNothingInItMakesRoom) {
  { Store store = Store::Open(Disk("b"), Local()).value(); }
  Ship("a");
  std::vector<std::string> said;
  absl::Mutex mu;
  {
    StoreOptions options = Remote();
    options.log = [&](LogSeverity, std::string_view, std::string_view message) {
      const absl::MutexLock lock(&mu);
      said.emplace_back(message);
    };
    absl::StatusOr<Store> store = Store::Open(Disk("b"), options);
    ASSERT_TRUE(store.ok()) << store.status();
    EXPECT_THAT(StepsOf(*store), ElementsAre(1));
    SaveStep(*store, 2, kSave);
  }
  {
    const absl::MutexLock lock(&mu);
    EXPECT_THAT(said, ElementsAre(HasSubstr("takes its place")));
  }
  EXPECT_THAT(DisksOf("b"), ElementsAre("b"));
  Store store = Store::Open(Disk("c"), Remote()).value();
  EXPECT_THAT(StepsOf(store), ElementsAre(1, 2));
}

TEST_F(LeftStoresTest, WhatHasSomethingInItMakesNone) {
  Ship("a");
  {
    Store store = Store::Open(Disk("step"), Local()).value();
    SaveStep(store, 5, kSave);
  }
  {
    Store store = Store::Open(Disk("gone"), Local()).value();
    SaveStep(store, 5, kSave);
    ASSERT_TRUE(store.Delete(5).ok());
  }
  {
    Store store = Store::Open(Disk("policy"), Local()).value();
    ASSERT_TRUE(store.SetPolicy(LatestN{3}).ok());
  }
  for (const std::string name : {"step", "gone", "policy"}) {
    SCOPED_TRACE(name);
    const absl::Status refused =
        Store::Open(Disk(name), Remote(/*take_over=*/true)).status();
    EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
    EXPECT_THAT(std::string(refused.message()),
                HasSubstr("address of its own"));
    EXPECT_THAT(DisksOf(name), ElementsAre(name));
  }
  Store store = Store::Open(Disk("step"), Local()).value();
  EXPECT_THAT(StepsOf(store), ElementsAre(5));
}

}  // namespace
}  // namespace ckptree::testing
