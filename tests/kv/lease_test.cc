// SPDX-License-Identifier: Apache-2.0

// The leases of readers.

#include "kv/lease.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testutil/no_room.h"
#include "tests/testutil/status_matchers.h"
#include "tests/testutil/temp_dir.h"

namespace ckptree::kv {
namespace {

using ::ckptree::testing::IsOk;
using ::ckptree::testing::NoRoom;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::Pair;

class LeaseTest : public ::testing::Test {
 protected:
  LeaseTest() { std::filesystem::create_directory(Store()); }
  std::string Store() const { return dir_ / "store"; }
  std::string TheLease() const {
    for (const auto& entry :
         std::filesystem::directory_iterator(Store() + "/leases")) {
      std::ifstream file(entry.path());
      return std::string(std::istreambuf_iterator<char>(file), {});
    }
    return "none";
  }

  testing::TempDir dir_;
};

TEST_F(LeaseTest, WhatCouldNotBeWrittenIsNotHeld) {
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Lease> lease,
                       Lease::Make(Store()));
  {
    const NoRoom no_room;
    EXPECT_THAT(lease->Hold(7), Not(IsOk()));
  }
  ASSERT_OK(lease->Hold(8));
  EXPECT_THAT(*LeasedVersions(Store()), ElementsAre(Pair(8, ::testing::_)));
  ASSERT_OK(lease->Hold(7));
  EXPECT_THAT(*LeasedVersions(Store()),
              ElementsAre(Pair(7, ::testing::_), Pair(8, ::testing::_)));
  lease->Drop(7);
  EXPECT_THAT(*LeasedVersions(Store()), ElementsAre(Pair(8, ::testing::_)));
}

// It would hold all versions, and stay.
TEST_F(LeaseTest, OneThatCannotBeWrittenIsNotMade) {
  {
    const NoRoom no_room;
    EXPECT_THAT(Lease::Make(Store()).status(), Not(IsOk()));
  }
  EXPECT_THAT(*LeasedVersions(Store()), IsEmpty());
  EXPECT_EQ(TheLease(), "none");
}

TEST_F(LeaseTest, AForkedChildLeavesItAsItIs) {
  ASSERT_OK_AND_ASSIGN(std::unique_ptr<Lease> lease, Lease::Make(Store()));
  ASSERT_OK(lease->Hold(7));
  const std::string before = TheLease();
  ASSERT_THAT(before, ::testing::HasSubstr("\n7\n"));
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    const bool refused = absl::IsFailedPrecondition(lease->Hold(9));
    lease->Drop(7);
    lease.reset();
    _exit(refused ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(TheLease(), before);
  EXPECT_THAT(*LeasedVersions(Store()), ElementsAre(Pair(7, ::testing::_)));
}

// ---- other users ----

constexpr uid_t kWriter = 65533;
constexpr uid_t kReader = 65534;

class OtherUsersTest : public LeaseTest {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "only root can be somebody else";
    std::filesystem::permissions(dir_.path(), std::filesystem::perms(0755));
    ASSERT_EQ(chown(Store().c_str(), kWriter, kWriter), 0);
  }
  // The exit code of a child that runs `body` as `user`.
  static int As(uid_t user, const std::function<int()>& body) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(60);
      _exit(setresuid(user, user, user) == 0 ? body() : 99);
    }
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
};

TEST_F(OtherUsersTest, WhatRootMakesBelongsToTheOwner) {
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Lease> lease,
                       Lease::Make(Store()));
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(Store())) {
    struct stat status {};
    ASSERT_EQ(lstat(entry.path().c_str(), &status), 0);
    EXPECT_EQ(status.st_uid, kWriter) << entry.path();
  }
}

TEST_F(OtherUsersTest, WhoMayNotWriteGoesWithout) {
  EXPECT_EQ(As(kReader, [&] { return Lease::Make(Store()).ok() ? 1 : 0; }), 0);
  EXPECT_EQ(As(kWriter, [&] { return Lease::Make(Store()).ok() ? 0 : 1; }), 0);
  EXPECT_EQ(As(kReader, [&] { return Lease::Make(Store()).ok() ? 1 : 0; }), 0);
}

TEST_F(OtherUsersTest, TheLeaseOfAnotherUserHoldsWhileItLives) {
  umask(0);
  const auto held = [&] {
    return As(kWriter, [&] {
      const auto leased = LeasedVersions(Store());
      if (!leased.ok()) return 90;
      if (leased->contains(kEveryVersion)) return 91;
      return static_cast<int>(leased->size() + leased->count(7));
    });
  };
  ASSERT_EQ(As(kWriter, [&] { return Lease::Make(Store()).ok() ? 0 : 1; }), 0);
  EXPECT_EQ(As(kReader,
               [&] {
                 umask(022);
                 auto lease = Lease::Make(Store());
                 if (!lease.ok() || !(*lease)->Hold(7).ok()) return 1;
                 // It ends as one that was killed does.
                 static_cast<void>(lease->release());
                 return 0;
               }),
            0);
  EXPECT_EQ(held(), 0);  // It died.
  // One that lives: of this process, given to the other user.
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Lease> lease,
                       Lease::Make(Store()));
  ASSERT_OK(lease->Hold(7));
  for (const auto& entry :
       std::filesystem::directory_iterator(Store() + "/leases")) {
    ASSERT_EQ(chown(entry.path().c_str(), kReader, kReader), 0);
    ASSERT_EQ(chmod(entry.path().c_str(), 0644), 0);
  }
  EXPECT_EQ(held(), 2);
}

}  // namespace
}  // namespace ckptree::kv
