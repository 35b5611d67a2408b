// SPDX-License-Identifier: Apache-2.0

// `ckptree sql`.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "ckptree/ckptree.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/testutil/sanitizer.h"
#include "tests/testutil/status_matchers.h"
#include "tests/tools/command_runner.h"

namespace ckptree {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

class SqlTest : public CommandRunner {
 protected:
  void SetUp() override {
    MakeStore(store_);
    if (Run({"-C", store_, "sql", "select 1"}).err.find("without SQLite") !=
        std::string::npos) {
      GTEST_SKIP() << "built without SQLite";
    }
  }

  std::string Csv(const std::string& query) {
    const Result result =
        Run({"-C", store_, "sql", query, "-o", "csv", "--no-header"});
    EXPECT_EQ(result.code, 0) << result.err;
    return result.out;
  }

  const std::string store_ = scratch_ / "store";
};

TEST_F(SqlTest, TitlesDriveNoTerminal) {
  const Result result = Run({"-C", store_, "sql", "select 1 as \"a\x1b[31m\""});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.out.find('\x1b'), std::string::npos) << result.out;
}

TEST_F(SqlTest, EachTable) {
  EXPECT_EQ(Csv("select step from steps order by step desc limit 2"),
            "500\n400\n");
  EXPECT_EQ(Csv("select count(*) from steps where pinned"), "1\n");
  EXPECT_EQ(Csv("select step from metrics where name='loss' and value>0.1"),
            "400\n");
  EXPECT_EQ(Csv("select * from tags"), "warm,,200\n");
  EXPECT_EQ(Csv("select dtype, shape from leaves "
                "where step=100 and key='params/w'"),
            "float32,\"[64,48]\"\n");
  EXPECT_EQ(Csv("select kind from leaves where step=100 and key='lr'"),
            "float\n");
  EXPECT_EQ(Csv("select step, nan from stats where key='params/w' "
                "and nan>0"),
            "300,1\n");
  EXPECT_EQ(Csv("select distinct since from stats where key='params/frozen'"),
            "100\n");
  // One value of steps whose numbers do not follow each other.
  EXPECT_EQ(Csv("select step from stats where key='params/frozen'"),
            "100\n200\n300\n400\n500\n");
}

// SQLite puts several look-ups of one table together by what a row is known by:
// the same as where it may look up nothing ("+column").
TEST_F(SqlTest, LookUpsThatAreJoinedGiveEachRowOnce) {
  const std::vector<std::string> queries = {
      "select step, key from stats where (Lstep=100 and Lkey='params/w') "
      "or (Lstep=200 and Lkey='params/w')",
      "select step, key from stats where Lstep=300 or Lkey='params/frozen'",
      "select distinct step from stats where Lstep in (100, 200) or Lstep=300",
      "select step, key from leaves where Lstep=300 or Lkey='lr'",
      "select step from steps where (Lstep=100 and Lbranch='') "
      "or (Lstep=300 and Lbranch='')",
      "select step, name, value from metrics where Lstep=100 or Lstep=400",
      "select a.step, b.name from steps a full join metrics b "
      "on La.step=b.step and La.branch=b.branch and b.name='loss'",
      "select a.step, b.step from steps a right join steps b "
      "on La.step=b.step and La.branch=b.branch",
      "select a.step, b.name from steps a full join tags b on La.step=b.step"};
  for (const std::string& query : queries) {
    std::map<std::string, std::vector<std::string>> answers;
    for (const std::string with : {"", "+"}) {
      std::string asked = query;
      for (std::size_t at = asked.find('L'); at != asked.npos;
           at = asked.find('L', at)) {
        asked.replace(at, 1, with);
      }
      answers[with] = absl::StrSplit(Csv(asked), '\n');
      std::sort(answers[with].begin(), answers[with].end());
    }
    EXPECT_GT(answers["+"].size(), 2u) << query;
    EXPECT_EQ(answers[""], answers["+"]) << query;
  }
}

// It is bytes of an array in the store, and a number to everybody else.
TEST_F(SqlTest, AnIntOfMoreThan64BitsIsNoArray) {
  const std::string store = scratch_ / "ints";
  {
    ASSERT_OK_AND_ASSIGN(Store made,
                         Store::Open(store, {.create_if_missing = true}));
    for (const std::uint8_t step : std::vector<std::uint8_t>{1, 2}) {
      std::vector<std::uint8_t> bytes(13, step);
      const std::vector<float> w(2, step);
      StepBuilder builder = made.Begin(step);
      builder.Put("big", {.dtype = DType::kUint8,
                          .shape = {13},
                          .data = bytes.data(),
                          .tag = "int"});
      builder.Put("w",
                  {.dtype = DType::kFloat32, .shape = {2}, .data = w.data()});
      ASSERT_OK(std::move(builder).Commit().WaitCommitted(absl::Minutes(1)));
    }
    ASSERT_OK(made.Close());
  }
  const auto in = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {"-C", store});
    return Run(std::move(words));
  };
  EXPECT_EQ(
      in({"sql", "select key, kind, dtype, shape from leaves where step=2",
          "-o", "csv", "--no-header"})
          .out,
      "big,int,,\nw,array,float32,[2]\n");
  EXPECT_EQ(
      in({"sql", "select key from stats", "-o", "csv", "--no-header"}).out,
      "w\nw\n");
  EXPECT_EQ(in({"sql", "select key from stats where key='big'", "-o", "csv",
                "--no-header"})
                .out,
            "");
  EXPECT_THAT(in({"stat"}).out, AllOf(HasSubstr("1 array, 2 elements"),
                                      ::testing::Not(HasSubstr("uint8"))));
  const Result histogram = in({"hist", "big"});
  EXPECT_EQ(histogram.code, 2);
  EXPECT_THAT(histogram.err, HasSubstr("`big` is int"));
  const json changes =
      json::parse(in({"diff", "1", "2", "--values", "--json"}).out)["changes"];
  ASSERT_EQ(changes.size(), 2u);
  EXPECT_EQ(changes[0]["key"], "big");
  EXPECT_TRUE(changes[0]["max_abs"].is_null()) << changes[0];
  EXPECT_EQ(changes[1]["max_abs"], 1.0) << changes[1];
  const Result exported = in({"export", "latest", scratch_ / "w.npz"});
  EXPECT_EQ(exported.code, 0) << exported.err;
  EXPECT_THAT(exported.err,
              AllOf(HasSubstr("wrote 1 array"), HasSubstr("left out 1 leaf")));
}

// What a table looks up SQLite does not compare again.
TEST_F(SqlTest, AKeyIsTheTextOfAPath) {
  for (const char* table : {"stats", "leaves"}) {
    for (const auto& [key, rows] : {std::pair("'params/w'", 5),
                                    {"x'706172616d732f77'", 0},
                                    {"'\"params\"/w'", 0},
                                    {"'params/*'", 0},
                                    {"'params'", 0},
                                    {"7", 0},
                                    {"''", 0}}) {
      EXPECT_EQ(Csv(absl::StrFormat("select count(*) from %s where key=%s",
                                    table, key)),
                absl::StrFormat("%d\n", rows))
          << table << " " << key;
    }
  }
  EXPECT_EQ(Csv("select count(*) from stats where key='params/w' "
                "and branch=x''"),
            "0\n");
  EXPECT_EQ(Csv("select count(*) from stats where key='params/w' "
                "and branch=''"),
            "5\n");
}

// As a text, which it was once, it is above each number, and 0 in a sum.
TEST_F(SqlTest, NaNIsNullAndIsCounted) {
  {
    ASSERT_OK_AND_ASSIGN(Store store, Store::Open(store_));
    std::int64_t step = 1000;
    for (const double loss : {1.0, std::nan(""), 3.0}) {
      StepBuilder builder = store.Begin(step++);
      builder.PutInt("n", 1);
      builder.SetMetric("other", loss);
      ASSERT_OK(std::move(builder).Commit().WaitCommitted(absl::Minutes(1)));
    }
    ASSERT_OK(store.Close());
  }
  EXPECT_EQ(Csv("select avg(value), max(value), count(value), sum(nan) "
                "from metrics where name='other'"),
            "2.0,3.0,2,1\n");
  EXPECT_EQ(Csv("select count(*) from metrics where name='other' "
                "and value>2"),
            "1\n");
}

TEST_F(SqlTest, AgreesWithOtherVerbs) {
  // By the way of one key, of one step, and of all.
  const std::string by_key =
      Csv("select step, l2 from stats where key='params/w' order by step");
  EXPECT_EQ(by_key, Csv("select step, l2 from stats where key||''='params/w' "
                        "order by step"));
  const json rows = json::parse(Run({"-C", store_, "sql",
                                     "select key, l2, zeros from stats "
                                     "where step=500 and tie_to is null "
                                     "order by key",
                                     "--json"})
                                    .out);
  EXPECT_EQ(rows["schema"], "ckptree.sql/1");
  const json stat =
      json::parse(Run({"-C", store_, "stat", "--json", "--sort", "key"}).out);
  ASSERT_EQ(rows["rows"].size(), stat["arrays"].size());
  for (std::size_t i = 0; i < rows["rows"].size(); ++i) {
    for (const char* name : {"key", "l2", "zeros"}) {
      EXPECT_EQ(rows["rows"][i][name], stat["arrays"][i][name]) << i;
    }
  }
}

TEST_F(SqlTest, SinceIsOfEachStep) {
  const std::string folder = scratch_ / "zeros";
  ASSERT_OK_AND_ASSIGN(Store store,
                       Store::Open(folder, {.create_if_missing = true}));
  for (std::int64_t step = 1; step <= 3; ++step) {
    const std::vector<float> values(300, step == 2 ? 5.0f : 0.0f);
    StepBuilder builder = store.Begin(step);
    builder.Put(
        "a", {.dtype = DType::kFloat32, .shape = {300}, .data = values.data()});
    ASSERT_OK(std::move(builder).Commit().WaitCommitted(absl::Minutes(1)));
  }
  ASSERT_OK(store.Delete(2));
  ASSERT_OK(store.Close());
  EXPECT_EQ(
      Run({"-C", folder, "sql", "select step, since from stats where key='a'",
           "-o", "csv", "--no-header"})
          .out,
      "1,1\n3,3\n");
}

// Histories with overwritten steps, deleted ones, ties, and nodes where a leaf
// was. What they say is known here; since when is asked of `blame`.
TEST_F(SqlTest, AnswersDoNotDependOnTheForm) {
  enum Kind { kAbsent, kArray, kTie, kNode, kNumber };
  for (const unsigned seed : {1u, 2u, 3u, 4u, 5u, 6u}) {
    SCOPED_TRACE(seed);
    std::mt19937 chance(seed);
    const std::string folder = absl::StrFormat("%s%d", scratch_ / "h", seed);
    std::map<std::int64_t, std::pair<Kind, float>> model;  // Of `b`.
    ASSERT_OK_AND_ASSIGN(Store store,
                         Store::Open(folder, {.create_if_missing = true}));
    const auto any_to = [&](std::int64_t last) {
      return std::uniform_int_distribution<std::int64_t>(1, last)(chance);
    };
    const auto save = [&](std::int64_t step, bool overwrite) {
      const std::vector<float> values(300, static_cast<float>(chance() % 2));
      const Tensor tensor = {
          .dtype = DType::kFloat32, .shape = {300}, .data = values.data()};
      const auto kind = static_cast<Kind>(std::vector<int>{
          0, 1, 1, 1, 2, 2, seed % 2 == 0 ? 1 : 3, 4}[chance() % 8]);
      StepBuilder builder = store.Begin(step, {.overwrite = overwrite});
      builder.Put("a", tensor);
      if (kind == kArray) builder.Put("b", tensor);
      if (kind == kTie) builder.Tie("b", "a");
      if (kind == kNode) builder.Put("b/c", tensor);
      if (kind == kNumber) builder.PutInt("b", 1);
      ASSERT_OK(std::move(builder).Commit().WaitCommitted(absl::Minutes(1)));
      model[step] = {kind, values[0]};
    };
    for (std::int64_t step = 1; step <= 20; ++step) {
      save(step, false);
      if (chance() % 4 == 0) save(any_to(step), true);
      if (chance() % 4 == 0) {
        const std::int64_t gone = any_to(step);
        if (model.erase(gone) > 0) {
          ASSERT_OK(store.Delete(gone));
        }
      }
    }
    ASSERT_OK(store.Close());
    std::string expected;
    for (const auto& [step, is] : model) {
      if (is.first != kArray && is.first != kTie) continue;
      const json blame = json::parse(
          Run({"-C", folder, "blame", absl::StrFormat("%d:b", step), "--json"})
              .out);
      absl::StrAppendFormat(&expected, "%d,%d,%.1f\n", step,
                            blame["leaves"][0]["since"].get<std::int64_t>(),
                            is.second);
    }
    ASSERT_NE(expected, "");
    for (const char* form : {"key='b'", "key||''='b'", "key like 'b'",
                             "key='b' and branch=''", "key='b' and step>0"}) {
      EXPECT_EQ(
          Run({"-C", folder, "sql",
               absl::StrFormat("select step, since, max from stats where %s "
                               "order by step",
                               form),
               "-o", "csv", "--no-header"})
              .out,
          expected)
          << form;
    }
    // `find` reads one leaf in the same way, unless others are below it.
    const auto found = [&](const std::string& keys) {
      return Run({"-C", folder, "find", "count==300", "-k", keys, "-o", "csv",
                  "--columns", "key,first,last,steps"})
          .out;
    };
    EXPECT_EQ(found("b"), found("re:^b(/c)?$"));
    EXPECT_THAT(found("b"), HasSubstr(absl::StrFormat(
                                ",%d\n", std::ranges::count(expected, '\n'))));
  }
}

// No more is asked than is shown: of a query that never ends, too.
TEST_F(SqlTest, RowsComeAsTheyAreMade) {
  const std::string endless =
      "with recursive n(i) as (select 1 union all select i+1 from n) "
      "select i from n";
  for (const char* format : {"csv", "tsv", "ndjson", "json", "table", "md"}) {
    const Result result =
        Run({"-C", store_, "sql", endless, "-n", "3", "-o", format});
    EXPECT_EQ(result.code, 0) << format << result.err;
    EXPECT_THAT(result.out,
                AllOf(HasSubstr("3"), ::testing::Not(HasSubstr("4"))))
        << format;
  }
  const std::string out = scratch_ / "piped";
  for (const char* format : {"csv", "tsv", "ndjson", "json"}) {
    const std::string command =
        absl::StrFormat("%s -C '%s' sql '%s' -o %s | head -2 > '%s'",
                        CKPTREE_BINARY, store_, endless, format, out);
    ASSERT_EQ(std::system(command.c_str()), 0);
    EXPECT_EQ(std::ranges::count(ReadFile(out), '\n'), 2) << format;
  }
  // Of many rows none is lost between the pieces.
  const std::string many =
      Csv("with recursive n(i) as (select 1 union all select i+1 from n "
          "where i<5000) select i from n");
  std::string expected;
  for (int i = 1; i <= 5000; ++i) expected += absl::StrFormat("%d\n", i);
  EXPECT_EQ(many, expected);
  // An error behind the first rows is one.
  const Result wrong =
      Run({"-C", store_, "sql",
           "with recursive n(i) as (select 1 union all select i+1 from n "
           "where i<5000) select abs(i - 4000 - 9223372036854775807 - 1) "
           "from n",
           "-o", "csv"});
  EXPECT_EQ(wrong.code, 2);
  EXPECT_THAT(wrong.err, HasSubstr("integer overflow"));
}

TEST_F(SqlTest, WithoutMemoryThereIsAMessage) {
  if (testing::kAddressSanitizer) GTEST_SKIP() << "it takes all memory itself";
  const std::string err = scratch_ / "no_memory";
  // A million bytes a row, and an order, which needs all rows.
  const std::string command = absl::StrFormat(
      "ulimit -c 0; ulimit -v 2000000; exec %s -C '%s' sql \"with recursive "
      "n(i) as (select 1 union all select i+1 from n) select i, "
      "printf('%%.*c', 1000000, 'x') from n\" -o csv --sort i > /dev/null "
      "2> '%s'",
      CKPTREE_BINARY, store_, err);
  const int status = std::system(command.c_str());
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 2) << ReadFile(err);
  EXPECT_THAT(ReadFile(err), HasSubstr("not enough memory"));
}

TEST_F(SqlTest, BlobsArePrintedAsTheirDigits) {
  const std::string query = "select x'00ff80' as b, 'text' as t, x'' as e";
  EXPECT_EQ(Csv(query), "00FF80,text,\n");
  const json rows =
      json::parse(Run({"-C", store_, "sql", query, "--json"}).out)["rows"];
  EXPECT_EQ(rows[0]["b"], "00FF80");
  EXPECT_EQ(rows[0]["e"], "");
}

TEST_F(SqlTest, TimesSortAsTexts) {
  EXPECT_EQ(Csv("select step from steps order by committed, step"),
            Csv("select step from steps order by julianday(committed), step"));
  EXPECT_EQ(Csv("select count(*) from steps where "
                "julianday(committed) > julianday('2020-01-01 23:00')"),
            "5\n");
  EXPECT_EQ(Csv("select distinct length(committed) from steps"), "24\n");
}

TEST_F(SqlTest, Branches) {
  ASSERT_EQ(Run({"-C", store_, "fork", "300", "-b", "trial"}).code, 0);
  {
    ASSERT_OK_AND_ASSIGN(Store store, Store::Open(store_));
    const float one = 1;
    StepBuilder builder = store.Begin(300, {.branch = "trial"});
    builder.Put("params/w", {.dtype = DType::kFloat32, .data = &one});
    ASSERT_OK(std::move(builder).Commit().WaitCommitted(absl::Minutes(1)));
    ASSERT_OK(store.Close());
  }
  EXPECT_EQ(Csv("select branch, count from stats where key='params/w' "
                "and step=300"),
            ",3072\ntrial,1\n");
  EXPECT_EQ(Csv("select step from stats where key='params/w' "
                "and branch='trial'"),
            "300\n");
  EXPECT_EQ(Csv("select step from stats where key='nothing'"), "");
  EXPECT_EQ(Csv("select step from steps where step='x' or step=-1"), "");
  // As a column of whole numbers compares, and no table of ours knows better.
  const std::string of_300 = Csv("select key from stats where step+0=300");
  EXPECT_NE(of_300, "");
  for (const char* same : {"300", "300.0", "'300'", "'300.0'", "3e2"}) {
    EXPECT_EQ(Csv(absl::StrFormat("select key from stats where step=%s", same)),
              of_300);
  }
  EXPECT_EQ(Csv("select key from stats where step=300.5"), "");
  EXPECT_EQ(Csv("select count(*) from stats where step=300 and "
                "key='PARAMS/W' collate nocase"),
            "2\n");
}

TEST_F(SqlTest, NothingButReading) {
  const std::string file = scratch_ / "out.db";
  const auto refused = [this](const std::string& query,
                              const std::string& text) {
    const Result result = Run({"-C", store_, "sql", query});
    EXPECT_EQ(result.code, 2) << query << ": " << result.out;
    EXPECT_THAT(result.err, HasSubstr(text)) << query;
    EXPECT_EQ(result.out, "");
  };
  const std::string more = "does more than read";
  refused("attach '" + file + "' as x", more);
  refused("create table x(y)", more);
  refused("insert into steps values (1)", "");
  refused("delete from steps", "");
  refused("pragma writable_schema=1", more);
  refused("vacuum into '" + file + "'", "");
  refused("select load_extension('x')", "");
  refused("select 1; select 2", "one SELECT");
  refused("", "an empty word");
  refused("select ?", "parameter");
  refused("select missing from steps", "no such column: missing");
  refused("select missing from steps",
          "no such column: missing\n"
          "  select missing from steps\n"
          "         ^\n");
  refused("select 'ä', missing from steps",
          "\n  select 'ä', missing from steps\n              ^\n");
  refused("selec 1", "syntax error");
  refused("select \"text\"", "no such column");
  EXPECT_FALSE(std::filesystem::exists(file));
  EXPECT_EQ(Run({"-C", store_, "sql"}).code, 2);
  EXPECT_EQ(Run({"-C", scratch_ / "no", "sql", "select 1"}).code, 3);
  EXPECT_EQ(Csv("select 1 as a, 2 as a"), "1,2\n");
}

}  // namespace
}  // namespace ckptree
