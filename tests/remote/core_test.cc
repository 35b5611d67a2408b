// SPDX-License-Identifier: Apache-2.0

// What of a secret key a core dump of a trainer has: of one that a file gave it
// nothing, of one in its environment what the environment is.

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "ckptree/ckptree.h"
#include "gtest/gtest.h"
#include "tests/core/fixture.h"
#include "tests/fault/scale.h"
#include "tests/objects/fixture.h"
#include "tests/remote/fixture.h"
#include "tests/remote/trainer.h"
#include "tests/testutil/temp_dir.h"

namespace ckptree::testing {
namespace {

namespace fs = std::filesystem;
using Act = AtRequest::Act;

// A piece of a process's memory.
struct Mapping {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  bool readable = false;
  bool dumped = true;  // A core dump may have it.
};

std::vector<Mapping> MappingsOf(const std::string& process) {
  std::vector<Mapping> mappings;
  std::ifstream file(absl::StrCat("/proc/", process, "/smaps"));
  std::string line;
  while (std::getline(file, line)) {
    std::istringstream words(line);
    Mapping mapping;
    char dash = 0;
    std::string rights;
    if (line.starts_with("VmFlags:") && !mappings.empty()) {
      for (std::string word; words >> word;) {
        if (word == "dd" || word == "io") mappings.back().dumped = false;
      }
    } else if (words >> std::hex >> mapping.begin >> dash >> mapping.end >>
                   rights &&
               dash == '-') {
      mapping.readable = rights.starts_with("r");
      mappings.push_back(mapping);
    }
  }
  return mappings;
}

int HeldBackMappings() {
  return static_cast<int>(
      std::ranges::count(MappingsOf("self"), false, &Mapping::dumped));
}

class CoreTest : public ObjectStoreTest {
 protected:
  void SetUp() override {
    UseServers();
    key_ = Environment("AWS_ACCESS_KEY_ID");
    secret_ = Environment("AWS_SECRET_ACCESS_KEY");
    ASSERT_GT(secret_.size(), 20);
    const std::string path = disks_ / "credentials";
    std::ofstream(path) << "[default]\naws_access_key_id = " << key_
                        << "\naws_secret_access_key = " << secret_ << "\n";
    unsetenv("AWS_ACCESS_KEY_ID");
    unsetenv("AWS_SECRET_ACCESS_KEY");
    setenv("AWS_SHARED_CREDENTIALS_FILE", path.c_str(), 1);
    // As it is, and as the first digest of a signature takes it.
    for (const char pad : {'\0', '\x36', '\x5c'}) {
      looked_for_.push_back(secret_);
      for (char& c : looked_for_.back()) c = static_cast<char>(c ^ pad);
    }
    // A core dump is a file where it ends.
    rlimit limit;
    ASSERT_EQ(getrlimit(RLIMIT_CORE, &limit), 0);
    limit.rlim_cur = limit.rlim_max;
    ASSERT_EQ(setrlimit(RLIMIT_CORE, &limit), 0);
    fs::create_directory(disks_ / "here");
    fs::current_path(disks_ / "here");
  }
  void TearDown() override {
    fs::current_path("/");
    setenv("AWS_ACCESS_KEY_ID", key_.c_str(), 1);
    setenv("AWS_SECRET_ACCESS_KEY", secret_.c_str(), 1);
    unsetenv("AWS_SHARED_CREDENTIALS_FILE");
  }

  int CountIn(int file, std::uint64_t begin, std::uint64_t end) const {
    constexpr std::uint64_t kPiece = std::uint64_t{16} << 20;
    int count = 0;
    std::string bytes;
    for (; begin < end; begin += kPiece) {
      // What begins in one piece ends in the next.
      bytes.resize(std::min(kPiece + secret_.size() - 1, end - begin));
      const ssize_t got =
          pread(file, bytes.data(), bytes.size(), static_cast<off_t>(begin));
      if (got <= 0) continue;  // Of the kernel's own, and not to be read.
      bytes.resize(static_cast<std::size_t>(got));
      for (const std::string& text : looked_for_) {
        for (std::size_t at = bytes.find(text); at != bytes.npos;
             at = bytes.find(text, at + 1)) {
          ++count;
        }
      }
    }
    return count;
  }

  // How often it is in the memory of a process that stands still: in what a
  // core dump has, or in the rest.
  int CountInMemory(pid_t process, bool dumped) const {
    // A secret's is small; a sanitizer's is not, and is left out as well.
    constexpr std::uint64_t kHeldBack = std::uint64_t{1} << 20;
    const std::string path = absl::StrCat("/proc/", process, "/mem");
    const int memory = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    EXPECT_GE(memory, 0) << path;
    int count = 0;
    for (const Mapping& mapping : MappingsOf(absl::StrCat(process))) {
      const std::uint64_t size = mapping.end - mapping.begin;
      if (!mapping.readable || mapping.dumped != dumped ||
          (!dumped && size > kHeldBack)) {
        continue;
      }
      count += CountIn(memory, mapping.begin, mapping.end);
    }
    close(memory);
    return count;
  }

  std::int64_t Next() const {
    return told_.asked.empty() ? 1 : *told_.asked.rbegin() + 1;
  }

  // Of a trainer that stands still: whether it has the key, and no core would.
  void Look(const Trainer& trainer, const std::string& what) {
    const int held_back = CountInMemory(trainer.pid(), /*dumped=*/false);
    const int dumped = CountInMemory(trainer.pid(), /*dumped=*/true);
    EXPECT_GT(held_back, 0) << what;
    fired_ += held_back > 0;
    found_ += dumped > 0;
    EXPECT_EQ(dumped, 0) << what;
  }

  static void Tell(const std::string& name, int trials, int fired, int lost) {
    absl::PrintF("trial remote, %s, %s: %d trials, %d fired, %d lost\n",
                 StoreKind(), name, trials, fired, lost);
  }

  TempDir disks_;
  std::string key_, secret_;
  std::vector<std::string> looked_for_;
  Told told_;
  int fired_ = 0;
  int found_ = 0;
};

TEST_F(CoreTest, AKeyOfAFileIsInNoneAtAnyRequest) {
  const int trials = ScaledWithServers(50);
  constexpr int kLivesOfAStore = 10;
  constexpr int kFirst = 4;  // Before that who asks is opened, and has no key.
  for (int i = 0; i < trials; ++i) {
    Trainer trainer(disks_ / "disk",
                    absl::StrCat(Address(), "/", i / kLivesOfAStore), "",
                    Next(), /*keep=*/false,
                    {.act = i % 2 == 0 ? Act::kStops : Act::kStopsBehind,
                     .number = kFirst + i});
    ASSERT_TRUE(trainer.HearUntilItCame(&told_)) << trainer.failed();
    ASSERT_TRUE(trainer.AwaitStopped());
    Look(trainer, trainer.at());
    trainer.End(&told_);
    if (i % kLivesOfAStore == kLivesOfAStore - 1) {
      fs::remove_all(disks_ / "disk");
    }
  }
  EXPECT_EQ(fired_, trials);
  Tell("a secret key in memory that a core has, at requests", trials, fired_,
       found_);
}

TEST_F(CoreTest, AKeyOfAFileIsInNoneAtAnyMoment) {
  const int trials = ScaledWithServers(50);
  Trainer trainer(disks_ / "disk", Address(), "", 1);
  for (int i = 0; i < trials; ++i) {
    for (int lines = 0; lines < 3; ++lines) {
      ASSERT_TRUE(trainer.Hear(kLong, &told_)) << trainer.failed();
    }
    ASSERT_EQ(kill(trainer.pid(), SIGSTOP), 0);
    ASSERT_TRUE(trainer.AwaitStopped());
    Look(trainer, absl::StrCat("stop ", i));
    trainer.Continue();
  }
  EXPECT_EQ(fired_, trials);
  Tell("a secret key in memory that a core has, at any moment", trials, fired_,
       found_);
}

// What the kernel writes is what the others took for it.
TEST_F(CoreTest, ACoreHasWhatTheEnvironmentHas) {
  std::string pattern;
  std::ifstream kernel("/proc/sys/kernel/core_pattern");
  std::getline(kernel, pattern);
  rlimit limit;
  ASSERT_EQ(getrlimit(RLIMIT_CORE, &limit), 0);
  const bool written = pattern.starts_with("core") &&
                       !absl::StrContains(pattern, "/") &&
                       limit.rlim_cur == RLIM_INFINITY;
  for (const bool by_environment : {false, true}) {
    if (by_environment) {
      setenv("AWS_ACCESS_KEY_ID", key_.c_str(), 1);
      setenv("AWS_SECRET_ACCESS_KEY", secret_.c_str(), 1);
    }
    Trainer trainer(disks_ / absl::StrCat("disk", by_environment ? 1 : 0),
                    absl::StrCat(Address(), "/", by_environment ? 1 : 3), "",
                    1);
    for (int lines = 0; lines < 8; ++lines) {
      ASSERT_TRUE(trainer.Hear(kLong, &told_)) << trainer.failed();
    }
    // None is added to the one of the environment.
    const int wanted = by_environment ? 1 : 0;
    ASSERT_EQ(kill(trainer.pid(), SIGSTOP), 0);
    ASSERT_TRUE(trainer.AwaitStopped());
    EXPECT_EQ(CountInMemory(trainer.pid(), /*dumped=*/true), wanted);
    EXPECT_GT(CountInMemory(trainer.pid(), /*dumped=*/false), 0);
    if (!written) continue;
    ASSERT_EQ(kill(trainer.pid(), SIGABRT), 0);
    trainer.Continue();
    siginfo_t ended;
    ASSERT_EQ(waitid(P_PID, static_cast<id_t>(trainer.pid()), &ended,
                     WEXITED | WNOWAIT),
              0);
    EXPECT_EQ(ended.si_code, CLD_DUMPED);
    trainer.End(&told_);
    int cores = 0;
    for (const auto& entry : fs::directory_iterator(disks_ / "here")) {
      EXPECT_GT(entry.file_size(), std::size_t{1} << 20);
      const int core = open(entry.path().c_str(), O_RDONLY | O_CLOEXEC);
      ASSERT_GE(core, 0) << entry.path();
      EXPECT_EQ(CountIn(core, 0, entry.file_size()), wanted) << entry.path();
      close(core);
      ++cores;
      fs::remove(entry.path());
    }
    EXPECT_EQ(cores, 1);
  }
  if (!written) {
    absl::PrintF("SKIPPED: a core of the kernel's: core_pattern is %s\n",
                 pattern);
  }
}

TEST_F(CoreTest, AStoreThatIsClosedHasNoKey) {
  const int before = HeldBackMappings();
  {
    absl::StatusOr<Store> store =
        Store::Open(disks_ / "disk", RemoteOptions(Address()));
    ASSERT_TRUE(store.ok()) << store.status();
    ASSERT_TRUE(StartStep(*store, 1).WaitCommitted(kLong).ok());
    ASSERT_TRUE(store->WaitReplicated(kLong).ok());
    EXPECT_GT(HeldBackMappings(), before);
    ASSERT_TRUE(store->Close().ok());
  }
  EXPECT_EQ(HeldBackMappings(), before);
}

}  // namespace
}  // namespace ckptree::testing

int main(int argc, char** argv) {
  if (const int code = ckptree::testing::TrainerMain(argc, argv); code >= 0) {
    return code;
  }
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
