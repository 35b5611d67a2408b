// SPDX-License-Identifier: Apache-2.0

// Whose the files of a store are, and files that somebody else prepared. What
// changes the user, the umask or the limits runs in children.

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/fixture.h"
#include "tests/testutil/sanitizer.h"
#include "tests/testutil/shifted_clock.h"

// Before the C library's, for RocksDB too.
extern "C" time_t time(time_t* out) noexcept {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  if (out != nullptr) *out = now.tv_sec;
  return now.tv_sec;
}

namespace ckptree::testing {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr uid_t kNobody = 65534;

// The exit code of a child that runs `body`; -1 where a signal ended it.
int InChild(const std::function<int()>& body) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    alarm(kAddressSanitizer ? 600 : 60);
    _exit(body());
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int As(uid_t user, const std::function<int()>& body) {
  return InChild([&] {
    return setresgid(user, user, user) == 0 && setresuid(user, user, user) == 0
               ? body()
               : 99;
  });
}

class AccessTest : public ::testing::Test {
 protected:
  AccessTest() {
    std::filesystem::permissions(dir_.path(), std::filesystem::perms(0755));
  }
  std::string path() const { return dir_ / "store"; }

  static StoreOptions Options() { return QuietOptions(); }
  static StoreOptions ReadOnly() { return ToRead(Options()); }
  // 0 where all went well.
  int Save(std::int64_t step, const StoreOptions& options = Options()) const {
    absl::StatusOr<Store> store = Store::Open(path(), options);
    if (!store.ok()) {
      std::fprintf(stderr, "%s\n", store.status().ToString().c_str());
      return 1;
    }
    for (const Bytes* bytes : {&small_, &large_}) {
      StepBuilder builder = store->Begin(step++);
      builder.Put("w", Uint8s(*bytes));
      if (!std::move(builder).Commit().WaitCommitted(kLong).ok()) return 2;
    }
    return store->Collect().ok() && store->Close().ok() ? 0 : 3;
  }
  int Read(std::int64_t step) const {
    absl::StatusOr<Store> store = Store::Open(path(), ReadOnly());
    if (!store.ok()) {
      std::fprintf(stderr, "%s\n", store.status().ToString().c_str());
      return 1;
    }
    const absl::StatusOr<Step> open = store->OpenStep(AtStep(step));
    if (!open.ok()) return 2;
    const absl::StatusOr<LeafValue> value = open->Value("w");
    return value.ok() && value->bytes == small_ ? 0 : 3;
  }
  // By mode, the names of files, or of folders.
  std::map<unsigned, std::string> Modes(bool folders) const {
    std::map<unsigned, std::string> modes;
    const auto add = [&](const std::string& name) {
      struct stat status {};
      EXPECT_EQ(lstat(name.c_str(), &status), 0);
      if (S_ISDIR(status.st_mode) == folders) {
        modes[status.st_mode & 07777] += " " + name;
      }
    };
    add(path());
    for (const auto& entry :
         std::filesystem::recursive_directory_iterator(path())) {
      add(entry.path());
    }
    return modes;
  }
  void ExpectModes(unsigned files, unsigned folders) {
    for (const auto& [mode, names] : Modes(false)) {
      EXPECT_EQ(mode, files) << names;
    }
    for (const auto& [mode, names] : Modes(true)) {
      EXPECT_EQ(mode, folders) << names;
    }
    EXPECT_FALSE(Modes(false).empty());
  }
  static std::string Content(const std::string& name) {
    std::ifstream file(name, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  }

  TempDir dir_;
  const Bytes small_ = RandomBytes(1000, 1);
  const Bytes large_ = RandomBytes(4 << 20, 2);
};

TEST_F(AccessTest, FilesAreMadeByTheUmask) {
  struct Case {
    mode_t umask;
    int permissions;
    unsigned files, folders;
  };
  for (const Case& c :
       {Case{022, 0666, 0644, 0755}, Case{077, 0666, 0600, 0700},
        Case{002, 0666, 0664, 0775}, Case{0, 0640, 0640, 0750},
        Case{022, 0600, 0600, 0700}}) {
    SCOPED_TRACE(::testing::Message()
                 << std::oct << c.umask << " " << c.permissions);
    std::filesystem::remove_all(path());
    EXPECT_EQ(InChild([&] {
                umask(c.umask);
                StoreOptions options = Options();
                options.permissions = c.permissions;
                return Save(1, options);
              }),
              0);
    ExpectModes(c.files, c.folders);
  }
  StoreOptions wrong = Options();
  wrong.permissions = 0444;
  EXPECT_THAT(Store::Open(path(), wrong).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("0444")));
}

TEST_F(AccessTest, OneUserWritesAndAllMayRead) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can be somebody else";
  std::filesystem::create_directory(path());
  ASSERT_EQ(chown(path().c_str(), kNobody, kNobody), 0);
  umask(022);
  ASSERT_EQ(As(kNobody, [&] { return Save(1); }), 0);
  // Root could, and its files would lock the owner out.
  EXPECT_EQ(InChild([&] {
              const absl::Status status =
                  Store::Open(path(), Options()).status();
              const std::string text(status.message());
              return absl::IsFailedPrecondition(status) &&
                             text.find("65534") != text.npos &&
                             text.find("run as the owner") != text.npos
                         ? 0
                         : 1;
            }),
            0);
  EXPECT_EQ(InChild([&] { return Read(1); }), 0);
  EXPECT_EQ(As(12345, [&] { return Read(1); }), 0);
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(path())) {
    struct stat status {};
    ASSERT_EQ(lstat(entry.path().c_str(), &status), 0);
    EXPECT_EQ(status.st_uid, kNobody) << entry.path();
  }
  EXPECT_EQ(As(kNobody, [&] { return Save(11); }), 0);
  EXPECT_EQ(As(kNobody, [&] { return Read(11); }), 0);
}

TEST_F(AccessTest, AReaderOfAnotherUserGoesBesideAWriter) {
  if (kAddressSanitizer) {
    GTEST_SKIP() << "its allocator may hang in a child of a process with "
                    "threads";
  }
  if (geteuid() != 0) GTEST_SKIP() << "only root can be somebody else";
  umask(022);
  EXPECT_EQ(InChild([&] {
              if (Save(1) != 0) return 10;
              const absl::StatusOr<Store> store =
                  Store::Open(path(), Options());
              return store.ok() ? As(kNobody, [&] { return Read(1); }) : 11;
            }),
            0);
}

// ---- what somebody else prepared ----

TEST_F(AccessTest, HugeControlFilesAreNotRead) {
  if (kAddressSanitizer) {
    GTEST_SKIP() << "the sanitizer's own memory is beyond the limit set here";
  }
  namespace fs = std::filesystem;
  ASSERT_EQ(InChild([&] { return Save(1); }), 0);
  const std::string whole = dir_ / "whole";
  fs::rename(path(), whole);
  // All but tables: what RocksDB and the journal keep.
  std::vector<std::string> names;
  for (const std::string folder : {"db", "journal"}) {
    for (const auto& entry : fs::directory_iterator(whole + "/" + folder)) {
      const std::string name = entry.path().filename();
      if (!name.ends_with(".sst")) names.push_back(folder + "/" + name);
    }
  }
  std::sort(names.begin(), names.end());
  EXPECT_THAT(names, Contains("db/CURRENT"));
  EXPECT_THAT(names, Contains("db/IDENTITY"));
  EXPECT_THAT(names, Contains(StartsWith("db/MANIFEST-")));
  EXPECT_THAT(names, Contains(StartsWith("db/OPTIONS-")));
  EXPECT_THAT(names, Contains(StartsWith("journal/a-")));
  EXPECT_THAT(names, Contains(StartsWith("journal/b-")));
  EXPECT_THAT(names, Contains("journal/tip"));
  for (const std::string& name : names) {
    fs::copy(whole, path(), fs::copy_options::recursive);
    fs::resize_file(path() + "/" + name, std::uint64_t{40} << 30);
    // What is read whole does not fit.
    const auto limited = [](const std::function<int()>& body) {
      return InChild([&] {
        const struct rlimit most = {6ul << 30, 6ul << 30};
        setrlimit(RLIMIT_AS, &most);
        return body();
      });
    };
    // Whatever it is, the rest has all that it had.
    EXPECT_EQ(limited([&] { return Read(1); }), 0) << name;
    EXPECT_EQ(limited([&] { return Save(3); }), 0) << name;
    for (const std::int64_t step : {1, 3}) {
      EXPECT_EQ(limited([&] { return Read(step); }), 0) << name << step;
    }
    fs::remove_all(path());
  }
}

TEST_F(AccessTest, AHardLinkedLockIsRefused) {
  ASSERT_EQ(InChild([&] { return Save(1); }), 0);
  const std::string twin = dir_ / "twin";
  std::ofstream(twin) << "what somebody wants to keep, longer than a lock is";
  const std::string before = Content(twin);
  std::filesystem::remove(path() + "/LOCK");
  std::filesystem::create_hard_link(twin, path() + "/LOCK");
  EXPECT_EQ(InChild([&] {
              const absl::Status status =
                  Store::Open(path(), Options()).status();
              return absl::IsFailedPrecondition(status) &&
                             std::string(status.message()).find("LOCK") !=
                                 std::string::npos
                         ? 0
                         : 1;
            }),
            0);
  EXPECT_EQ(Content(twin), before);
  std::filesystem::remove(path() + "/LOCK");
  EXPECT_EQ(InChild([&] { return Save(11); }), 0);
}

TEST_F(AccessTest, AClockBefore1970IsAnError) {
  constexpr std::int64_t kBack = std::int64_t{80} * 365 * 24 * 3600;
  ASSERT_EQ(InChild([&] { return Save(1); }), 0);
  const auto refused = [](const absl::Status& status) {
    return absl::IsFailedPrecondition(status) &&
           std::string(status.message()).find("1970") != std::string::npos;
  };
  EXPECT_EQ(InChild([&] {
              clock_offset_seconds = -kBack;
              for (const StoreOptions& options : {Options(), ReadOnly()}) {
                if (!refused(Store::Open(path(), options).status())) return 1;
              }
              clock_offset_seconds = 0;
              absl::StatusOr<Store> store = Store::Open(path(), Options());
              if (!store.ok()) return 2;
              clock_offset_seconds = -kBack;
              StepBuilder builder = store->Begin(5);
              builder.Put("w", Uint8s(small_));
              if (!refused(std::move(builder).Commit().WaitCommitted(kLong))) {
                return 3;
              }
              // Nor does any other commit end the process.
              if (!refused(store->Tag("t", 1))) return 4;
              if (!refused(store->Delete(1))) return 5;
              clock_offset_seconds = 0;
              if (!store->Tag("t", 1).ok()) return 6;
              return store->Close().ok() ? Save(11) : 7;
            }),
            0);
  EXPECT_EQ(InChild([&] { return Read(1); }), 0);
}

TEST_F(AccessTest, NothingPrintsIntoTheStore) {
  EXPECT_EQ(InChild([&] {
              for (const int fd : {0, 1, 2}) close(fd);
              absl::StatusOr<Store> store = Store::Open(path(), Options());
              if (!store.ok()) return 1;
              std::printf("printed");
              std::fflush(stdout);
              std::fprintf(stderr, "complained");
              StepBuilder builder = store->Begin(1);
              builder.Put("w", Uint8s(small_));
              if (!std::move(builder).Commit().WaitCommitted(kLong).ok()) {
                return 2;
              }
              std::fprintf(stderr, "complained");
              return store->Close().ok() ? 0 : 3;
            }),
            0);
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(path())) {
    if (!entry.is_regular_file()) continue;
    EXPECT_THAT(Content(entry.path()),
                ::testing::AllOf(Not(HasSubstr("printed")),
                                 Not(HasSubstr("complained"))))
        << entry.path();
  }
  EXPECT_EQ(InChild([&] { return Read(1); }), 0);
}

}  // namespace
}  // namespace ckptree::testing
