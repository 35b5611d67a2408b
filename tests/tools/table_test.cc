// SPDX-License-Identifier: Apache-2.0

#include "tools/output/table.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testutil/status_matchers.h"
#include "tools/output/failure.h"
#include "tools/output/nearest.h"
#include "tools/output/printed_table.h"
#include "tools/output/quantity.h"

namespace ckptree::tools {
namespace {

using ckptree::testing::IsOkAndHolds;
using ckptree::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(EscapeTest, ControlCharactersNeverReachTheTerminal) {
  EXPECT_EQ(Escape("plain é 数"), "plain é 数");
  EXPECT_EQ(Escape("\x1b[31mred\n\t\r\x7f"), "\\x1b[31mred\\n\\t\\r\\x7f");
  EXPECT_EQ(Escape("\xc2\x9b"), "\\x9b");  // C1: CSI.
  EXPECT_EQ(Escape("a\xe2\x80\xae"
                   "b"),
            "a\\u202eb");  // Right to left.
  EXPECT_EQ(Escape("\xff\xc3(\xed\xa0\x80"),
            "\\xff\\xc3(\\xed\\xa0\\x80");  // No UTF-8.
  EXPECT_EQ(Escape(std::string("\0", 1)), "\\x00");
  EXPECT_EQ(EscapeLines("a\n\tb\x1b"), "a\n\tb\\x1b");
}

TEST(ElideTest, KeepsBothEnds) {
  EXPECT_EQ(ElideMiddle("short", 10, true), "short");
  EXPECT_EQ(ElideMiddle("params/block_7/attn/kernel", 13, true),
            "para…n/kernel");
  EXPECT_EQ(ElideMiddle("params/block_7/attn/kernel", 13, false),
            "par.../kernel");
  EXPECT_EQ(ElideMiddle("abcdef", 1, false), ".");
}

TEST(ErrorTextTest, CutsWhatIsTooLongInTheMiddle) {
  const std::string word(130000, 'x');
  const std::string text = ErrorText(
      WithHint(absl::NotFoundError("no key `a" + word + "b` in step 7"),
               "is `" + word + "` meant?"));
  EXPECT_LT(text.size(), 1000u);
  EXPECT_THAT(text, HasSubstr("no key `axxx"));
  EXPECT_THAT(text, HasSubstr("xxxb` in step 7\n"));
  EXPECT_THAT(text, HasSubstr("x` meant?\n"));
  // One of many words, and one with a place.
  std::string words;
  for (int i = 0; i < 65000; ++i) words += "x ";
  EXPECT_LT(ErrorText(absl::NotFoundError(words)).size(), 9000u);
  EXPECT_EQ(ErrorText(WithPlace(WithHint(absl::NotFoundError("a"), "b"), word)),
            "ckptree: a\n  b\n");
  // A path that a system takes is whole.
  const std::string path(900, 'p');
  EXPECT_THAT(ErrorText(absl::NotFoundError(path)), HasSubstr(path));
}

TEST(QuantityTest, SizesAgesAndTimes) {
  EXPECT_EQ(SizeText(0), "0 B");
  EXPECT_EQ(SizeText(1023), "1023 B");
  EXPECT_EQ(SizeText(1536), "1.5 KiB");
  EXPECT_EQ(SizeText(412ull << 20), "412 MiB");
  EXPECT_EQ(SizeText((1ull << 20) - 1), "1.0 MiB");
  EXPECT_EQ(SizeText(std::numeric_limits<std::uint64_t>::max()), "16 EiB");
  EXPECT_EQ(SizeText(1536, true), "1536");
  const absl::Time now = absl::FromUnixSeconds(2000000);
  const auto ago = [&](std::int64_t seconds) {
    return AgeText(absl::FromUnixSeconds(2000000 - seconds), now);
  };
  EXPECT_EQ(ago(0), "just now");
  EXPECT_EQ(ago(59), "59 s");
  EXPECT_EQ(ago(120), "2 min");
  EXPECT_EQ(ago(7200), "2 h");
  EXPECT_EQ(ago(86400 * 3), "3 days");
  EXPECT_EQ(ago(-5), "in the future");
  EXPECT_EQ(TimeText(absl::FromUnixMillis(1500000000250)),
            "2017-07-14T02:40:00.250Z");
  EXPECT_EQ(TimeText(absl::UnixEpoch()), "");
}

TEST(QuantityTest, TimesAndNumbersAreThoseOfTheLibraries) {
  std::mt19937_64 random(20261125);
  std::vector<std::int64_t> times = {
      -1, 1, 951782400000, 951868799999, 253402300799999, 253402300800000};
  for (int i = 0; i < 2000; ++i) {
    times.push_back(static_cast<std::int64_t>(random() % 400000000000000) -
                    100000000000000);
  }
  for (const std::int64_t ms : times) {
    const absl::Time time = absl::FromUnixMillis(ms) + absl::Microseconds(700);
    EXPECT_EQ(TimeText(time), absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", time,
                                               absl::UTCTimeZone()));
  }
  for (const absl::Time time : {absl::InfiniteFuture(), absl::InfinitePast()}) {
    EXPECT_EQ(TimeText(time), absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", time,
                                               absl::UTCTimeZone()));
  }
  for (int i = 0; i < 5000; ++i) {
    const auto bits = random();
    double value = 0;
    std::memcpy(&value, &bits, sizeof value);
    if (i % 2 == 0) value = static_cast<double>(bits >> 40) / 1000;
    if (!std::isfinite(value)) continue;
    EXPECT_EQ(ShortNumberText(value), absl::StrFormat("%.6g", value));
  }
  EXPECT_EQ(ShortNumberText(-0.0), "-0");
  EXPECT_EQ(SizeText(10 << 10), "10 KiB");
  EXPECT_EQ(SizeText((10 << 10) + 512), "10 KiB");  // Half to even, as %.0f.
  EXPECT_EQ(SizeText((11 << 10) + 512), "12 KiB");
}

TEST(NearestTest, FindsTypos) {
  const std::vector<std::string> names = {"log", "ls", "show", "verify"};
  EXPECT_EQ(Nearest("lss", names), "ls");
  EXPECT_EQ(Nearest("verfiy", names), "verify");
  EXPECT_EQ(Nearest("frobnicate", names), "");
}

Table Sample() {
  Table table;
  table.schema = "ckptree.sample/1";
  table.rows_name = "rows";
  table.extra["step"] = 7;
  table.columns = {{.name = "key", .title = "KEY", .elide = true},
                   {.name = "bytes", .title = "SIZE", .right = true},
                   {.name = "loss", .title = "loss", .right = true},
                   {.name = "hidden"}};
  table.rows = {{TextCell("params/a,b"), BytesCell(2048, false),
                 NumberCell(0.5), TextCell("x")},
                {TextCell("params/\x1b"), BytesCell(100, false),
                 NumberCell(std::nan("")), NoCell()}};
  return table;
}

TEST(TableTest, ForPeople) {
  ASSERT_OK_AND_ASSIGN(const std::string text, Render(Sample(), {}, {}));
  EXPECT_EQ(text,
            "KEY             SIZE  loss\n"
            "params/a,b   2.0 KiB   0.5\n"
            "params/\\x1b    100 B   nan\n");
}

// Rows that are made late are shown as others are, whatever is asked for.
TEST(TableTest, LateRowsAreShownAsOthers) {
  Table now = Sample();
  for (int i = 0; i < 50; ++i) {
    now.rows.push_back({TextCell(absl::StrFormat("params/%02d", i)),
                        CountCell(static_cast<std::uint64_t>(i * 7 % 50)),
                        NumberCell(i), NoCell()});
  }
  Table late = now;
  late.rows.resize(1);
  late.late_rows = now.rows.size() - 1;
  late.make_row = [&now](std::size_t row, std::vector<Cell>* cells) {
    EXPECT_TRUE(cells->empty());
    *cells = now.rows[row + 1];
  };
  int compared = 0;
  for (const Format format : {Format::kTable, Format::kJson, Format::kNdjson,
                              Format::kCsv, Format::kTsv, Format::kMarkdown}) {
    for (const char* where : {"", "bytes<20", "loss>3 and loss<9", "no=1"}) {
      for (const char* sort : {"", "bytes", "nothing"}) {
        for (const int limit : {-1, 0, 3, 1000}) {
          TableOptions options;
          options.format = format;
          options.sort = sort;
          options.reverse = compared % 2 == 0;
          if (*where != '\0') options.where = *Expression::Parse(where);
          if (limit >= 0) options.limit = limit;
          const auto expected = Render(now, options, {});
          const auto found = Render(late, options, {});
          EXPECT_EQ(found.status(), expected.status());
          if (expected.ok()) EXPECT_EQ(*found, *expected);
          if (expected.ok() && format == Format::kJson) {
            EXPECT_EQ(*found, Json::parse(*found).dump(2) + "\n");
          }
          compared += expected.ok() ? 1 : 0;
        }
      }
    }
  }
  EXPECT_GT(compared, 100);
}

// More rows than one thread makes, the widest of them near the end.
TEST(TableTest, ALongTableIsTheRowsOfShortOnes) {
  constexpr std::size_t kRows = 20000;
  Table table = Sample();
  table.rows.clear();
  table.late_rows = kRows;
  table.make_row = [](std::size_t row, std::vector<Cell>* cells) {
    const std::string key(row == kRows - 7 ? 30 : 1 + row % 9, 'k');
    cells->push_back(TextCell(key, row % 5 == 0 ? Tone::kBad : Tone::kPlain));
    cells->push_back(CountCell(row));
    cells->push_back(NumberCell(0.5));
    cells->push_back(NoCell());
  };
  Terminal terminal;
  terminal.color = true;
  ASSERT_OK_AND_ASSIGN(const std::string text, Render(table, {}, terminal));
  const std::vector<std::string> lines = absl::StrSplit(text, '\n');
  ASSERT_EQ(lines.size(), kRows + 2);
  EXPECT_EQ(lines.back(), "");
  for (std::size_t row = 0; row < kRows; ++row) {
    std::vector<Cell> cells;
    table.make_row(row, &cells);
    const std::string& key = cells[0].text;
    EXPECT_EQ(lines[row + 1],
              Paint(key, cells[0].tone, true) +
                  absl::StrFormat("%s%7d%6s", std::string(30 - key.size(), ' '),
                                  row, "0.5"));
  }
  TableOptions options;
  options.reverse = true;
  ASSERT_OK_AND_ASSIGN(const std::string reversed,
                       Render(table, options, terminal));
  EXPECT_TRUE(reversed.starts_with(lines[0] + "\n" + lines[kRows] + "\n"));
  EXPECT_TRUE(reversed.ends_with(lines[1] + "\n"));
}

// A column without a title is one that a condition, an order or a list of
// columns names, or a form that has all of them.
TEST(TableTest, ColumnsThatAreNotShownAreNotNeeded) {
  const Table table = Sample();
  TableOptions options;
  const auto needed = [&] { return options.NeedsOf(table.columns); };
  EXPECT_THAT(needed(), ElementsAre(true, true, true, false));
  EXPECT_FALSE(options.NeedsValues(table.columns[3]));
  options.sort = "hidden";
  EXPECT_THAT(needed(), ElementsAre(true, true, true, true));
  EXPECT_TRUE(options.NeedsValues(table.columns[3]));
  options.sort = "size";
  EXPECT_TRUE(options.NeedsValues(table.columns[1]));
  options.sort.clear();
  options.where = *Expression::Parse("hidden='x'");
  EXPECT_THAT(needed(), ElementsAre(true, true, true, true));
  options.where.reset();
  options.columns = {"key", "hidden"};
  EXPECT_THAT(needed(), ElementsAre(true, false, false, true));
  options.columns.clear();
  options.format = Format::kCsv;
  EXPECT_THAT(needed(), ElementsAre(true, true, true, true));
}

TEST(TableTest, FitsTheTerminalOnlyOnOne) {
  Table table = Sample();
  table.rows[0][0] = TextCell(std::string(100, 'k'));
  const Terminal narrow{.is_terminal = true, .utf8 = true, .width = 40};
  ASSERT_OK_AND_ASSIGN(std::string text, Render(table, {}, narrow));
  EXPECT_THAT(text, HasSubstr("…"));
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\n', at);
    EXPECT_LE(DisplayWidth(text.substr(at, end - at)), 40);
    at = end + 1;
  }
  ASSERT_OK_AND_ASSIGN(text, Render(table, {}, {}));
  EXPECT_THAT(text, HasSubstr(std::string(100, 'k')));
}

TEST(TableTest, ColourOnlyWhereAskedFor) {
  ASSERT_OK_AND_ASSIGN(std::string text, Render(Sample(), {}, {}));
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
  ASSERT_OK_AND_ASSIGN(text, Render(Sample(), {}, {.color = true}));
  EXPECT_THAT(text, HasSubstr("\x1b[31mnan\x1b[0m"));
}

TEST(TableTest, ForPrograms) {
  TableOptions options;
  options.format = Format::kCsv;
  EXPECT_THAT(Render(Sample(), options, {}),
              IsOkAndHolds(std::string("key,bytes,loss,hidden\n"
                                       "\"params/a,b\",2048,0.5,x\n"
                                       "params/\\x1b,100,nan,\n")));
  options.format = Format::kTsv;
  options.columns = {"bytes", "key"};
  options.header = false;
  EXPECT_THAT(Render(Sample(), options, {}),
              IsOkAndHolds(std::string("2048\tparams/a,b\n"
                                       "100\tparams/\\x1b\n")));
  options = {};
  options.format = Format::kNdjson;
  EXPECT_THAT(
      Render(Sample(), options, {}),
      IsOkAndHolds(std::string(
          R"({"key":"params/a,b","bytes":2048,"loss":0.5,"hidden":"x"})"
          "\n"
          R"({"key":"params/\u001b","bytes":100,"loss":"NaN","hidden":null})"
          "\n")));
  options.format = Format::kMarkdown;
  ASSERT_OK_AND_ASSIGN(const std::string markdown,
                       Render(Sample(), options, {}));
  EXPECT_THAT(markdown, HasSubstr("| key | bytes | loss |\n"
                                  "| --- | ---: | ---: |\n"));
  options.format = Format::kJson;
  ASSERT_OK_AND_ASSIGN(const std::string text, Render(Sample(), options, {}));
  const Json json = Json::parse(text);
  EXPECT_EQ(json["schema"], "ckptree.sample/1");
  EXPECT_EQ(json["step"], 7);
  EXPECT_EQ(json["rows"].size(), 2u);
}

TEST(TableTest, LaterRowsStandBelowTheFirst) {
  Table table;
  table.columns = {{.name = "step", .title = "STEP", .right = true},
                   {.name = "loss", .title = "LOSS", .right = true},
                   {.name = "notes", .title = "NOTES", .elide = true}};
  const auto rows = [&](std::uint64_t step, const char* note) {
    table.rows = {{CountCell(step), NumberCell(0.5), TextCell(note)}};
    return table;
  };
  Layout layout;
  EXPECT_THAT(Render(rows(100000, "a"), {}, {}, &layout),
              IsOkAndHolds(std::string("  STEP  LOSS  NOTES\n"
                                       "100000   0.5  a\n")));
  EXPECT_THAT(Render(rows(7, "b"), {}, {}, &layout),
              IsOkAndHolds(std::string("     7   0.5  b\n")));
  // One that is wider is wide from then on.
  EXPECT_THAT(Render(rows(7654321, "c"), {}, {}, &layout),
              IsOkAndHolds(std::string("7654321   0.5  c\n")));
  EXPECT_THAT(Render(rows(8, "d"), {}, {}, &layout),
              IsOkAndHolds(std::string("      8   0.5  d\n")));
  // Other columns begin anew, with their titles.
  table.columns.insert(table.columns.begin() + 1,
                       {.name = "acc", .title = "ACC", .right = true});
  table.rows = {
      {CountCell(9), NumberCell(1), NumberCell(2), TextCell("abcdefgh")}};
  EXPECT_THAT(Render(table, {}, {}, &layout),
              IsOkAndHolds(std::string("STEP  ACC  LOSS  NOTES\n"
                                       "   9    1     2  abcdefgh\n")));
  // What had no room has none later, and that is said once.
  Terminal narrow;
  narrow.is_terminal = true;
  narrow.width = 24;
  layout = {};
  ASSERT_OK_AND_ASSIGN(const std::string first,
                       Render(table, {}, narrow, &layout));
  EXPECT_THAT(first, HasSubstr("(--full also shows loss)"));
  ASSERT_OK_AND_ASSIGN(const std::string second,
                       Render(table, {}, narrow, &layout));
  EXPECT_EQ(second, "   9    1  abcdefgh\n");
  // CSV has its line of titles once.
  TableOptions options;
  options.format = Format::kCsv;
  layout = {};
  EXPECT_THAT(
      Render(table, options, {}, &layout),
      IsOkAndHolds(std::string("step,acc,loss,notes\n9,1.0,2.0,abcdefgh\n")));
  EXPECT_THAT(Render(table, options, {}, &layout),
              IsOkAndHolds(std::string("9,1.0,2.0,abcdefgh\n")));
}

TEST(TableTest, CsvKeepsLineEndsInQuotes) {
  Table table;
  table.columns = {{.name = "k\ney", .title = "KEY"}, {.name = "b"}};
  table.rows = {{TextCell("a\r\n\"b\"\x1b"), TextCell("tab\there")}};
  TableOptions options;
  options.format = Format::kCsv;
  EXPECT_THAT(Render(table, options, {}),
              IsOkAndHolds(std::string("\"k\ney\",b\n"
                                       "\"a\r\n\"\"b\"\"\\x1b\",tab\there\n")));
  Terminal terminal;
  terminal.is_terminal = true;
  EXPECT_THAT(Render(table, options, terminal),
              IsOkAndHolds(HasSubstr("\"a\\r\n\"\"b")));
  options.format = Format::kTsv;
  EXPECT_THAT(
      Render(table, options, {}),
      IsOkAndHolds(std::string("k\\ney\tb\na\\r\\n\"b\"\\x1b\ttab\\there\n")));
}

TEST(TableTest, JsonHidesNoControlCharacters) {
  EXPECT_EQ(JsonText(Json("a\xc2\x9b\xe2\x80\xae\x7fé"), false),
            R"("a\u009b\u202e\u007fé")");
}

TEST(TableTest, SortsAndLimits) {
  TableOptions options;
  options.format = Format::kCsv;
  options.columns = {"bytes"};
  options.header = false;
  options.sort = "bytes";
  EXPECT_THAT(Render(Sample(), options, {}),
              IsOkAndHolds(std::string("100\n2048\n")));
  options.descending = true;
  options.limit = 1;
  EXPECT_THAT(Render(Sample(), options, {}),
              IsOkAndHolds(std::string("2048\n")));
  // NaN is last either way.
  options.sort = "loss";
  EXPECT_THAT(Render(Sample(), options, {}),
              IsOkAndHolds(std::string("2048\n")));
  options.sort = "los";
  EXPECT_THAT(Render(Sample(), options, {}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("Did you mean `loss`?")));
}

// A title may show something else than the value is: it is no name there.
TEST(TableTest, AConditionIsToldTheNameOfATitle) {
  Table table = Sample();
  table.columns.front().name = "committed";
  table.columns.front().title = "AGE";
  TableOptions options;
  auto where = Expression::Parse("age > 3");
  ASSERT_OK(where);
  options.where = *where;
  EXPECT_THAT(Render(std::move(table), options, {}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("Did you mean `committed`?")));
}

Table Wide() {
  Table table;
  table.columns = {{.name = "key", .title = "KEY", .elide = true},
                   {.name = "l2", .title = "L2", .right = true},
                   {.name = "max", .title = "MAX", .right = true},
                   {.name = "notes", .title = "NOTES", .elide = true}};
  for (const char* key : {"params/block_0/attention/kernel", "b"}) {
    table.rows.push_back({TextCell(key), NumberCell(1.25), NumberCell(-3),
                          TextCell("what is said of it at length")});
  }
  return table;
}

TEST(TableTest, FitsATerminal) {
  const auto render = [](int width, TableOptions options) {
    return Render(Wide(), options,
                  {.is_terminal = true, .utf8 = false, .width = width})
        .value_or("");
  };
  // Notes are shortened, then numbers go; keys are the last to give way.
  EXPECT_EQ(render(60, {}),
            "KEY                                L2  MAX  NOTES\n"
            "params/block_0/attention/kernel  1.25   -3  what...at length\n"
            "b                                1.25   -3  what...at length\n");
  EXPECT_EQ(render(51, {}),
            "KEY                                L2  NOTES\n"
            "params/block_0/attention/kernel  1.25  wha...length\n"
            "b                                1.25  wha...length\n"
            "(--full also shows max)\n");
  EXPECT_EQ(render(34, {}),
            "KEY               L2  NOTES\n"
            "par...n/kernel  1.25  wha...length\n"
            "b               1.25  wha...length\n"
            "(--full also shows max)\n");
  for (const int width : {20, 34, 50, 60, 80}) {
    const std::string text = render(width, {});
    for (const std::string& line :
         std::vector<std::string>(absl::StrSplit(text, '\n'))) {
      EXPECT_LE(DisplayWidth(line), std::max(width, 34)) << text;
    }
  }
  // What was asked for is all there.
  EXPECT_THAT(render(50, {.full = true}), HasSubstr("MAX  NOTES"));
  EXPECT_THAT(render(50, {.columns = {"key", "l2", "max", "notes"}}),
              HasSubstr("MAX  NOTES"));
}

TEST(TableTest, OneLongKeyDoesNotPadAllRowsOfAPipe) {
  Table table = Wide();
  table.rows[0][0] = TextCell(std::string(300, 'k'));
  const std::string text = Render(table, {}, {}).value_or("");
  EXPECT_THAT(text, HasSubstr(std::string(300, 'k') + "  1.25"));
  EXPECT_THAT(text, HasSubstr("\nb    1.25"));
}

std::string KeptBy(const std::string& where) {
  TableOptions options;
  options.format = Format::kCsv;
  options.columns = {"bytes"};
  options.header = false;
  const absl::StatusOr<Expression> condition = Expression::Parse(where);
  EXPECT_OK(condition) << where;
  if (!condition.ok()) return "";
  options.where = *condition;
  const absl::StatusOr<std::string> text = Render(Sample(), options, {});
  EXPECT_OK(text);
  return text.value_or("");
}

TEST(TableTest, KeepsRowsForWhichAConditionHolds) {
  EXPECT_EQ(KeptBy("bytes>100"), "2048\n");
  EXPECT_EQ(KeptBy("bytes >= 100 && loss < 1"), "2048\n");
  EXPECT_EQ(KeptBy("bytes==2KiB"), "2048\n");
  EXPECT_EQ(KeptBy("loss==nan"), "100\n");
  EXPECT_EQ(KeptBy("loss!=nan"), "2048\n");
  EXPECT_EQ(KeptBy("hidden=x"), "2048\n");
  EXPECT_EQ(KeptBy("hidden!='x'"), "100\n");
  EXPECT_EQ(KeptBy("hidden<'a'"), "");
}

TEST(TableTest, AConditionOverWhatIsNotThereIsRefused) {
  for (const char* text : {"los<1", "hidden<1", "loss", "loss<bytes<3"}) {
    TableOptions options;
    const absl::StatusOr<Expression> condition = Expression::Parse(text);
    absl::Status status = condition.status();
    if (condition.ok()) {
      options.where = *condition;
      status = Render(Sample(), options, {}).status();
    }
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << text;
    EXPECT_THAT(PlaceOf(status), HasSubstr("^")) << text;
  }
}

}  // namespace
}  // namespace ckptree::tools
