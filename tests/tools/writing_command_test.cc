// SPDX-License-Identifier: Apache-2.0

// The program on stores that it changes, that someone writes, that are damaged.

#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "ckptree/ckptree.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testutil/status_matchers.h"
#include "tests/tools/command_runner.h"

namespace ckptree {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

using WritingCommandTest = CommandRunner;

TEST_F(WritingCommandTest, ADemoThatFailsLeavesNothing) {
  struct rlimit before {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const std::string there = scratch_ / "there", none = scratch_ / "none";
  std::filesystem::create_directory(there);
  // Too little to make a store, and too little to fill it.
  for (const rlim_t most : {rlim_t{16} << 10, rlim_t{300} << 10}) {
    for (const std::string& path : {there, none}) {
      struct rlimit less = before;
      less.rlim_cur = most;
      ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &less), 0);
      const Result result = Run({"demo", path, "-q"});
      ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
      EXPECT_EQ(result.code, 2);
      EXPECT_THAT(result.err, Not(HasSubstr("ckptree: error")));
      EXPECT_THAT(result.err, StartsWith("ckptree: "));
      EXPECT_TRUE(std::filesystem::is_empty(there));
      EXPECT_FALSE(std::filesystem::exists(none));
    }
  }
}

TEST_F(WritingCommandTest, AReportIntoAPipeCanBeEnded) {
  const std::string own = scratch_ / "own", pipe = scratch_ / "pipe";
  MakeStore(own);
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const Running running = Start({"-C", own, "report", "-o", pipe});
  // Until it waits in open() for a reader, or is done for lack of a page.
  const std::string call = "/proc/" + std::to_string(running.pid) + "/syscall";
  const std::string waits = std::to_string(SYS_openat) + " ";
  const absl::Time end = absl::Now() + absl::Minutes(1);
  siginfo_t ended{};
  while (!ReadFile(call).starts_with(waits) && absl::Now() < end &&
         waitid(P_PID, static_cast<id_t>(running.pid), &ended,
                WEXITED | WNOHANG | WNOWAIT) == 0 &&
         ended.si_pid == 0) {
    sched_yield();
  }
  kill(running.pid, SIGTERM);
  const Result result = Finish(running);
  if (result.err.find("Chart.js") != std::string::npos)
    GTEST_SKIP() << "built without Chart.js";
  EXPECT_EQ(result.code, 143) << result.err;
}

TEST_F(WritingCommandTest, AnAlertWaitsForItsMetric) {
  const std::string own = scratch_ / "own";
  MakeStore(own);
  const Result result = Run({"-C", own, "log", "-f", "--until", "500",
                             "--alert", "val_loss>10 or tags==best"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("no step has `val_loss` yet: --alert waits "
                                    "for one that has"));
  EXPECT_THAT(result.out, HasSubstr("500"));
  // What can be no condition is an error.
  EXPECT_EQ(
      Run({"-C", own, "log", "-f", "--until", "500", "--alert", "a>"}).code, 2);
}

TEST_F(WritingCommandTest, TagPinAndRm) {
  const std::string own = scratch_ / "own";
  MakeStore(own);
  const auto run = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {"-C", own});
    return Run(std::move(words));
  };
  EXPECT_EQ(run({"tag", "v1", "300"}).code, 0);
  EXPECT_EQ(run({"tag", "v1", "400"}).code, 2);
  EXPECT_EQ(run({"tag", "v1", "400", "--move"}).code, 0);
  EXPECT_EQ(
      run({"tag", "-o", "tsv", "--no-header", "--columns", "name,step"}).out,
      "v1\t400\nwarm\t200\n");
  EXPECT_EQ(run({"tag", "--delete", "v1"}).code, 0);
  EXPECT_EQ(run({"tag", "--delete", "v1"}).code, 3);
  EXPECT_EQ(run({"rm", "200..300"}).code, 2);  // Nobody to ask.
  // 200 is tagged.
  for (const char* how : {"-y", "--dry-run"}) {
    const Result refused = run({"rm", "200..300", how});
    EXPECT_EQ(refused.code, 2);
    EXPECT_THAT(refused.err,
                HasSubstr("step 200 is tagged @warm; nothing was removed"));
    EXPECT_THAT(refused.err, HasSubstr("--tagged"));
    EXPECT_EQ(refused.out, "");
  }
  EXPECT_EQ(run({"log", "-o", "csv", "--columns", "step,tags"}).out,
            "step,tags\n500,\n400,\n300,\n200,warm\n100,\n");
  EXPECT_THAT(run({"rm", "200..300", "--tagged", "--dry-run"}).out,
              StartsWith("would remove step 200 and the tag @warm\n"
                         "would remove step 300\nwould free "));
  EXPECT_EQ(run({"rm", "100..300", "-y", "--tagged"}).code, 2);  // Pinned.
  EXPECT_THAT(run({"rm", "200..300", "-y", "--tagged"}).out,
              StartsWith("removed step 200 and the tag @warm\n"
                         "removed step 300\nfreed "));
  EXPECT_EQ(run({"tag", "-o", "tsv", "--no-header"}).out, "");
  EXPECT_EQ(run({"pin", "--delete", "100"}).code, 0);
  EXPECT_EQ(run({"pin", "400"}).code, 0);
  EXPECT_EQ(run({"log", "-o", "csv", "--columns", "step,pinned"}).out,
            "step,pinned\n500,false\n400,true\n100,false\n");
  EXPECT_EQ(run({"verify"}).code, 0);
}

// As `pin "$OLD"` says where OLD is not set.
TEST_F(WritingCommandTest, AnEmptyWordIsNoStep) {
  const std::string own = scratch_ / "own";
  MakeStore(own);
  const std::string before = Run({"-C", own, "log", "--json"}).out;
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"pin", ""},
                                             {"pin", "--delete", ""},
                                             {"pin", "100", ""},
                                             {"rm", "", "-y"},
                                             {"tag", "x", ""},
                                             {"tag", ""},
                                             {"fork", "", "--branch", "b"},
                                             {"export", "", own + ".npz"},
                                             {"verify", ""},
                                             {"diff", "100", ""}}) {
    std::vector<std::string> all = {"-C", own};
    all.insert(all.end(), words.begin(), words.end());
    const Result result = Run(all);
    EXPECT_EQ(result.code, 2) << words[0];
    EXPECT_THAT(result.err, HasSubstr("cannot take an empty word"));
  }
  // -1 bounds a list, and is no step.
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"tag", "x", "-1"},
                                             {"tag", "x", "100", "--json"},
                                             {"fork", "-1", "--branch", "b"}}) {
    std::vector<std::string> all = {"-C", own};
    all.insert(all.end(), words.begin(), words.end());
    const Result result = Run(all);
    EXPECT_EQ(result.code, 2) << words[0];
    EXPECT_THAT(result.err, HasSubstr("is of the list"));
  }
  EXPECT_EQ(Run({"-C", own, "log", "--json"}).out, before);
  EXPECT_FALSE(std::filesystem::exists(own + ".npz"));
  EXPECT_EQ(Run({"-C", own, "tag", "-1", "-o", "csv", "--no-header"}).code, 0);
}

TEST_F(WritingCommandTest, ReadsBesideAWriterWhichIsAskedToWrite) {
  const std::string own = scratch_ / "own";
  ASSERT_OK_AND_ASSIGN(Store writer,
                       Store::Open(own, {.create_if_missing = true}));
  EXPECT_EQ(Run({"-C", own, "log", "-o", "tsv", "--no-header"}).out, "");
  StepBuilder builder = writer.Begin(1);
  builder.PutInt("n", 1);
  ASSERT_OK(std::move(builder).Commit().WaitCommitted(absl::Minutes(1)));
  EXPECT_EQ(Run({"-C", own, "get", "1:n"}).out, "1\n");
  const Result result = Run({"-C", own, "tag", "x", "--wait", "0"});
  EXPECT_EQ(result.code, 4);
  EXPECT_THAT(result.err, HasSubstr("--wait"));
  ASSERT_OK(writer.Close());
}

TEST_F(WritingCommandTest, DamageIsOneForVerifyAndFiveForOthers) {
  const std::string own = scratch_ / "own";
  {
    ASSERT_OK_AND_ASSIGN(Store store,
                         Store::Open(own, {.create_if_missing = true}));
    std::vector<std::uint8_t> bytes(8 << 20);
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      bytes[i] = static_cast<std::uint8_t>(i * 2654435761u >> 13);
    }
    for (const int step : {2, 3}) {
      StepBuilder small = store.Begin(step);
      small.PutInt("n", step);
      ASSERT_OK(std::move(small).Commit().WaitCommitted(absl::Minutes(1)));
    }
    StepBuilder builder = store.Begin(7);
    builder.Put(
        "w",
        {.dtype = DType::kUint8, .shape = {8 << 20}, .data = bytes.data()});
    ASSERT_OK(std::move(builder).Commit().WaitCommitted(absl::Minutes(1)));
    ASSERT_OK(store.Close());
  }
  // A third of the largest file is in array bytes.
  std::filesystem::path largest;
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(own + "/db")) {
    if (entry.is_regular_file() &&
        (largest.empty() ||
         entry.file_size() > std::filesystem::file_size(largest))) {
      largest = entry.path();
    }
  }
  ASSERT_GT(std::filesystem::file_size(largest), 2u << 20);
  std::fstream file(largest, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(
      static_cast<std::streamoff>(std::filesystem::file_size(largest) / 3));
  file.write("damage!!", 8);
  file.close();

  const Result verify = Run({"-C", own, "verify"});
  EXPECT_EQ(verify.code, 1) << verify.out << verify.err;
  EXPECT_THAT(verify.out, HasSubstr("damage"));
  EXPECT_THAT(verify.out, HasSubstr("7"));
  EXPECT_THAT(verify.out, HasSubstr("the newest unharmed step is 3\n"));
  EXPECT_THAT(verify.out, HasSubstr("`ckptree repair " + own + "` says"));
  const Result json = Run({"-C", own, "verify", "--json"});
  EXPECT_THAT(json.out, HasSubstr("\"newest_unharmed_step\": 3"));
  const Result get = Run({"-C", own, "get", "7:w", "-o", "raw"});
  EXPECT_EQ(get.code, 5) << get.err;
  EXPECT_THAT(get.err, HasSubstr("ckptree verify"));
  EXPECT_EQ(Run({"-C", own, "log"}).code, 0);
}

TEST_F(WritingCommandTest, ADamagedTipOfTheJournalIsAFinding) {
  const std::string own = scratch_ / "own";
  MakeStore(own);
  EXPECT_EQ(Run({"-C", own, "verify"}).code, 0);
  std::ofstream(own + "/journal/tip", std::ios::binary)
      << std::string(4096, 'x');
  const Result result = Run({"-C", own, "verify"});
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.out, HasSubstr("journal/tip is damaged"));
  EXPECT_THAT(result.out, HasSubstr("1 finding that no step is hurt by"));
  EXPECT_EQ(Run({"repair", own, "--yes"}).code, 0);
  EXPECT_EQ(Run({"-C", own, "verify"}).code, 0);
}

}  // namespace
}  // namespace ckptree
