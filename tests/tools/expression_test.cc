// SPDX-License-Identifier: Apache-2.0

#include "tools/output/expression.h"

#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testutil/status_matchers.h"
#include "tools/output/failure.h"

namespace ckptree::tools {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

const Json& Row() {
  static const Json row = {{"loss", 0.5},
                           {"acc", 0.25},
                           {"step", 300},
                           {"nan", 2},
                           {"zeros", 8},
                           {"count", 8},
                           {"bytes", 4096},
                           {"large", std::uint64_t{18446744073709551615u}},
                           {"key", "params/w"},
                           {"dtype", "float32"},
                           {"pinned", true},
                           {"shape", {50257, 768}},
                           {"tags", {"warm", "best"}},
                           {"val/loss", 3},
                           {"bad", std::nan("")},
                           {"none", nullptr}};
  return row;
}

std::vector<std::string> Names() {
  std::vector<std::string> names;
  for (const auto& [name, value] : Row().items()) names.push_back(name);
  return names;
}

absl::StatusOr<bool> Ask(const std::string& text) {
  absl::StatusOr<Expression> expression = Expression::Parse(text);
  if (!expression.ok()) return expression.status();
  if (absl::Status status = expression->Bind(Names()); !status.ok()) {
    return status;
  }
  return expression->Holds([](std::string_view name) -> const Json& {
    return Row()[std::string(name)];
  });
}

TEST(ExpressionTest, Holds) {
  for (const char* text :
       {"loss<1", "loss<=0.5", "loss>=.5", "loss==0.5", "loss=5e-1",
        "loss!=0.6", "nan>0", "zeros==count", "shape[0]==50257",
        "shape[-1]==768", "shape==768", "loss==2*acc", "acc+acc==loss",
        "step-100==2*(50+50)", "-step<-299", "1-2-3==-4", "8/2/2==2",
        "key=='params/w'", "key==\"params/w\"", "dtype==float32",
        "dtype=float32", "key~'params/*'", "key~'re:w$'", "key!~'opt/**'",
        "pinned", "pinned==true", "not pinned or loss<1", "pinned and loss<1",
        "pinned&&loss<1||loss>7", "loss>7 or pinned", "!(loss>7)",
        "not not pinned", "tags==warm", "tags=='best'", "tags~'wa*'",
        "tags!=other", "`val/loss`==3", "bytes==4KiB", "bytes<1.5MB",
        "bad==nan", "loss!=nan", "loss<inf", "loss>-inf", "none!=3",
        "not none<3", "not none==3", "large>9223372036854775807", "large>-1",
        // No double stands between them.
        "9223372036854775807<9223372036854775808",
        "9223372036854775807<9223372036854775807.0",
        "18446744073709551615>9223372036854775807",
        "18446744073709551615<18446744073709551616",
        "9007199254740993>9007199254740992.0",
        "9007199254740993!=9007199254740992.0",
        "-9007199254740993<-9007199254740992.0",
        "-9223372036854775808==-9223372036854775808.0",
        "-9223372036854775808>-1e19", "3<3.5 and 3.5<4 and 3.5>3 and -3.5<-3",
        "3<inf and 3>-inf and 3!=nan",
        "9223372036854775807+1>9223372036854775807",
        "loss<1 and (acc>1 or nan>0)", "'it''s'!=key"}) {
    const absl::StatusOr<bool> holds = Ask(text);
    ASSERT_OK(holds.status()) << text;
    EXPECT_TRUE(*holds) << text;
  }
}

TEST(ExpressionTest, HoldsNot) {
  for (const char* text :
       {"loss!=loss", "loss>1", "loss<nan", "loss>nan", "none==3", "none<3",
        "none", "not pinned", "tags!=warm", "tags!~'wa*'", "shape[2]==1",
        "shape[7]==shape[8]", "step+1==step", "loss<1 and nan>2",
        // `and` binds closer than `or`, `not` closer than both.
        "pinned and loss>1 or nan>2", "not loss<1 and not pinned",
        "9007199254740993==9007199254740992",
        "9223372036854775807==9223372036854775808",
        "9223372036854775806>=9223372036854775808", "9007199254740993==9e15",
        "3<nan", "3==3.5"}) {
    const absl::StatusOr<bool> holds = Ask(text);
    ASSERT_OK(holds.status()) << text;
    EXPECT_FALSE(*holds) << text;
  }
}

TEST(ExpressionTest, ErrorsPointAtThePlace) {
  struct Case {
    const char* text;
    const char* what;
    int caret;
  };
  for (const Case& c : std::vector<Case>{
           {"", "something is missing", 0},
           {"   ", "something is missing", 3},
           {"loss<", "something is missing", 5},
           {"loss<2 or", "something is missing", 9},
           {"loss | acc<1", "`or` or ||", 5},
           {"loss<1 & acc<1", "`and` or &&", 7},
           {"loss<1 acc<1", "`and` or `or` is missing", 7},
           {"0<loss<1", "join them by `and`", 6},
           {"(loss<1", "not closed", 0},
           {"loss<1)", "no parenthesis was opened", 6},
           {"loss<1 and or", "a condition is missing", 11},
           {"los<1", "Did you mean `loss`?", 0},
           {"acc<1 and los<1", "Did you mean `loss`?", 10},
           {"1 < `val/los`", "Did you mean `val/loss`?", 4},
           {"val/loss<1", "between backquotes, `val/loss` is one name", 0},
           {"prev.loss<1", "belongs to `ckptree find`", 0},
           {"loss>prev.loss", "no `prev.loss` here: `prev.`, which is", 5},
           {"loss>2*prev.loss", "belongs to `ckptree find`", 7},
           {"loss<'a'", "a number is compared with a text", 4},
           {"key<3", "a text is compared with a number", 3},
           {"pinned<3", "true or false is compared with a number", 6},
           {"loss", "not a condition", 0},
           {"loss<1 and nan", "not a condition", 11},
           {"key=='params", "this quote has no end", 5},
           {"bytes<4XiB", "no unit", 7},
           {"shape<3", "a list is in no order", 5},
           {"shape[a]==3", "a whole number stands in brackets", 6},
           {"shape[0==3", "`]` is missing", 7},
           {"step[0]==3", "not a list", 0},
           {"key+1>2", "a text, not a number", 0},
           {"loss~'a'", "only a text is matched", 4},
           {"key~3", "a pattern is a text", 4},
           {"key~'re:('", "", 4},
           {"loss # 3", "means nothing here", 5},
           {"< 3", "missing before this", 0},
           {"\x1b[2J<1", "\\x1b[2J<1", 0}}) {
    const absl::Status status = Ask(c.text).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << c.text;
    // One line, and the place below it.
    EXPECT_EQ(status.message().find('\n'), absl::string_view::npos);
    const std::string message =
        std::string(status.message()) + "\n" + PlaceOf(status);
    EXPECT_THAT(message, HasSubstr(c.what)) << c.text;
    const std::size_t line = message.rfind('\n') + 1;
    EXPECT_EQ(message.substr(line),
              std::string(2 + static_cast<std::size_t>(c.caret), ' ') + "^")
        << message;
    EXPECT_EQ(message.find('\x1b'), std::string::npos);
  }
}

// Each form against seconds that are counted here.
TEST(ExpressionTest, TimesAreComparedAsTimes) {
  constexpr std::int64_t kDay = 20785 * std::int64_t{86400};  // 2026-11-28
  const nlohmann::ordered_json noon = "2026-11-28T12:00:00.500Z";
  const nlohmann::ordered_json unknown = "";
  constexpr double kNoon = kDay + 12 * 3600 + 0.5;
  const std::pair<const char*, double> kTexts[] = {
      {"2026-11-28", kDay},
      {"2026-11-29", kDay + 86400},
      {"2026-11-28 12:00", kDay + 43200},
      {"2026-11-28 12:01", kDay + 43260},
      {"2026-11-28T12:00:00Z", kDay + 43200},
      {"2026-11-28T12:00:00.5Z", kNoon},
      {"2026-11-28 12:00:00.50", kNoon},
      {"2026-11-28 12:00:00.51 Z", kNoon + 0.01},
      {"2026-11-28T14:00:00.500+02:00", kNoon},
      {"2026-11-28T14:00:01+0200", kNoon + 0.5},
      {"2026-11-28 06:30:00 -05:30", kDay + 43200},
      {"2026-11-28T23:59:59.999999999Z", kDay + 86400 - 1e-9}};
  const auto ask =
      [&](const std::string& text,
          const nlohmann::ordered_json& value) -> absl::StatusOr<bool> {
    absl::StatusOr<Expression> parsed = Expression::Parse(text);
    if (!parsed.ok()) return parsed.status();
    const absl::Status bound =
        parsed->Bind({"committed", "begun"}, {}, {"committed", "begun"});
    if (!bound.ok()) return bound;
    return parsed->Holds(
        [&](std::string_view) -> const nlohmann::ordered_json& {
          return value;
        });
  };
  for (const auto& [text, seconds] : kTexts) {
    const auto holds = [&, text = text](const char* sign,
                                        const nlohmann::ordered_json& value) {
      const absl::StatusOr<bool> asked =
          ask(absl::StrFormat("committed %s '%s'", sign, text), value);
      EXPECT_OK(asked.status()) << text;
      const absl::StatusOr<bool> turned =
          ask(absl::StrFormat("not ('%s' %s committed)", text, sign), value);
      EXPECT_OK(turned.status()) << text;
      return asked.ok() && *asked;
    };
    EXPECT_EQ(holds("<", noon), kNoon < seconds) << text;
    EXPECT_EQ(holds("<=", noon), kNoon <= seconds) << text;
    EXPECT_EQ(holds(">", noon), kNoon > seconds) << text;
    EXPECT_EQ(holds(">=", noon), kNoon >= seconds) << text;
    EXPECT_EQ(holds("==", noon), kNoon == seconds) << text;
    EXPECT_EQ(holds("!=", noon), kNoon != seconds) << text;
    EXPECT_FALSE(holds("<", unknown));
    EXPECT_TRUE(holds("!=", unknown));
  }
  EXPECT_EQ(ask("committed==begun", noon).value_or(false), true);
  EXPECT_EQ(ask("committed~'2026-11-28T*'", noon).value_or(false), true);
  for (const char* text :
       {"'yesterday'", "2026", "2026-11-28", "'2026-11'", "'2026-13-01'",
        "'2026-02-30'", "'2026-11-28 25:00'", "'2026-11-28 23'", "yesterday",
        "'2026-11-28T'", "'2026-11-28 23:00 CET'", "'2026-11-28 23:00+2'",
        "'28.11.2026'", "''", "'2026-11-28 23:00:00.'", "true"}) {
    const absl::Status status =
        ask(absl::StrFormat("committed > %s", text), noon).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr("+02:00")) << text;
  }
}

TEST(ExpressionTest, WhatIsTooDeepOrTooLongIsRefused) {
  for (const std::string part : {"(", "not ", "-", "!"}) {
    std::string text;
    for (int i = 0; i < 900; ++i) text += part;
    EXPECT_THAT(std::string(Ask(text + "loss<1").status().message()),
                HasSubstr("too deeply"));
  }
  EXPECT_TRUE(absl::IsInvalidArgument(Ask(std::string(5000, '(')).status()));
}

TEST(ExpressionTest, BothOfTwo) {
  for (const auto& [other, both] :
       {std::pair("nan>0", true), {"nan>2", false}}) {
    ASSERT_OK_AND_ASSIGN(const Expression a, Expression::Parse("loss<1"));
    ASSERT_OK_AND_ASSIGN(const Expression b, Expression::Parse(other));
    Expression joined = Expression::And(a, b);
    ASSERT_OK(joined.Bind(Names()));
    ASSERT_OK_AND_ASSIGN(const bool holds,
                         joined.Holds([](std::string_view n) -> const Json& {
                           return Row()[std::string(n)];
                         }));
    EXPECT_EQ(holds, both);
  }
}

}  // namespace
}  // namespace ckptree::tools
