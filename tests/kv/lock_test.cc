// SPDX-License-Identifier: Apache-2.0

// The writer's lock, whatever path or process comes to the store.

#include <sys/inotify.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kv/store_lock.h"
#include "tests/testutil/status_matchers.h"
#include "tests/testutil/temp_dir.h"

namespace ckptree::kv {
namespace {

using ::ckptree::testing::StatusIs;
using ::testing::HasSubstr;

// The exit status of a child that runs `body`; 255 where it was killed.
int InChild(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 255;
}

class StoreLockTest : public ::testing::Test {
 protected:
  StoreLockTest() { std::filesystem::create_directory(Store()); }

  std::string Store() const { return dir_ / "store"; }
  static bool Held(const std::string& directory) {
    return absl::IsUnavailable(StoreLock::Acquire(directory, 0).status());
  }

  testing::TempDir dir_;
};

TEST_F(StoreLockTest, NamesItsHolder) {
  EXPECT_EQ(*StoreLock::Probe(Store()), std::nullopt);
  ASSERT_OK_AND_ASSIGN(auto lock, StoreLock::Acquire(Store(), 0));
  ASSERT_OK_AND_ASSIGN(const std::optional<LockHolder> holder,
                       StoreLock::Probe(Store()));
  ASSERT_TRUE(holder.has_value());
  EXPECT_EQ(holder->pid, getpid());
  EXPECT_FALSE(holder->host.empty());
  EXPECT_OK(lock->Check());
  EXPECT_THAT(StoreLock::Acquire(Store(), 20),
              StatusIs(absl::StatusCode::kUnavailable,
                       HasSubstr("pid " + std::to_string(getpid()))));
  lock.reset();
  EXPECT_EQ(*StoreLock::Probe(Store()), std::nullopt);
  EXPECT_OK(StoreLock::Acquire(Store(), 0));
}

// A trainer that starts while a command sets a tag.
TEST_F(StoreLockTest, WhoIsBriefIsWaitedFor) {
  auto lock = StoreLock::Acquire(Store(), 0, 0666, /*brief=*/true).value();
  EXPECT_TRUE((*StoreLock::Probe(Store()))->brief);
  const int watch = inotify_init1(IN_CLOEXEC);
  ASSERT_GE(watch, 0);
  ASSERT_GE(
      inotify_add_watch(watch, (Store() + "/LOCK").c_str(), IN_CLOSE_WRITE), 0);
  const pid_t child = fork();
  if (child == 0) _exit(StoreLock::Acquire(Store(), 0).ok() ? 0 : 1);
  // Each try that fails closes the file.
  std::array<char, 4096> events{};
  EXPECT_GT(read(watch, events.data(), events.size()), 0);
  close(watch);
  lock.reset();
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  // What a holder said is not true of the next one.
  ASSERT_OK_AND_ASSIGN(lock, StoreLock::Acquire(Store(), 0));
  EXPECT_FALSE((*StoreLock::Probe(Store()))->brief);
  EXPECT_EQ(InChild([&] { return Held(Store()) ? 0 : 1; }), 0);
}

TEST_F(StoreLockTest, WhoIsBriefDoesNotWaitForOneWhoIs) {
  ASSERT_OK_AND_ASSIGN(const auto lock,
                       StoreLock::Acquire(Store(), 0, 0666, /*brief=*/true));
  EXPECT_THAT(StoreLock::Acquire(Store(), 0, 0666, /*brief=*/true),
              StatusIs(absl::StatusCode::kUnavailable));
}

TEST_F(StoreLockTest, OtherPathsLeadToTheSameLock) {
  std::filesystem::create_directory_symlink(Store(), dir_ / "link");
  ASSERT_OK_AND_ASSIGN(const auto lock, StoreLock::Acquire(Store(), 0));
  EXPECT_TRUE(Held(dir_ / "link"));
  EXPECT_TRUE(Held(dir_ / "./store"));
  EXPECT_TRUE(Held(dir_ / "store/../store/."));
}

TEST_F(StoreLockTest, KeepsOtherProcessesOut) {
  ASSERT_OK_AND_ASSIGN(auto lock, StoreLock::Acquire(Store(), 0));
  EXPECT_EQ(InChild([&] { return Held(Store()) ? 0 : 1; }), 0);
  // What opens and closes the file does not let go of the lock.
  EXPECT_EQ(InChild([&] {
              std::filesystem::copy(Store(), dir_ / "copy");
              return 0;
            }),
            0);
  std::filesystem::copy(Store(), dir_ / "copy2");
  EXPECT_EQ(InChild([&] { return Held(Store()) ? 0 : 1; }), 0);
  lock.reset();
  EXPECT_EQ(InChild([&] { return Held(Store()) ? 1 : 0; }), 0);
}

TEST_F(StoreLockTest, CheckSeesAReplacedLock) {
  ASSERT_OK_AND_ASSIGN(const auto lock, StoreLock::Acquire(Store(), 0));
  std::filesystem::remove(Store() + "/LOCK");
  EXPECT_THAT(lock->Check(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                      HasSubstr("LOCK was replaced")));
  EXPECT_EQ(InChild([&] { return Held(Store()) ? 1 : 0; }), 0);
  EXPECT_THAT(lock->Check(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                      HasSubstr("LOCK was replaced")));
}

TEST_F(StoreLockTest, CheckSeesAMovedStore) {
  ASSERT_OK_AND_ASSIGN(const auto lock, StoreLock::Acquire(Store(), 0));
  std::filesystem::rename(Store(), dir_ / "elsewhere");
  EXPECT_THAT(lock->Check(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                      HasSubstr("moved")));
  std::filesystem::create_directory(Store());
  EXPECT_THAT(lock->Check(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                      HasSubstr("moved")));
  EXPECT_TRUE(Held(dir_ / "elsewhere"));
}

TEST_F(StoreLockTest, AForkedChildNeitherHasNorReleasesIt) {
  ASSERT_OK_AND_ASSIGN(auto lock, StoreLock::Acquire(Store(), 0));
  EXPECT_EQ(InChild([&] {
              if (!absl::IsFailedPrecondition(lock->Check())) return 1;
              lock.reset();
              return Held(Store()) ? 0 : 2;
            }),
            0);
  EXPECT_OK(lock->Check());
  EXPECT_EQ(InChild([&] { return Held(Store()) ? 0 : 1; }), 0);
}

TEST_F(StoreLockTest, ALivingChildDoesNotKeepItAfterItsParentDied) {
  std::array<int, 2> pipe_ends{};
  std::array<int, 2> running{};
  ASSERT_EQ(pipe(pipe_ends.data()), 0);
  ASSERT_EQ(pipe(running.data()), 0);
  // The child takes the lock, leaves a child of its own behind and dies once
  // that one runs: it lets go of the lock before fork() returns in it.
  EXPECT_EQ(InChild([&] {
              auto lock = StoreLock::Acquire(Store(), 0);
              if (!lock.ok()) return 1;
              if (fork() == 0) {
                close(pipe_ends[1]);
                char byte = 0;
                if (write(running[1], &byte, 1) != 1) _exit(2);
                _exit(read(pipe_ends[0], &byte, 1) == 0 ? 0 : 1);
              }
              char byte = 0;
              if (read(running[0], &byte, 1) != 1) return 2;
              static_cast<void>(lock->release());
              return 0;
            }),
            0);
  EXPECT_FALSE(Held(Store()));
  for (const int end : {pipe_ends[0], pipe_ends[1], running[0], running[1]}) {
    close(end);
  }
}

TEST_F(StoreLockTest, RefusesALinkAndAMissingDirectory) {
  EXPECT_THAT(StoreLock::Acquire(dir_ / "nothing", 0),
              StatusIs(absl::StatusCode::kNotFound));
  std::filesystem::create_symlink(dir_ / "target", Store() + "/LOCK");
  EXPECT_THAT(StoreLock::Acquire(Store(), 0),
              StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_FALSE(std::filesystem::exists(dir_ / "target"));
}

}  // namespace
}  // namespace ckptree::kv
