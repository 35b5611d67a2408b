// SPDX-License-Identifier: Apache-2.0

// Files of arrays that are cut, damaged, or lie, and the command on them.

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>
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
using ::testing::StartsWith;

std::string LittleEndian(std::uint64_t value, int bytes = 8) {
  std::string text;
  for (int i = 0; i < bytes; ++i) {
    text += static_cast<char>(value >> (8 * i) & 0xff);
  }
  return text;
}

std::string Safetensors(const std::string& head, const std::string& data) {
  return LittleEndian(head.size()) + head + data;
}

std::string Npy(const std::string& head, const std::string& data) {
  return std::string("\x93NUMPY\x01\x00", 8) + LittleEndian(head.size(), 2) +
         head + data;
}

const char* const kOne =
    R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
const std::string kEight("\0\0\x80\x3f\0\0\0\x40", 8);  // 1, 2

class FilesTest : public CommandRunner {
 protected:
  std::string Write(const std::string& name, const std::string& bytes) {
    const std::string path = scratch_ / name;
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }
  // One line on standard error, with `text`, and exit code 2.
  void Refused(const std::string& path, const std::string& text) {
    for (const char* verb : {"ls", "show", "stat", "get"}) {
      const Result result = Run({verb, path});
      EXPECT_EQ(result.code, 2) << path << ": " << result.out << result.err;
      EXPECT_THAT(result.err, AllOf(HasSubstr(text), HasSubstr(path)));
      EXPECT_EQ(result.out, "");
    }
    const std::string store = scratch_ / "none";
    EXPECT_EQ(Run({"-C", store, "import", path, "--step", "1"}).code, 2);
    EXPECT_FALSE(std::filesystem::exists(store));
  }
};

TEST_F(FilesTest, WhatIsRightIsRead) {
  const std::string tensors = Write("a.safetensors", Safetensors(kOne, kEight));
  EXPECT_EQ(Run({"get", tensors + ":w"}).out, "[1.0 2.0]\n");
  const std::string npy =
      Write("b.npy",
            Npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }\n",
                kEight));
  EXPECT_EQ(Run({"get", npy}).out, "[1.0 2.0]\n");
  EXPECT_EQ(Run({"-C", tensors, "get", "latest:w[1]"}).out, "2.0\n");
  EXPECT_EQ(Run({"-C", tensors, "get", "100:w"}).code, 2);
  EXPECT_EQ(Run({"get", tensors + ":v"}).code, 3);
  EXPECT_EQ(Run({"get", tensors + ":w[5]"}).code, 2);
  EXPECT_EQ(Run({"diff", tensors, tensors}).code, 0);
  EXPECT_EQ(Run({"diff", tensors, npy}).code, 1);
  EXPECT_EQ(Run({"diff", tensors}).code, 2);
  EXPECT_EQ(Run({"ls", tensors, "--depth", "1"}).code, 2);
  EXPECT_THAT(Run({"show", tensors}).out, HasSubstr("safetensors"));
}

TEST_F(FilesTest, AStepAndAFile) {
  const std::string store = scratch_ / "store";
  MakeStore(store);
  const std::string file = scratch_ / "w.safetensors";
  ASSERT_EQ(Run({"-C", store, "export", "300:params", file, "--skip"}).code, 0);
  Result diff = Run({"-C", store, "diff", "300:params.**", file});
  EXPECT_THAT(diff.out, HasSubstr("removed  params.nibbles"));
  EXPECT_EQ(diff.code, 1);
  diff = Run({"-C", store, "diff", file, "400", "--values", "--json"});
  EXPECT_EQ(diff.code, 1);
  EXPECT_THAT(diff.out,
              AllOf(HasSubstr("\"changed\""), HasSubstr("\"params.w\""),
                    HasSubstr("\"max_abs\": 100.0")));
  diff = Run({"-C", store, "diff", file + ":params.w", "400:params.nibbles"});
  EXPECT_EQ(diff.code, 2);
  EXPECT_THAT(diff.err, HasSubstr("two names"));
}

TEST_F(FilesTest, DifferencesAreExactAndSayWhatTheyLeaveOut) {
  const auto file = [this](const char* name, std::string_view dtype,
                           const std::string& bytes) {
    return Write(
        name, Safetensors(absl::StrFormat(R"({"w":{"dtype":"%s","shape":[2],)"
                                          R"("data_offsets":[0,16]}})",
                                          dtype),
                          bytes));
  };
  const auto of = [](auto first, auto second) {
    std::string bytes(16, '\0');
    std::memcpy(bytes.data(), &first, 8);
    std::memcpy(bytes.data() + 8, &second, 8);
    return bytes;
  };
  const auto diff = [this](const std::string& a, const std::string& b) {
    const Result result = Run({"diff", a, b, "--values", "--json"});
    EXPECT_EQ(result.code, 1) << result.err;
    return nlohmann::json::parse(result.out)["changes"][0];
  };
  constexpr std::int64_t kLarge = std::int64_t{1} << 53;
  nlohmann::json change =
      diff(file("a.safetensors", "I64", of(kLarge, kLarge)),
           file("b.safetensors", "I64", of(kLarge + 1, kLarge)));
  EXPECT_EQ(change["max_abs"], 1.0);
  EXPECT_EQ(change["changed_elements"], 1);
  // Of zeros there is no ratio.
  change = diff(file("a.safetensors", "F64", of(0.0, 0.0)),
                file("b.safetensors", "F64", of(0.5, 0.0)));
  EXPECT_EQ(change["relative"], "Infinity");
  // What is not finite is in no difference, and is counted.
  const std::string finite = file("a.safetensors", "F64", of(1.0, 2.0));
  const std::string other = file("b.safetensors", "F64", of(std::nan(""), 3.0));
  change = diff(finite, other);
  EXPECT_EQ(change["max_abs"], 1.0);
  EXPECT_EQ(change["nan_before"], 0);
  EXPECT_EQ(change["nan_after"], 1);
  EXPECT_THAT(Run({"diff", finite, other, "--values"}).out,
              AllOf(HasSubstr("NAN AFTER"),
                    HasSubstr("differences are of the finite elements")));
}

TEST_F(FilesTest, WhatAKilledExportLeftGoesWithTheNext) {
  const std::string from = Write("a.safetensors", Safetensors(kOne, kEight));
  const std::string dead = Write("old.npz.4711.ckptree.tmp", "half");
  const std::string living = Write("out.npz.4712.ckptree.tmp", "half");
  const int held = open(living.c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_EQ(flock(held, LOCK_EX), 0);
  for (const char* format : {"npz", "safetensors", "npy", "raw"}) {
    const std::string out = scratch_ / (std::string("out-") + format);
    EXPECT_EQ(Run({"export", from, out, "--format", format}).code, 0);
    EXPECT_FALSE(std::filesystem::exists(dead)) << format;
    EXPECT_EQ(ReadFile(living), "half") << format;
    Write("old.npz.4711.ckptree.tmp", "half");
  }
  EXPECT_EQ(Run({"get", from + ":w", "--out", scratch_ / "w.npy"}).code, 0);
  EXPECT_FALSE(std::filesystem::exists(dead));
  EXPECT_EQ(ReadFile(living), "half");
  close(held);
}

TEST_F(FilesTest, WhatIsNoFileStaysWhatItIs) {
  const std::string from = Write("a.safetensors", Safetensors(kOne, kEight));
  const std::string pipe = scratch_ / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  for (const char* force : {"--quiet", "--force"}) {
    const Result refused =
        Run({"export", from, pipe, "--format", "npz", force});
    EXPECT_EQ(refused.code, 2);
    EXPECT_THAT(refused.err, HasSubstr("a pipe or a device"));
    EXPECT_TRUE(std::filesystem::is_fifo(pipe));
  }
  // Where a link leads to is written, also where that is not there yet.
  for (const char* format : {"npz", "safetensors"}) {
    const std::string target = scratch_ / (std::string("target-") + format);
    const std::string link = scratch_ / (std::string("link-") + format);
    std::filesystem::create_symlink(std::filesystem::path(target).filename(),
                                    link);
    for (const char* force : {"--quiet", "--force"}) {
      EXPECT_EQ(Run({"export", from, link, "--format", format, force}).code, 0);
      EXPECT_TRUE(std::filesystem::is_symlink(link));
      EXPECT_GT(std::filesystem::file_size(target), 0u);
      Write(std::filesystem::path(target).filename(), "");
    }
  }
  // A pipe that an index names is not waited for.
  std::filesystem::create_symlink(pipe, scratch_ / "p.safetensors");
  const Result waits =
      Run({"ls", Write("i.safetensors.index.json",
                       R"({"weight_map":{"w":"p.safetensors"}})")});
  EXPECT_EQ(waits.code, 2);
  EXPECT_THAT(waits.err, HasSubstr("p.safetensors is no regular file"));
}

// What an index does not name would be left out.
TEST_F(FilesTest, AnIndexNamesAllThatIsInItsFiles) {
  Write("two.safetensors",
        Safetensors(R"({"s":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                    R"("t":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
                    kEight));
  const auto index = [this](const std::string& map) {
    return Write("m.safetensors.index.json", "{\"weight_map\":{" + map + "}}");
  };
  Refused(index(R"("s":"two.safetensors")"), "does not name the array `t`");
  const Result both =
      Run({"ls", index(R"("s":"two.safetensors","t":"two.safetensors")")});
  EXPECT_EQ(both.code, 0) << both.err;
}

TEST_F(FilesTest, LyingHeads) {
  const auto tensors = [this](const std::string& head, const char* text) {
    Refused(Write("x.safetensors", Safetensors(head, kEight)), text);
  };
  Refused(Write("x.safetensors", ""), "too short");
  Refused(Write("x.safetensors", LittleEndian(1ull << 62) + "{}"),
          "does not fit");
  tensors("[]", "not the JSON");
  tensors("{\"w\":1}", "has no dtype");
  tensors(std::string(5000, '['), "not the JSON");
  tensors(R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,16]}})",
          "outside of the file");
  tensors(R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})",
          "outside of the file");
  tensors(R"({"w":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})",
          "its shape wants 12");
  tensors(R"({"w":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
          R"("w":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
          "its array `w` is there twice");
  tensors(R"({"a":{"dtype":"U8","shape":[6],"data_offsets":[0,6]},)"
          R"("b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
          "its array `b` lies over `a`");
  tensors(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
          R"("b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
          "2 bytes before its array `b` are of none");
  tensors(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})",
          "the last 6 bytes are of no array");
  tensors(R"({"w":{"dtype":"F32","shape":[-1],"data_offsets":[0,8]}})",
          "an impossible shape");
  tensors(R"({"w":{"dtype":"F32","shape":[4294967296,4294967296],)"
          R"("data_offsets":[0,0]}})",
          "impossibly large");
  const auto npy = [this](const std::string& head, const char* text) {
    Refused(Write("x.npy", Npy(head, kEight)), text);
  };
  Refused(Write("x.npy", "\x93NUMPY"), "too short");
  npy("{}", "not that of an npy");
  npy("{'descr': '<f4', 'fortran_order': False, 'shape': (3,)}",
      "its shape wants 12");
  npy("{'descr': '<f4', 'fortran_order': False, 'shape': (-3,)}",
      "not that of an npy");
  npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2,",
      "not that of an npy");
  npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2)}",
      "not that of an npy");
  for (const char* behind : {", 1}", " + 1", "}"}) {
    npy(std::string("{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}") +
            behind,
        "not that of an npy");
  }
  npy("{'descr': '<f4', 'fortran_order': False, "
      "'shape': (99999999999, 99999999999)}",
      "impossibly large");
  Refused(Write("x.npz", "PK\x05\x06"), "no npz file");
  Refused(Write("x.npz", std::string(300, 'x')), "no npz file");
  const auto gguf = [this](const std::string& rest, const char* text) {
    Refused(Write("x.gguf", "GGUF" + rest), text);
  };
  gguf("", "cut");
  gguf(LittleEndian(9, 4), "version 9");
  gguf(LittleEndian(3, 4) + LittleEndian(1ull << 60) + LittleEndian(0), "cut");
  gguf(LittleEndian(3, 4) + LittleEndian(0) + LittleEndian(1) +
           LittleEndian(1ull << 63) + std::string(64, 'k'),
       "cut");
  gguf(LittleEndian(3, 4) + LittleEndian(1) + LittleEndian(0) +
           LittleEndian(1) + "w" + LittleEndian(1, 4) + LittleEndian(4) +
           LittleEndian(0, 4) + LittleEndian(0),
       "outside of the file");
}

TEST_F(FilesTest, ANameThatNoLeafCanHaveIsNoDamage) {
  const std::string path = Write(
      "x.safetensors",
      Safetensors(R"({"":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
                  kEight));
  Refused(path, "its array `` has a name that no leaf can have");
  const Result result = Run({"ls", path});
  EXPECT_THAT(result.err, Not(HasSubstr("damaged")));
  EXPECT_THAT(result.err, Not(HasSubstr("copy it again")));
}

TEST_F(FilesTest, NamesThatNeedAnotherBeforeThem) {
  const std::string long_name(200, 'x');
  for (const std::string& name :
       {std::string("[3]"), std::string("{0}"), long_name}) {
    const std::string path =
        Write("x.safetensors",
              Safetensors(
                  "{\"" + name +
                      R"(":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
                  kEight));
    const std::string none = scratch_ / "none";
    const Result refused = Run({"-C", none, "import", path, "--step", "1"});
    EXPECT_EQ(refused.code, 2);
    EXPECT_THAT(refused.err, HasSubstr("--under NAME"));
    EXPECT_FALSE(std::filesystem::exists(none));
    const std::string store = scratch_ / "store";
    EXPECT_EQ(
        Run({"-C", store, "import", path, "--step", "1", "--under", "all"})
            .code,
        0);
    std::filesystem::remove_all(store);
  }
}

TEST_F(FilesTest, ExportSaysWhichNamesItDidNotFind) {
  const std::string path = Write("a.safetensors", Safetensors(kOne, kEight));
  const std::string out = scratch_ / "out.safetensors";
  const Result result = Run({"export", path, out, "--strip", "nope", "--rename",
                             "params/out=head", "--rename", "w=v"});
  EXPECT_EQ(result.code, 2);
  EXPECT_FALSE(std::filesystem::exists(out));
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("--strip nope: no name begins with `nope.`"),
                    HasSubstr("--rename params/out=head: no name is or begins "
                              "so"),
                    HasSubstr("one is `w`")));
  EXPECT_THAT(result.err, Not(HasSubstr("w=v")));
}

TEST_F(FilesTest, OrbaxHasNoArraysWithoutElements) {
  const std::string path = Write(
      "a.safetensors", Safetensors(R"({"none":{"dtype":"F32","shape":[0,3],)"
                                   R"("data_offsets":[0,0]}})",
                                   ""));
  const std::string out = scratch_ / "out";
  const Result result = Run({"export", path, out, "--format", "orbax"});
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("`none` has no elements"), HasSubstr("--skip")));
  EXPECT_FALSE(std::filesystem::exists(out));
}

TEST_F(FilesTest, AFullDiskIsOneError) {
  const std::string data(1 << 20, 'x');
  const std::string path = Write(
      "a.safetensors", Safetensors(R"({"w":{"dtype":"U8","shape":[1048576],)"
                                   R"("data_offsets":[0,1048576]}})",
                                   data));
  const std::string store = scratch_ / "store";
  ASSERT_EQ(Run({"-C", store, "import", path, "--step", "1"}).code, 0);
  const std::string err = scratch_ / "err";
  for (const std::string& words :
       {"-C '" + store + "' get latest:w", "get '" + path + ":w'"}) {
    const std::string line = std::string(CKPTREE_BINARY) + " " + words +
                             " -o raw > /dev/full 2> '" + err + "'";
    EXPECT_NE(std::system(line.c_str()), 0);
    EXPECT_THAT(ReadFile(err),
                AllOf(StartsWith("ckptree: the output cannot be "),
                      Not(HasSubstr("ckptree: \n"))));
  }
}

TEST_F(FilesTest, ASlashBehindAKeyNamesWhatIsBelow) {
  const std::string path = Write(
      "a.safetensors",
      Safetensors(R"({"a/w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
                  kEight));
  EXPECT_EQ(Run({"ls", path + ":a/"}).out, Run({"ls", path}).out);
}

TEST_F(FilesTest, TypesThatAreNotReadAreListed) {
  const std::string path = Write(
      "a.safetensors",
      Safetensors(R"({"w":{"dtype":"F4","shape":[4],"data_offsets":[0,2]}})",
                  "ab"));
  EXPECT_THAT(Run({"ls", path}).out, HasSubstr("F4"));
  const Result result = Run({"get", path + ":w"});
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("F4 is not known"));
  const std::string big = Write(
      "b.npy",
      Npy("{'descr': '>f4', 'fortran_order': False, 'shape': (2,), }", kEight));
  EXPECT_THAT(Run({"get", big}).err, HasSubstr("big-endian"));
  // Two bytes without an order are no bfloat16, which has one.
  const std::string blank = Write(
      "c.npy",
      Npy("{'descr': '|V2', 'fortran_order': False, 'shape': (4,), }", kEight));
  EXPECT_THAT(Run({"get", blank}).err, HasSubstr("|V2 is not known"));
  const std::string half = Write(
      "d.npy",
      Npy("{'descr': '<V2', 'fortran_order': False, 'shape': (4,), }", kEight));
  EXPECT_THAT(Run({"ls", half}).out, HasSubstr("bfloat16"));
  // What import refuses leaves no store.
  const std::string store = scratch_ / "none";
  for (const std::string& file : {path, big, blank}) {
    EXPECT_EQ(Run({"-C", store, "import", file, "--step", "1"}).code, 2);
    EXPECT_EQ(Run({"-C", store, "import", file, "--step", "1", "--skip"}).code,
              2);
  }
  const std::string clash = Write(
      "e.safetensors",
      Safetensors(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                  R"("a/b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
                  kEight));
  const Result refused = Run({"-C", store, "import", clash, "--step", "1"});
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, AllOf(HasSubstr(clash), HasSubstr("a/b")));
  EXPECT_FALSE(std::filesystem::exists(store));
}

TEST_F(FilesTest, AFileThatIsNotThereIsNoStep) {
  const std::string store = scratch_ / "store";
  MakeStore(store);
  for (const char* verb : {"ls", "show", "get"}) {
    const Result result =
        Run({"-C", store, verb, scratch_ / "none.safetensors"});
    EXPECT_EQ(result.code, 3);
    EXPECT_THAT(result.err, HasSubstr("there is no"));
  }
}

std::string GgufText(const std::string& text) {
  return LittleEndian(text.size()) + text;
}

// A .gguf file of metadata, and of `w`, float32[2], at `offset` behind what
// fills the head to a multiple of `alignment`.
std::string Gguf(const std::vector<std::string>& values,
                 std::uint64_t offset = 0, std::size_t alignment = 32) {
  std::string file = "GGUF" + LittleEndian(3, 4) + LittleEndian(1) +
                     LittleEndian(values.size());
  for (const std::string& value : values) file += value;
  file += GgufText("w") + LittleEndian(1, 4) + LittleEndian(2) +
          LittleEndian(0, 4) + LittleEndian(offset);
  file.resize((file.size() + alignment - 1) / alignment * alignment);
  return file + std::string(offset, '\0') + kEight;
}

TEST_F(FilesTest, ArraysOfGgufBeginWhereItsAlignmentSays) {
  const auto alignment = [](int type, std::uint64_t value, int bytes) {
    return GgufText("general.alignment") +
           LittleEndian(static_cast<std::uint64_t>(type), 4) +
           LittleEndian(value, bytes);
  };
  const std::string right =
      Write("x.gguf", Gguf({alignment(4, 128, 4)}, 0, 128));
  EXPECT_EQ(Run({"get", right + ":w"}).out, "[1.0 2.0]\n");
  Refused(Write("x.gguf", Gguf({alignment(10, 128, 8)}, 0, 128)),
          "its general.alignment is a value of type 10");
  for (const std::uint64_t wrong : {0ull, 7ull, 48ull, 1ull << 21}) {
    Refused(Write("x.gguf", Gguf({alignment(4, wrong, 4)}, 0, 48)),
            absl::StrFormat("its general.alignment is %d", wrong));
  }
  Refused(Write("x.gguf", Gguf({}, 4)),
          "its array `w` begins at 4, which is no multiple of its alignment");
  Refused(Write("x.gguf", Gguf({alignment(4, 64, 4), alignment(4, 64, 4)})),
          "its metadata has `general.alignment` twice");
}

TEST_F(FilesTest, WhatGgufSaysOfItselfIsImportedWhole) {
  const std::string store = scratch_ / "store";
  const std::string text(300, 't');
  const std::string list = GgufText("tokens") + LittleEndian(9, 4) +
                           LittleEndian(8, 4) + LittleEndian(3) +
                           GgufText("a") + GgufText("\"\\\n") + GgufText("");
  const std::string numbers = GgufText("numbers") + LittleEndian(9, 4) +
                              LittleEndian(5, 4) + LittleEndian(2) +
                              LittleEndian(7, 4) + LittleEndian(~0ull, 4);
  const std::string path =
      Write("x.gguf",
            Gguf({GgufText("template") + LittleEndian(8, 4) + GgufText(text),
                  list, numbers}));
  ASSERT_EQ(Run({"-C", store, "import", path, "--step", "1"}).code, 0);
  ASSERT_OK_AND_ASSIGN(Store opened, Store::Open(store, {.read_only = true}));
  ASSERT_OK_AND_ASSIGN(Step step, opened.OpenStep(Latest()));
  ASSERT_OK_AND_ASSIGN(const StepMetadata metadata, step.Metadata());
  const auto said =
      nlohmann::json::parse(metadata.custom)["imported"]["metadata"];
  EXPECT_EQ(said["template"], text);
  EXPECT_EQ(nlohmann::json::parse(said["tokens"].get<std::string>()),
            (nlohmann::json{"a", "\"\\\n", ""}));
  EXPECT_EQ(said["numbers"], "[7,-1]");
  // People are shown the beginning.
  EXPECT_THAT(Run({"show", path}).out,
              HasSubstr(std::string(200, 't') + "...\n"));
}

TEST_F(FilesTest, MetadataThatAStepCannotHoldIsNamed) {
  const std::string store = scratch_ / "store";
  const auto skipped = [&](const std::string& path, const std::string& why) {
    std::vector<std::string> words = {"-C", store,    "import",
                                      path, "--step", "1"};
    Result result = Run(words);
    EXPECT_EQ(result.code, 2);
    EXPECT_THAT(result.err, AllOf(HasSubstr(path), HasSubstr(why)));
    EXPECT_FALSE(std::filesystem::exists(store));
    words.emplace_back("--skip");
    result = Run(words);
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_THAT(result.err, HasSubstr("left out: metadata " + why));
    std::filesystem::remove_all(store);
  };
  skipped(Write("x.gguf", Gguf({GgufText("name") + LittleEndian(8, 4) +
                                GgufText("\xff\xfe")})),
          "`name` is no UTF-8");
  const std::string map =
      R"({"__metadata__":{"short":"s","long":")" + std::string(9 << 20, 'l') +
      R"("},"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  skipped(Write("x.safetensors", Safetensors(map, kEight)),
          "`long`: with it they take");
  const auto tensors = [this](const std::string& said, const char* text) {
    Refused(
        Write(
            "x.safetensors",
            Safetensors(
                R"({"__metadata__":)" + said +
                    R"(,"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
                kEight)),
        text);
  };
  tensors("null", "its __metadata__ is no map");
  tensors("[1]", "its __metadata__ is no map");
  tensors(R"({"a":"1","b":"2","a":"3"})", "its metadata has `a` twice");
}

// What Python itself says of such files: python/tests/command_files_test.py.
TEST_F(FilesTest, WithoutPythonItIsSaidWhatToInstall) {
  setenv("CKPTREE_PYTHON", "/nowhere/python", 1);
  Refused(Write("model.pt", "x"), "with torch and safetensors: install them");
  const std::string dcp = scratch_ / "dcp";
  std::filesystem::create_directory(dcp);
  std::ofstream(dcp + "/.metadata") << "x";
  Refused(dcp, "`/nowhere/python` cannot be run");
  const std::string orbax = scratch_ / "orbax";
  std::filesystem::create_directory(orbax);
  std::ofstream(orbax + "/_CHECKPOINT_METADATA") << "{}";
  Refused(orbax, "with orbax-checkpoint: install them");
  unsetenv("CKPTREE_PYTHON");
}

TEST_F(FilesTest, ImportSaysWhatIsWrong) {
  const std::string store = scratch_ / "store";
  const std::string path = Write("a.safetensors", Safetensors(kOne, kEight));
  Result result = Run({"-C", store, "import", path});
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("--step N"));
  EXPECT_EQ(Run({"-C", store, "import", path, path, "--step", "1"}).code, 2);
  EXPECT_EQ(Run({"-C", store, "import", scratch_ / "no"}).code, 3);
  EXPECT_FALSE(std::filesystem::exists(store));
  EXPECT_EQ(
      Run({"-C", store, "import", path, "--step", "7", "--under", "params"})
          .code,
      0);
  EXPECT_EQ(Run({"-C", store, "get", "7:params/w"}).out, "[1.0 2.0]\n");
  result = Run({"-C", store, "import", path, "--step", "7"});
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("--new"));
}

}  // namespace
}  // namespace ckptree
