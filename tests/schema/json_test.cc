// SPDX-License-Identifier: Apache-2.0

// What is JSON, held against another reader.

#include "nlohmann/json.hpp"

#include <random>
#include <regex>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "schema/json_text.h"

namespace ckptree::schema {
namespace {

using ::testing::HasSubstr;

TEST(JsonTest, WhatItSaysOfWhatIsNone) {
  const struct {
    std::string text;
    const char* why;
  } kCases[] = {
      {"{nope", "at byte 1 there is not a name"},
      {"", "at byte 0 there is not a value"},
      {"  ", "at byte 2 there is not a value"},
      {"[1, 2", "at byte 5 there is not a comma"},
      {"[1,]", "at byte 3 there is not a value"},
      {R"({"a": 1,})", "at byte 8 there is not a name"},
      {R"({"a" 1})", "there is not a name"},
      {"1 2", "at byte 2 there is not the end"},
      {"01", "at byte 1 there is not the end"},
      {"'a'", "at byte 0 there is not a value"},
      {"\"a", "there is not a value"},
      {"\"\\", "there is not a value"},
      {"\"\\u12", "there is not a value"},
      {std::string("1\0", 2), "at byte 1 there is not the end"},
      {"\"\xff\"", "no JSON: it is no UTF-8"},
      {std::string(501, '['),
       "nested too deeply: at most 500 levels are possible, and one more "
       "begins at byte 500"},
  };
  for (const auto& [text, why] : kCases) {
    EXPECT_THAT(std::string(CheckJson(text).message()), HasSubstr(why)) << text;
  }
}

TEST(JsonTest, WhatIsJson) {
  const std::string deep = std::string(500, '[') + std::string(500, ']');
  for (const std::string& text :
       {deep, std::string(" {} "), std::string(R"({"a":[],"b":{"c":null}})"),
        std::string(R"(["\"\\\/\b\f\n\r\t\u00e9\ud800", "Fu)") + "\xc3\x9f\"]",
        std::string("[-0, 0.5, -1e-7, 12E+3, true, false]"),
        // As Python's json writes them.
        std::string(R"({"loss": NaN, "best": [Infinity, -Infinity]})")}) {
    EXPECT_TRUE(CheckJson(text).ok()) << text << CheckJson(text);
  }
}

TEST(JsonTest, TheSameAsAnotherReader) {
  const std::vector<std::string> seeds = {
      R"({"a": [1, -2.5e3, true, null], "b": {"c": "x\ny"}})",
      R"([[], {}, "\\", 0, 0.0])", R"("text")", "-12", R"({"":""})"};
  const std::string letters = "{}[]:,\"\\ 01-+.eEtruefalsn\nb/";
  const std::regex large(R"([eE]\+?[0-9]{3})");
  std::mt19937 random(7);
  int accepted = 0, refused = 0;
  for (int i = 0; i < 200'000; ++i) {
    std::string text = seeds[random() % seeds.size()];
    for (auto edits = 1 + random() % 3; edits > 0; --edits) {
      const std::size_t at = random() % (text.size() + 1);
      const char letter = letters[random() % letters.size()];
      switch (random() % 3) {
        case 0:
          text.insert(at, 1, letter);
          break;
        case 1:
          if (at < text.size()) text[at] = letter;
          break;
        default:
          if (at < text.size()) text.erase(at, 1);
      }
    }
    // A number beyond a double is JSON all the same.
    if (std::regex_search(text, large)) continue;
    const bool wanted = nlohmann::json::accept(text);
    ++(wanted ? accepted : refused);
    ASSERT_EQ(CheckJson(text).ok(), wanted) << text;
  }
  EXPECT_GT(accepted, 10'000);
  EXPECT_GT(refused, 10'000);
}

}  // namespace
}  // namespace ckptree::schema
