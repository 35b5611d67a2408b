// SPDX-License-Identifier: Apache-2.0

// `ckptree copy` killed at fifty of its file calls, and run again: what is in
// the other store is compared with what the test itself saved into the first.

#include <csignal>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "ckptree/ckptree.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/fault/shimmed_program.h"
#include "tests/testutil/status_matchers.h"
#include "tests/testutil/temp_dir.h"

namespace ckptree::testing {
namespace {

namespace fs = std::filesystem;

constexpr int kKills = 50;
constexpr std::int64_t kSteps = 16;
constexpr std::size_t kElements = 50'000;

// By step ("3", "side/5") and leaf: bytes.
using Model = std::map<std::string, std::map<std::string, std::string>>;

class TrialCopyTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::create_directory(dir_ / "work");
    fs::create_directory(dir_ / "scratch");
    ASSERT_OK_AND_ASSIGN(Store store,
                         Store::Open(source_, {.create_if_missing = true}));
    for (std::int64_t step = 1; step <= kSteps; ++step) {
      if (step == kSteps) {
        ASSERT_OK(store.Fork(AtStep(3), "side"));
      }
      Save(store, step, step == kSteps ? "side" : "");
    }
    ASSERT_OK(store.Tag("warm", 2));
    ASSERT_OK(store.Pin(4));
    ASSERT_OK(store.Close());
  }

  void Save(Store& store, std::int64_t step, const std::string& branch) {
    std::vector<std::uint32_t> w(kElements);
    for (std::size_t i = 0; i < w.size(); ++i) {
      // A tenth of it changes from step to step.
      const auto seed =
          static_cast<std::uint32_t>(i < kElements / 10 ? step : 0);
      w[i] = (static_cast<std::uint32_t>(i) + seed * 7919u) * 2654435761u;
    }
    std::map<std::string, std::string>& leaves = model_[StepText(branch, step)];
    const auto bytes = [&leaves](const std::string& name, const void* data,
                                 std::size_t size) {
      leaves[name].assign(static_cast<const char*>(data), size);
    };
    bytes("params/w", w.data(), w.size() * sizeof(w[0]));
    bytes("params/b", w.data(), 1000 * sizeof(w[0]));
    bytes("count", &step, sizeof(step));
    SaveOptions options;
    options.branch = branch;
    StepBuilder builder = store.Begin(step, options);
    builder.Put("params/w", {.dtype = DType::kUint32,
                             .shape = {kElements / 100, 100},
                             .data = w.data(),
                             .chunk_shape = {200, 100}});
    builder.Put("params/b",
                {.dtype = DType::kUint32, .shape = {1000}, .data = w.data()});
    builder.PutInt("count", step);
    builder.SetMetric("loss", 1.0 / static_cast<double>(step));
    ASSERT_OK(std::move(builder).Commit().WaitCommitted(absl::Minutes(1)));
  }

  ShimResult Copy(const ShimPlan& plan) const {
    return RunShimmed({CKPTREE_BINARY, "copy", source_, copy_, "--json"}, plan,
                      dir_ / "scratch");
  }

  // The steps there are; each must be whole.
  std::set<std::string> Whole() const {
    std::set<std::string> names;
    const auto store = Store::Open(copy_, {.read_only = true});
    if (absl::IsNotFound(store.status())) return names;
    EXPECT_OK(store);
    if (!store.ok()) return names;
    const std::vector<BranchInfo> branches = store->Branches().value();
    for (const BranchInfo& branch : branches) {
      const std::vector<StepInfo> steps = store->Steps(branch.name).value();
      for (const StepInfo& info : steps) {
        const std::string name = StepText(info.branch, info.step);
        names.insert(name);
        const auto step = store->OpenStep(AtStep(info.step, info.branch));
        EXPECT_OK(step);
        if (!step.ok()) continue;
        const auto model = model_.find(name);
        EXPECT_TRUE(model != model_.end()) << name;
        if (model == model_.end()) continue;
        EXPECT_EQ(step->Leaves().value().size(), model->second.size());
        for (const auto& [leaf, bytes] : model->second) {
          const auto value = step->Value(leaf);
          EXPECT_OK(value);
          if (!value.ok()) continue;
          const std::string found(
              reinterpret_cast<const char*>(value->bytes.data()),
              value->bytes.size());
          EXPECT_TRUE(found == bytes) << name << ":" << leaf;
        }
        EXPECT_EQ(info.metrics.size(), 1u);
      }
    }
    return names;
  }

  TempDir dir_;
  const std::string source_ = dir_ / "source";
  const std::string copy_ = dir_ / "work/copy";
  Model model_;
};

TEST_F(TrialCopyTest, KilledAndRunAgain) {
  const ShimPlan count{.under = dir_ / "work"};
  const ShimResult all = Copy(count);
  ASSERT_EQ(all.code, 0) << all.Text();
  ASSERT_EQ(Whole().size(), model_.size());
  ASSERT_GT(all.calls, 2u * kKills);
  int fired = 0;
  int with_some = 0;
  for (int kill = 0; kill < kKills; ++kill) {
    fs::remove_all(copy_);
    ShimPlan plan = count;
    plan.does = "kill";
    plan.at = 1 + all.calls * static_cast<std::uint64_t>(kill) / kKills;
    const ShimResult killed = Copy(plan);
    fired += killed.fired > 0 ? 1 : 0;
    const std::set<std::string> before = Whole();
    with_some += !before.empty() && before.size() < model_.size() ? 1 : 0;
    // Its number of calls differs a little from run to run.
    const ShimResult again = Copy(count);
    ASSERT_EQ(again.code, 0) << plan.Text() << ": " << again.Text();
    EXPECT_EQ(Whole().size(), model_.size()) << plan.Text();
    const auto report = nlohmann::json::parse(again.out);
    std::size_t there = 0;
    for (const auto& step : report["steps"]) {
      there += step["result"] == "there" ? 1 : 0;
    }
    EXPECT_EQ(there, before.size()) << plan.Text();
    ASSERT_OK_AND_ASSIGN(const Store store,
                         Store::Open(copy_, {.read_only = true}));
    EXPECT_EQ(store.Tags().value().size(), 1u) << plan.Text();
    EXPECT_TRUE(store.Resolve(AtStep(4)).value().pinned) << plan.Text();
    if (HasFailure()) break;
  }
  std::cout << absl::StrFormat("%d kills, %d fired, %d in the middle\n", kKills,
                               fired, with_some);
  EXPECT_GE(fired, kKills - 2);
  EXPECT_GE(with_some, kKills / 5);
}

TEST_F(TrialCopyTest, InterruptedAndRunAgain) {
  ShimPlan plan{.under = dir_ / "work"};
  const ShimResult all = Copy(plan);
  ASSERT_EQ(all.code, 0) << all.Text();
  plan.does = "signal";
  plan.value = SIGINT;
  int interrupted = 0;
  int told = 0;
  for (const std::uint64_t part : {3u, 5u, 6u, 7u}) {
    fs::remove_all(copy_);
    plan.at = all.calls * part / 8;
    const ShimResult result = Copy(plan);
    EXPECT_EQ(result.fired, 1u) << plan.Text();
    EXPECT_EQ(result.signal, 0) << plan.Text();
    const std::set<std::string> before = Whole();
    if (result.code == 130) {
      ++interrupted;
      // Outside of the copying it ends at once, without a word.
      told += result.err.find("the same command goes on") != std::string::npos
                  ? 1
                  : 0;
    } else {
      EXPECT_EQ(result.code, 0) << result.Text();
    }
    EXPECT_EQ(Copy({.under = plan.under}).code, 0);
    EXPECT_EQ(Whole().size(), model_.size());
  }
  EXPECT_GE(interrupted, 2);
  EXPECT_GE(told, 1);
}

}  // namespace
}  // namespace ckptree::testing
