// SPDX-License-Identifier: Apache-2.0

// What the command says of a directory that keeps some steps on its disk, with
// its remote and without it.

#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "ckptree/ckptree.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/remote/fixture.h"
#include "tests/testutil/status_matchers.h"
#include "tests/tools/command_runner.h"

namespace ckptree {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::size_t kLargeSave = 3 << 20;

class FarStepsTest : public CommandRunner {
 protected:
  // Of three steps the arrays of the last are here.
  void SetUp() override {
    setenv("XDG_CACHE_HOME", std::string(scratch_ / "cache").c_str(), 1);
    std::filesystem::create_directory(bucket_);
    StoreOptions options = testing::RemoteOptions(address_);
    options.local_keep = LatestN{1};
    ASSERT_OK_AND_ASSIGN(Store store, Store::Open(run_, options));
    for (std::int64_t step = 1; step <= 3; ++step) {
      testing::SaveStep(store, step, kLargeSave);
    }
    ASSERT_OK(store.Close());
    ASSERT_OK_AND_ASSIGN(Store reader, Store::Open(run_, {.read_only = true}));
    ASSERT_GT(reader.Info().far_bytes, 2 * kLargeSave - 4096);
  }
  void Hide() { std::filesystem::rename(bucket_, bucket_ + ".away"); }
  void Show() { std::filesystem::rename(bucket_ + ".away", bucket_); }

  Result In(std::vector<std::string> words) {
    words.insert(words.begin(), {"-C", run_});
    return Run(words);
  }
  static json Parsed(const Result& result) {
    json parsed = json::parse(result.out, nullptr, false);
    EXPECT_FALSE(parsed.is_discarded()) << result.out << result.err;
    return parsed;
  }
  // What came of each step.
  static std::map<std::int64_t, std::string> Results(const Result& copied) {
    std::map<std::int64_t, std::string> results;
    const json report = Parsed(copied);
    for (const json& row : report["steps"]) {
      results[row["step"]] = row["result"];
    }
    return results;
  }
  json Check(const std::string& name) {
    const json report = Parsed(In({"doctor", "--json"}));
    for (const json& row : report["checks"]) {
      if (row["check"] == name) return row;
    }
    ADD_FAILURE() << "no check " << name;
    return json();
  }

  const std::string run_ = scratch_ / "run";
  const std::string bucket_ = scratch_ / "bucket";
  const std::string address_ = "file://" + bucket_;
};

TEST_F(FarStepsTest, WhatCannotBeReachedIsCopiedLater) {
  using Came = std::map<std::int64_t, std::string>;
  Hide();
  for (const bool backup : {false, true}) {
    const std::string to = scratch_ / (backup ? "backup" : "copy");
    const std::vector<std::string> words =
        backup ? std::vector<std::string>{"-C", run_, "backup", to}
               : std::vector<std::string>{"copy", run_, to};
    std::vector<std::string> as_json = words;
    as_json.emplace_back("--json");
    const Result some = Run(as_json);
    EXPECT_EQ(some.code, 2) << some.err;
    EXPECT_EQ(Results(some),
              (Came{{1, "unreachable"}, {2, "unreachable"}, {3, "copied"}}));
    EXPECT_THAT(some.err, HasSubstr(address_ + " does not answer"));
    const Result again = Run(words);
    EXPECT_EQ(again.code, 2) << again.err;
    EXPECT_THAT(again.out, AllOf(HasSubstr("2 CANNOT BE REACHED"),
                                 Not(HasSubstr("DAMAGED"))));
    EXPECT_FALSE(std::filesystem::exists(bucket_));
    Show();
    const Result rest = Run(as_json);
    EXPECT_EQ(rest.code, 0) << rest.err;
    EXPECT_EQ(Results(rest),
              (Came{{1, "copied"}, {2, "copied"}, {3, "there"}}));
    ASSERT_OK_AND_ASSIGN(Store made, Store::Open(to, {.read_only = true}));
    for (const std::int64_t step : {1, 2, 3}) {
      testing::ExpectStep(made, step, kLargeSave);
    }
    Hide();
  }
}

TEST_F(FarStepsTest, AReadNamesTheRemote) {
  Hide();
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"get", "1:params/w[:4]"},
        {"export", "1", scratch_ / "1.npz"},
        {"diff", "1", "2", "--values"}}) {
    const Result read = In(words);
    EXPECT_EQ(read.code, 2) << words[0] << ": " << read.err;
    EXPECT_THAT(read.err, AllOf(HasSubstr(address_), HasSubstr("mount"),
                                Not(HasSubstr("--wait"))))
        << words[0];
  }
  EXPECT_EQ(In({"get", "3:params/w[:4]"}).code, 0);
  EXPECT_EQ(In({"get", "1:count"}).out, "1\n");
  EXPECT_FALSE(std::filesystem::exists(bucket_));
}

TEST_F(FarStepsTest, VerifyAsksOnlyForWhatItChecks) {
  Hide();
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"verify", "3"}, {"verify", "--quick"}}) {
    const Result here = In(words);
    EXPECT_EQ(here.code, 0) << here.err;
    EXPECT_THAT(here.out, HasSubstr("checked: no damage\n"));
  }
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"verify", "1"},
        {"verify"},
        {"verify", "--deep"}}) {
    const Result there = In(words);
    EXPECT_EQ(there.code, 2) << there.err;
    EXPECT_THAT(there.out, AllOf(HasSubstr("no damage, 1 warning"),
                                 HasSubstr("was not looked at")));
    EXPECT_THAT(there.err, HasSubstr("not all was"));
  }
  Show();
  EXPECT_THAT(In({"verify", "--deep"}).out, HasSubstr("checked: no damage\n"));
}

TEST_F(FarStepsTest, WhatGoesHereAndWhatThere) {
  constexpr std::uint64_t kRecords = 64 << 10;
  for (const std::string step : {"1", "3"}) {
    const bool here = step == "3";
    const json freed = Parsed(In({"du", "--free", step, "--json"}));
    for (const char* const bytes : {"free_bytes", "free_stored_bytes"}) {
      EXPECT_EQ(freed[bytes] > kLargeSave / 2, here) << freed;
    }
    EXPECT_GT(freed["free_remote_bytes"], kLargeSave / 2) << freed;
  }
  EXPECT_THAT(In({"du", "--free", "1"}).out,
              HasSubstr("on this disk, and 3.0 MiB in " + address_));
  EXPECT_THAT(In({"rm", "1", "--dry-run"}).out,
              HasSubstr("on this disk, and 3.0 MiB in " + address_));
  const json usage = Parsed(In({"du", "--json"}));
  EXPECT_GT(usage["far_bytes"], 2 * kLargeSave - 4096);
  EXPECT_LT(usage["living_bytes"], kLargeSave + kRecords);
  EXPECT_THAT(In({"du"}).out, HasSubstr("left this disk"));
  const Result removed = In({"rm", "1", "-y"});
  EXPECT_EQ(removed.code, 0) << removed.err;
  EXPECT_THAT(removed.out, AllOf(HasSubstr("3.0 MiB that had left this disk"),
                                 Not(HasSubstr("freed 3"))));
  const json gone = Parsed(In({"gc", "--json"}));
  EXPECT_EQ(gone["far_bytes_freed"], 0);
}

// Who has the store open does it, and says so.
TEST_F(FarStepsTest, ATrainerSaysWhatTheRemoteGetsBack) {
  StoreOptions options = testing::RemoteOptions(address_);
  options.local_keep = LatestN{1};
  options.collect = false;
  ASSERT_OK_AND_ASSIGN(Store trainer, Store::Open(run_, options));
  const Result removed = In({"rm", "1", "-y"});
  EXPECT_EQ(removed.code, 0) << removed.err;
  EXPECT_THAT(removed.err, HasSubstr("done by pid"));
  EXPECT_THAT(removed.out, HasSubstr("3.0 MiB that had left this disk"));
  ASSERT_OK(trainer.Delete(2));
  const json gone = Parsed(In({"gc", "--json"}));
  EXPECT_GT(gone["far_bytes_freed"], kLargeSave - 4096) << gone;
  ASSERT_OK(trainer.Close());
}

TEST_F(FarStepsTest, DoctorAsksTheRemote) {
  const json well = Check("remote");
  EXPECT_EQ(well["level"], "good") << well;
  EXPECT_EQ(well["facts"]["reads"], true);
  EXPECT_EQ(well["facts"]["writes"], true);
  EXPECT_EQ(well["facts"]["behind_commits"], 0);
  EXPECT_GT(well["facts"]["far_bytes"], 2 * kLargeSave - 4096);
  const json space = Check("space");
  EXPECT_EQ(space["level"], "good") << space;
  EXPECT_TRUE(space["facts"]["days_left"].is_null());
  EXPECT_THAT(space["what"].get<std::string>(),
              AllOf(HasSubstr("what grows here is records of steps"),
                    HasSubstr("cannot be said")));
  // A change that no trainer has shipped.
  ASSERT_EQ(In({"tag", "best", "3"}).code, 0);
  const json behind = Check("remote");
  EXPECT_EQ(behind["level"], "note") << behind;
  EXPECT_GT(behind["facts"]["behind_commits"], 0);
  Hide();
  const Result away = In({"doctor", "--json"});
  EXPECT_EQ(away.code, 1);
  const json silent = Check("remote");
  EXPECT_EQ(silent["level"], "problem") << silent;
  EXPECT_EQ(silent["facts"]["reads"], false);
  const Result repaired = Run({"repair", run_});
  EXPECT_EQ(repaired.code, 2) << repaired.out << repaired.err;
  EXPECT_THAT(repaired.out, AllOf(HasSubstr("and not all was"),
                                  Not(HasSubstr("nothing to do"))));
  EXPECT_THAT(silent["what"].get<std::string>(), HasSubstr(address_));
  EXPECT_FALSE(std::filesystem::exists(bucket_));
}

// It says what an open for writing will.
TEST_F(FarStepsTest, DoctorSaysThatAnotherDirectoryWentOn) {
  const StoreOptions options = testing::RemoteOptions(address_);
  const auto on_another = [&](std::int64_t step) {
    ASSERT_OK_AND_ASSIGN(Store other, Store::Open(run_ + ".other", options));
    testing::SaveStep(other, step, 64 << 10);
    ASSERT_OK(other.Close());
  };
  ASSERT_NO_FATAL_FAILURE(on_another(7));
  const json behind = Check("remote");
  EXPECT_EQ(behind["level"], "problem") << behind;
  EXPECT_EQ(behind["facts"]["behind_commits"], 0);
  EXPECT_THAT(behind["facts"]["went_on"].get<std::string>(),
              HasSubstr(absl::StrFormat("pid %d", getpid())));
  EXPECT_THAT(behind["what"].get<std::string>(),
              AllOf(HasSubstr("went on"), HasSubstr("all of it")));
  EXPECT_EQ(In({"doctor"}).code, 1);
  EXPECT_THAT(Store::Open(run_, options),
              testing::StatusIs(absl::StatusCode::kFailedPrecondition,
                                HasSubstr("went on in")));
  // And something of its own, which is not there.
  ASSERT_EQ(In({"tag", "best", "3"}).code, 0);
  const json diverged = Check("remote");
  EXPECT_EQ(diverged["level"], "problem") << diverged;
  EXPECT_THAT(diverged["what"].get<std::string>(), HasSubstr("diverged"));
  EXPECT_THAT(Store::Open(run_, options),
              testing::StatusIs(absl::StatusCode::kFailedPrecondition,
                                HasSubstr("diverged")));
}

}  // namespace
}  // namespace ckptree
