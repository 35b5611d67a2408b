// SPDX-License-Identifier: Apache-2.0

// SIGINT and SIGTERM at random file calls of commands and of a trainer: the
// store stays good, nothing unfinished is left, and the exit says the signal.

#include <signal.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "ckptree/ckptree.h"
#include "gtest/gtest.h"
#include "tests/fault/random.h"
#include "tests/fault/scale.h"
#include "tests/fault/shimmed_program.h"
#include "tests/testutil/status_matchers.h"
#include "tests/testutil/temp_dir.h"

namespace ckptree::testing {
namespace {

namespace fs = std::filesystem;

// Of each program: half of them SIGINT.
const int kTrials = Scaled(20);

std::string Contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The digest of each step, which is over all names and values.
using Steps = std::map<std::int64_t, std::string>;

Steps StepsOf(const Store& store) {
  Steps steps;
  const auto all = store.Steps();
  EXPECT_OK(all);
  if (!all.ok()) return steps;
  for (const StepInfo& info : *all) steps[info.step] = info.digest;
  return steps;
}

class TrialSignalsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::create_directory(dir_ / "work");
    fs::create_directory(dir_ / "scratch");
  }

  // Steps 1 to 8: large and small ones.
  void MakeStore() {
    ASSERT_OK_AND_ASSIGN(
        Store store, Store::Open(dir_ / "made", {.create_if_missing = true}));
    for (std::int64_t step = 1; step <= 8; ++step) {
      std::vector<float> w(300'000, static_cast<float>(step / 2));
      StepBuilder builder = store.Begin(step);
      builder.Put(
          "w",
          {.dtype = DType::kFloat32, .shape = {300, 1000}, .data = w.data()});
      builder.PutInt("n", step);
      ASSERT_OK(std::move(builder).Commit().WaitCommitted(absl::Minutes(1)));
    }
    made_ = StepsOf(store);
    ASSERT_OK(store.Close());
  }

  // `words` at random calls; each time on a work folder that `prepare` makes,
  // and what is wrong afterwards is what `wrong` says.
  template <typename Prepare, typename Wrong>
  void Try(std::string_view name, const std::vector<std::string>& words,
           const Prepare& prepare, const Wrong& wrong) {
    FaultRandom random(TrialSeed());
    ShimPlan plan{.under = dir_ / "work", .reads = true};
    const auto run = [&] {
      fs::remove_all(dir_ / "work");
      fs::create_directory(dir_ / "work");
      prepare();
      return RunShimmed(words, plan, dir_ / "scratch");
    };
    const ShimResult whole = run();
    ASSERT_EQ(whole.code, 0) << whole.Text();
    ASSERT_EQ(wrong(whole), "") << whole.Text();
    std::uint64_t calls = whole.calls;
    plan.does = "signal";
    int fired = 0, ended = 0, bad = 0;
    while (fired < kTrials && bad < 5) {
      plan.value = fired % 2 == 0 ? SIGINT : SIGTERM;
      plan.at = 1 + random.Below(calls);
      const ShimResult result = run();
      if (result.fired == 0) {  // There were fewer calls this time.
        calls = plan.at;
        continue;
      }
      ++fired;
      const bool told = result.code == 128 + plan.value;
      ended += told ? 1 : 0;
      // What a signal found done is done.
      std::string what = told || result.code == 0 ? wrong(result) : "exit code";
      if (what.empty()) continue;
      ++bad;
      ADD_FAILURE() << name << ": " << what << ": " << plan.Text() << ": "
                    << result.Text();
    }
    std::cout << absl::StrFormat(
        "trial signals, %s: %d trials, %d fired, %d died: %d otherwise wrong "
        "(%d calls, CKPTREE_TEST_SEED=%d)\n",
        name, fired, fired, ended, bad, whole.calls, TrialSeed());
    EXPECT_EQ(fired, kTrials);
    // A signal that comes when the work is done ends nothing: how many come
    // before is chance.
    EXPECT_GE(ended, kTrials / 5);
  }

  // What is wrong with the store at `path`, which must hold `expected` without
  // more or less than is between `least` and `most`.
  static std::string WrongStore(const std::string& path, const Steps& least,
                                const Steps& most) {
    auto store = Store::Open(path, {.lock_wait = absl::Seconds(20)});
    if (!store.ok()) return absl::StrCat("open: ", store.status().message());
    if (fs::exists(path + "/staging") && !fs::is_empty(path + "/staging")) {
      return "staging is not empty";
    }
    const Steps now = StepsOf(*store);
    for (const auto& [step, digest] : least) {
      if (!now.contains(step)) return absl::StrCat("lost step ", step);
    }
    for (const auto& [step, digest] : now) {
      const auto there = most.find(step);
      if (there == most.end() || there->second != digest) {
        return absl::StrCat("step ", step, " is not what was saved");
      }
    }
    const auto report = store->Verify({.level = VerifyOptions::Level::kDeep});
    if (!report.ok()) return std::string(report.status().message());
    if (!report->findings.empty()) return report->findings[0].what;
    StepBuilder builder = store->Begin(1'000'000);
    builder.PutInt("n", 1);
    const absl::Status saved =
        std::move(builder).Commit().WaitCommitted(absl::Minutes(1));
    if (!saved.ok()) return std::string(saved.message());
    return std::string(store->Close().message());
  }

  // Names in the work folder, in order.
  std::string Left() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(dir_ / "work")) {
      names.push_back(entry.path().filename().string());
    }
    std::ranges::sort(names);
    return absl::StrJoin(names, " ");
  }

  void CopyMade() const {
    fs::copy(dir_ / "made", dir_ / "work/store", fs::copy_options::recursive);
  }

  TempDir dir_;
  const std::string store_ = dir_ / "work/store";
  Steps made_;
};

TEST_F(TrialSignalsTest, Export) {
  MakeStore();
  const std::string file = dir_ / "work/w.safetensors";
  std::string whole;
  Try(
      "export",
      {CKPTREE_BINARY, "-C", store_, "export", "latest", file, "--force"},
      [&] {
        CopyMade();
        std::ofstream(file) << "before";
      },
      [&](const ShimResult& result) -> std::string {
        const std::string now = Contents(file);
        if (whole.empty()) whole = now;
        if (now != whole && now != "before") return "half a file";
        if (result.code == 0 && now != whole) return "done, and no file";
        if (Left() != "store w.safetensors") return "left: " + Left();
        return WrongStore(store_, made_, made_);
      });
}

TEST_F(TrialSignalsTest, Verify) {
  MakeStore();
  Try(
      "verify", {CKPTREE_BINARY, "-C", store_, "verify"}, [&] { CopyMade(); },
      [&](const ShimResult& result) -> std::string {
        if (result.out.empty() != (result.code != 0)) return "its words";
        return WrongStore(store_, made_, made_);
      });
}

TEST_F(TrialSignalsTest, Rm) {
  MakeStore();
  Steps rest = made_;
  for (std::int64_t step = 2; step <= 6; ++step) rest.erase(step);
  Try(
      "rm", {CKPTREE_BINARY, "-C", store_, "rm", "2..6", "-y"},
      [&] { CopyMade(); },
      [&](const ShimResult& result) -> std::string {
        return WrongStore(store_, rest, result.code == 0 ? rest : made_);
      });
}

// Of a whole store, and of one that has to be put together first.
TEST_F(TrialSignalsTest, Recover) {
  MakeStore();
  int round = 0;
  const std::string to = dir_ / "work/new";
  Try(
      "recover", {CKPTREE_BINARY, "recover", store_, to},
      [&] {
        CopyMade();
        if (round++ % 2 == 1) fs::remove(store_ + "/db/CURRENT");
      },
      [&](const ShimResult& result) -> std::string {
        if (result.code == 0 && Left() != "new store") return "nothing made";
        if (Left() == "store") return "";
        if (Left() != "new store") return "left: " + Left();
        return WrongStore(to, made_, made_);
      });
}

TEST_F(TrialSignalsTest, Trainer) {
  const std::vector<std::string> words = {
      CHAR_LM_PROGRAM, "--tiny", "--store",      store_, "--batch", "1",
      "--steps",       "30",     "--save-every", "1"};
  Steps all;
  Try(
      "trainer", words, [] {},
      [&](const ShimResult& result) -> std::string {
        if (all.empty()) {
          const auto store = Store::Open(store_);
          if (!store.ok()) return "open";
          all = StepsOf(*store);
          if (all.size() != 30) return "steps";
        }
        Steps told;
        for (absl::string_view line : absl::StrSplit(result.out, '\n')) {
          std::int64_t step = 0;
          if (!absl::ConsumePrefix(&line, "step ") ||
              !absl::ConsumeSuffix(&line, ": committed")) {
            continue;
          }
          if (!absl::SimpleAtoi(line, &step)) return "its words";
          told[step] = "";
        }
        // Before there is a store, nothing was acknowledged.
        if (told.empty() && !fs::exists(store_)) return "";
        if (told.empty()) {
          const auto store = Store::Open(store_, {.create_if_missing = true});
          if (!store.ok()) return std::string(store.status().message());
        }
        return WrongStore(store_, told, all);
      });
}

}  // namespace
}  // namespace ckptree::testing
