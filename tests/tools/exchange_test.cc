// SPDX-License-Identifier: Apache-2.0

// What goes out of stores and comes in again: names, types, and what is refused
// before anything is written.

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "ckptree/ckptree.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/testutil/status_matchers.h"
#include "tests/tools/command_runner.h"

namespace ckptree {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class ExchangeTest : public CommandRunner {
 protected:
  void TearDown() override {
    unsetenv("CKPTREE_PYTHON");
    unsetenv("PYTHONPATH");
  }

  void Write(const std::string& name, const std::string& bytes) {
    const fs::path path = fs::path(scratch_ / name);
    fs::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << bytes;
  }
  Result In(const std::string& store, std::vector<std::string> words) {
    words.insert(words.begin(), {"-C", scratch_ / store});
    return Run(std::move(words));
  }
  std::vector<std::int64_t> Steps(const std::string& store) {
    std::vector<std::int64_t> steps;
    const json log = json::parse(In(store, {"log", "--json"}).out);
    for (const json& step : log["steps"]) steps.push_back(step["step"]);
    return steps;
  }
};

TEST_F(ExchangeTest, AFolderOfWhichStepsAreThereSavesNothing) {
  MakeStore(scratch_ / "from");
  for (const char* step : {"100", "200", "300", "400"}) {
    const std::string folder = absl::StrFormat("runs/checkpoint-%s", step);
    fs::create_directories(scratch_ / folder);
    ASSERT_EQ(In("from", {"export", absl::StrFormat("%s:params/w", step),
                          scratch_ / (folder + "/model.safetensors")})
                  .code,
              0);
  }
  const std::string runs = scratch_ / "runs";
  for (const char* step : {"200", "400"}) {
    ASSERT_EQ(In("to", {"import", runs, "--step", step}).code, 0);
  }
  const Result refused = In("to", {"import", runs});
  EXPECT_EQ(refused.code, 2);
  EXPECT_EQ(refused.out, "");
  EXPECT_THAT(refused.err, AllOf(HasSubstr("steps 200, 400 are there already"),
                                 HasSubstr("--new")));
  EXPECT_EQ(Steps("to"), (std::vector<std::int64_t>{400, 200}));
  EXPECT_EQ(In("to", {"import", runs, "--new"}).code, 0);
  EXPECT_EQ(Steps("to"), (std::vector<std::int64_t>{400, 300, 200, 100}));
}

TEST_F(ExchangeTest, AnExportThatCannotDoWhatIsAskedWritesNothing) {
  MakeStore(scratch_ / "store");
  const std::string file = scratch_ / "w.npz";
  const auto refused = [&](std::vector<std::string> more,
                           const std::string& what) {
    std::vector<std::string> words = {"export", "500:params", file};
    words.insert(words.end(), more.begin(), more.end());
    const Result result = In("store", words);
    EXPECT_EQ(result.code, 2) << what;
    EXPECT_THAT(result.err,
                AllOf(HasSubstr(what), HasSubstr("one is `params.")));
    EXPECT_FALSE(fs::exists(file));
  };
  refused({"--strip", "param"}, "--strip param: no name begins with `param.`");
  refused({"--rename", "params.x=y"}, "--rename params.x=y: no name");
  refused({"--strip", "params", "--rename", "w=v", "--rename", "params.w=v"},
          "--rename params.w=v: no name");
  EXPECT_EQ(In("store", {"export", "500:params", file, "--strip", "params",
                         "--rename", "w=v"})
                .code,
            0);
}

TEST_F(ExchangeTest, WhatCannotBeWrittenIsNamed) {
  MakeStore(scratch_ / "store");
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"export", "500:params/w", "/dev/full",
                                 "--format", "safetensors", "--force"},
        {"get", "500:params/w", "-o", "raw", "--out", "/dev/full"},
        {"get", "500:params/**", "-o", "json", "--out", "/dev/full"}}) {
    const Result result = In("store", words);
    EXPECT_EQ(result.code, 2);
    EXPECT_THAT(result.err, HasSubstr("/dev/full cannot be written: No space"));
  }
}

TEST_F(ExchangeTest, OnlyChosenLeavesAreSaidToBeLeftOut) {
  MakeStore(scratch_ / "store");
  const auto said = [&](std::vector<std::string> keys) {
    const std::string file = scratch_ / "out.npz";
    std::vector<std::string> words = {"export", "500", file, "-f"};
    for (const std::string& key : keys) {
      words.insert(words.end(), {"-k", key});
    }
    const Result result = In("store", words);
    EXPECT_EQ(result.code, 0) << result.err;
    return result.err;
  };
  EXPECT_THAT(said({"params/w"}), Not(HasSubstr("left out")));
  EXPECT_THAT(said({"params/w", "lr"}), HasSubstr("left out 1 leaf"));
  EXPECT_THAT(said({"params/w", "lr", "config"}),
              HasSubstr("left out 2 leaves"));
}

TEST_F(ExchangeTest, SkipSaysWhichOfTwoOfOneNameIsLeftOut) {
  {
    ASSERT_OK_AND_ASSIGN(Store store, Store::Open(scratch_ / "store",
                                                  {.create_if_missing = true}));
    const float one = 1;
    StepBuilder builder = store.Begin(1);
    for (const char* key : {"a/b", "a.b"}) {
      builder.Put(key, {.dtype = DType::kFloat32, .data = &one});
    }
    ASSERT_OK(std::move(builder).Commit().WaitCommitted(absl::Minutes(1)));
    ASSERT_OK(store.Close());
  }
  const Result result =
      In("store", {"export", "1", scratch_ / "out.npz", "--skip"});
  EXPECT_EQ(result.code, 0);
  // Which of the two is first is the order of keys.
  const std::string first =
      json::parse(In("store", {"ls", "--json"}).out)["leaves"][0]["key"];
  EXPECT_THAT(result.err,
              HasSubstr(absl::StrFormat(
                  "left out: `%s`: its name would be `a.b`, as that of `%s` is",
                  first == "a/b" ? "a.b" : "a/b", first)));
}

// Every type, to every format that an import reads, and back.
TEST_F(ExchangeTest, WhatIsExportedComesBackAsItWas) {
  std::vector<DType> types;
  {
    ASSERT_OK_AND_ASSIGN(Store store, Store::Open(scratch_ / "store",
                                                  {.create_if_missing = true}));
    StepBuilder builder = store.Begin(1);
    std::vector<std::vector<std::uint8_t>> kept;
    for (const DType dtype : AllDTypes()) {
      const auto width =
          static_cast<std::size_t>(IsSubByte(dtype) ? 1 : BitWidth(dtype) / 8);
      std::vector<std::uint8_t>& bytes =
          kept.emplace_back(6 * width, std::uint8_t{0});
      // Of all types small numbers, none of them NaN; bools are 0 and 1.
      for (std::size_t i = 0; i < bytes.size(); ++i) {
        bytes[i] =
            static_cast<std::uint8_t>(i % width == 0 ? i / width % 2 : 0);
      }
      builder.Put(std::string(Name(dtype)),
                  {.dtype = dtype, .shape = {2, 3}, .data = bytes.data()});
      types.push_back(dtype);
    }
    ASSERT_OK(std::move(builder).Commit().WaitCommitted(absl::Minutes(1)));
    ASSERT_OK(store.Close());
  }
  ASSERT_GT(types.size(), 25u);
  const std::string file = scratch_ / "all.npz";
  ASSERT_EQ(In("store", {"export", "1", file}).code, 0);
  const Result diff = In("store", {"diff", "1", file});
  EXPECT_EQ(diff.code, 0) << diff.out;
  ASSERT_EQ(In("back", {"import", file, "--step", "1"}).code, 0);
  for (const DType dtype : types) {
    const std::string key = absl::StrFormat("latest:%s", Name(dtype));
    EXPECT_EQ(json::parse(In("back", {"get", key, "--json"}).out)["leaves"],
              json::parse(In("store", {"get", key, "--json"}).out)["leaves"])
        << key;
  }
  // One by one, and as `get` writes it.
  const std::string folder = scratch_ / "folder";
  ASSERT_EQ(In("store", {"export", "1", folder, "--format", "npy"}).code, 0);
  for (const DType dtype : types) {
    const std::string npy = absl::StrFormat("%s/%s.npy", folder, Name(dtype));
    EXPECT_THAT(Run({"ls", npy}).out, HasSubstr(std::string(Name(dtype))));
    const std::string own = scratch_ / "own.npy";
    ASSERT_EQ(
        In("store", {"get", absl::StrFormat("1:%s", Name(dtype)), "--out", own})
            .code,
        0);
    EXPECT_EQ(ReadFile(own), ReadFile(npy));
  }
}

// Keys that need quotes in a path, by the names that a file of PyTorch has.
TEST_F(ExchangeTest, NamesOfAStepAndOfAFileOfPyTorchMatch) {
  const std::vector<std::string> parts = {"новый", "layer one", "a/b",
                                          "a:b",   "a=b",       "say \"x\"",
                                          "it's",  "w",         "日本"};
  json arrays = json::array();
  {
    ASSERT_OK_AND_ASSIGN(Store store, Store::Open(scratch_ / "store",
                                                  {.create_if_missing = true}));
    StepBuilder builder = store.Begin(1);
    const float one = 1;
    for (const std::string& part : parts) {
      Path path;
      path.Key("params").Key(part);
      // As ckptree.torch names what torch.save() has of an export.
      Path flat;
      flat.Key("params." + part);
      arrays.push_back(
          {{"name", flat.Text()}, {"dtype", "float32"}, {"shape", {1}}});
      builder.Put(path, {.dtype = DType::kFloat32, .shape = {1}, .data = &one});
    }
    ASSERT_OK(std::move(builder).Commit().WaitCommitted(absl::Minutes(1)));
    ASSERT_OK(store.Close());
  }
  Write("python/ckptree/__init__.py", "");
  Write("python/ckptree/torch/__init__.py", "");
  Write("python/ckptree/torch/__main__.py", R"(
import os, struct, sys
def main():
  text = open(os.path.join(os.path.dirname(__file__), "said.json")).read()
  out = sys.stdout.buffer
  out.write(text.encode() + b"\n")
  out.flush()
  for line in sys.stdin:
    out.write(struct.pack("<qf", 4, 1.0))
    out.flush()
)");
  Write("python/ckptree/torch/said.json", json{{"arrays", arrays}}.dump());
  setenv("PYTHONPATH", (scratch_ / "python").c_str(), 1);
  setenv("CKPTREE_PYTHON", "python3", 1);
  Write("c.pt", "PK\x03\x04");
  const std::string file = scratch_ / "c.pt";
  Result diff = In("store", {"diff", "1", file});
  EXPECT_EQ(diff.code, 0) << diff.out << diff.err;
  EXPECT_THAT(diff.out, HasSubstr(absl::StrFormat("%d arrays are the same",
                                                  parts.size())));
  diff = In("store", {"diff", file + ":\"params.layer one\"", "1"});
  EXPECT_EQ(diff.code, 0) << diff.out << diff.err;
  EXPECT_THAT(diff.out, HasSubstr("1 array is the same"));
}

TEST_F(ExchangeTest, OfAFileOneWordIsAsked) {
  MakeStore(scratch_ / "store");
  const std::string file = scratch_ / "w.npz";
  ASSERT_EQ(In("store", {"export", "500:params", file}).code, 0);
  const Result two = Run({"stat", file, "params.w"});
  EXPECT_EQ(two.code, 2);
  EXPECT_THAT(two.err, AllOf(HasSubstr("FILE:KEY"),
                             HasSubstr("stat " + file + ":params.w")));
  EXPECT_EQ(Run({"stat", file + ":params.w"}).code, 0);
}

// Nested as the shape is, where a dimension is 0, too.
TEST_F(ExchangeTest, EmptyArraysAreNestedInJson) {
  const std::vector<std::pair<Shape, json>> shapes = {
      {{3, 0, 2}, {json::array(), json::array(), json::array()}},
      {{0, 2}, json::array()},
      {{1, 2, 0}, {{json::array(), json::array()}}},
      {{0}, json::array()}};
  {
    ASSERT_OK_AND_ASSIGN(Store store, Store::Open(scratch_ / "store",
                                                  {.create_if_missing = true}));
    StepBuilder builder = store.Begin(1);
    const float none = 0;
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      builder.Put(
          absl::StrFormat("a%d", i),
          {.dtype = DType::kFloat32, .shape = shapes[i].first, .data = &none});
    }
    ASSERT_OK(std::move(builder).Commit().WaitCommitted(absl::Minutes(1)));
    ASSERT_OK(store.Close());
  }
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    const Result got =
        In("store", {"get", absl::StrFormat("1:a%d", i), "--json"});
    EXPECT_EQ(got.code, 0) << got.err;
    EXPECT_THAT(got.out, HasSubstr("\"data\":" + shapes[i].second.dump()));
  }
}

}  // namespace
}  // namespace ckptree
