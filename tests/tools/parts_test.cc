// SPDX-License-Identifier: Apache-2.0

// What the command shows of a step that several processes saved.

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "ckptree/ranks.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/tools/command_runner.h"

namespace ckptree {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

class PartsTest : public CommandRunner {
 protected:
  // Step 1 of one process, step 2 of three, which have 4, 8 and 12 bytes.
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(Store store,
                         Store::Open(path(), {.create_if_missing = true}));
    StepBuilder plain = store.Begin(1);
    plain.PutInt("x", 1);
    ASSERT_OK(std::move(plain).Commit().WaitCommitted());
    ASSERT_OK_AND_ASSIGN(RankedSave save,
                         RankedSave::Begin(store.Begin(2), {.world = 3}));
    std::vector<std::string> parts;
    for (int rank = 0; rank < 3; ++rank) {
      const std::vector<float> own(static_cast<std::size_t>(rank) + 1, 1.5f);
      StepBuilder part = BeginPart(store, save.plan(), rank);
      part.SetPerRank(Path());
      part.Put(
          "w" + std::to_string(rank),
          {.dtype = DType::kFloat32, .shape = {rank + 1}, .data = own.data()});
      ASSERT_OK_AND_ASSIGN(std::string built, FinishPart(std::move(part)));
      parts.push_back(std::move(built));
    }
    ASSERT_OK(save.Commit(std::move(parts)).WaitCommitted());
    ASSERT_OK(store.Close());
  }

  std::string path() const { return dir_ / "store"; }
  Result Show(std::vector<std::string> more) {
    std::vector<std::string> arguments = {"-C", path(), "show"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return Run(arguments);
  }

  testing::TempDir dir_;
};

TEST_F(PartsTest, EachRankHasARow) {
  const Result shown = Show({"2", "--parts", "--json"});
  ASSERT_EQ(shown.code, 0) << shown.err;
  const Json parts = Json::parse(shown.out)["parts"];
  ASSERT_EQ(parts.size(), 3u);
  for (int rank = 0; rank < 3; ++rank) {
    const Json& part = parts[static_cast<std::size_t>(rank)];
    EXPECT_EQ(part["rank"], rank);
    EXPECT_EQ(part["pid"], getpid());
    EXPECT_EQ(part["bytes"], 4 * (rank + 1));
    EXPECT_EQ(part["new_bytes"], 4 * (rank + 1));
    EXPECT_GT(part["seconds"], 0);
  }
  const Result table = Show({"2", "--parts"});
  EXPECT_EQ(table.code, 0);
  EXPECT_THAT(table.out, HasSubstr("RANK"));
  EXPECT_THAT(table.out, HasSubstr("12 B"));
}

TEST_F(PartsTest, TheStepNamesTheSlowest) {
  EXPECT_THAT(Show({"2"}).out, HasSubstr("3 of 1 host; the slowest, rank "));
  EXPECT_EQ(Json::parse(Show({"2", "--json"}).out)["parts"].size(), 3u);
  EXPECT_EQ(Json::parse(Show({"1", "--json"}).out)["parts"].size(), 0u);
}

TEST_F(PartsTest, FindSeesTheLeavesOfAllRanks) {
  const Result leaves = Run({"-C", path(), "ls", "2", "-o", "csv", "--columns",
                             "key", "--no-header"});
  EXPECT_EQ(std::count(leaves.out.begin(), leaves.out.end(), '\n'), 3);
  for (const char* condition : {"l2>0", "dtype==float32"}) {
    const Result found = Run({"-C", path(), "find", condition, "-o", "csv",
                              "--columns", "key", "--no-header"});
    EXPECT_EQ(found.code, 0) << found.err;
    EXPECT_EQ(found.out, leaves.out);
  }
}

TEST_F(PartsTest, WhatHasNone) {
  const Result plain = Show({"1", "--parts"});
  EXPECT_EQ(plain.code, 0);
  EXPECT_THAT(plain.err, HasSubstr("one process saved this step"));
  const Result leaf = Show({"2:w1", "--parts"});
  EXPECT_NE(leaf.code, 0);
  EXPECT_THAT(leaf.err, HasSubstr("--parts is of a whole step"));
}

}  // namespace
}  // namespace ckptree
