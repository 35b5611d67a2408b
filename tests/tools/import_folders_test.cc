// SPDX-License-Identifier: Apache-2.0

// `ckptree import` of folders of several checkpoints, of files with very many
// arrays, and what stays of an import that failed or was ended.

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/tools/command_runner.h"

namespace ckptree {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

namespace fs = std::filesystem;

std::string Safetensors(const std::string& head, const std::string& data) {
  std::string text;
  for (int i = 0; i < 8; ++i) {
    text += static_cast<char>(head.size() >> (8 * i) & 0xff);
  }
  return text + head + data;
}

const std::string kOne =
    Safetensors(R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
                std::string(4, '\0'));

// Of `count` arrays of one byte.
std::string ManyArrays(int count) {
  std::string head = "{";
  for (int i = 0; i < count; ++i) {
    absl::StrAppendFormat(
        &head, R"(%s"%d":{"dtype":"U8","shape":[1],"data_offsets":[%d,%d]})",
        i == 0 ? "" : ",", i, i, i + 1);
  }
  return Safetensors(head + "}",
                     std::string(static_cast<std::size_t>(count), '\1'));
}

class ImportFoldersTest : public CommandRunner {
 protected:
  ImportFoldersTest() : store_(scratch_ / "store"), runs_(scratch_ / "runs") {}
  ~ImportFoldersTest() override {
    unsetenv("CKPTREE_PYTHON");
    unsetenv("PYTHONPATH");
  }

  void Write(const std::string& name, const std::string& bytes) {
    const fs::path path = fs::path(scratch_ / name);
    fs::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << bytes;
  }
  // Python, with a ckptree.torch whose main() is `body`.
  void ReplacePython(const std::string& body) {
    Write("python/ckptree/__init__.py", "");
    Write("python/ckptree/torch/__init__.py", "");
    Write("python/ckptree/torch/__main__.py",
          "import os, signal, sys\ndef main():\n" + body);
    setenv("PYTHONPATH", (scratch_ / "python").c_str(), 1);
    setenv("CKPTREE_PYTHON", "python3", 1);
  }
  // The import is refused, names `text`, and no store is there.
  void Refused(const std::string& text) {
    const Result result = Run({"-C", store_, "import", runs_});
    EXPECT_EQ(result.code, 2) << result.out << result.err;
    EXPECT_THAT(result.err, HasSubstr(text));
    EXPECT_FALSE(fs::exists(store_));
  }

  const std::string store_, runs_;
};

// Beside files of others, too, a store that got nothing goes.
TEST_F(ImportFoldersTest, NoEmptyStoreIsLeftBesideFilesOfOthers) {
  fs::create_directories(runs_ + "/checkpoint-6");
  fs::create_directories(store_);
  std::ofstream(store_ + "/config.yaml") << "mine";
  const std::string broken = scratch_ / "x.safetensors";
  std::ofstream(broken) << "x";
  for (const std::string& from : {runs_, broken}) {
    const Result result = Run({"-C", store_, "import", from, "--step", "1"});
    // The folder has checkpoints, and none of that step.
    EXPECT_EQ(result.code, from == runs_ ? 3 : 2) << result.out << result.err;
    EXPECT_THAT(result.err, HasSubstr(from == runs_ ? "of step 1" : "x.safe"));
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(store_)) {
      names.push_back(entry.path().filename());
    }
    EXPECT_EQ(names, std::vector<std::string>{"config.yaml"});
  }
  EXPECT_EQ(fs::file_size(store_ + "/config.yaml"), 4u);
}

TEST_F(ImportFoldersTest, NoStepIsLeftOut) {
  Write("runs/checkpoint-5/model.safetensors", kOne);
  const std::string other = runs_ + "/checkpoint-6";
  fs::create_directories(other);
  Refused(other);
  Write("runs/checkpoint-6/a.safetensors", kOne);
  Write("runs/checkpoint-6/b.safetensors", kOne);
  Refused(other);
  // Step 5 alone can be had.
  EXPECT_EQ(Run({"-C", store_, "import", runs_, "--step", "5"}).code, 0);
  fs::remove_all(store_);
  fs::remove_all(other);
  fs::create_directories(other);
  Write("runs/checkpoint-6/_CHECKPOINT_METADATA", "{}");
  setenv("CKPTREE_PYTHON", "/none", 1);
  Refused(runs_ + "/checkpoint-5");
  // And steps beside a file of their folder's own.
  fs::remove_all(other);
  Write("runs/model.safetensors", kOne);
  Refused(runs_ + "/checkpoint-5");
}

// Of several files the one that failed, and what is saved.
TEST_F(ImportFoldersTest, AFileThatFailsIsNamedAndWhatIsSavedBefore) {
  MakeStore(scratch_ / "from");
  const std::string damaged = scratch_ / "step_2.npz";
  ASSERT_EQ(
      Run({"-C", scratch_ / "from", "export", "100:params/w", damaged}).code,
      0);
  std::string bytes = ReadFile(damaged);
  bytes[bytes.size() / 2] ^= 1;  // Of 12 KiB, which nobody reads before.
  Write("step_2.npz", bytes);
  for (const char* name : {"step_1.safetensors", "step_3.safetensors"}) {
    Write(name, kOne);
  }
  Result result = Run({"-C", store_, "import", scratch_ / "step_1.safetensors",
                       damaged, scratch_ / "step_3.safetensors"});
  EXPECT_EQ(result.code, 2) << result.out;
  EXPECT_THAT(result.err, AllOf(HasSubstr(damaged + " is damaged"),
                                HasSubstr("; step 1 is saved\n")));
  // And of those that Python reads. It saves one, by other means here.
  Write("step_5.pt", "");
  Write("step_6.pt", "");
  ReplacePython(absl::StrFormat(R"(
  import subprocess
  if sys.argv[2].endswith("step_5.pt"):
    subprocess.run(["%s", "-C", sys.argv[3], "-q", "import", "%s", "--step=5"],
                   check=True, stdout=sys.stderr)
    print('{"steps": [5]}')
    return 0
  print("it is cut", file=sys.stderr)
  return 1
)",
                                CKPTREE_BINARY,
                                scratch_ / "step_1.safetensors"));
  result = Run(
      {"-C", store_, "import", scratch_ / "step_5.pt", scratch_ / "step_6.pt"});
  EXPECT_EQ(result.code, 2) << result.out;
  EXPECT_THAT(result.err, HasSubstr(scratch_ / "step_6.pt" +
                                    ": it is cut; step 5 is saved\n"));
}

TEST_F(ImportFoldersTest, WhatPythonReadsIsReadByIt) {
  // What it is called with comes back in its failure.
  ReplacePython("  sys.stderr.write(' '.join(sys.argv[1:3])); return 1\n");
  Write("runs/checkpoint-5/model.safetensors", kOne);
  Write("runs/checkpoint-6/pytorch_model.bin", "");
  Refused("import " + runs_);
  fs::remove(runs_ + "/checkpoint-5/model.safetensors");
  Write("runs/checkpoint-5/optimizer.pt", "");
  Refused("import " + runs_);
  // It takes no npz, and no file beside folders.
  Write("runs/checkpoint-7/a.npz", "");
  Refused(runs_ + "/checkpoint-7 is of another kind");
  fs::remove_all(runs_ + "/checkpoint-7");
  Write("runs/step_8.pt", "");
  Refused(runs_ + "/step_8.pt is of another kind");
}

TEST_F(ImportFoldersTest, ManyArraysAreReadAtOnce) {
  Write("many.safetensors", ManyArrays(200'000));
  const Result listed = Run({"ls", scratch_ / "many.safetensors", "-o", "csv"});
  EXPECT_EQ(listed.code, 0) << listed.err;
  EXPECT_THAT(listed.out, HasSubstr("199999"));
  Write("more.safetensors", ManyArrays((1 << 20) + 1));
  const Result result = Run(
      {"-C", store_, "import", scratch_ / "more.safetensors", "--step", "1"});
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, AllOf(HasSubstr("more.safetensors has 1048577"),
                                HasSubstr("at most 1048576")));
  EXPECT_FALSE(fs::exists(store_));
}

TEST_F(ImportFoldersTest, AnEmptyStoreIsTakenAwayWhereItFailed) {
  const std::string python = scratch_ / "fails";
  // A store without a step, and then a failure.
  Write("fails",
        absl::StrFormat("#!/bin/sh\n'%s' -C '%s' import '%s' --step 1 "
                        "&& '%s' -C '%s' rm 1 --yes\nexit 1\n",
                        CKPTREE_BINARY, store_, scratch_ / "one.safetensors",
                        CKPTREE_BINARY, store_));
  Write("one.safetensors", kOne);
  chmod(python.c_str(), 0700);
  setenv("CKPTREE_PYTHON", python.c_str(), 1);
  Write("model-1.pt", "");
  EXPECT_EQ(Run({"-C", store_, "import", scratch_ / "model-1.pt"}).code, 2);
  EXPECT_FALSE(fs::exists(store_));
  // One that was there stays.
  ASSERT_EQ(
      Run({"-C", store_, "import", scratch_ / "one.safetensors", "--step", "7"})
          .code,
      0);
  EXPECT_EQ(Run({"-C", store_, "import", scratch_ / "model-1.pt"}).code, 2);
  EXPECT_TRUE(fs::exists(store_));
}

// Signals end Python as well, which holds the other end of a pipe until then.
class EndedImportTest : public ImportFoldersTest {
 protected:
  // A running import, whose Python is in its work.
  Running StartWork() {
    const std::string pipe = scratch_ / "pipe";
    EXPECT_EQ(mkfifo(pipe.c_str(), 0600), 0);
    ReplacePython(
        absl::StrFormat("  with open('%s', 'wb', buffering=0) as pipe:\n"
                        "    try:\n"
                        "      pipe.write(b'a')\n"
                        "      while True: signal.pause()\n"
                        "    except KeyboardInterrupt:\n"
                        "      pipe.write(b'z')\n"
                        "      return 130\n",
                        pipe));
    Write("model-1.pt", "");
    Running running = Start({"-C", store_, "import", scratch_ / "model-1.pt"});
    pipe_ = open(pipe.c_str(), O_RDONLY | O_CLOEXEC);
    EXPECT_EQ(Byte(), 'a');
    return running;
  }
  // What Python wrote; 0 where it has ended.
  char Byte() {
    char byte = 0;
    while (read(pipe_, &byte, 1) < 0 && errno == EINTR) {
    }
    return byte;
  }
  ~EndedImportTest() override { close(pipe_); }

  int pipe_ = -1;
};

TEST_F(EndedImportTest, ByASignal) {
  const Running running = StartWork();
  kill(running.pid, SIGTERM);
  EXPECT_EQ(Byte(), 'z');
  EXPECT_EQ(Byte(), 0);
  EXPECT_EQ(Finish(running).code, 128 + SIGTERM);
}

TEST_F(EndedImportTest, ByCtrlC) {
  const Running running = StartWork();
  kill(running.pid, SIGINT);
  EXPECT_EQ(Byte(), 'z');
  EXPECT_EQ(Byte(), 0);
  EXPECT_EQ(Finish(running).code, 128 + SIGINT);
}

TEST_F(EndedImportTest, ByAKill) {
  const Running running = StartWork();
  kill(running.pid, SIGKILL);
  EXPECT_EQ(Byte(), 'z');
  EXPECT_EQ(Byte(), 0);
  EXPECT_EQ(Finish(running).code, 128 + SIGKILL);
}

// A terminal that is closed, in the middle of a file.
TEST_F(ImportFoldersTest, AHangupLeavesNoHalfOfAFile) {
  for (const char* name : {"pipe", "go"}) {
    ASSERT_EQ(mkfifo((scratch_ / name).c_str(), 0600), 0);
  }
  ReplacePython(absl::StrFormat(
      R"(
  print('{"arrays": [{"name": "w", "dtype": "uint8", "shape": [1]}]}')
  sys.stdout.flush()
  sys.stdin.readline()
  open('%s', 'w').close()
  open('%s').close()
  os.write(1, bytes(9))
)",
      scratch_ / "pipe", scratch_ / "go"));
  Write("model-1.pt", "");
  fs::create_directory(runs_);
  const auto half = [this] {
    std::size_t found = 0;
    for (const auto& entry : fs::directory_iterator(runs_)) {
      found += entry.path().string().ends_with(".ckptree.tmp") ? 1u : 0u;
    }
    return found;
  };
  const Running running =
      Start({"export", scratch_ / "model-1.pt", runs_ + "/a.safetensors"});
  close(open((scratch_ / "pipe").c_str(), O_RDONLY | O_CLOEXEC));
  EXPECT_EQ(half(), 1u);
  kill(running.pid, SIGHUP);
  // What it waits for comes, or it is gone.
  const int go = open((scratch_ / "go").c_str(), O_RDWR | O_CLOEXEC);
  EXPECT_EQ(Finish(running).code, 128 + SIGHUP);
  close(go);
  EXPECT_EQ(half(), 0u);
  EXPECT_TRUE(fs::is_empty(runs_));
}

// Which of them is meant cannot be told: none is taken in silence.
TEST_F(ImportFoldersTest, AFolderWithSeveralCheckpointsIsRefused) {
  const std::string index =
      R"({"weight_map":{"w":"model-00001-of-00001.safetensors"}})";
  Write("runs/model-00001-of-00001.safetensors", kOne);
  Write("runs/model.safetensors.index.json", index);
  const Result whole = Run({"-C", store_, "import", runs_, "--step", "1"});
  EXPECT_EQ(whole.code, 0) << whole.err;
  fs::remove_all(store_);
  for (const std::string& other :
       {std::string("ema.safetensors.index.json"), std::string("y.npy"),
        std::string("adapter.safetensors"), std::string("z.npz")}) {
    Write("runs/" + other, other.ends_with("json") ? index : kOne);
    const Result result = Run({"-C", store_, "import", runs_, "--step", "1"});
    EXPECT_EQ(result.code, 2) << result.out << result.err;
    EXPECT_THAT(result.err, AllOf(HasSubstr("several checkpoints"),
                                  HasSubstr(other), HasSubstr("model.safe")));
    EXPECT_FALSE(fs::exists(store_));
    fs::remove(fs::path(runs_) / other);
  }
  // The one that is named.
  Write("runs/adapter.safetensors", kOne);
  const Result named =
      Run({"-C", store_, "import", runs_ + "/model.safetensors.index.json",
           "--step", "1"});
  EXPECT_EQ(named.code, 0) << named.err;
}

}  // namespace
}  // namespace ckptree
