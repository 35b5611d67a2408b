// SPDX-License-Identifier: Apache-2.0

// `ckptree copy` to an object store, killed and interrupted at its file calls:
// the same command goes on, and ends nobody else.

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fault/shimmed_program.h"
#include "tests/tools/command_runner.h"

namespace ckptree {
namespace {

namespace fs = std::filesystem;

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using testing::ShimPlan;
using testing::ShimResult;

class FarCopyTest : public CommandRunner {
 protected:
  void SetUp() override {
    fs::create_directory(far_ / "scratch");
    setenv("XDG_CACHE_HOME", cache_.c_str(), 1);
    MakeStore(source_);
    // Of file:// only a folder that has a store already is an object store.
    StoreOptions options;
    options.remote = to_;
    options.create_if_missing = true;
    ASSERT_OK_AND_ASSIGN(Store store, Store::Open(far_ / "first", options));
    StepBuilder builder = store.Begin(1);
    builder.PutInt("n", 1);
    ASSERT_OK(std::move(builder).Commit().WaitCommitted(absl::Minutes(1)));
    ASSERT_OK(store.WaitReplicated(absl::Minutes(1)));
    ASSERT_OK(store.Close());
    fs::copy(objects_, pristine_, fs::copy_options::recursive);
  }

  // As before the first copy.
  void Reset() {
    fs::remove_all(objects_);
    fs::copy(pristine_, objects_, fs::copy_options::recursive);
    fs::remove_all(cache_);
  }

  // Its calls on the way there count, and not those on the objects.
  ShimResult Copy(const std::string& does = "count", std::uint64_t at = 0,
                  const std::string& only = "") {
    ShimPlan plan{
        .under = cache_ + "/ckptree", .does = does, .at = at, .only = only};
    plan.value = SIGINT;
    return testing::RunShimmed({CKPTREE_BINARY, "copy", source_, to_}, plan,
                               far_ / "scratch");
  }

  // What is on its way, and what is beside it.
  std::set<std::string> Left() const {
    std::set<std::string> names;
    std::error_code error;
    for (const auto& entry :
         fs::directory_iterator(cache_ + "/ckptree", error)) {
      const std::string name = entry.path().filename().string();
      if (name.starts_with("copy-")) names.insert(entry.path().string());
    }
    return names;
  }
  // Kills a copy of so many calls where its store is there, and says in which
  // folder.
  std::string Killed(std::uint64_t calls) {
    for (std::uint64_t part = 8; part < 16; ++part) {
      Reset();
      EXPECT_EQ(Copy("kill", calls * part / 16).signal, SIGKILL);
      for (const std::string& path : Left()) {
        if (fs::exists(path + "/journal")) return path;
      }
    }
    return "";
  }

  void ExpectAllThere() {
    for (const char* what : {"300:count/[3]", "500:params/w", "@warm:lr"}) {
      const Result there = Run({"-C", to_, "get", what});
      EXPECT_EQ(there.code, 0) << there.err;
      EXPECT_EQ(there.out, Run({"-C", source_, "get", what}).out) << what;
    }
    EXPECT_EQ(Run({"-C", to_, "get", "1:n"}).out, "1\n");
  }

  testing::TempDir far_;
  const std::string cache_ = far_ / "cache";
  const std::string source_ = far_ / "source";
  const std::string objects_ = far_ / "objects";
  const std::string pristine_ = far_ / "pristine";
  const std::string to_ = absl::StrCat("file://", objects_);
};

// Some of all calls, and of those at the end each second.
std::vector<std::uint64_t> SomeOf(std::uint64_t calls) {
  constexpr std::uint64_t kEvenly = 24, kLast = 32;
  std::vector<std::uint64_t> some;
  for (std::uint64_t i = 0; i < kEvenly; ++i) {
    some.push_back(1 + i * calls / kEvenly);
  }
  for (std::uint64_t i = kLast; i > 0; i -= 2) some.push_back(calls - i + 1);
  return some;
}

TEST_F(FarCopyTest, AfterAKillTheSameCommandGoesOn) {
  const ShimResult all = Copy();
  ASSERT_EQ(all.code, 0) << all.Text();
  ExpectAllThere();
  ASSERT_GT(all.calls, 100u);
  int fired = 0, fetching = 0, going = 0;
  const auto kill_at = [&](std::uint64_t at, const std::string& only) {
    Reset();
    const ShimResult killed = Copy("kill", at, only);
    fired += killed.fired > 0 ? 1 : 0;
    fetching += absl::StrContains(killed.fired_at, ".fetching/") ? 1 : 0;
    // By the name in a folder, as std::filesystem removes.
    going += absl::StartsWith(killed.fired_at, "unlink ") &&
                     !absl::StrContains(killed.fired_at, "/")
                 ? 1
                 : 0;
    const ShimResult again = Copy();
    ASSERT_EQ(again.code, 0)
        << at << " of " << all.calls << ": " << killed.Text() << "\n"
        << again.Text();
    EXPECT_THAT(Left(), IsEmpty());
    ExpectAllThere();
  };
  for (const std::uint64_t at : SomeOf(all.calls)) {
    kill_at(at, "");
    if (HasFailure()) break;
  }
  // How many calls there are is never quite the same: those that remove the
  // directory at the end are counted on their own.
  Reset();
  const std::uint64_t removals = Copy("count", 0, "unlink").calls;
  constexpr std::uint64_t kLast = 16;
  ASSERT_GT(removals, kLast);
  for (std::uint64_t i = 0; i < kLast && !HasFailure(); ++i) {
    kill_at(removals - i, "unlink");
  }
  // Taken over and no directory yet; all there and not yet removed.
  EXPECT_GE(fired, 36);
  EXPECT_GE(fetching, 2);
  EXPECT_GE(going, 5);
}

TEST_F(FarCopyTest, AfterCtrlCItSaysThatTheSameCommandGoesOn) {
  const ShimResult all = Copy();
  ASSERT_EQ(all.code, 0) << all.Text();
  int interrupted = 0;
  for (const std::uint64_t at : SomeOf(all.calls)) {
    Reset();
    const ShimResult result = Copy("signal", at);
    if (result.code == 130) {
      ++interrupted;
      EXPECT_THAT(result.err, HasSubstr("interrupted: ")) << result.Text();
      EXPECT_THAT(result.err, HasSubstr("the same command goes on"));
    } else {
      // Nothing was left to do.
      EXPECT_EQ(result.code, 0) << result.Text();
      EXPECT_THAT(Left(), IsEmpty()) << result.Text();
    }
    const ShimResult again = Copy();
    ASSERT_EQ(again.code, 0)
        << at << " of " << all.calls << ": " << result.Text() << "\n"
        << again.Text();
    EXPECT_THAT(Left(), IsEmpty());
    ExpectAllThere();
    if (HasFailure()) break;
  }
  EXPECT_GE(interrupted, 8);
}

TEST_F(FarCopyTest, WhatIsLeftInPartIsGarbage) {
  const ShimResult all = Copy();
  for (const std::string part : {"journal", "db", "LOCK", "journal/tip"}) {
    const std::string folder = Killed(all.calls);
    ASSERT_NE(folder, "");
    ASSERT_GT(fs::remove_all(folder + "/" + part), 0u) << part;
    const ShimResult again = Copy();
    EXPECT_EQ(again.code, 0) << part << ": " << again.Text();
    EXPECT_THAT(Left(), IsEmpty());
    ExpectAllThere();
  }
}

TEST_F(FarCopyTest, EndsNobodyElse) {
  const ShimResult all = Copy();
  ASSERT_NE(Killed(all.calls), "");
  StoreOptions options;
  options.remote = to_;
  options.take_over = true;
  options.create_if_missing = true;
  ASSERT_OK_AND_ASSIGN(Store trainer, Store::Open(far_ / "second", options));
  const Result refused = Run({"copy", source_, to_});
  EXPECT_EQ(refused.code, 2) << refused.err;
  EXPECT_THAT(refused.err, HasSubstr("may still be training"));
  EXPECT_THAT(refused.err, HasSubstr("--take-over"));
  ASSERT_OK(trainer.Close());
  const Result again = Run({"copy", source_, to_});
  EXPECT_EQ(again.code, 0) << again.err;
  ExpectAllThere();
}

// Of another machine: one that has taken the address over, and fetches.
TEST_F(FarCopyTest, ACopyFromElsewhereMayBeAlive) {
  const std::uint64_t calls = Copy().calls;
  bool fetching = false;
  for (std::uint64_t part = 1; part < 16 && !fetching; ++part) {
    Reset();
    fetching = absl::StrContains(Copy("kill", calls * part / 16).fired_at,
                                 ".fetching/");
  }
  ASSERT_TRUE(fetching);
  setenv("XDG_CACHE_HOME", (far_ / "elsewhere").c_str(), 1);
  const Result refused = Run({"copy", source_, to_});
  EXPECT_EQ(refused.code, 2) << refused.err;
  EXPECT_THAT(refused.err, HasSubstr("may still be training"));
  setenv("XDG_CACHE_HOME", cache_.c_str(), 1);
  const Result again = Run({"copy", source_, to_});
  EXPECT_EQ(again.code, 0) << again.err;
  ExpectAllThere();
}

TEST_F(FarCopyTest, OneAtATime) {
  const ShimResult all = Copy();
  const std::string writers = Killed(all.calls) + ".writers";
  const int held = open(writers.c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_GE(held, 0);
  ASSERT_EQ(flock(held, LOCK_EX), 0);
  const Result refused = Run({"copy", source_, to_});
  EXPECT_EQ(refused.code, 4) << refused.err;
  EXPECT_THAT(refused.err, HasSubstr("another command"));
  close(held);
  const Result again = Run({"copy", source_, to_});
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_THAT(again.err, Not(HasSubstr("another command")));
}

}  // namespace
}  // namespace ckptree
