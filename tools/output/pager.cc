// SPDX-License-Identifier: Apache-2.0

#include "tools/output/pager.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <string>
#include <string_view>

#include "tools/output/interrupt.h"

extern char** environ;

namespace ckptree::tools {
namespace {

std::string PagerCommand() {
  for (const char* name : {"CKPTREE_PAGER", "PAGER"}) {
    const char* value = std::getenv(name);
    if (value != nullptr) return value == std::string("cat") ? "" : value;
  }
  return "less";
}

// False where the first word of `command` is no program that can be run; true
// also where only a shell knows.
bool CanRun(const std::string& command) {
  const std::string word = command.substr(0, command.find(' '));
  if (word.empty() || word.find_first_of("$`'\"\\;&|<>()=~*?[") != word.npos) {
    return true;
  }
  if (word.find('/') != word.npos) return ::access(word.c_str(), X_OK) == 0;
  const char* path = std::getenv("PATH");
  std::string_view rest = path == nullptr ? "/bin:/usr/bin" : path;
  for (;;) {
    const std::size_t end = std::min(rest.find(':'), rest.size());
    const std::string folder(rest.substr(0, end));
    const std::string file = (folder.empty() ? "." : folder) + "/" + word;
    if (::access(file.c_str(), X_OK) == 0) return true;
    if (end == rest.size()) return false;
    rest.remove_prefix(end + 1);
  }
}

}  // namespace

int Pager::DescriptorFor(std::string_view text) {
  if (!allowed_ || isatty(STDOUT_FILENO) == 0) return STDOUT_FILENO;
  struct winsize size {};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row == 0 ||
      std::count(text.begin(), text.end(), '\n') < size.ws_row) {
    return STDOUT_FILENO;
  }
  std::string command = PagerCommand();
  int ends[2];
  if (command.empty() || !CanRun(command) || ::pipe2(ends, O_CLOEXEC) != 0)
    return STDOUT_FILENO;
  // Colours, and no empty screen behind it; the user's own word counts.
  ::setenv("LESS", "FRX", /*overwrite=*/0);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[0], STDIN_FILENO);
  std::string shell = "sh", flag = "-c";
  char* argv[] = {shell.data(), flag.data(), command.data(), nullptr};
  const bool spawned = posix_spawnp(&child_, "sh", &actions,
                                    SpawnedSignals().get(), argv, environ) == 0;
  posix_spawn_file_actions_destroy(&actions);
  ::close(ends[0]);
  if (!spawned) {
    child_ = 0;
    ::close(ends[1]);
    return STDOUT_FILENO;
  }
  // Ctrl-C is the pager's while it has the terminal.
  std::signal(SIGINT, SIG_IGN);
  pipe_ = ends[1];
  return pipe_;
}

void Pager::Wait() {
  if (child_ <= 0) return;
  ::close(pipe_);
  int status = 0;
  while (::waitpid(child_, &status, 0) < 0 && errno == EINTR) {
  }
  child_ = 0;
}

}  // namespace ckptree::tools
