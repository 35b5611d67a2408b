// SPDX-License-Identifier: Apache-2.0

// `ckptree copy` and `ckptree backup`.

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "ckptree/ckptree.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/testutil/status_matchers.h"
#include "tests/tools/command_runner.h"

namespace ckptree {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

class CopyCommandTest : public CommandRunner {
 protected:
  void SetUp() override { MakeStore(source_); }

  // All values of all steps, as `get` prints their bytes.
  std::string Everything(const std::string& store) {
    std::string all;
    const json log = json::parse(
        Run({"-C", store, "log", "--json", "--columns", "step"}).out);
    for (const auto& row : log["steps"]) {
      const std::string step = row["step"].dump();
      all += Run({"-C", store, "get", step + ":**", "--json"}).out;
      const Result raw =
          Run({"-C", store, "get", step + ":params/w", "-o", "raw"});
      EXPECT_EQ(raw.out.size(), 64u * 48 * 4);
      all += raw.out;
    }
    return all;
  }

  std::string Log(const std::string& store) {
    return Run({"-C", store, "log", "-o", "csv", "--columns",
                "step,committed,leaves,loss,acc,tags,pinned,note"})
        .out;
  }

  const std::string source_ = scratch_ / "source";
  const std::string copy_ = scratch_ / "copy";
};

TEST_F(CopyCommandTest, AllOfIt) {
  const Result copied = Run({"copy", source_, copy_});
  ASSERT_EQ(copied.code, 0) << copied.err;
  EXPECT_THAT(copied.out, AllOf(HasSubstr("5 steps copied"),
                                HasSubstr("read back: no damage")));
  EXPECT_EQ(Everything(copy_), Everything(source_));
  EXPECT_EQ(Log(copy_), Log(source_));
  EXPECT_EQ(Run({"-C", copy_, "verify", "--deep"}).code, 0);
  // What is frozen stands once: later steps write less than the first.
  const json again = json::parse(Run({"copy", source_, copy_, "--json"}).out);
  EXPECT_EQ(again["schema"], "ckptree.copy/1");
  for (const auto& step : again["steps"]) EXPECT_EQ(step["result"], "there");
  const json steps =
      json::parse(Run({"-C", copy_, "log", "--json"}).out)["steps"];
  EXPECT_LT(steps[0]["new_bytes"], steps[4]["new_bytes"]);
}

TEST_F(CopyCommandTest, GoesOnWithWhatIsNew) {
  ASSERT_EQ(Run({"copy", source_, copy_, "100..300"}).code, 0);
  EXPECT_EQ(Run({"-C", copy_, "log", "-o", "csv", "--columns", "step"}).out,
            "step\n300\n200\n100\n");
  {
    // Beside a trainer that goes on.
    ASSERT_OK_AND_ASSIGN(Store trainer, Store::Open(source_));
    ASSERT_OK(trainer.Fork(AtStep(200), "trial"));
    StepBuilder builder = trainer.Begin(250, {.branch = "trial"});
    builder.PutInt("n", 7);
    ASSERT_OK(std::move(builder).Commit().WaitCommitted(absl::Minutes(1)));
    ASSERT_OK(trainer.SetMetadata(R"({"run": "lm"})"));
    const Result backup = Run({"-C", source_, "backup", copy_});
    EXPECT_EQ(backup.code, 0) << backup.err;
    EXPECT_THAT(backup.out,
                AllOf(HasSubstr("3 steps copied"), HasSubstr("3 were there")));
    ASSERT_OK(trainer.Delete(300));
    ASSERT_OK(trainer.Tag("later", 400));
    ASSERT_OK(trainer.Tag("warm", 400, {.move = true}));
    ASSERT_OK(trainer.Close());
  }
  // Names that moved are a copy's problem, and a backup follows them.
  const Result clash = Run({"copy", source_, copy_});
  EXPECT_EQ(clash.code, 1);
  EXPECT_THAT(clash.err, HasSubstr("tag warm of step 400"));
  EXPECT_EQ(Run({"-C", source_, "backup", copy_, "--verify-all"}).code, 0);
  EXPECT_EQ(
      Run({"-C", copy_, "tag", "-o", "csv", "--columns", "name,step"}).out,
      "name,step\nlater,400\nwarm,400\n");
  EXPECT_EQ(Run({"-C", copy_, "get", "trial/250:n"}).out, "7\n");
  // What was removed is kept here.
  EXPECT_EQ(Run({"-C", copy_, "get", "300:lr"}).out, "0.001\n");
  ASSERT_OK_AND_ASSIGN(const Store store,
                       Store::Open(copy_, {.read_only = true}));
  EXPECT_EQ(store.Metadata().value(), R"({"run": "lm"})");
  const std::vector<BranchInfo> branches = store.Branches().value();
  ASSERT_EQ(branches.size(), 2u);
  EXPECT_EQ(branches[1].origin_step, 200);
}

TEST_F(CopyCommandTest, AnotherStepOfTheNumber) {
  {
    ASSERT_OK_AND_ASSIGN(Store store,
                         Store::Open(copy_, {.create_if_missing = true}));
    StepBuilder builder = store.Begin(300);
    builder.PutInt("mine", 1);
    ASSERT_OK(std::move(builder).Commit().WaitCommitted(absl::Minutes(1)));
    ASSERT_OK(store.Close());
  }
  for (const char* flag : {"--quiet", "--dry-run"}) {
    const Result refused = Run({"copy", source_, copy_, flag});
    EXPECT_EQ(refused.code, 2);
    EXPECT_THAT(refused.err,
                AllOf(HasSubstr("step 300 is there with other values"),
                      HasSubstr("--overwrite")));
    EXPECT_EQ(Run({"-C", copy_, "log", "-o", "csv", "--columns", "step"}).out,
              "step\n300\n");
  }
  // It is of another store, whatever a backup may replace.
  const Result backup = Run({"-C", source_, "backup", copy_});
  EXPECT_EQ(backup.code, 2);
  EXPECT_THAT(backup.err, HasSubstr("no backup of this store"));
  EXPECT_EQ(Run({"-C", copy_, "get", "300:mine"}).out, "1\n");
  EXPECT_EQ(Run({"copy", source_, copy_, "--overwrite"}).code, 0);
  EXPECT_EQ(Everything(copy_), Everything(source_));
  // A step that was saved again since is another matter.
  {
    ASSERT_OK_AND_ASSIGN(Store trainer, Store::Open(source_));
    StepBuilder builder = trainer.Begin(500, {.overwrite = true});
    builder.PutInt("n", 8);
    ASSERT_OK(std::move(builder).Commit().WaitCommitted(absl::Minutes(1)));
    ASSERT_OK(trainer.Close());
  }
  EXPECT_EQ(Run({"-C", source_, "backup", copy_}).code, 0);
  EXPECT_EQ(Run({"-C", copy_, "get", "500:n"}).out, "8\n");
}

TEST_F(CopyCommandTest, APolicyOfTheOtherStoreIsObeyed) {
  ASSERT_EQ(Run({"copy", source_, copy_, "500"}).code, 0);
  ASSERT_EQ(Run({"-C", copy_, "policy", "--set", "latest(1)"}).code, 0);
  const Result result = Run({"copy", source_, copy_});
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.out, HasSubstr("refused"));
  EXPECT_EQ(Run({"-C", copy_, "log", "-o", "csv", "--columns", "step"}).out,
            "step\n500\n");
}

TEST_F(CopyCommandTest, WhatAPolicyTakesWhileItIsCopiedIsTold) {
  ASSERT_EQ(Run({"copy", source_, copy_, "100"}).code, 0);
  ASSERT_EQ(Run({"-C", copy_, "policy", "--set", "latest(2)"}).code, 0);
  const Result result = Run({"copy", source_, copy_, "--json"});
  EXPECT_EQ(result.code, 1);
  const json log =
      json::parse(Run({"-C", copy_, "log", "--json", "--columns", "step"}).out);
  std::set<std::int64_t> there;
  for (const auto& row : log["steps"]) there.insert(row["step"].get<int>());
  EXPECT_LT(there.size(), 5u);
  for (const auto& row : json::parse(result.out)["steps"]) {
    EXPECT_EQ(row["result"] == "refused", !there.contains(row["step"])) << row;
  }
  EXPECT_EQ(json::parse(result.out)["ok"], false);
}

TEST_F(CopyCommandTest, DamageIsLeftOutAndTold) {
  {
    ASSERT_OK_AND_ASSIGN(Store store, Store::Open(source_));
    std::vector<std::uint8_t> bytes(8 << 20);
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      bytes[i] = static_cast<std::uint8_t>(i * 2654435761u >> 13);
    }
    StepBuilder builder = store.Begin(600);
    builder.Put(
        "w",
        {.dtype = DType::kUint8, .shape = {8 << 20}, .data = bytes.data()});
    ASSERT_OK(std::move(builder).Commit().WaitCommitted(absl::Minutes(1)));
    ASSERT_OK(store.Close());
  }
  std::filesystem::path largest;
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(source_ + "/db")) {
    if (entry.is_regular_file() &&
        (largest.empty() ||
         entry.file_size() > std::filesystem::file_size(largest))) {
      largest = entry.path();
    }
  }
  ASSERT_GT(std::filesystem::file_size(largest), 2u << 20);
  {
    // A third of it is in array bytes; the middle may be between two blocks.
    std::fstream file(largest, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(
        static_cast<std::streamoff>(std::filesystem::file_size(largest) / 3));
    file.write("damage!!", 8);
  }
  const Result result = Run({"copy", source_, copy_});
  EXPECT_EQ(result.code, 5);
  EXPECT_THAT(result.out, AllOf(HasSubstr("damaged"),
                                HasSubstr("5 steps copied"), HasSubstr("w: ")));
  EXPECT_EQ(Run({"-C", copy_, "log", "-o", "csv", "--columns", "step"}).out,
            "step\n500\n400\n300\n200\n100\n");
  EXPECT_EQ(Run({"-C", copy_, "verify"}).code, 0);
}

TEST_F(CopyCommandTest, CompletesStepsOfTheSource) {
  EXPECT_THAT(Run({"__complete", "--", "copy", source_, "x", "4"}).out,
              HasSubstr("400\n"));
  EXPECT_EQ(Run({"__complete", "--", "copy", ""}).out, "");
}

TEST_F(CopyCommandTest, OnlyAWriterThatMayBeAliveIsSaidToBeEnded) {
  setenv("XDG_CACHE_HOME", (scratch_ / "cache").c_str(), 1);
  // Plain http to another host is refused before anything is asked of it.
  setenv("AWS_ENDPOINT_URL_S3", "http://storage.example.com", 1);
  const Result result = Run({"copy", source_, "s3://bucket/run"});
  unsetenv("AWS_ENDPOINT_URL_S3");
  EXPECT_NE(result.code, 0);
  EXPECT_THAT(result.err, ::testing::AnyOf(HasSubstr("plain http"),
                                           HasSubstr("is without s3")));
  EXPECT_THAT(result.err, ::testing::Not(HasSubstr("take-over")));
}

TEST_F(CopyCommandTest, BadInput) {
  const auto fails = [this](std::vector<std::string> words, int code,
                            const std::string& text) {
    const Result result = Run(std::move(words));
    EXPECT_EQ(result.code, code) << result.err;
    EXPECT_THAT(result.err, HasSubstr(text));
    EXPECT_EQ(result.out, "");
  };
  fails({"copy", source_}, 2, "`ckptree copy` needs SRC DST");
  fails({"copy", source_, source_}, 2, "lies in");
  fails({"copy", source_, source_ + "/db/copy"}, 2, "lies in");
  fails({"copy", source_, "gs://bucket/run"}, 2, "gs://bucket/run");
  fails({"copy", source_, ""}, 2, "empty");
  fails({"copy", source_, copy_, "-C", source_}, 2, "-C names no store");
  fails({"copy", scratch_ / "nothing", copy_}, 3, "no store in");
  fails({"copy", source_, copy_, "700"}, 3, "there is no step 700");
  fails({"copy", source_, copy_, "700..800"}, 3, "there is no step in");
  fails({"copy", source_, scratch_ / "no/copy"}, 2, "no/copy");
  std::filesystem::create_symlink("gone", scratch_ / "link");
  fails({"copy", source_, scratch_ / "link"}, 2,
        "link is a link to gone, which is not there");
  fails({"-C", source_, "backup", copy_, "100"}, 2, "cannot take `100`");
  for (const char* flag : {"--sort=nope", "--columns=nope", "--where=nope>1"}) {
    fails({"copy", source_, copy_, flag}, 2, "nope");
    // Nor where nothing would be printed.
    fails({"-C", source_, "verify", flag}, 2, "nope");
  }
  EXPECT_FALSE(std::filesystem::exists(copy_));
  const Result dry = Run({"copy", source_, copy_, "--dry-run"});
  EXPECT_EQ(dry.code, 0);
  EXPECT_THAT(dry.out, HasSubstr("5 steps would be copied"));
  EXPECT_FALSE(std::filesystem::exists(copy_));
  ASSERT_OK_AND_ASSIGN(Store writer,
                       Store::Open(copy_, {.create_if_missing = true}));
  fails({"copy", source_, copy_}, 4, "pid");
  ASSERT_OK(writer.Close());
}

}  // namespace
}  // namespace ckptree
