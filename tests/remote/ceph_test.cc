// SPDX-License-Identifier: Apache-2.0

// A store that ships to Ceph, as a pool or by its gateway, while the cluster is
// full, and while connections to it break: what was acknowledged is there, and
// saves on the disk go on.

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "ckptree/ckptree.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kv/object_store.h"
#include "tests/core/fixture.h"
#include "tests/fault/scale.h"
#include "tests/objects/fixture.h"
#include "tests/remote/fixture.h"
#include "tests/remote/trainer.h"
#include "tests/testutil/temp_dir.h"

namespace ckptree::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class RemoteCephTest : public ObjectStoreTest {
 protected:
  void SetUp() override {
    UseServers();
    conf_ = Environment("CKPTREE_TEST_CEPH_CONF");
    ASSERT_NE(conf_, "");
  }
  void TearDown() override {
    if (full_) Full(false);
  }

  static int Run(const std::string& command) {
    return std::system(absl::StrCat(command, " > /dev/null 2>&1").c_str());
  }
  std::string Osd() const { return absl::StrCat("ceph -c ", conf_, " osd "); }
  // All that is on the OSD is too much for it, or not. Returns when the cluster
  // says so of its pools.
  void Full(bool full) {
    if (!bounds_) {  // They only warn.
      bounds_ = true;
      for (const char* bound : {"nearfull", "backfillfull"}) {
        ASSERT_EQ(Run(absl::StrCat(Osd(), "set-", bound, "-ratio 0.000001")),
                  0);
      }
    }
    full_ = full;
    ASSERT_EQ(
        Run(absl::StrCat(Osd(), "set-full-ratio ", full ? "0.000001" : "0.95")),
        0);
    constexpr int kTries = 100;
    int tries = 0;
    const std::string says = absl::StrCat(
        Osd(), "dump 2> /dev/null | grep -E 'flags ([a-z_,]*,)?full[ ,]'");
    while ((Run(says) == 0) != full && tries < kTries) ++tries;
    ASSERT_LT(tries, kTries);
  }
  StoreOptions Remote(Durable durable) {
    StoreOptions options = QuietOptions();
    options.remote = Address();
    options.durable = durable;
    options.remote_timeout = kLong;
    return options;
  }
  std::string WhatIsWrong(const Told& told) {
    const std::string cache = disks_ / absl::StrCat("cache", ++caches_);
    const std::string wrong = RemoteFault(Address(), told, cache);
    fs::remove_all(cache);
    return wrong;
  }
  static void Tell(const std::string& name, int trials, int fired, int lost) {
    absl::PrintF("trial remote, %s, %s: %d trials, %d fired, %d lost\n",
                 StoreKind(), name, trials, fired, lost);
  }

  TempDir disks_;
  std::string conf_;
  bool full_ = false;
  bool bounds_ = false;
  int caches_ = 0;
};

TEST_F(RemoteCephTest, SavesGoOnWhileTheClusterIsFull) {
  const int rounds = ScaledWithServers(50);
  absl::StatusOr<Store> store =
      Store::Open(disks_ / "disk", Remote(Durable::kLocal));
  ASSERT_TRUE(store.ok()) << store.status();
  store_ = ObjectStoreTest::Open();
  Told told;
  std::int64_t step = 0;
  int fired = 0, lost = 0;
  for (int i = 0; i < rounds; ++i) {
    const std::string name = absl::StrCat("proof-of-deletion-", i);
    Put(name, 10);
    ASSERT_NO_FATAL_FAILURE(Full(true));
    for (int saves = 0; saves < 3; ++saves) {
      told.asked.insert(++step);
      const absl::Status saved = StartStep(*store, step).WaitCommitted(kLong);
      ASSERT_TRUE(saved.ok()) << saved;
    }
    if (StoreKind() == "rados") {
      // A pool says so at once; it is waited until it has.
      absl::Status waited;
      do {
        waited = store->WaitReplicated(absl::Milliseconds(20));
        ASSERT_FALSE(waited.ok()) << "it is full, and takes commits";
      } while (!absl::StrContains(waited.message(), "full"));
      EXPECT_TRUE(absl::IsDeadlineExceeded(waited)) << waited;
      // What makes room works.
      const std::vector<std::string> names = {name};
      EXPECT_EQ(store_->Delete(names, Soon()), absl::OkStatus());
      EXPECT_FALSE(IsThere(name));
    } else {
      // The gateway waits for its pool, and nobody hears of it.
      EXPECT_TRUE(absl::IsDeadlineExceeded(
          store->WaitReplicated(absl::Milliseconds(200))));
    }
    EXPECT_GT(store->Info().unshipped, 0);
    ++fired;
    ASSERT_NO_FATAL_FAILURE(Full(false));
    const absl::Status caught_up = store->WaitReplicated(kLong);
    ASSERT_TRUE(caught_up.ok()) << caught_up;
    for (std::int64_t there = step - 2; there <= step; ++there) {
      told.acknowledged.insert(there);
    }
    if (i % 10 != 0 && i + 1 != rounds) continue;
    const std::string wrong = WhatIsWrong(told);
    EXPECT_EQ(wrong, "");
    lost += !wrong.empty();
  }
  EXPECT_EQ(fired, rounds);
  Tell("the cluster full", rounds, fired, lost);
  EXPECT_TRUE(store->Close().ok());
}

// A save that is to be durable there fails by name, and is there later.
TEST_F(RemoteCephTest, ASaveIntoAFullPoolIsRefusedByName) {
  if (StoreKind() != "rados") GTEST_SKIP() << "a gateway says nothing";
  StoreOptions options = Remote(Durable::kRemote);
  options.remote_timeout = absl::Seconds(1);
  absl::StatusOr<Store> store = Store::Open(disks_ / "disk", options);
  ASSERT_TRUE(store.ok()) << store.status();
  ASSERT_NO_FATAL_FAILURE(Full(true));
  const absl::Status saved = StartStep(*store, 3).WaitCommitted(kLong);
  EXPECT_FALSE(saved.ok());
  EXPECT_THAT(std::string(saved.message()), HasSubstr("is full"));
  EXPECT_EQ(StepFault(*store, 3), "");
  ASSERT_NO_FATAL_FAILURE(Full(false));
  ASSERT_TRUE(store->WaitReplicated(kLong).ok());
  EXPECT_EQ(WhatIsWrong({.acknowledged = {3}, .asked = {3}}), "");
}

// librados breaks and delays its own connections: requests are lost and sent
// again, arrive twice, and are answered late.
TEST_F(RemoteCephTest, ConnectionsThatBreak) {
  if (StoreKind() != "rados") GTEST_SKIP() << "of librados in this process";
  const int saves = ScaledWithServers(100);
  const std::string log = disks_ / "client.log";
  const std::string broken = disks_ / "broken.conf";
  fs::copy_file(conf_, broken);
  // The file ends in the section of clients.
  std::ofstream(broken, std::ios::app)
      << "\nlog_file = " << log
      << "\nms_inject_socket_failures = 60\n"
         "ms_inject_delay_type = osd\nms_inject_delay_probability = 0.05\n"
         "ms_inject_delay_max = 0.05\n";
  const auto injected = [&] {
    std::ostringstream text;
    text << std::ifstream(log).rdbuf();
    const std::string all = text.str();
    int count = 0;
    const std::string_view said = "injecting socket failure";
    for (std::size_t at = all.find(said); at != std::string::npos;
         at = all.find(said, at + 1)) {
      ++count;
    }
    return count;
  };
  Told told;
  int restarts = 0;
  for (std::int64_t step = 1; step <= saves;) {
    // As a process that is started again, from an empty disk every second time.
    setenv("CEPH_CONF", broken.c_str(), 1);
    StoreOptions options = Remote(Durable::kRemote);
    options.take_over = true;
    absl::StatusOr<Store> store =
        Store::Open(disks_ / absl::StrCat("disk", restarts++ / 2), options);
    ASSERT_TRUE(store.ok()) << store.status();
    for (int of = 0; of < 30 && step <= saves; ++of, ++step) {
      told.asked.insert(step);
      const absl::Status saved = StartStep(*store, step).WaitCommitted(kLong);
      ASSERT_TRUE(saved.ok()) << saved;
      told.acknowledged.insert(step);
    }
    ASSERT_TRUE(store->Close().ok());
    // Read over such connections, and by others.
    EXPECT_EQ(WhatIsWrong(told), "");
  }
  setenv("CEPH_CONF", conf_.c_str(), 1);
  const std::string wrong = WhatIsWrong(told);
  EXPECT_EQ(wrong, "");
  const int fired = injected();
  EXPECT_GT(fired, saves / 10);
  Tell(absl::StrFormat("connections that break (%d saves, %d restarts)", saves,
                       restarts),
       fired, fired, !wrong.empty());
}

}  // namespace
}  // namespace ckptree::testing
