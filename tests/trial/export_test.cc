// SPDX-License-Identifier: Apache-2.0

// `ckptree export` with every file call of it killed or failed: the file is
// there whole or as it was before, and what the store holds is not touched.

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "ckptree/ckptree.h"
#include "gtest/gtest.h"
#include "tests/fault/scale.h"
#include "tests/fault/shimmed_program.h"
#include "tests/testutil/status_matchers.h"
#include "tests/testutil/temp_dir.h"

namespace ckptree::testing {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMostCalls = 2000;  // Far above what one makes.
constexpr std::string_view kBefore = "what was there before";

std::string Contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Every file below `folder`: its size and when it was changed.
std::string StateOf(const std::string& folder) {
  std::vector<std::string> lines;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    // What a reader has open; the next collection removes those of the dead.
    if (entry.path().string().find("/leases") != std::string::npos) continue;
    struct stat file {};
    stat(entry.path().c_str(), &file);
    lines.push_back(
        absl::StrFormat("%s %d %d.%09d\n", entry.path().string(),
                        static_cast<std::int64_t>(file.st_size),
                        static_cast<std::int64_t>(file.st_ctim.tv_sec),
                        static_cast<std::int64_t>(file.st_ctim.tv_nsec)));
  }
  std::ranges::sort(lines);
  std::string text;
  for (const std::string& line : lines) text += line;
  return text;
}

class TrialExportTest : public ::testing::Test {
 protected:
  struct Tally {
    int trials = 0, fired = 0, killed = 0, errors = 0, whole = 0, wrong = 0;
  };

  void SetUp() override {
    fs::create_directory(dir_ / "work");
    fs::create_directory(dir_ / "work/out");
    fs::create_directory(dir_ / "scratch");
    ASSERT_OK_AND_ASSIGN(Store store,
                         Store::Open(store_, {.create_if_missing = true}));
    for (const std::int64_t step : {1, 2}) {
      std::vector<float> w(300'000);
      for (std::size_t i = 0; i < w.size(); ++i) {
        w[i] = static_cast<float>(i) * static_cast<float>(step);
      }
      StepBuilder builder = store.Begin(step);
      builder.Put("params/w", {.dtype = DType::kFloat32,
                               .shape = {300, 1000},
                               .data = w.data(),
                               .chunk_shape = {64, 1000}});
      builder.Put(
          "params/b",
          {.dtype = DType::kFloat32, .shape = {1000}, .data = w.data()});
      builder.Put("one", {.dtype = DType::kFloat64, .data = w.data()});
      ASSERT_OK(std::move(builder).Commit().WaitCommitted(absl::Minutes(1)));
    }
    ASSERT_OK(store.Close());
    before_ = StateOf(store_);
    const ShimResult result = Export({.under = dir_ / "work"});
    ASSERT_EQ(result.code, 0) << result.Text();
    EXPECT_GT(result.calls, 2u);
    whole_ = Contents(file_);
    ASSERT_GT(whole_.size(), 1'200'000u);
  }

  ShimResult Export(const ShimPlan& plan) const {
    return RunShimmed(
        {CKPTREE_BINARY, "-C", store_, "export", "latest", file_, "--force"},
        plan, dir_ / "scratch");
  }

  // Empty where all is as it must be.
  std::string Wrong(const ShimPlan& plan, const ShimResult& result) const {
    const std::string now = Contents(file_);
    if (now != whole_ && now != kBefore) return "half a file";
    if (result.signal == 0 && result.code == 0 && now != whole_) {
      return "done, and no file";
    }
    if (plan.does == "fail" || plan.does == "fail_on") {
      if (result.signal != 0) return "it crashed";
      if (result.code != 0 && result.err.empty()) return "no word of why";
      // What it failed with may concern the removal, too.
      if (plan.does == "fail" &&
          std::distance(fs::directory_iterator(dir_ / "work/out"),
                        fs::directory_iterator()) != 1) {
        return "something is left beside it";
      }
    }
    if (StateOf(store_) != before_) return "the store was touched";
    return "";
  }

  void Sweep(ShimPlan plan) {
    Tally tally;
    ShimResult result;
    const auto stride = static_cast<std::uint64_t>(TrialStride());
    for (plan.at = 1;; plan.at += stride) {
      fs::remove_all(dir_ / "work/out");
      fs::create_directory(dir_ / "work/out");
      std::ofstream(file_) << kBefore;
      result = Export(plan);
      ++tally.trials;
      tally.fired += result.fired > 0 ? 1 : 0;
      tally.killed += result.signal != 0 ? 1 : 0;
      tally.errors += result.signal == 0 && result.code != 0 ? 1 : 0;
      tally.whole += Contents(file_) == whole_ ? 1 : 0;
      const std::string wrong = Wrong(plan, result);
      if (!wrong.empty()) {
        ++tally.wrong;
        ADD_FAILURE() << wrong << ": " << plan.Text() << ": " << result.Text();
      }
      if (result.fired == 0 || plan.at > kMostCalls || tally.wrong == 5) break;
    }
    std::cout << absl::StrFormat(
        "trial export, %s %d: %d trials, %d fired, %d died, %d with errors, "
        "%d files whole: %d otherwise wrong\n",
        plan.does, plan.value, tally.trials, tally.fired, tally.killed,
        tally.errors, tally.whole, tally.wrong);
    EXPECT_EQ(result.fired, 0u) << "gave up";
    if (!WholeTrial()) return;
    EXPECT_GT(tally.fired, 5);
    EXPECT_GT(tally.whole, 0);
    EXPECT_LT(tally.whole, tally.trials);
  }

  TempDir dir_;
  const std::string store_ = dir_ / "work/store";
  const std::string file_ = dir_ / "work/out/model.safetensors";
  std::string before_;
  std::string whole_;
};

TEST_F(TrialExportTest, KilledAtEveryCall) {
  Sweep({.under = dir_ / "work", .does = "kill", .reads = true});
}

TEST_F(TrialExportTest, EioOnce) {
  Sweep({.under = dir_ / "work", .does = "fail", .value = EIO, .reads = true});
}

TEST_F(TrialExportTest, EioForGood) {
  Sweep(
      {.under = dir_ / "work", .does = "fail_on", .value = EIO, .reads = true});
}

TEST_F(TrialExportTest, EnospcOnce) {
  Sweep({.under = dir_ / "work/out",
         .does = "fail",
         .value = ENOSPC,
         .reads = true});
}

TEST_F(TrialExportTest, EnospcForGood) {
  Sweep({.under = dir_ / "work/out",
         .does = "fail_on",
         .value = ENOSPC,
         .reads = true});
}

TEST_F(TrialExportTest, InterruptedAndShortCalls) {
  const ShimResult result =
      Export({.under = dir_ / "work", .does = "interrupt", .reads = true});
  EXPECT_EQ(result.code, 0) << result.Text();
  EXPECT_GT(result.fired, 10u);
  EXPECT_TRUE(Contents(file_) == whole_);
  EXPECT_EQ(StateOf(store_), before_);
  std::cout << "trial export, interrupt: " << result.fired
            << " calls interrupted, as many short: the same file\n";
}

}  // namespace
}  // namespace ckptree::testing
