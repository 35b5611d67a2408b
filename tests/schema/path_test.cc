// SPDX-License-Identifier: Apache-2.0

#include "ckptree/path.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/escaping.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ckptree::schema {
namespace {

using ::testing::HasSubstr;

constexpr double kInf = std::numeric_limits<double>::infinity();

std::string Hex(std::string_view bytes) {
  return absl::BytesToHexString({bytes.data(), bytes.size()});
}

std::string Unhex(std::string_view hex) {
  return absl::HexStringToBytes({hex.data(), hex.size()});
}

Key Of(Key::Tuple tuple) { return {std::move(tuple)}; }
Key Raw(std::string bytes) { return {Key::Bytes{std::move(bytes)}}; }
Key Int(std::int64_t value) { return {value}; }
Key Float(double value) { return {value}; }
Key Str(std::string value) { return {std::move(value)}; }
double NanOf(std::uint64_t bits) { return std::bit_cast<double>(bits); }

// Ascending, as the header promises.
std::vector<Path> Ascending() {
  const double tiny = std::numeric_limits<double>::denorm_min();
  const std::vector<Key> keys = {{Key::None{}},
                                 {false},
                                 {true},
                                 Int(INT64_MIN),
                                 Int(INT64_MIN + 1),
                                 Int(-65537),
                                 Int(-65536),
                                 Int(-65535),
                                 Int(-257),
                                 Int(-256),
                                 Int(-255),
                                 Int(-1),
                                 Int(0),
                                 Int(1),
                                 Int(255),
                                 Int(256),
                                 Int(65535),
                                 Int(65536),
                                 Int(INT64_MAX),
                                 Float(NanOf(0xfff8000000000000)),
                                 Float(-kInf),
                                 Float(-1.5),
                                 Float(-tiny),
                                 Float(-0.0),
                                 Float(0.0),
                                 Float(tiny),
                                 Float(1.0),
                                 Float(kInf),
                                 Float(NanOf(0x7ff8000000000000)),
                                 Float(NanOf(0x7ff8000000000001)),
                                 Str(""),
                                 Str(std::string(1, '\0')),
                                 Str(std::string("\0a", 2)),
                                 Str("\x01"),
                                 Str("\x02"),
                                 Str("a"),
                                 Str(std::string("a\0", 2)),
                                 Str("a\x01"),
                                 Str("aa"),
                                 Str("b"),
                                 Str("\xc3\xa9"),
                                 Raw(""),
                                 Raw(std::string(1, '\0')),
                                 Raw("a"),
                                 Raw("\xff"),
                                 Of({}),
                                 Of({{Key::None{}}}),
                                 Of({Int(1)}),
                                 Of({Int(1), Int(2)}),
                                 Of({Int(1), Str("a")}),
                                 Of({Int(2)}),
                                 Of({Str("a")}),
                                 Of({Str("a"), Int(1)}),
                                 Of({Str(std::string("a\0", 2))}),
                                 Of({Of({})}),
                                 Of({Of({Int(1)})})};
  std::vector<Path> paths = {Path()};
  for (const Key& key : keys) paths.push_back(Path().Key(key));
  paths.push_back(Path().Index(0));
  paths.push_back(Path().Index(0).Key("a"));
  paths.push_back(Path().Index(1));
  paths.push_back(Path().Index(256));
  paths.push_back(Path().Attribute("mu"));
  paths.push_back(Path().Attribute("mu").Index(3));
  paths.push_back(Path().Attribute("nu"));
  paths.push_back(Path().Flattened(0));
  paths.push_back(Path().Flattened(7));
  return paths;
}

TEST(PathTest, GoldenBytes) {
  EXPECT_EQ(Hex(Path().Encode()), "");
  EXPECT_EQ(Hex(Path().Key("a").Index(3).Attribute("mu").Flattened(0).Encode()),
            "01216100"
            "021103"
            "03216d7500"
            "0410");
  EXPECT_EQ(Hex(Path().Key(Int(-1)).Key(Int(-256)).Encode()),
            "010ffe"
            "010efeff");
  EXPECT_EQ(Hex(Path().Key(Float(1.5)).Encode()), "0120bff8000000000000");
  EXPECT_EQ(Hex(Path().Key(Float(-1.5)).Encode()), "01204007ffffffffffff");
  EXPECT_EQ(Hex(Path().Key(Str(std::string("\0\x01", 2))).Encode()),
            "0121"
            "0101"
            "0102"
            "00");
  EXPECT_EQ(Hex(Path().Key(Of({Int(1), Raw("a")})).Encode()),
            "0123"
            "1101"
            "226100"
            "00");
}

TEST(PathTest, EncodingsAscendAndOnlyAncestorsArePrefixes) {
  const std::vector<Path> paths = Ascending();
  for (std::size_t i = 0; i < paths.size(); ++i) {
    const std::string encoded = paths[i].Encode();
    for (std::size_t j = i + 1; j < paths.size(); ++j) {
      const std::string other = paths[j].Encode();
      EXPECT_LT(encoded, other) << paths[i].Text() << " " << paths[j].Text();
      const auto& a = paths[i].parts();
      const auto& b = paths[j].parts();
      const bool above =
          a.size() <= b.size() && std::equal(a.begin(), a.end(), b.begin());
      EXPECT_EQ(other.starts_with(encoded), above)
          << paths[i].Text() << " " << paths[j].Text();
      EXPECT_FALSE(paths[i] == paths[j]);
    }
  }
}

TEST(PathTest, RoundTripsBothForms) {
  for (const Path& path : Ascending()) {
    const auto decoded = Path::Decode(path.Encode());
    ASSERT_TRUE(decoded.ok()) << decoded.status() << " " << path.Text();
    EXPECT_TRUE(*decoded == path) << path.Text();
    const auto parsed = Path::Parse(path.Text());
    ASSERT_TRUE(parsed.ok()) << parsed.status() << " " << path.Text();
    EXPECT_TRUE(*parsed == path) << path.Text();
    EXPECT_TRUE(path.Validate().ok());
  }
}

TEST(PathTest, CanonicalText) {
  EXPECT_EQ(Path().Text(), "");
  EXPECT_EQ(Path().Key("params").Index(3).Attribute("mu").Flattened(2).Text(),
            "params/[3]/.mu/<2>");
  EXPECT_EQ(Path().Key("a.b-c_1").Text(), "a.b-c_1");
  EXPECT_EQ(Path().Key(".a").Text(), "\".a\"");
  EXPECT_EQ(Path().Key("").Text(), "\"\"");
  EXPECT_EQ(Path().Key("a/b").Text(), "\"a/b\"");
  EXPECT_EQ(Path().Key("a\"\\\n\x7f\xc2\x85\xc3\xa9").Text(),
            "\"a\\\"\\\\\\n\\u007f\\u0085\xc3\xa9\"");
  EXPECT_EQ(Path().Attribute("a.b").Text(), ".\"a.b\"");
  EXPECT_EQ(Path().Key(Int(3)).Text(), "{3}");
  EXPECT_EQ(Path().Key(Key{true}).Text(), "{true}");
  EXPECT_EQ(Path().Key(Key{Key::None{}}).Text(), "{null}");
  EXPECT_EQ(Path().Key(Float(1)).Text(), "{1.0}");
  EXPECT_EQ(Path().Key(Float(-kInf)).Text(), "{-inf}");
  EXPECT_EQ(Path().Key(Raw(std::string("\0a\"", 3))).Text(),
            "{b\"\\x00a\\\"\"}");
  EXPECT_EQ(Path().Key(Of({Int(1), Str("a")})).Text(), "{(1,\"a\")}");
  EXPECT_EQ(Path().Key(Of({Int(1)})).Text(), "{(1,)}");
}

TEST(PathTest, ParsesTheJaxForm) {
  const auto expect = [](std::string_view text, const Path& path) {
    const auto parsed = Path::Parse(text);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_TRUE(*parsed == path) << text << " gave " << parsed->Text();
  };
  expect("['a'][0].mu", Path().Key("a").Index(0).Attribute("mu"));
  expect(".mu.nu", Path().Attribute("mu").Attribute("nu"));
  expect("['it\\'s'][\"b\"]", Path().Key("it's").Key("b"));
  expect("[<flat index 3>]", Path().Flattened(3));
  expect(
      "[True][None][-3][1.5]",
      Path().Key(Key{true}).Key(Key{Key::None{}}).Key(Int(-3)).Key(Float(1.5)));
  expect("[(1, 'a')][b'\\x00']",
         Path().Key(Of({Int(1), Str("a")})).Key(Raw(std::string(1, '\0'))));
  expect("['\\xe9\\u00e9\\U0001f600']",
         Path().Key("\xc3\xa9\xc3\xa9\xf0\x9f\x98\x80"));
  expect("\"\\ud83d\\ude00\"", Path().Key("\xf0\x9f\x98\x80"));
  expect("[0]/[1]", Path().Index(0).Index(1));
}

TEST(PathTest, RefusesMalformedText) {
  for (const char* text : {"/",
                           "a/",
                           "/a",
                           "a//b",
                           "a b",
                           "[",
                           "[]",
                           "[3",
                           "[03]",
                           "{",
                           "{}",
                           "{3",
                           "{\"a\"}",
                           "{-0}",
                           "{01}",
                           "{1.5.2}",
                           "{9223372036854775808}",
                           "{nan:7ff0000000000000}",
                           "{b\"\xc3\xa9\"}",
                           "{b\"\\u0041\"}",
                           "<",
                           "<>",
                           "<-1>",
                           "<1.5>",
                           "<a>",
                           "{(}",
                           "{(1 2)}",
                           "\"a",
                           "\"\\q\"",
                           "\"\\ud800\"",
                           "\"\\u12\"",
                           "\"\\ud800\\u0041\"",
                           "\"\n\"",
                           ".",
                           "./a",
                           "['a']/b['c']",
                           "['a'][0]/x",
                           "a[0]",
                           "['a'",
                           "['a]",
                           "[<flat index >]",
                           "[<flat index 1]",
                           "\"\\U00110000\"",
                           "\"\xff\""}) {
    const auto parsed = Path::Parse(text);
    EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument)
        << text;
  }
  EXPECT_THAT(std::string(Path::Parse("ab/ ").status().message()),
              HasSubstr("offset 3"));
}

TEST(PathTest, RefusesMalformedBytes) {
  for (const char* hex : {"00",
                          "05",
                          "01",
                          "0100",
                          "0104",
                          "0119",
                          "0124",
                          "0121",
                          "012161",
                          "01210100",
                          "01210103"
                          "00",
                          "012101",
                          "0121ff00",
                          "0121c08000",
                          "0121eda08000",
                          "0121f490808000",
                          "1101",
                          "0111",
                          "011100",
                          "01120001",
                          "010fff",
                          "010effff",
                          "0118ffffffffffffffff",
                          "01088000000000000000"
                          "ff",
                          "01087ffffffffffffffe",
                          "0120",
                          "012000000000000005",
                          "0123",
                          "01231101",
                          "012304"
                          "00",
                          "0201",
                          "020ffe",
                          "0220bff8000000000000",
                          "022161"
                          "00",
                          "0311"
                          "01",
                          "03226100",
                          "0401",
                          "0408",
                          "0121610005"}) {
    EXPECT_EQ(Path::Decode(Unhex(hex)).status().code(),
              absl::StatusCode::kInvalidArgument)
        << hex;
  }
  // Each cut of a path is another path or none, never this one.
  const std::string whole =
      Path().Key(Of({Int(300), Str("ab")})).Index(7).Attribute("x").Encode();
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const auto decoded = Path::Decode(whole.substr(0, size));
    if (!decoded.ok()) continue;
    EXPECT_EQ(decoded->Encode(), whole.substr(0, size));
  }
}

TEST(PathTest, LimitsHold) {
  Path deep;
  for (int i = 0; i < 256; ++i) deep.Index(0);
  EXPECT_TRUE(deep.Validate().ok());
  EXPECT_TRUE(Path::Decode(deep.Encode()).ok());
  deep.Index(0);
  EXPECT_FALSE(deep.Validate().ok());
  EXPECT_FALSE(Path::Decode(deep.Encode()).ok());
  EXPECT_TRUE(Path().Key(std::string(4093, 'a')).Validate().ok());
  const Path wide = Path().Key(std::string(4094, 'a'));
  EXPECT_FALSE(wide.Validate().ok());
  EXPECT_FALSE(Path::Decode(wide.Encode()).ok());
  EXPECT_FALSE(Path::Parse(std::string(5000, 'a')).ok());
  EXPECT_FALSE(Path().Index(-1).Validate().ok());
  EXPECT_FALSE(Path().Key("\xff").Validate().ok());
  EXPECT_FALSE(Path({{PartKind::kIndex, Str("a")}}).Validate().ok());
  EXPECT_FALSE(Path({{PartKind::kAttribute, Int(1)}}).Validate().ok());
  EXPECT_FALSE(Path({{static_cast<PartKind>(9), Int(1)}}).Validate().ok());
  Key nested = Of({});
  for (int i = 0; i < 300; ++i) nested = Of({nested});
  EXPECT_FALSE(Path().Key(nested).Validate().ok());
  EXPECT_FALSE(Path::Decode(Path().Key(nested).Encode()).ok());
  EXPECT_FALSE(Path::Parse(Path().Key(nested).Text()).ok());
}

TEST(PathTest, RandomBytesDecodeToThemselvesOrNotAtAll) {
  constexpr unsigned kSeed = 11;
  SCOPED_TRACE(kSeed);
  std::mt19937 random(kSeed);
  int decoded = 0;
  for (int round = 0; round < 200'000; ++round) {
    std::string bytes(random() % 8, '\0');
    for (char& byte : bytes) {
      // Mostly the bytes that mean something.
      static constexpr unsigned char kBytes[] = {0x00, 0x01, 0x02, 0x03, 0x04,
                                                 0x0f, 0x10, 0x11, 0x12, 0x20,
                                                 0x21, 0x22, 0x23, 0x61, 0xff};
      byte = static_cast<char>(kBytes[random() % sizeof(kBytes)]);
    }
    const auto path = Path::Decode(bytes);
    if (!path.ok()) continue;
    ++decoded;
    EXPECT_EQ(Hex(path->Encode()), Hex(bytes));
    const auto parsed = Path::Parse(path->Text());
    ASSERT_TRUE(parsed.ok()) << parsed.status() << " " << path->Text();
    EXPECT_EQ(Hex(parsed->Encode()), Hex(bytes));
  }
  EXPECT_GT(decoded, 1000);
}

TEST(GlobTest, MatchesPartsAndSubtrees) {
  struct Case {
    const char* pattern;
    const char* text;
    bool matches;
  };
  for (const Case& c :
       std::vector<Case>{{"", "a/b", true},
                         {"**", "", true},
                         {"*", "", false},
                         {"a", "a", true},
                         {"a", "a/b", true},
                         {"a", "ab", false},
                         {"a/*", "a", false},
                         {"a/*/c", "a/b/c/d", true},
                         {"a/*/c", "a/b/b/c", false},
                         {"a/**/c", "a/c", true},
                         {"a/**/c", "a/x/y/c/z", true},
                         {"**/kernel", "a/b/kernel", true},
                         {"**/kernel", "kernel2", false},
                         {"l?yer*", "layer12/w", true},
                         {"l?yer*", "lyer12", false},
                         {"\"?\"", "\"\xc3\xa9\"", true},
                         {"layers/[0]/*", "layers/[0]/w", true},
                         {"layers/[0]/*", "layers/0/w", false},
                         {"\"a/b\"/c", "\"a/b\"/c", true},
                         {"*/c", "\"a/b\"/c", true},
                         {"*a*b*c", "xaxbxbxc", true},
                         {"a//b", "a/b", false},
                         // Going back to a star never cuts a character.
                         {"*??cd",
                          "\xe2\x82\xac"
                          "cd",
                          false},
                         {"*??cd",
                          "\xe2\x82\xac\xe2\x82\xac"
                          "cd",
                          true},
                         {"re:^a/.*c$", "a/b/c", true},
                         {"re:b", "a/b/c", true},
                         {"re:^b", "a/b/c", false},
                         {"re:(", "a", false}}) {
    EXPECT_EQ(MatchesGlob(c.pattern, c.text), c.matches)
        << c.pattern << " " << c.text;
  }
}

TEST(GlobTest, ValidateNamesTheFault) {
  EXPECT_TRUE(ValidateGlob("").ok());
  EXPECT_TRUE(ValidateGlob("a/**/\"x/y\"").ok());
  EXPECT_TRUE(ValidateGlob("re:a+").ok());
  EXPECT_TRUE(ValidateGlob("re:^step_12345678901234567890").ok());
  for (const char* pattern :
       {"a//b", "/a", "a/", "\"a", "re:(", "re:(a)\\1",
        "re:\\9999999999999999999", "re:a{9999999999999999999}"}) {
    EXPECT_EQ(ValidateGlob(pattern).code(), absl::StatusCode::kInvalidArgument)
        << pattern;
  }
  // A view into more: nothing behind its end is looked at.
  const std::vector<char> open = {'r', 'e', ':', '('};
  EXPECT_FALSE(ValidateGlob(std::string_view(open.data(), open.size())).ok());
}

TEST(GlobTest, ExpressionsEndInTimeAndStack) {
  // Each took time exponential in the text, or stack for each character.
  EXPECT_FALSE(MatchesGlob("re:(a*)*b", std::string(64, 'a')));
  EXPECT_FALSE(MatchesGlob("re:(a|a|a|a)*b", std::string(64, 'a')));
  EXPECT_TRUE(MatchesGlob("re:^.*x", std::string(20000, 'a') + "x"));
  EXPECT_FALSE(ValidateGlob("re:" + std::string(100000, '(')).ok());
}

}  // namespace
}  // namespace ckptree::schema
