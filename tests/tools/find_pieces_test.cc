// SPDX-License-Identifier: Apache-2.0

// `find` where leaves are many: rows that are written before the rest is read.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/testutil/status_matchers.h"
#include "tests/tools/command_runner.h"
#include "tools/verbs/leaf_search.h"

namespace ckptree::tools {
namespace {

using ckptree::testing::IsOk;
using ckptree::testing::StatusIs;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// It cannot be asked of the last ones: what reads them fails.
constexpr const char* kWrongBehind = "key<'leaf19000' or shape>1";
constexpr const char* kWhatIsWrong = "a list is in no order";

class FindPiecesTest : public CommandRunner {
 protected:
  static constexpr std::size_t kLeaves = 20000;

  static void SetUpTestSuite() {
    folder_ = new ckptree::testing::TempDir;
    ASSERT_OK_AND_ASSIGN(Store store,
                         Store::Open(path(), {.create_if_missing = true}));
    for (const float value : {1.0f, 2.0f}) {
      StepBuilder builder = store.Begin(static_cast<std::int64_t>(value));
      for (std::size_t i = 0; i < kLeaves; ++i) {
        builder.Put(absl::StrFormat("leaf%05d", i),
                    {.dtype = DType::kFloat32, .shape = {1}, .data = &value});
      }
      ASSERT_THAT(std::move(builder).Commit().WaitCommitted(), IsOk());
    }
    ASSERT_THAT(store.Close(), IsOk());
  }
  static void TearDownTestSuite() {
    delete folder_;
    folder_ = nullptr;
  }

  static std::string path() { return *folder_ / "long"; }

  Result Find(std::vector<std::string> words) {
    words.insert(words.begin(), {"-C", path(), "find"});
    return Run(std::move(words));
  }

  static LeafSearch SearchFor(const std::string& condition) {
    return LeafSearch(Expression::Parse(condition).value(), {});
  }

 private:
  static inline ckptree::testing::TempDir* folder_ = nullptr;
};

std::size_t Lines(const std::string& text) {
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

TEST_F(FindPiecesTest, TheFirstAreFoundBeforeTheLastAreRead) {
  ASSERT_OK_AND_ASSIGN(Store store, Store::Open(path(), {.read_only = true}));
  ASSERT_OK_AND_ASSIGN(std::vector<StepInfo> steps, store.Steps());
  steps.resize(1);
  // With the records of leaves and without.
  for (const char* condition : {"l2==1", "dtype==float32"}) {
    LeafSearch search = SearchFor(condition);
    ASSERT_THAT(search.Begin(store, steps), IsOk());
    std::vector<std::size_t> found;
    bool more = true;
    while (more) {
      ASSERT_OK_AND_ASSIGN(more, search.More());
      EXPECT_EQ(search.settled(), search.found().size());
      EXPECT_EQ(search.looked(), 1u);
      found.push_back(search.found().size());
    }
    EXPECT_GT(found.front(), 0u);
    EXPECT_LT(found.front(), kLeaves / 4);
    EXPECT_EQ(found.back(), kLeaves);
    ASSERT_OK_AND_ASSIGN(const Step step, store.OpenStep(1));
    ASSERT_OK_AND_ASSIGN(const std::vector<LeafInfo> leaves, step.Leaves());
    for (std::size_t i = 0; i < kLeaves; ++i) {
      const LeafSearch::Found& one = search.found()[i];
      ASSERT_EQ(one.key, leaves[i].name);
      ASSERT_EQ(one.steps, 1u);
      ASSERT_TRUE(one.at_first.has_value());
      ASSERT_EQ(one.at_first->max, 1);
    }
  }
}

TEST_F(FindPiecesTest, OfSeveralStepsRowsAreSettledByTheLast) {
  ASSERT_OK_AND_ASSIGN(Store store, Store::Open(path(), {.read_only = true}));
  ASSERT_OK_AND_ASSIGN(const std::vector<StepInfo> steps, store.Steps());
  LeafSearch search = SearchFor("l2>0");
  ASSERT_THAT(search.Begin(store, steps), IsOk());
  ASSERT_OK_AND_ASSIGN(bool more, search.More());
  EXPECT_GT(search.found().size(), 0u);
  EXPECT_LT(search.found().size(), kLeaves / 4);
  while (more) {
    EXPECT_EQ(search.settled(), 0u);
    ASSERT_OK_AND_ASSIGN(more, search.More());
  }
  ASSERT_EQ(search.settled(), kLeaves);
  EXPECT_EQ(search.found().back().last, 2);
  EXPECT_EQ(search.found().back().steps, 2u);
}

TEST_F(FindPiecesTest, SideBySideTheFirstRowsAreSettledBeforeTheLastAreRead) {
  ASSERT_OK_AND_ASSIGN(Store store, Store::Open(path(), {.read_only = true}));
  ASSERT_OK_AND_ASSIGN(const std::vector<StepInfo> steps, store.Steps());
  for (const char* condition :
       {"l2>0", "dtype==float32", "l2==1 or prev.l2==1"}) {
    LeafSearch search = SearchFor(condition);
    ASSERT_THAT(search.Begin(store, steps, /*settle=*/true), IsOk());
    std::vector<std::size_t> settled;
    bool more = true;
    while (more) {
      ASSERT_OK_AND_ASSIGN(more, search.More());
      EXPECT_EQ(search.looked(), 2u);
      settled.push_back(search.settled());
    }
    EXPECT_GT(settled.front(), 0u);
    EXPECT_LT(settled.front(), kLeaves / 4);
    ASSERT_EQ(settled.back(), kLeaves);
    ASSERT_OK_AND_ASSIGN(const Step step, store.OpenStep(1));
    ASSERT_OK_AND_ASSIGN(const std::vector<LeafInfo> leaves, step.Leaves());
    for (std::size_t i = 0; i < kLeaves; ++i) {
      const LeafSearch::Found& one = search.found()[i];
      ASSERT_EQ(one.key, leaves[i].name);
      ASSERT_EQ(one.first, 1);
      ASSERT_EQ(one.last, 2);
      ASSERT_EQ(one.steps, 2u);
      ASSERT_EQ(one.at_first->max, 1);
    }
  }
}

// Leaves come and go, so that the pages of no two steps end alike.
class FindMixedTest : public FindPiecesTest,
                      public ::testing::WithParamInterface<
                          std::pair<int, std::size_t>> {  // Steps, leaves.
 protected:
  static constexpr std::size_t kSubtrees = 7;

  void SetUp() override {
    const auto [steps, leaves] = GetParam();
    std::mt19937_64 random(20261126);
    ASSERT_OK_AND_ASSIGN(Store store,
                         Store::Open(mixed_, {.create_if_missing = true}));
    for (int step = 0; step < steps; ++step) {
      StepBuilder builder = store.Begin(step);
      const bool with_nan = step == 2 || step == 5;
      std::vector<float> values(leaves);  // Lent until the commit.
      for (std::size_t i = 0; i < leaves; ++i) {
        if (random() % 8 == 0) continue;
        float& value = values[i];
        value = static_cast<float>(random() % 5);
        if (with_nan && random() % 50 == 0) value = std::nanf("");
        builder.Put(absl::StrCat("part", i % kSubtrees, "/leaf", i),
                    {.dtype = DType::kFloat32, .shape = {1}, .data = &value});
      }
      builder.SetMetric("loss", 7 - step);
      ASSERT_THAT(std::move(builder).Commit().WaitCommitted(), IsOk());
    }
    ASSERT_THAT(store.Close(), IsOk());
  }

  const std::string mixed_ = scratch_ / "mixed";
};

INSTANTIATE_TEST_SUITE_P(, FindMixedTest,
                         ::testing::Values(std::pair(7, 12000),
                                           std::pair(40, 1500)));

TEST_P(FindMixedTest, SideBySideTheSameIsFound) {
  ASSERT_OK_AND_ASSIGN(Store store, Store::Open(mixed_, {.read_only = true}));
  ASSERT_OK_AND_ASSIGN(const std::vector<StepInfo> steps, store.Steps());
  for (const char* condition :
       {"l2>2", "l2>prev.l2", "nan>0", "nan>0 and prev.nan==0",
        "l2==4 and "
        "loss<4",
        "prev.loss>5 and key~'part3/**'", "dtype==float32",
        "l2>prev.l2 and loss<6 and loss>2", "l2>100", "inf>0"}) {
    for (const std::vector<std::string>& globs :
         {std::vector<std::string>(), {"part1/*", "part5/leaf2*"}}) {
      std::size_t settled_at_first = 0;
      const auto search_all = [&](bool settle) {
        LeafSearch search(Expression::Parse(condition).value(), globs);
        EXPECT_THAT(search.Begin(store, steps, settle), IsOk());
        std::vector<LeafSearch::Found> settled;
        const auto take = [&] {
          while (settled.size() < search.settled()) {
            settled.push_back(search.found()[settled.size()]);
          }
        };
        for (bool more = true, first = true; more; first = false) {
          more = search.More().value();
          if (settle) take();
          if (first) settled_at_first = settled.size();
        }
        take();
        EXPECT_EQ(search.looked(), steps.size());
        return settled;
      };
      const auto one_by_one = search_all(false);
      const auto side_by_side = search_all(true);
      if (condition == std::string_view("dtype==float32") && globs.empty()) {
        EXPECT_GT(settled_at_first, 0u);
        EXPECT_LT(settled_at_first, one_by_one.size());
      }
      ASSERT_EQ(side_by_side.size(), one_by_one.size()) << condition;
      for (std::size_t i = 0; i < one_by_one.size(); ++i) {
        const LeafSearch::Found& a = one_by_one[i];
        const LeafSearch::Found& b = side_by_side[i];
        ASSERT_EQ(b.key, a.key) << condition << " " << i;
        ASSERT_EQ(b.first, a.first) << condition << " " << a.key;
        ASSERT_EQ(b.last, a.last) << condition << " " << a.key;
        ASSERT_EQ(b.steps, a.steps) << condition << " " << a.key;
        ASSERT_EQ(b.at_first, a.at_first) << condition << " " << a.key;
      }
    }
  }
}

TEST_F(FindPiecesTest, MoreStepsThanThatAreReadOneAfterTheOther) {
  constexpr std::size_t kMost = 256;
  const std::string many = scratch_ / "many";
  ASSERT_OK_AND_ASSIGN(Store store,
                       Store::Open(many, {.create_if_missing = true}));
  for (std::size_t step = 0; step <= kMost; ++step) {
    StepBuilder builder = store.Begin(static_cast<std::int64_t>(step));
    std::vector<float> values(40);
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<float>(step + i);
      builder.Put(absl::StrCat("leaf", i),
                  {.dtype = DType::kFloat32, .shape = {1}, .data = &values[i]});
    }
    ASSERT_THAT(std::move(builder).Commit().WaitCommitted(), IsOk());
  }
  ASSERT_OK_AND_ASSIGN(std::vector<StepInfo> steps, store.Steps());
  const auto turns = [&] {
    LeafSearch search = SearchFor("l2>=0");
    EXPECT_THAT(search.Begin(store, steps, /*settle=*/true), IsOk());
    std::size_t made = 1;
    while (search.More().value()) ++made;
    EXPECT_EQ(search.found().size(), 40u);
    for (const LeafSearch::Found& found : search.found()) {
      EXPECT_EQ(found.steps, steps.size());
    }
    return made;
  };
  EXPECT_GT(turns(), kMost);
  steps.pop_back();
  EXPECT_LT(turns(), 5u);  // The leaves of all of them at once.
}

TEST_F(FindPiecesTest, WhereNothingCanBeFoundTheRestIsNotAsked) {
  // No step has a NaN, and each says so.
  const std::string wrong_behind =
      absl::StrCat("(", kWrongBehind, ") and nan>0");
  const Result nothing = Find({wrong_behind});
  EXPECT_EQ(nothing.code, 1) << nothing.err;
  EXPECT_EQ(nothing.err, "ckptree: nothing found in 2 steps\n");
  // What the first ones cannot be asked is said.
  const Result wrong = Find({"shape>1 and nan>0"});
  EXPECT_EQ(wrong.code, 2);
  EXPECT_THAT(wrong.err, HasSubstr(kWhatIsWrong));
}

TEST_F(FindPiecesTest, PiecesMakeUpTheText) {
  const auto check = [this](std::vector<std::string> words,
                            const std::string& format) {
    words.insert(words.end(), {"-o", format});
    const Result result = Find(words);
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_GT(Lines(result.out), 1900u);
    // An order needs all rows first.
    words.insert(words.end(), {"--sort", "first"});
    EXPECT_TRUE(result.out == Find(words).out) << format << ": " << words[0];
  };
  for (const char* format : {"table", "json", "ndjson", "csv", "tsv", "md"}) {
    check({"l2==1", "1"}, format);
  }
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"l2==1", "1", "--no-header"},
        {"l2==1", "1", "--columns", "nan,key"},
        {"l2==1", "1", "-n", "15000"},
        {"kind==array", "1", "-k", "leaf*1"},
        {"l2>2*prev.l2 or l2==2"},
        {"l2>0", "--columns", "key,first"}}) {
    for (const char* format : {"table", "csv"}) check(words, format);
  }
}

TEST_F(FindPiecesTest, WhatCannotBeAskedComesBehindTheFirstRows) {
  for (const char* format : {"table", "json", "ndjson", "csv"}) {
    const Result result = Find({kWrongBehind, "1", "-o", format});
    EXPECT_EQ(result.code, 2) << format;
    EXPECT_THAT(result.err, HasSubstr(kWhatIsWrong));
    EXPECT_TRUE(absl::StrContains(result.out, "leaf00000")) << format;
    EXPECT_FALSE(absl::StrContains(result.out, "leaf19001")) << format;
  }
  // An order shows none before all are known.
  const Result sorted = Find({kWrongBehind, "1", "--sort", "key"});
  EXPECT_EQ(sorted.code, 2);
  EXPECT_EQ(sorted.out, "");
}

TEST_F(FindPiecesTest, ALimitReadsNoMore) {
  const Result result = Find({kWrongBehind, "1", "-n", "5", "-o", "csv"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(Lines(result.out), 6u);
}

TEST_F(FindPiecesTest, WhoReadsNoMoreEndsTheSearch) {
  const std::string code = scratch_ / "code", err = scratch_ / "err",
                    out = scratch_ / "out";
  // The first rows are more than a pipe holds.
  const std::string line =
      absl::StrCat("{ '", CKPTREE_BINARY, "' -C '", path(), "' find \"",
                   kWrongBehind, "\" 1 -o ndjson 2>'", err, "'; echo $? >'",
                   code, "'; } | head -1 >'", out, "'");
  EXPECT_EQ(std::system(line.c_str()), 0);
  EXPECT_EQ(ReadFile(code), "141\n");  // By SIGPIPE.
  EXPECT_THAT(ReadFile(out), StartsWith("{\"key\":\"leaf00000\""));
  EXPECT_THAT(ReadFile(err), Not(HasSubstr(kWhatIsWrong)));
}

TEST_F(FindPiecesTest, WithoutLastAndStepsRowsComeStepByStep) {
  // Of the second step it cannot be asked.
  const std::string wrong_behind = "step<2 or shape>1";
  const auto find = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {wrong_behind, "-o"});
    return Find(std::move(more));
  };
  const Result rows = find({"csv", "--columns", "key,first"});
  EXPECT_EQ(rows.code, 2);
  EXPECT_THAT(rows.err, HasSubstr(kWhatIsWrong));
  EXPECT_EQ(Lines(rows.out), kLeaves + 1);
  EXPECT_THAT(rows.out, StartsWith("key,first\nleaf00000,1\n"));
  const Result one = find({"csv", "--columns", "key,first", "-n", "1"});
  EXPECT_EQ(one.code, 0) << one.err;
  EXPECT_EQ(one.out, "key,first\nleaf00000,1\n");
  // The number of steps stands behind the rows of a document.
  const Result document = find({"json", "--columns", "key,first"});
  EXPECT_EQ(document.code, 2);
  EXPECT_THAT(document.out, HasSubstr("leaf19999"));
  EXPECT_THAT(document.out, Not(HasSubstr("steps_searched")));
  for (const std::vector<std::string>& needs_the_end :
       {std::vector<std::string>{"csv"},
        {"csv", "--columns", "key,steps", "-n", "1"},
        {"json", "--columns", "key,first", "-n", "1"}}) {
    const Result nothing = find(needs_the_end);
    EXPECT_EQ(nothing.code, 2);
    EXPECT_EQ(nothing.out, "");
  }
}

}  // namespace
}  // namespace ckptree::tools
