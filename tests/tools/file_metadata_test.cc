// SPDX-License-Identifier: Apache-2.0

// What files of arrays say of themselves: of several that are one checkpoint,
// twice, at length, or in another format than is known.

#include <sys/resource.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/tools/command_runner.h"

namespace ckptree {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

const std::string kEight("\0\0\x80\x3f\0\0\0\x40", 8);  // 1, 2

std::string LittleEndian(std::uint64_t value, int bytes = 8) {
  std::string text;
  for (int i = 0; i < bytes; ++i) {
    text += static_cast<char>(value >> (8 * i) & 0xff);
  }
  return text;
}

std::string Text(const std::string& text) {  // Of GGUF.
  return LittleEndian(text.size()) + text;
}

class FileMetadataTest : public CommandRunner {
 protected:
  std::string Write(const std::string& name, const std::string& bytes) {
    const std::filesystem::path path(scratch_ / name);
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }
  // A file with one array, and what it says of itself as JSON, "" for nothing.
  std::string Safetensors(const std::string& name, const std::string& array,
                          const std::string& said) {
    std::string head = "{";
    if (!said.empty()) head += R"("__metadata__":)" + said + ",";
    head += absl::StrFormat(
        R"("%s":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", array);
    return Write(name, LittleEndian(head.size()) + head + kEight);
  }
  // The index of two files beside it with what they say, and it itself.
  std::string Sharded(const std::string& first, const std::string& second,
                      const std::string& own) {
    Safetensors("m-00001-of-00002.safetensors", "a", first);
    Safetensors("m-00002-of-00002.safetensors", "b", second);
    return Write("m.safetensors.index.json",
                 "{" + (own.empty() ? "" : R"("metadata":)" + own + ",") +
                     R"("weight_map":{"a":"m-00001-of-00002.safetensors",)" +
                     R"("b":"m-00002-of-00002.safetensors"}})");
  }
  Json Imported(const std::string& step) {
    const Result shown = Run({"-C", Store(), "show", step, "--json"});
    return Json::parse(shown.out)["custom"]["imported"]["metadata"];
  }
  Json Said(const std::string& file) {
    return Json::parse(Run({"show", file, "--json"}).out)["metadata"];
  }
  std::string Store() const { return scratch_ / "store"; }
};

TEST_F(FileMetadataTest, WhatAllShardsSayIsSaidOnce) {
  const std::string index = Sharded(
      R"({"format":"pt","only":"x"})", R"({"format":"pt"})",
      R"({"total_size":16,"total_parameters":4,"author":"me","n":[1,2]})");
  const Json all = {
      {"format", "pt"}, {"only", "x"}, {"author", "me"}, {"n", "[1,2]"}};
  EXPECT_EQ(Said(index), all);
  ASSERT_EQ(Run({"-C", Store(), "import", index, "--step", "1"}).code, 0);
  EXPECT_EQ(Imported("1"), all);
  const std::string out = scratch_ / "out.safetensors";
  ASSERT_EQ(Run({"export", index, out}).code, 0);
  EXPECT_EQ(Said(out), all);
}

TEST_F(FileMetadataTest, WhatTheyDifferInIsNeverTheLastOne) {
  const std::string index =
      Sharded(R"({"format":"pt","epoch":"1","w":"a"})",
              R"({"format":"pt","epoch":"2"})", R"({"w":"b","total_size":1})");
  const Json both = {{"format", "pt"}};
  const Result shown = Run({"show", index, "--json"});
  EXPECT_EQ(Json::parse(shown.out)["metadata"], both);
  EXPECT_THAT(shown.err,
              AllOf(HasSubstr("`epoch` is not the same in "
                              "m-00001-of-00002.safetensors and in "
                              "m-00002-of-00002.safetensors"),
                    HasSubstr("`w` is not the same in m.safetensors.index")));
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"-C", Store(), "import", index, "--step", "1"},
        {"export", index, scratch_ / "out.safetensors"},
        {"export", index, scratch_ / "raw", "--format", "raw"}}) {
    const Result refused = Run(words);
    EXPECT_EQ(refused.code, 2) << words[0];
    EXPECT_THAT(refused.err, AllOf(HasSubstr("`epoch` is not the same"),
                                   HasSubstr(index), HasSubstr("--skip")));
    EXPECT_FALSE(std::filesystem::exists(words.back()));
    std::vector<std::string> skipping = words;
    skipping.push_back("--skip");
    const Result skipped = Run(skipping);
    EXPECT_EQ(skipped.code, 0) << skipped.err;
    EXPECT_THAT(skipped.err, AllOf(HasSubstr("`epoch`"), HasSubstr("`w`")));
  }
  EXPECT_EQ(Imported("1"), both);
  EXPECT_EQ(Said(scratch_ / "out.safetensors"), both);
  // Where none is written nothing is left out.
  EXPECT_EQ(Run({"export", index, scratch_ / "out.npz"}).code, 0);
}

TEST_F(FileMetadataTest, ANameThatIsThereTwiceIsRefused) {
  const std::string inner =
      R"({"w":{"dtype":"F32","shape":[1],"shape":[2],"data_offsets":[0,8]}})";
  const std::string file =
      Write("a.safetensors", LittleEndian(inner.size()) + inner + kEight);
  const Result read = Run({"get", file + ":w"});
  EXPECT_EQ(read.code, 2);
  EXPECT_THAT(read.err, HasSubstr("its array `w` has `shape` twice"));
  EXPECT_THAT(
      Run({"ls", Safetensors("m.safetensors", "w", R"({"a":"1","a":"2"})")})
          .err,
      HasSubstr("its metadata has `a` twice"));

  Safetensors("x.safetensors", "a", "");
  Safetensors("y.safetensors", "a", "");
  const Result index = Run({"ls", Write("m.safetensors.index.json",
                                        R"({"weight_map":{"a":"x.safetensors",)"
                                        R"("a":"y.safetensors"}})")});
  EXPECT_EQ(index.code, 2);
  EXPECT_THAT(index.err, HasSubstr("it has `a` twice"));
}

TEST_F(FileMetadataTest, AFolderMakesNoFileOneOfSeveral) {
  const std::string plain = Safetensors("1-of-3/model.safetensors", "w", "");
  const Result step = Run({"-C", Store(), "import", plain});
  EXPECT_THAT(step.err, AllOf(HasSubstr("--step N"),
                              Not(HasSubstr("one file of several"))));
  const std::string part =
      Safetensors("run/m-00001-of-00002.safetensors", "w", "");
  EXPECT_THAT(Run({"-C", Store(), "import", part}).err,
              HasSubstr("one file of several"));
}

TEST_F(FileMetadataTest, LongNamesGoOutWhereTheFormatHoldsThem) {
  const std::string name(900, 'n');
  const std::string file = Safetensors("a.safetensors", name, "");
  for (const std::string out : {"b.safetensors", "b.npz"}) {
    const std::string path = scratch_ / out;
    const Result made = Run({"export", file, path});
    ASSERT_EQ(made.code, 0) << made.err;
    EXPECT_EQ(Run({"get", path + ":" + name}).out, "[1.0 2.0]\n");
  }
  const Result folder =
      Run({"export", file, scratch_ / "c", "--format", "npy"});
  EXPECT_EQ(folder.code, 2);
  EXPECT_THAT(folder.err, HasSubstr("which is no name there"));
}

// A file of GGUF with one value, a list of that type and content.
std::string Gguf(std::uint32_t of, const std::string& content) {
  return "GGUF" + LittleEndian(3, 4) + LittleEndian(0) + LittleEndian(1) +
         Text("k") + LittleEndian(9, 4) + LittleEndian(of, 4) + content;
}

TEST_F(FileMetadataTest, ListsOfListsInGguf) {
  const std::string numbers = LittleEndian(0, 4) + LittleEndian(2) + "\1\2";
  const std::string words = LittleEndian(8, 4) + LittleEndian(1) + Text("a\"b");
  const std::string file =
      Write("a.gguf", Gguf(9, LittleEndian(2) + numbers + words));
  EXPECT_EQ(Said(file)["k"], R"([[1,2],["a\"b"]])");

  // Each float of 32 bits by digits that give it again.
  const float values[] = {16777215.0f, -123.45678f};
  const std::string file32 = Write(
      "d.gguf", Gguf(6, LittleEndian(2) +
                            std::string(reinterpret_cast<const char*>(values),
                                        sizeof values)));
  EXPECT_EQ(Said(file32)["k"], "[16777215.0,-123.45678]");

  std::string deep = numbers;
  for (int i = 0; i < 40; ++i)
    deep = LittleEndian(9, 4) + LittleEndian(1) + deep;
  const Result refused =
      Run({"ls", Write("b.gguf", Gguf(9, LittleEndian(1) + deep))});
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, HasSubstr("deeper than 16"));
  const Result cut = Run({"ls", Write("c.gguf", Gguf(9, LittleEndian(1000)))});
  EXPECT_EQ(cut.code, 2);
  EXPECT_THAT(cut.err, HasSubstr("it is cut"));
}

TEST_F(FileMetadataTest, VeryManyNamesTakeNoLongerForEach) {
  // By the square of their number this would take half a minute.
  std::string said = "{";
  for (int i = 0; i < 60'000; ++i) {
    absl::StrAppendFormat(&said, "%s\"%d\":\"\"", i == 0 ? "" : ",", i);
  }
  const std::string file = Safetensors("a.safetensors", "w", said + "}");
  EXPECT_EQ(Said(file).size(), 60'000);
  EXPECT_EQ(Run({"-C", Store(), "import", file, "--step", "1"}).code, 0);
  EXPECT_EQ(Imported("1").size(), 60'000);
}

// A limit of this process, which the program inherits.
class FileLimit {
 public:
  explicit FileLimit(rlim_t bytes) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileLimit() { ::setrlimit(RLIMIT_FSIZE, &before_); }
  FileLimit(const FileLimit&) = delete;
  FileLimit& operator=(const FileLimit&) = delete;

 private:
  rlimit before_{};
};

TEST_F(FileMetadataTest, WhatCannotBeWrittenIsCalledByItsOwnName) {
  std::string data(1 << 20, '\0');
  const std::string head = absl::StrFormat(
      R"({"w":{"dtype":"F32","shape":[%d],"data_offsets":[0,%d]}})",
      data.size() / 4, data.size());
  const std::string file =
      Write("a.safetensors", LittleEndian(head.size()) + head + data);
  for (const std::string out : {"b.npz", "b.safetensors"}) {
    Result refused;
    {
      const FileLimit limit(64 << 10);
      refused = Run({"export", file, scratch_ / out});
    }
    EXPECT_EQ(refused.code, 2) << refused.err;
    EXPECT_THAT(refused.err,
                AllOf(HasSubstr(scratch_ / out), Not(HasSubstr("/made")),
                      Not(HasSubstr(".tmp"))));
    EXPECT_FALSE(std::filesystem::exists(scratch_ / out));
  }
}

}  // namespace
}  // namespace ckptree
