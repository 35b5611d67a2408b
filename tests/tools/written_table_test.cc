// SPDX-License-Identifier: Apache-2.0

// Tables whose first rows are written before the last are read.

#include "tools/output/written_table.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "core/engine/leaf_pieces.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testutil/flip_byte.h"
#include "tests/testutil/status_matchers.h"
#include "tests/tools/command_runner.h"

namespace ckptree::tools {
namespace {

using ckptree::testing::IsOk;
using ckptree::testing::StatusIs;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr std::size_t kPiece = 1500;
constexpr std::size_t kRows = 5 * kPiece;

class WrittenTableTest : public ::testing::Test {
 protected:
  // Of `rows` rows that come by pieces; one of them is `wide_` wide.
  Table TableOf(std::size_t rows) {
    Table table;
    table.schema = "ckptree.test/1";
    table.rows_name = "rows";
    table.extra["step"] = 7;
    table.columns = {{.name = "key", .title = "KEY", .elide = true},
                     {.name = "count", .title = "COUNT", .right = true},
                     {.name = "note", .title = "NOTE"}};
    table.more_rows = [this, rows](std::size_t written,
                                   std::size_t* late) -> absl::StatusOr<bool> {
      ++reads_;
      written_ = written;
      if (on_read_) on_read_();
      if (reads_ == fails_at_) return absl::DataLossError("piece is damaged");
      *late = std::min(rows, *late + piece_);
      return *late < rows;
    };
    table.make_row = [this](std::size_t row, std::vector<Cell>* cells) {
      EXPECT_GE(row, written_);
      std::string key = absl::StrFormat("leaf%05d", row);
      if (row == wide_) key += ", which has a name that is longer";
      cells->push_back(TextCell(key));
      cells->push_back(CountCell(row));
      cells->push_back(TextCell(row % 7 == 0 ? "a|b" : "x"));
    };
    return table;
  }

  // As a whole, however long it is.
  std::string Whole(std::size_t rows, const TableOptions& options) {
    Table table = TableOf(rows);
    while (table.more_rows(0, &table.late_rows).value()) {
    }
    table.more_rows = nullptr;
    reads_ = 0;
    return Render(std::move(table), options, terminal_).value();
  }

  std::string Written() {
    std::string text(1 << 22, '\0');
    const ssize_t n = pread(file_, text.data(), text.size(), 0);
    text.resize(static_cast<std::size_t>(std::max<ssize_t>(n, 0)));
    return text;
  }

  absl::Status Write(Table table, const TableOptions& options) {
    EXPECT_EQ(ftruncate(file_, 0), 0);
    EXPECT_EQ(lseek(file_, 0, SEEK_SET), 0);
    ByteSink sink(file_);
    absl::Status status =
        WriteTable(std::move(table), options, terminal_, nullptr, &sink);
    sink.Flush().IgnoreError();
    return status;
  }

  testing::TempDir scratch_;
  const int file_ =
      open((scratch_ / "text").c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
  Terminal terminal_;
  std::size_t piece_ = kPiece;
  std::size_t wide_ = kRows;
  int reads_ = 0;
  std::size_t written_ = 0;  // As the last read was told.
  int fails_at_ = 0;
  std::function<void()> on_read_;
};

TEST_F(WrittenTableTest, TheFirstRowsAreWrittenBeforeTheNextAreRead) {
  std::vector<std::size_t> written, rows;
  on_read_ = [&] {
    written.push_back(Written().size());
    rows.push_back(written_);
  };
  ASSERT_THAT(Write(TableOf(kRows), {}), IsOk());
  EXPECT_EQ(rows, (std::vector<std::size_t>{0, kPiece, 2 * kPiece, 3 * kPiece,
                                            4 * kPiece}));
  ASSERT_EQ(written.size(), 5u);
  EXPECT_EQ(written[0], 0u);
  for (std::size_t i = 1; i < written.size(); ++i) {
    EXPECT_GT(written[i], written[i - 1]);
  }
}

TEST_F(WrittenTableTest, PiecesMakeUpTheText) {
  for (const Format format : {Format::kTable, Format::kJson, Format::kNdjson,
                              Format::kCsv, Format::kTsv, Format::kMarkdown}) {
    for (const bool header : {true, false}) {
      for (const std::vector<std::string>& columns :
           {std::vector<std::string>(), {"count", "key"}}) {
        // The count of the last is no wider than that of the first.
        TableOptions options;
        options.format = format;
        options.header = header;
        options.columns = columns;
        for (const std::size_t rows : {std::size_t{0}, kRowsOfWhole, kRows}) {
          const std::string whole = Whole(rows, options);
          ASSERT_THAT(Write(TableOf(rows), options), IsOk());
          EXPECT_EQ(Written(), whole) << static_cast<int>(format) << rows;
        }
      }
    }
  }
}

TEST_F(WrittenTableTest, ShortTablesAreSetAsAWhole) {
  piece_ = 100;
  wide_ = kRowsOfWhole - 1;
  ASSERT_THAT(Write(TableOf(kRowsOfWhole), {}), IsOk());
  EXPECT_EQ(Written(), Whole(kRowsOfWhole, {}));
}

TEST_F(WrittenTableTest, ProgramsWaitForNoMoreThanARow) {
  piece_ = 1;
  for (const Format format :
       {Format::kJson, Format::kNdjson, Format::kCsv, Format::kMarkdown}) {
    TableOptions options;
    options.format = format;
    const std::string whole = Whole(3, options);
    std::vector<std::size_t> written;
    on_read_ = [&] { written.push_back(Written().size()); };
    ASSERT_THAT(Write(TableOf(3), options), IsOk());
    ASSERT_EQ(written.size(), 3u);
    EXPECT_EQ(written[0], 0u);
    EXPECT_GT(written[1], 0u);
    EXPECT_GT(written[2], written[1]);
    EXPECT_EQ(Written(), whole);
    // A pager is asked once it is known how many lines there are.
    terminal_ = {.is_terminal = true, .utf8 = true, .width = 80};
    written.clear();
    reads_ = 0;
    ASSERT_THAT(Write(TableOf(3), options), IsOk());
    EXPECT_EQ(written, (std::vector<std::size_t>{0, 0, 0}));
    terminal_ = {};
    on_read_ = nullptr;
  }
}

TEST_F(WrittenTableTest, AWideRowWidensWhatFollows) {
  wide_ = 2 * kPiece;
  ASSERT_THAT(Write(TableOf(kRows), {}), IsOk());
  const std::vector<std::string> lines = absl::StrSplit(Written(), '\n');
  const auto column_of = [&](std::size_t row) {
    return lines[row + 1].find(absl::StrCat(" ", row, "  ")) +
           absl::StrCat(row).size();
  };
  EXPECT_EQ(column_of(1200), column_of(2 * kPiece - 1));
  EXPECT_GT(column_of(2 * kPiece), column_of(2 * kPiece - 1));
  EXPECT_EQ(column_of(2 * kPiece), column_of(kRows - 1));
  EXPECT_THAT(lines[wide_ + 1], StartsWith("leaf03000, which has"));
}

TEST_F(WrittenTableTest, ATerminalShortensWhatComesLater) {
  terminal_ = {.is_terminal = true, .utf8 = true, .width = 30};
  wide_ = 2 * kPiece;
  ASSERT_THAT(Write(TableOf(kRows), {}), IsOk());
  const std::vector<std::string> lines = absl::StrSplit(Written(), '\n');
  EXPECT_THAT(lines[wide_ + 1], HasSubstr("…"));
  EXPECT_EQ(lines[wide_ + 1].find(" 3000"), lines[wide_].find(" 2999") + 2)
      << "the sign takes three bytes";
}

TEST_F(WrittenTableTest, WhatHadNoRoomIsSaidAtTheEnd) {
  terminal_ = {.is_terminal = true, .utf8 = true, .width = 40};
  Table table = TableOf(kRows);
  for (const char* name : {"one", "two", "six"}) {
    table.columns.push_back({.name = name, .title = "A LONG TITLE"});
  }
  table.make_row = [make = table.make_row](std::size_t row,
                                           std::vector<Cell>* cells) {
    make(row, cells);
    cells->resize(6, NoCell());
  };
  ASSERT_THAT(Write(std::move(table), {}), IsOk());
  const std::string text = Written();
  EXPECT_EQ(text.find("(--full also shows "), text.rfind("(--full"));
  const std::vector<std::string> lines = absl::StrSplit(text, '\n');
  ASSERT_EQ(lines.size(), kRows + 3);
  EXPECT_THAT(lines[kRows + 1], StartsWith("(--full also shows "));
}

TEST_F(WrittenTableTest, ALimitReadsNoMore) {
  TableOptions options;
  options.limit = 10;
  ASSERT_THAT(Write(TableOf(kRows), options), IsOk());
  EXPECT_EQ(reads_, 1);
  options.limit = 2 * kPiece + 1;
  reads_ = 0;
  ASSERT_THAT(Write(TableOf(kRows), options), IsOk());
  EXPECT_EQ(reads_, 3);
  EXPECT_EQ(Written(), Whole(kRows, options));
}

TEST_F(WrittenTableTest, AnOrderAndAConditionNeedAllRows) {
  std::size_t written = 0;
  on_read_ = [&] { written = Written().size(); };
  TableOptions sorted, reversed, chosen;
  sorted.sort = "count";
  sorted.descending = true;
  reversed.reverse = true;
  chosen.where = Expression::Parse("count>7000").value();
  for (TableOptions* options : {&sorted, &reversed, &chosen}) {
    options->limit = 2;
    reads_ = 0;
    ASSERT_THAT(Write(TableOf(kRows), *options), IsOk());
    EXPECT_EQ(reads_, 5);
    EXPECT_EQ(written, 0u);
    EXPECT_EQ(Written(), Whole(kRows, *options));
  }
}

TEST_F(WrittenTableTest, WhatIsKnownAtTheEndStandsBehindTheRows) {
  TableOptions json;
  json.format = Format::kJson;
  for (const std::size_t rows : {std::size_t{0}, std::size_t{5}, kRows}) {
    for (const int limit : {0, 3, 10000}) {
      json.limit = limit;
      Table table = TableOf(rows);
      int asked = 0;
      std::size_t first_bytes = 0;
      table.ending = [&]() -> absl::StatusOr<Json> {
        ++asked;
        first_bytes = Written().size();
        return Json::object({{"reads", reads_}, {"names", {"a", "b"}}});
      };
      reads_ = 0;
      ASSERT_THAT(Write(std::move(table), json), IsOk());
      EXPECT_EQ(asked, 1);
      EXPECT_EQ(first_bytes > 0, rows == kRows && limit == 10000);
      const Json document = Json::parse(Written());
      EXPECT_EQ(document["reads"], reads_);
      EXPECT_EQ(document["names"], Json({"a", "b"}));
      EXPECT_EQ(document["rows"].size(),
                std::min(rows, static_cast<std::size_t>(limit)));
      std::vector<std::string> names;
      for (const auto& [name, value] : document.items()) names.push_back(name);
      EXPECT_EQ(names, (std::vector<std::string>{"schema", "step", "rows",
                                                 "reads", "names"}));
      // Members are set as if all had been known before.
      EXPECT_EQ(Written(), document.dump(2) + "\n");
    }
  }
  // Other formats do not ask; an error is one of the whole.
  TableOptions lines = json;
  lines.format = Format::kNdjson;
  Table table = TableOf(kRows);
  table.ending = [] { return absl::DataLossError("the rest is damaged"); };
  EXPECT_THAT(Write(table, lines), IsOk());
  EXPECT_THAT(Write(table, json), StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_THAT(Written(), Not(EndsWith("}\n")));
}

TEST_F(WrittenTableTest, AnErrorOfALaterPieceComesBehindTheFirst) {
  TableOptions json;
  json.format = Format::kJson;
  fails_at_ = 3;
  EXPECT_THAT(Write(TableOf(kRows), json),
              StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_EQ(reads_, 3);
  EXPECT_THAT(Written(), HasSubstr("leaf02999"));
  EXPECT_THAT(Written(), Not(HasSubstr("leaf03000")));
  EXPECT_THAT(Written(), Not(EndsWith("]\n}\n")));
  // Of the first one nothing is written.
  reads_ = 0;
  fails_at_ = 1;
  EXPECT_THAT(Write(TableOf(kRows), json),
              StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_EQ(Written(), "");
}

TEST_F(WrittenTableTest, WhoReadsNoMoreEndsTheReading) {
  std::signal(SIGPIPE, SIG_IGN);
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  close(ends[0]);
  ByteSink sink(ends[1]);
  EXPECT_THAT(WriteTable(TableOf(kRows), {}, terminal_, nullptr, &sink),
              IsOk());
  EXPECT_EQ(reads_, 1);
  EXPECT_TRUE(sink.broken_pipe());
  close(ends[1]);
}

std::size_t Lines(const std::string& text) {
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

class LongStepTest : public CommandRunner {
 protected:
  static constexpr std::size_t kLeaves = 20000;

  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(store_,
                         Store::Open(path_, {.create_if_missing = true}));
    StepBuilder builder = store_->Begin(1);
    const float one = 1;
    for (std::size_t i = 0; i < kLeaves; ++i) {
      builder.Put(absl::StrFormat("leaf%05d", i),
                  {.dtype = DType::kFloat32, .shape = {1}, .data = &one});
    }
    builder.PutNode("nothing", EntryKind::kNone);
    ASSERT_THAT(std::move(builder).Commit().WaitCommitted(), IsOk());
  }

  const std::string path_ = scratch_ / "long";
  std::optional<Store> store_;
};

TEST_F(LongStepTest, PiecesMakeUpTheLeaves) {
  ASSERT_OK_AND_ASSIGN(const Step step, store_->OpenStep(1));
  ASSERT_OK_AND_ASSIGN(const std::vector<LeafInfo> all, step.Leaves());
  internal::LeafPieces pieces(step);
  std::vector<std::string> names, wanted;
  ASSERT_OK_AND_ASSIGN(std::vector<LeafInfo> next, pieces.Next(100));
  EXPECT_GE(next.size(), 100u);
  EXPECT_LT(next.size(), kLeaves / 2);
  while (!next.empty()) {
    for (const LeafInfo& leaf : next) names.push_back(leaf.name);
    ASSERT_OK_AND_ASSIGN(next, pieces.Next(3000));
  }
  for (const LeafInfo& leaf : all) wanted.push_back(leaf.name);
  EXPECT_EQ(names, wanted);
}

TEST_F(LongStepTest, VerbsShowAllOfIt) {
  const Result ls = Run({"-C", path_, "ls"});
  EXPECT_EQ(Lines(ls.out), kLeaves + 1);
  EXPECT_THAT(ls.out, HasSubstr("\nleaf19999  float32"));
  const Json of_ls = Json::parse(Run({"-C", path_, "ls", "--json"}).out);
  EXPECT_EQ(of_ls["leaves"].size(), kLeaves);
  const Result blame = Run({"-C", path_, "blame"});
  EXPECT_EQ(Lines(blame.out), kLeaves + 1);
  EXPECT_THAT(blame.out, HasSubstr("yes     leaf19999"));
  const Result stat = Run({"-C", path_, "stat"});
  EXPECT_EQ(Lines(stat.out), kLeaves + 2);
  EXPECT_THAT(stat.out, HasSubstr("\n1: 20000 arrays, 20000 elements"));
  // The totals are of all, wherever the list ends.
  EXPECT_THAT(Run({"-C", path_, "stat", "-n", "3"}).out,
              HasSubstr("\n1: 20000 arrays, 20000 elements"));
  const Json of_stat = Json::parse(Run({"-C", path_, "stat", "--json"}).out);
  EXPECT_EQ(of_stat["arrays"].size(), kLeaves);
  EXPECT_EQ(of_stat["totals"]["float32"]["arrays"], kLeaves);
  const Json short_stat =
      Json::parse(Run({"-C", path_, "stat", "--json", "-n", "3"}).out);
  EXPECT_EQ(short_stat["arrays"].size(), 3u);
  EXPECT_EQ(short_stat["totals"], of_stat["totals"]);
}

// Three steps, in each of which all leaves are others; of the last one there is
// a NaN in the third.
class LongDiffTest : public CommandRunner {
 protected:
  static constexpr std::size_t kLeaves = 20000;

  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(Store store,
                         Store::Open(path_, {.create_if_missing = true}));
    std::vector<float> last(kLast.size() / sizeof(float));
    for (int step = 1; step <= 3; ++step) {
      StepBuilder builder = store.Begin(step);
      const auto value = static_cast<float>(step);
      for (std::size_t i = 0; i + 1 < kLeaves; ++i) {
        builder.Put(absl::StrFormat("leaf%05d", i),
                    {.dtype = DType::kFloat32, .shape = {1}, .data = &value});
      }
      // Found in a file by these bytes.
      std::memcpy(last.data(), kLast.data(), kLast.size());
      last[0] = step == 3 ? std::nanf("") : value;
      builder.Put("leaf19999",
                  {.dtype = DType::kFloat32,
                   .shape = {static_cast<std::int64_t>(last.size())},
                   .data = last.data()});
      ASSERT_THAT(std::move(builder).Commit().WaitCommitted(), IsOk());
    }
    ASSERT_THAT(store.Close(), IsOk());
  }

  Result Diff(std::vector<std::string> words) {
    words.insert(words.begin(), {"-C", path_, "diff"});
    return Run(std::move(words));
  }

  // Flips a bit in each copy of the records of the last leaf.
  void DamageTheLast() {
    int found = 0;
    for (const auto& entry :
         std::filesystem::recursive_directory_iterator(path_)) {
      if (!entry.is_regular_file()) continue;
      const std::string bytes = ReadFile(entry.path());
      for (std::size_t at = bytes.find(kMark); at != bytes.npos;
           at = bytes.find(kMark, at + 1)) {
        testing::FlipByte(entry.path(), at);
        ++found;
      }
    }
    ASSERT_GT(found, 0);
  }

  static constexpr std::string_view kMark = "these bytes are in no other leaf";
  static constexpr std::string_view kLast =
      "1234these bytes are in no other leaf";
  const std::string path_ = scratch_ / "long";
};

TEST_F(LongDiffTest, ShowsAllOfIt) {
  const Result text = Diff({"1", "2"});
  EXPECT_EQ(text.code, 1);
  EXPECT_EQ(Lines(text.out), kLeaves + 2);
  EXPECT_THAT(text.out, HasSubstr("\nchanged  leaf19999  float32["));
  EXPECT_THAT(text.out, Not(HasSubstr("NAN")));
  const std::string summary =
      "1 -> 2: 20000 differences, 0 leaves are the same\n";
  EXPECT_THAT(text.out, EndsWith(summary));
  const Result json = Diff({"1", "2", "--json"});
  EXPECT_EQ(json.code, 1);
  const Json document = Json::parse(json.out);
  EXPECT_EQ(document["changes"].size(), kLeaves);
  EXPECT_EQ(document["same"], 0);
  EXPECT_THAT(json.out, EndsWith("\n  ],\n  \"same\": 0\n}\n"));
  // All are counted, wherever the list ends.
  const Result limited = Diff({"1", "2", "-n", "3"});
  EXPECT_EQ(limited.code, 1);
  EXPECT_EQ(Lines(limited.out), 5u);
  EXPECT_THAT(limited.out, EndsWith(summary));
  EXPECT_EQ(Diff({"1", "2", "-n", "0", "-o", "csv"}).code, 1);
  const Result one = Diff({"1:leaf19999", "2"});
  EXPECT_EQ(Lines(one.out), 3u);
  EXPECT_THAT(one.out, EndsWith("1 -> 2: 1 difference\n"));
}

// Which columns there are is known before the first row.
TEST_F(LongDiffTest, WhatIsNotFiniteAtTheEndHasColumns) {
  const Result result = Diff({"2", "3"});
  EXPECT_THAT(result.out.substr(0, result.out.find('\n')),
              HasSubstr("NAN AFTER"));
  EXPECT_THAT(result.out, HasSubstr("differences are of the finite elements"));
  // The leaf that has one is none of these.
  EXPECT_THAT(Diff({"2:leaf00007", "3"}).out, Not(HasSubstr("NAN AFTER")));
}

// It reads arrays until it is interrupted, and does not go on printing then.
TEST_F(LongDiffTest, CtrlCEndsItWhileNobodyReads) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  std::vector<std::string> words = {
      CKPTREE_BINARY, "-C", path_, "diff", "1", "2", "--values", "-o", "csv"};
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  pid_t pid = 0;
  ASSERT_EQ(posix_spawn(&pid, CKPTREE_BINARY, &actions, nullptr, argv.data(),
                        environ),
            0);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  char first = 0;
  // More than a pipe holds comes with it.
  ASSERT_EQ(read(ends[0], &first, 1), 1);
  EXPECT_EQ(kill(pid, SIGINT), 0);
  close(ends[0]);  // One that goes on ends by that.
  int status = 0;
  EXPECT_EQ(waitpid(pid, &status, 0), pid);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 128 + SIGINT);
}

// The first rows are written before the last are read.
TEST_F(LongDiffTest, RowsInFrontOfWhatIsDamagedAreWritten) {
  ASSERT_NO_FATAL_FAILURE(DamageTheLast());
  for (const char* const format : {"table", "csv", "ndjson", "json"}) {
    const Result result = Diff({"1", "2", "-o", format});
    EXPECT_EQ(result.code, 5) << format << result.err;
    EXPECT_THAT(result.out, HasSubstr("leaf00000")) << format;
    EXPECT_THAT(result.out, HasSubstr("leaf10000")) << format;
    EXPECT_THAT(result.out, Not(HasSubstr("leaf19999"))) << format;
    EXPECT_THAT(result.out, Not(HasSubstr("differences"))) << format;
  }
  // How many are the same is known behind the last.
  EXPECT_THAT(Diff({"1", "2", "--json"}).out, Not(HasSubstr("same")));
  const Result limited = Diff({"1", "2", "-o", "csv", "-n", "10"});
  EXPECT_EQ(limited.code, 1) << limited.err;
  EXPECT_EQ(Lines(limited.out), 11u);
}

}  // namespace
}  // namespace ckptree::tools
