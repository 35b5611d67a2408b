// SPDX-License-Identifier: Apache-2.0

// The examples in the help of verbs for other stores, files and programs are
// run as they stand there, but for the places of stores.

#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_replace.h"
#include "gtest/gtest.h"
#include "tests/tools/command_runner.h"

namespace ckptree {
namespace {

class HelpExamplesTest : public CommandRunner {
 protected:
  void SetUp() override {
    here_ = scratch_ / "here";
    std::filesystem::create_directory(here_);
    // `ckptree` is this one.
    const std::string folder =
        std::filesystem::path(CKPTREE_BINARY).parent_path().string();
    setenv("PATH", (folder + ":" + getenv("PATH")).c_str(), 1);
    ASSERT_EQ(Run({"demo", demo_}).code, 0);
    setenv("CKPTREE_STORE", demo_.c_str(), 1);
    // What `import` is shown.
    for (const char* name : {"step_100.npz", "step_200.npz"}) {
      ASSERT_EQ(Run({"export", "100:params", name}).code, 0);
    }
    const std::string folder_of_one = scratch_ / "output/checkpoint-7";
    std::filesystem::create_directories(folder_of_one);
    ASSERT_EQ(
        Run({"export", "latest", folder_of_one + "/model.safetensors"}).code,
        0);
  }
  void TearDown() override { unsetenv("CKPTREE_STORE"); }

  void RunExamplesOf(const std::string& verb, const std::string& store) {
    std::istringstream help(Run({"help", verb}).out);
    int examples = 0;
    for (std::string line; std::getline(help, line);) {
      if (!line.starts_with("  ckptree ")) continue;
      ++examples;
      const std::string command =
          absl::StrReplaceAll(line, {{"/runs/lm", store},
                                     {"/archive/lm", scratch_ / "archive"},
                                     {"/old/output", scratch_ / "output"}});
      const int status = std::system(
          ("cd " + here_ + " && " + command + " > out 2> err").c_str());
      EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0)
          << command << "\n"
          << ReadFile(here_ + "/err");
    }
    EXPECT_GE(examples, 2) << verb;
  }

  const std::string demo_ = scratch_ / "demo";
};

TEST_F(HelpExamplesTest, EachIsRun) {
  RunExamplesOf("export", demo_);
  RunExamplesOf("import", scratch_ / "new");
  RunExamplesOf("copy", demo_);
  RunExamplesOf("backup", demo_);
  RunExamplesOf("doctor", demo_);
  RunExamplesOf("sql", demo_);
}

}  // namespace
}  // namespace ckptree
