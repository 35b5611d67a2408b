// SPDX-License-Identifier: Apache-2.0

// Every command with a store that is named by its address: those that read say
// what they say of the directory; those that write refuse it and say why, but
// for `copy` and `backup`.

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/tools/command_runner.h"

namespace ckptree {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class AddressTest : public CommandRunner {
 protected:
  void SetUp() override {
    store_ = far_ / "store";
    MakeStore(store_);
    setenv("XDG_CACHE_HOME", (far_ / "cache").c_str(), 1);
    address_ = absl::StrCat("file://", far_ / "run");
    Ship(store_, address_);
  }
  static void Ship(const std::string& directory, const std::string& address) {
    StoreOptions options;
    options.remote = address;
    options.create_if_missing = true;
    ASSERT_OK_AND_ASSIGN(Store store, Store::Open(directory, options));
    ASSERT_OK(store.WaitReplicated(absl::Minutes(2)));
    ASSERT_OK(store.Close());
  }
  // Where a copy may go to: a bucket, where servers.py has made one.
  std::string Destination() {
    const char* const endpoint = std::getenv("CKPTREE_TEST_S3");
    const char* const bucket = std::getenv("CKPTREE_TEST_BUCKET");
    if (endpoint != nullptr && bucket != nullptr) {
      setenv("AWS_ENDPOINT_URL_S3", endpoint, 1);
      return absl::StrCat("s3://", bucket, "/copy-", getpid());
    }
    // Of file:// only a folder that has a store already is an object store.
    const std::string other = absl::StrCat("file://", far_ / "other");
    Ship(far_ / "first", other);
    return other;
  }
  Result By(const std::string& place, std::vector<std::string> words) {
    words.insert(words.begin(), {"-C", place});
    return Run(words);
  }

  testing::TempDir far_;
  std::string store_;
  std::string address_;
};

// By the first word, what is tried.
const std::vector<std::vector<std::string>> kReading = {
    {"log", "--json"},
    {"ls", "300", "--json"},
    {"show", "300", "--json"},
    {"get", "300:count/[3]"},
    {"history", "params/w", "--json"},
    {"diff", "100", "200", "--json"},
    {"blame", "500", "--json"},
    {"find", "acc>0.2", "--json"},
    {"stat", "params/w", "--json"},
    {"hist", "params/w", "--json"},
    {"verify", "--json"},
    {"tag", "--json"},
    {"fork", "--json"},
    {"gc", "--dry-run"},
    {"policy", "--json"},
    {"sql", "SELECT step FROM steps"},
};
const std::vector<std::vector<std::string>> kWriting = {
    {"tag", "new", "100"},
    {"pin", "200"},
    {"rm", "200", "--yes"},
    {"rm", "200"},
    {"fork", "--drop", "main"},
    {"policy", "--apply"},
    {"fork", "100", "--branch", "other"},
    {"gc"},
    {"policy", "--set", "latest(2)"},
};
// Tried below, or of no store.
const std::set<std::string> kOthers = {
    "du",     "export", "report",  "serve",  "copy",       "backup", "demo",
    "doctor", "import", "recover", "repair", "completion", "help",   "version"};

TEST_F(AddressTest, ThoseThatReadSayWhatTheySayOfTheDirectory) {
  for (const std::vector<std::string>& words : kReading) {
    const Result here = By(store_, words);
    const Result there = By(address_, words);
    EXPECT_EQ(there.code, here.code) << words[0] << ": " << there.err;
    EXPECT_EQ(there.out, here.out) << words[0];
    EXPECT_NE(there.out, "") << words[0];
  }
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{
           {"du"},
           {"export", "300", far_ / "out.npz"},
           {"report", "-o", far_ / "report.html"},
           {"backup", far_ / "backup"}}) {
    const Result there = By(address_, words);
    EXPECT_EQ(there.code, 0) << words[0] << ": " << there.out << there.err;
  }
  // Whose files are counted.
  EXPECT_THAT(By(address_, {"du"}).out, HasSubstr("read through a cache of "));
  EXPECT_THAT(By(store_, {"du"}).out, HasSubstr(" of files"));
  // Of its values, the last has NaN.
  const Result doctor = By(address_, {"doctor"});
  EXPECT_EQ(doctor.code, By(store_, {"doctor"}).code) << doctor.out;
  EXPECT_THAT(doctor.out, HasSubstr(" free"));
  const Result copy = Run({"copy", address_, far_ / "copy"});
  EXPECT_EQ(copy.code, 0) << copy.err;
  EXPECT_EQ(By(far_ / "copy", {"get", "300:count/[3]"}).out,
            By(store_, {"get", "300:count/[3]"}).out);
}

TEST_F(AddressTest, AChangeOfTheDirectoryIsThereLater) {
  const std::string before = By(address_, {"tag"}).out;
  const Result tag = By(store_, {"tag", "later", "100"});
  EXPECT_EQ(tag.code, 0) << tag.err;
  EXPECT_THAT(tag.err, HasSubstr(address_));
  EXPECT_EQ(By(address_, {"tag"}).out, before);
  // What changes nothing that is listed says nothing of it.
  EXPECT_EQ(By(store_, {"rm", "400", "--dry-run"}).err, "");
  EXPECT_THAT(By(store_, {"doctor"}).out, HasSubstr(address_));
  EXPECT_THAT(By(address_, {"doctor"}).out, HasSubstr("remote"));
  Ship(store_, address_);
  EXPECT_THAT(By(address_, {"tag"}).out, HasSubstr("later"));
  // A copy of the directory ships to nowhere.
  const std::string copy = far_ / "copied";
  std::filesystem::copy(store_, copy, std::filesystem::copy_options::recursive);
  const Result other = By(copy, {"tag", "other", "100"});
  EXPECT_EQ(other.code, 0) << other.err;
  EXPECT_THAT(other.err, Not(HasSubstr("remote")));
}

TEST_F(AddressTest, ThoseThatWriteRefuseItAndSayWhy) {
  std::vector<std::vector<std::string>> all;
  for (std::vector<std::string> words : kWriting) {
    words.insert(words.begin(), {"-C", address_});
    all.push_back(words);
  }
  // Not that somebody has to be asked, which would be in vain.
  const std::string file = far_ / "100.npz";
  ASSERT_EQ(By(store_, {"export", "100:params/w", file}).code, 0);
  all.push_back({"-C", address_, "import", file});
  all.push_back({"demo", address_});
  all.push_back({"repair", address_});
  const Result before = By(address_, {"log", "--json"});
  for (const std::vector<std::string>& words : all) {
    const Result refused = Run(words);
    const std::string& verb = words[0] == "-C" ? words[2] : words[0];
    EXPECT_EQ(refused.code, 2) << verb << ": " << refused.err;
    EXPECT_THAT(refused.err, HasSubstr("by this address it is only read"))
        << verb;
  }
  EXPECT_EQ(By(address_, {"log", "--json"}).out, before.out);
}

TEST_F(AddressTest, WhatIsNotRecoveredFromAnAddressIsCopied) {
  const std::string to = far_ / "recovered";
  const Result refused = Run({"recover", address_, to});
  EXPECT_EQ(refused.code, 2);
  const std::vector<std::string> advice = {"copy", address_, to};
  EXPECT_THAT(refused.err,
              AllOf(HasSubstr("`ckptree copy " + address_ + " " + to + "`"),
                    Not(HasSubstr("what changes a store"))));
  const Result copy = Run(advice);
  EXPECT_EQ(copy.code, 0) << copy.err;
  EXPECT_EQ(By(to, {"log", "--json"}).out, By(store_, {"log", "--json"}).out);
}

TEST_F(AddressTest, WhereNoStoreIsThatIsSaid) {
  const std::string nowhere = address_ + "-that-nobody-made";
  setenv("CKPTREE_STORE", nowhere.c_str(), 1);
  const Result by_variable = Run({"log"});
  unsetenv("CKPTREE_STORE");
  const Result by_flag = By(nowhere, {"log"});
  for (const auto& [result, how] :
       {std::pair(by_flag, "-C"), std::pair(by_variable, "CKPTREE_STORE")}) {
    EXPECT_EQ(result.code, 3);
    EXPECT_THAT(result.err, AllOf(HasSubstr("no store in "), HasSubstr(how),
                                  Not(HasSubstr("name a store with"))));
  }
}

TEST_F(AddressTest, CopiesGoToAnAddress) {
  const std::string to = Destination();
  const auto same = [&] {
    const Result there = By(to, {"log", "--json"});
    EXPECT_EQ(there.code, 0) << there.err;
    for (const char* what : {"300:count/[3]", "500:params/w"}) {
      EXPECT_EQ(By(to, {"get", what}).out, By(store_, {"get", what}).out);
    }
    EXPECT_EQ(By(to, {"tag", "--json"}).out, By(store_, {"tag", "--json"}).out);
    EXPECT_EQ(By(to, {"verify"}).code, 0);
  };
  const Result planned = Run({"copy", store_, to, "--dry-run"});
  EXPECT_EQ(planned.code, 0) << planned.err;
  EXPECT_THAT(planned.out, HasSubstr("5 steps would be copied"));
  const Result some = Run({"copy", store_, to, "100..200"});
  EXPECT_EQ(some.code, 0) << some.err;
  EXPECT_THAT(some.out, HasSubstr("2 steps copied"));
  // What it went by is gone.
  for (const auto& entry :
       std::filesystem::directory_iterator(far_ / "cache/ckptree")) {
    EXPECT_FALSE(entry.path().filename().string().starts_with("copy-"))
        << entry.path();
  }
  const Result rest = By(store_, {"backup", to});
  EXPECT_EQ(rest.code, 0) << rest.err;
  EXPECT_THAT(rest.out, HasSubstr("3 steps copied"));
  same();
  // From an address to another.
  const Result again = Run({"copy", address_, to});
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_THAT(again.out, HasSubstr("5 were there"));
  same();
  const Result nowhere = Run({"copy", store_, "gs://bucket/run"});
  EXPECT_EQ(nowhere.code, 2) << nowhere.err;
  EXPECT_THAT(nowhere.err, HasSubstr("s3://"));
}

// The same command goes on, wherever it was.
TEST_F(AddressTest, ACopyToAnAddressThatIsKilledGoesOn) {
  const std::string to = Destination();
  int killed = 0;
  // However fast the machine is, some are killed on their way.
  for (int milliseconds = 0; milliseconds < 50; milliseconds += 5) {
    const std::vector<std::string> words = {CKPTREE_BINARY, "copy", store_, to,
                                            "--take-over"};
    std::vector<char*> argv;
    for (const std::string& word : words) {
      argv.push_back(const_cast<char*>(word.c_str()));
    }
    argv.push_back(nullptr);
    posix_spawn_file_actions_t quiet;
    posix_spawn_file_actions_init(&quiet);
    for (const int fd : {1, 2}) {
      posix_spawn_file_actions_addopen(&quiet, fd, "/dev/null", O_WRONLY, 0);
    }
    pid_t pid = 0;
    ASSERT_EQ(posix_spawn(&pid, CKPTREE_BINARY, &quiet, nullptr, argv.data(),
                          environ),
              0);
    posix_spawn_file_actions_destroy(&quiet);
    const int fd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
    ASSERT_GE(fd, 0);
    pollfd ended{fd, POLLIN, 0};
    poll(&ended, 1, milliseconds);
    kill(pid, SIGKILL);
    int status = 0;
    waitpid(pid, &status, 0);
    close(fd);
    killed += WIFSIGNALED(status);
    // What is there is whole, at any time.
    const Result verified = By(to, {"verify"});
    EXPECT_TRUE(verified.code == 0 || verified.code == 2) << verified.out;
  }
  EXPECT_GT(killed, 3);
  const Result rest = Run({"copy", store_, to, "--take-over"});
  EXPECT_EQ(rest.code, 0) << rest.err;
  EXPECT_EQ(By(to, {"get", "500:params/w"}).out,
            By(store_, {"get", "500:params/w"}).out);
  EXPECT_EQ(By(to, {"verify"}).code, 0);
  EXPECT_EQ(Run({"copy", store_, far_ / "plain", "--take-over"}).code, 2);
}

TEST_F(AddressTest, EveryCommandIsAmongThese) {
  std::set<std::string> tried = kOthers;
  for (const auto* list : {&kReading, &kWriting}) {
    for (const std::vector<std::string>& words : *list) tried.insert(words[0]);
  }
  std::istringstream help(Run({"help"}).out);
  std::set<std::string> missing;
  for (std::string line; std::getline(help, line);) {
    // "  log         the steps, newest first"
    if (line.size() < 14 || !line.starts_with("  ") || line[2] == ' ' ||
        line.compare(11, 3, "   ") == 0 || line.starts_with("  ckptree")) {
      continue;
    }
    const std::string verb = line.substr(2, line.find(' ', 2) - 2);
    if (!tried.contains(verb)) missing.insert(verb);
  }
  EXPECT_THAT(missing, ::testing::IsEmpty());
}

}  // namespace
}  // namespace ckptree
