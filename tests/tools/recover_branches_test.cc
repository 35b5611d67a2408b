// SPDX-License-Identifier: Apache-2.0

// `ckptree recover` and `ckptree repair` on stores with forks.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "ckptree/ckptree.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/core/fixture.h"
#include "tests/testutil/status_matchers.h"
#include "tests/tools/command_runner.h"

namespace ckptree {
namespace {

using nlohmann::json;
using ::testing::Contains;
using ::testing::HasSubstr;
using testing::RandomBytes;

constexpr std::size_t kArray = 2 << 20;

// Branches: main 10, 20, 30 (20 was deleted after "orphan" forked from it);
// "trial" from 10 with 15 and 30; "orphan" with 25; "deep" from trial/15 with
// 16; "none" from 30, without a step.
class RecoverBranchesTest : public CommandRunner {
 protected:
  void SetUp() override {
    StoreOptions options;
    options.create_if_missing = true;
    ASSERT_OK_AND_ASSIGN(Store store, Store::Open(source_, options));
    const auto save = [&](std::int64_t step, std::size_t changed,
                          const std::string& branch) {
      SaveOptions saving;
      saving.branch = branch;
      StepBuilder builder = store.Begin(step, saving);
      std::vector<std::byte> bytes = RandomBytes(kArray, 7);
      for (std::size_t i = 0; i < changed; ++i) {
        bytes[i * (64 << 10)] ^= std::byte{static_cast<unsigned char>(step)};
      }
      builder.Put("w", {.dtype = DType::kUint8,
                        .shape = {static_cast<std::int64_t>(kArray)},
                        .data = bytes.data(),
                        .chunk_shape = {64 << 10}});
      builder.PutInt("count", step);
      ASSERT_OK(std::move(builder).Commit().WaitCommitted(absl::Minutes(1)));
    };
    save(10, 0, "");
    ASSERT_OK(store.Fork(AtStep(10), "trial"));
    save(20, 1, "");
    ASSERT_OK(store.Fork(AtStep(20), "orphan"));
    save(15, 2, "trial");
    ASSERT_OK(store.Fork(ParseSelector("trial/15").value(), "deep"));
    save(25, 3, "orphan");
    save(30, 4, "");
    save(30, 5, "trial");
    save(16, 6, "deep");
    ASSERT_OK(store.Fork(AtStep(30), "none"));
    ASSERT_OK(store.Delete(20));
    ASSERT_OK(store.Tag("mine", ParseSelector("trial/30").value()));
    ASSERT_OK(store.Tag("main", 30));
    ASSERT_OK(store.Pin(ParseSelector("orphan/25").value()));
    ASSERT_OK(store.Collect().status());
    ASSERT_OK(store.Close());
    model_ = All(source_);
    ASSERT_THAT(model_, ::testing::SizeIs(5 + 6));
  }

  // Everything that a store says, by name.
  static std::map<std::string, std::string> All(const std::string& directory) {
    std::map<std::string, std::string> all;
    const auto store = Store::Open(directory, {.read_only = true});
    EXPECT_OK(store);
    if (!store.ok()) return all;
    const std::vector<BranchInfo> branches = store->Branches().value();
    for (const BranchInfo& branch : branches) {
      all["branch " + branch.name] = absl::StrFormat(
          "%s/%d, %d steps, %d", branch.origin_branch, branch.origin_step,
          branch.steps, absl::ToUnixNanos(branch.created));
      const std::vector<StepInfo> steps = store->Steps(branch.name).value();
      for (const StepInfo& info : steps) {
        const StepSelector selector = AtStep(info.step, info.branch);
        const Step step = store->OpenStep(selector).value();
        std::string& text = all[Text(selector)];
        for (const char* name : {"w", "count"}) {
          const LeafValue value = step.Value(name).value();
          text.append(reinterpret_cast<const char*>(value.bytes.data()),
                      value.bytes.size());
        }
        for (const std::string& tag : info.tags) text += "@" + tag;
        text += info.pinned ? "pinned" : "";
      }
    }
    return all;
  }

  json Report(std::vector<std::string> words, int code) {
    words.emplace_back("--json");
    const Result result = Run(std::move(words));
    EXPECT_EQ(result.code, code) << result.out << result.err;
    const json report = json::parse(result.out, nullptr, false);
    EXPECT_FALSE(report.is_discarded()) << result.out << result.err;
    return report;
  }

  void ExpectWhole(const std::string& directory) {
    const auto found = All(directory);
    for (const auto& [name, text] : model_) {
      ASSERT_TRUE(found.contains(name)) << name;
      EXPECT_TRUE(found.at(name) == text) << name;
    }
    EXPECT_EQ(found.size(), model_.size());
    const Result verified = Run({"-C", directory, "verify", "--deep"});
    EXPECT_EQ(verified.code, 0) << verified.out << verified.err;
    // And the branches go on.
    StoreOptions options;
    ASSERT_OK_AND_ASSIGN(Store store, Store::Open(directory, options));
    for (const char* branch : {"", "trial", "orphan", "deep", "none"}) {
      SaveOptions saving;
      saving.branch = branch;
      StepBuilder builder = store.Begin(1000, saving);
      builder.PutInt("count", 1000);
      ASSERT_OK(std::move(builder).Commit().WaitCommitted(absl::Minutes(1)));
    }
    ASSERT_OK(store.Collect().status());
    ASSERT_OK(store.Close());
    EXPECT_EQ(Run({"-C", directory, "verify", "--deep"}).code, 0);
  }

  const std::string source_ = scratch_ / "source";
  const std::string made_ = scratch_ / "made";
  std::map<std::string, std::string> model_;
};

TEST_F(RecoverBranchesTest, RecoverKeepsEveryBranch) {
  const json report = Report({"recover", source_, made_}, 0);
  EXPECT_EQ(report["steps"].size(), 6u);
  EXPECT_EQ(report["steps"][1]["branch"], "trial");
  ExpectWhole(made_);
  // A fork shares with its origin again.
  const json du = Report({"-C", made_, "log", "trial/15"}, 0);
  EXPECT_LT(du["steps"][0]["new_bytes"].get<std::uint64_t>(), kArray / 4);
  // Once more: what was gone stays gone and is taken for nothing else.
  const std::string again = scratch_ / "again";
  Report({"recover", source_, again}, 0);
  const std::string third = scratch_ / "third";
  Report({"recover", again, third}, 0);
  ExpectWhole(third);
}

TEST_F(RecoverBranchesTest, RepairKeepsEveryBranch) {
  std::filesystem::remove(source_ + "/db/CURRENT");
  const Result plan = Run({"repair", source_});
  EXPECT_EQ(plan.code, 1) << plan.out;
  EXPECT_THAT(plan.out,
              HasSubstr("whole: 6 steps: 10, 30, deep/16, orphan/25, trial/15, "
                        "trial/30\n"));
  const json report = Report({"repair", source_, "--yes"}, 0);
  EXPECT_EQ(report["action"], "mend");
  EXPECT_EQ(report["newest_whole_step"], 30);
  ExpectWhole(source_);
}

TEST_F(RecoverBranchesTest, DamageOfForksIsNamed) {
  // A chunk that trial/30 alone has lies in the file of its save.
  std::filesystem::path file;
  std::uint64_t order = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(source_ + "/db")) {
    const std::string name = entry.path().filename().string();
    if (entry.path().extension() != ".sst" || entry.file_size() < 100000) {
      continue;
    }
    if (std::stoull(name) > order) {
      order = std::stoull(name);
      file = entry.path();
    }
  }
  ASSERT_FALSE(file.empty());
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  for (std::streamoff at = 5000;
       at < static_cast<std::streamoff>(std::filesystem::file_size(file) / 2);
       at += 30000) {
    stream.seekp(at);
    stream.write("damage!!", 8);
  }
  stream.close();
  const json verify = Report({"-C", source_, "verify"}, 1);
  std::vector<std::string> names = verify["damaged_step_names"];
  EXPECT_THAT(names, Contains(HasSubstr("/"))) << verify;
  const json report = Report({"recover", source_, made_}, 1);
  bool fork = false;
  for (const json& step : report["steps"]) {
    fork |= step["branch"] != "" && !step["lost_leaves"].empty();
  }
  EXPECT_TRUE(fork);
}

TEST_F(RecoverBranchesTest, AForkWithoutAStepLosesItsOrigin) {
  const std::string path = scratch_ / "alone";
  {
    StoreOptions options;
    options.create_if_missing = true;
    ASSERT_OK_AND_ASSIGN(Store store, Store::Open(path, options));
    const std::vector<std::byte> bytes = RandomBytes(kArray, 3);
    StepBuilder first = store.Begin(1);
    first.Put("w", {.dtype = DType::kUint8,
                    .shape = {static_cast<std::int64_t>(kArray)},
                    .data = bytes.data()});
    ASSERT_OK(std::move(first).Commit().WaitCommitted(absl::Minutes(1)));
    ASSERT_OK(store.Fork(AtStep(1), "only"));
    StepBuilder second = store.Begin(2);
    second.PutInt("count", 2);
    ASSERT_OK(std::move(second).Commit().WaitCommitted(absl::Minutes(1)));
    ASSERT_OK(store.Close());
  }
  int removed = 0;
  for (const auto& entry : std::filesystem::directory_iterator(path + "/db")) {
    if (entry.path().extension() != ".sst" || entry.file_size() < kArray) {
      continue;
    }
    std::filesystem::remove(entry.path());
    ++removed;
  }
  ASSERT_EQ(removed, 1);
  const Result result = Run({"recover", path, scratch_ / "new", "--json"});
  EXPECT_EQ(result.code, 1) << result.out << result.err;
  const json report = json::parse(result.out, nullptr, false);
  ASSERT_FALSE(report.is_discarded()) << result.out;
  EXPECT_EQ(report["steps_saved"], 1);
  EXPECT_THAT(report["losses"].dump(),
              HasSubstr("branch only, which has no step of its own: step 1"));
}

}  // namespace
}  // namespace ckptree
