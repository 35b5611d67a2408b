// SPDX-License-Identifier: Apache-2.0

// `ckptree history`, `diff` and `blame` on steps of which we know what changed.

#include "ckptree/history.h"

#include <string>
#include <utility>
#include <vector>

#include "ckptree/ckptree.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/testutil/status_matchers.h"
#include "tests/tools/command_runner.h"

namespace ckptree {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
using testing::StatusIs;

// Steps 10 to 50: `frozen` never changes, `w` at 10, 20 and 40, `lr` at 10 and
// 30; `late` is there from 40 on, `early` up to 20; `shape` grows at 50, and
// `tied` has the value of `w`.
class HistoryTest : public CommandRunner {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(Store store,
                         Store::Open(own_, {.create_if_missing = true}));
    const std::vector<float> frozen(100, 1.0f);
    for (std::int64_t step = 10; step <= 50; step += 10) {
      std::vector<float> w(200, step < 20 ? 1.0f : step < 40 ? 2.0f : 3.0f);
      StepBuilder builder = store.Begin(step);
      const auto put = [&builder](const char* name,
                                  const std::vector<float>& values,
                                  std::int64_t count) {
        builder.Put(name, {.dtype = DType::kFloat32,
                           .shape = {count},
                           .data = values.data()});
      };
      put("frozen", frozen, 100);
      put("w", w, 200);
      put("shape", frozen, step < 50 ? 3 : 4);
      builder.PutFloat("lr", step < 30 ? 0.5 : 0.25);
      if (step >= 40) builder.PutInt("late", 1);
      if (step <= 20) builder.PutInt("early", 1);
      builder.Tie("tied", "w");
      ASSERT_OK(std::move(builder).Commit().WaitCommitted(absl::Minutes(1)));
    }
    ASSERT_OK(store.Close());
  }

  Result Do(std::vector<std::string> words) {
    words.insert(words.begin(), {"-C", own_});
    return Run(std::move(words));
  }
  std::string Csv(std::vector<std::string> words, const std::string& columns) {
    words.insert(words.end(),
                 {"-o", "csv", "--no-header", "--columns", columns});
    return Do(std::move(words)).out;
  }

  const std::string own_ = scratch_ / "own";
};

TEST_F(HistoryTest, ARowForEachValue) {
  EXPECT_EQ(Csv({"history", "w"}, "step,last_step,steps,min"),
            "40,50,2,3.0\n20,30,2,2.0\n10,10,1,1.0\n");
  EXPECT_EQ(Csv({"history", "tied"}, "step,last_step"),
            "40,50\n20,30\n10,10\n");
  EXPECT_EQ(Csv({"history", "frozen"}, "step,last_step"), "10,50\n");
  EXPECT_EQ(Csv({"history", "lr"}, "step,value"), "30,0.25\n10,0.5\n");
  EXPECT_EQ(Csv({"history", "shape"}, "step,type"),
            "50,float32[4]\n10,float32[3]\n");
  EXPECT_EQ(Csv({"history", "w", "20..40"}, "step,last_step"),
            "40,40\n20,30\n");
  // It is not in the newest step.
  EXPECT_EQ(Csv({"history", "early"}, "step,last_step"), "10,20\n");
  EXPECT_THAT(Do({"history", "w"}).out, HasSubstr("float32[200]"));
}

TEST_F(HistoryTest, SaysWhatIsNoLeaf) {
  const Result result = Do({"history", "ww"});
  EXPECT_EQ(result.code, 3);
  EXPECT_THAT(result.err, HasSubstr("Did you mean `w`"));
  EXPECT_EQ(Do({"history", "*"}).code, 2);
  EXPECT_EQ(Do({"history"}).code, 2);
  EXPECT_EQ(Do({"history", "w", "60..70"}).code, 3);
}

TEST_F(HistoryTest, DiffSaysWhatChanged) {
  EXPECT_EQ(Csv({"diff", "20", "50"}, "change,key"),
            "removed,early\nadded,late\nchanged,lr\nretyped,shape\nchanged,"
            "tied\nchanged,w\n");
  const Result result = Do({"diff", "20", "50"});
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.out,
              HasSubstr("20 -> 50: 6 differences, 1 leaf is the same\n"));
  const Result same = Do({"diff", "10:frozen", "50"});
  EXPECT_EQ(same.code, 0);
  EXPECT_EQ(same.out, "10 -> 50: no difference\n");
  // With the save before it.
  EXPECT_EQ(Csv({"diff", "50"}, "change,key"), "retyped,shape\n");
  EXPECT_EQ(Csv({"diff", "30:w", "40"}, "change,key"), "changed,w\n");
  const nlohmann::json json =
      nlohmann::json::parse(Do({"diff", "20", "50", "--json"}).out);
  EXPECT_EQ(json["same"], 1);
  EXPECT_EQ(json["changes"][3]["before"], "float32[3]");
  EXPECT_EQ(json["changes"][3]["after"], "float32[4]");
  EXPECT_EQ(Do({"diff", "20", "60"}).code, 3);
  // Each of its two ends had the same bytes: of neither key it was a diff.
  const Result two = Do({"diff", "20:w", "30:frozen"});
  EXPECT_EQ(two.code, 2);
  EXPECT_THAT(two.err, HasSubstr("`w` and `frozen` are two keys"));
  EXPECT_EQ(Do({"diff", "30:w", "40:w"}).code, 1);
}

TEST_F(HistoryTest, BlameNamesTheSave) {
  EXPECT_EQ(Csv({"blame", "50"}, "key,since,listed"),
            "frozen,10,true\nlate,40,true\nlr,30,true\nshape,50,true\ntied,40,"
            "true\nw,40,true\n");
  ASSERT_EQ(Do({"rm", "30", "-y"}).code, 0);
  EXPECT_EQ(Csv({"blame", "50:lr"}, "key,since,listed"), "lr,30,false\n");
  // As a table prints it.
  EXPECT_EQ(Csv({"blame", "50", "--where", "listed==no"}, "key"), "lr\n");
  EXPECT_EQ(Csv({"blame", "50", "--where", "'no'!=listed"}, "key"),
            "frozen\nlate\nshape\ntied\nw\n");
  EXPECT_THAT(Do({"blame", "--where", "since<20"}).out, HasSubstr("frozen"));
  EXPECT_EQ(Csv({"history", "lr"}, "step,value"), "40,0.25\n10,0.5\n");
}

TEST_F(HistoryTest, BlameSaysOfWhichBranchTheSaveIs) {
  ASSERT_EQ(Do({"fork", "20", "--branch", "br"}).code, 0);
  {
    ASSERT_OK_AND_ASSIGN(Store store, Store::Open(own_));
    const std::vector<float> frozen(100, 1.0f);
    for (const std::int64_t step : {30, 10}) {  // 10 is one of both now.
      StepBuilder builder = store.Begin(step, {.branch = "br"});
      builder.Put("frozen", {.dtype = DType::kFloat32,
                             .shape = {step == 30 ? 100 : 50},
                             .data = frozen.data()});
      builder.PutFloat("lr", static_cast<double>(step));
      ASSERT_OK(std::move(builder).Commit().WaitCommitted(absl::Minutes(1)));
    }
    ASSERT_OK(store.Close());
  }
  EXPECT_EQ(Csv({"blame", "br/30"}, "key,since,since_branch"),
            "frozen,10,\nlr,30,br\n");
  const std::string table = Do({"blame", "br/30"}).out;
  EXPECT_THAT(table, HasSubstr("\n   10  yes     frozen"));
  EXPECT_THAT(table, HasSubstr("\nbr/30  yes     lr"));
  EXPECT_THAT(Do({"show", "br/30:lr"}).out, HasSubstr("step br/30\n"));
  EXPECT_THAT(Do({"show", "br/10:frozen"}).out, HasSubstr("step br/10\n"));
  EXPECT_THAT(Do({"show", "br/30:frozen"}).out, HasSubstr("step 10\n"));
}

TEST_F(HistoryTest, NoneIsAValue) {
  ASSERT_OK_AND_ASSIGN(Store store, Store::Open(own_));
  for (std::int64_t step = 60; step <= 90; step += 10) {
    StepBuilder builder = store.Begin(step);
    if (step < 80) {
      builder.PutNode("best", EntryKind::kNone);
    } else {
      builder.PutFloat("best", 0.5);
    }
    builder.PutNode("params", EntryKind::kTuple);
    ASSERT_OK(std::move(builder).Commit().WaitCommitted(absl::Minutes(1)));
  }
  ASSERT_OK_AND_ASSIGN(const Path best, Path::Parse("best"));
  ASSERT_OK_AND_ASSIGN(const std::vector<HistoryEntry> entries,
                       History(store, best));
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_EQ(entries[0].leaf.kind, EntryKind::kNone);
  EXPECT_EQ(entries[0].last_step, 70);
  EXPECT_EQ(entries[0].detail.bytes, 0u);
  EXPECT_EQ(entries[1].leaf.kind, EntryKind::kFloat);
  EXPECT_EQ(entries[1].first_step, 80);
  ASSERT_OK_AND_ASSIGN(const Path params, Path::Parse("params"));
  EXPECT_THAT(
      History(store, params),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("is no leaf")));

  // Nothing was put there itself.
  ASSERT_OK_AND_ASSIGN(Path below, Path::Parse("a/b/c"));
  StepBuilder deep = store.Begin(900);
  deep.PutInt(below, 1).PutNode("params", EntryKind::kTuple);
  deep.PutFloat("best", 0.5);
  ASSERT_OK(deep.Commit().WaitCommitted());
  EXPECT_THAT(History(store, "a/b"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("a/b is no leaf: it is a subtree of 1 leaf")));
  EXPECT_THAT(History(store, "a/x"), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(store.OpenStep(900)->Read<std::int64_t>("a"),
              StatusIs(absl::StatusCode::kNotFound,
                       HasSubstr("a subtree of 1 leaf; name one, as a/b/c")));
  ASSERT_OK(store.Delete(900));

  ASSERT_OK_AND_ASSIGN(const Step none, store.OpenStep(AtStep(60)));
  ASSERT_OK_AND_ASSIGN(const Step still, store.OpenStep(AtStep(70)));
  ASSERT_OK_AND_ASSIGN(const Step half, store.OpenStep(AtStep(80)));
  ASSERT_OK_AND_ASSIGN(DiffReport report, Diff(none, still));
  EXPECT_TRUE(report.changes.empty());
  EXPECT_EQ(report.same, 0u);
  ASSERT_OK_AND_ASSIGN(report, Diff(none, half));
  ASSERT_EQ(report.changes.size(), 1u);
  EXPECT_EQ(report.changes[0].kind, LeafChange::Kind::kRetyped);
  EXPECT_EQ(report.changes[0].before->kind, EntryKind::kNone);
  ASSERT_OK_AND_ASSIGN(const std::vector<BlameEntry> blamed,
                       Blame(store, none));
  EXPECT_TRUE(blamed.empty());
}

}  // namespace
}  // namespace ckptree
