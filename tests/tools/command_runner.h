// SPDX-License-Identifier: Apache-2.0

// The program as a process of its own, and a store for it to look at.

#ifndef CKPTREE_TESTS_TOOLS_COMMAND_RUNNER_H_
#define CKPTREE_TESTS_TOOLS_COMMAND_RUNNER_H_

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "ckptree/ckptree.h"
#include "gtest/gtest.h"
#include "tests/testutil/status_matchers.h"
#include "tests/testutil/temp_dir.h"

extern char** environ;

namespace ckptree {

struct Result {
  int code = -1;
  std::string out;
  std::string err;
};

inline std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

// Steps 100 .. 500: params/w is float32[64,48] of i + step, params/half is
// bfloat16[8], params/frozen stays, notes are a string, one NaN in step 300.
inline void MakeStore(const std::string& directory) {
  ASSERT_OK_AND_ASSIGN(Store store,
                       Store::Open(directory, {.create_if_missing = true}));
  std::vector<float> frozen(1000, 2.5f);
  for (std::int64_t step = 100; step <= 500; step += 100) {
    std::vector<float> w(64 * 48);
    for (std::size_t i = 0; i < w.size(); ++i) {
      w[i] = static_cast<float>(i) + static_cast<float>(step);
    }
    if (step == 300) w[7] = std::nanf("");
    const std::vector<std::uint16_t> half = {0x3f80, 0x3dcd, 0xc049, 0x7fc0,
                                             0,      0x7f80, 0x4000, 0x4040};
    const std::vector<std::uint8_t> nibbles = {0x21, 0xf8};
    StepBuilder builder = store.Begin(step);
    builder.Put("params/w", {.dtype = DType::kFloat32,
                             .shape = {64, 48},
                             .data = w.data(),
                             .chunk_shape = {16, 48}});
    builder.Put("params/half",
                {.dtype = DType::kBfloat16, .shape = {8}, .data = half.data()});
    builder.Put(
        "params/frozen",
        {.dtype = DType::kFloat32, .shape = {1000}, .data = frozen.data()});
    builder.Put("params/nibbles", {.dtype = DType::kInt4,
                                   .shape = {4},
                                   .data = nibbles.data(),
                                   .packed = true});
    builder.Put(
        "layers/[0]/bias",
        {.dtype = DType::kFloat32, .shape = {2}, .data = frozen.data()});
    builder.PutInt("count/[3]", step);
    builder.PutFloat("lr", 0.001);
    builder.PutString("\"odd \\u001b name\"", "two\nlines");
    builder.PutJson("config", R"({"depth":12})");
    builder.PutBytes("blob", std::string("\0\x01raw", 5));
    builder.PutNode("nothing", EntryKind::kNone);
    builder.Tie("params/tied", "params/w");
    builder.SetMetric("loss",
                      step == 400 ? 0.25 : 1.0 / static_cast<double>(step));
    if (step != 200) builder.SetMetric("acc", static_cast<double>(step) / 1000);
    if (step == 500) builder.SetNote("the last \x1b[31m one");
    SaveHandle save = std::move(builder).Commit();
    ASSERT_OK(save.WaitCommitted(absl::Minutes(2)));
  }
  ASSERT_OK(store.Tag("warm", 200));
  ASSERT_OK(store.Pin(100));
  ASSERT_OK(store.Close());
}

class CommandRunner : public ::testing::Test {
 protected:
  struct Running {
    pid_t pid = 0;
    std::string out, err;  // Paths.
  };

  // Starts `ckptree` with `words` in the folder `here_`.
  Running Start(std::vector<std::string> words) {
    words.insert(words.begin(), CKPTREE_BINARY);
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    const std::string number = std::to_string(started_++);
    Running running{0, scratch_ / ("out" + number),
                    scratch_ / ("err" + number)};
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    const int flags = O_CREAT | O_TRUNC | O_WRONLY;
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 1, running.out.c_str(), flags,
                                     0600);
    posix_spawn_file_actions_addopen(&actions, 2, running.err.c_str(), flags,
                                     0600);
    posix_spawn_file_actions_addchdir_np(&actions, here_.c_str());
    EXPECT_EQ(posix_spawn(&running.pid, CKPTREE_BINARY, &actions, nullptr,
                          argv.data(), environ),
              0);
    posix_spawn_file_actions_destroy(&actions);
    return running;
  }

  Result Finish(const Running& running) {
    int status = 0;
    EXPECT_EQ(waitpid(running.pid, &status, 0), running.pid);
    Result result = {
        WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
        ReadFile(running.out), ReadFile(running.err)};
    unlink(running.out.c_str());
    unlink(running.err.c_str());
    return result;
  }

  Result Run(std::vector<std::string> words) {
    return Finish(Start(std::move(words)));
  }

  testing::TempDir scratch_;
  std::string here_ = "/";

 private:
  int started_ = 0;
};

}  // namespace ckptree

#endif  // CKPTREE_TESTS_TOOLS_COMMAND_RUNNER_H_
