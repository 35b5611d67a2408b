// SPDX-License-Identifier: Apache-2.0

#include "tools/files/python_program.h"

#include <poll.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "tools/output/failure.h"
#include "tools/output/interrupt.h"
#include "tools/output/terminal.h"

namespace ckptree::tools {
namespace {

std::string Interpreter() {
  const char* named = std::getenv("CKPTREE_PYTHON");
  return named == nullptr || *named == '\0' ? "python3" : named;
}

std::string_view PackagesOf(std::string_view module) {
  return module == "ckptree.orbax" ? "orbax-checkpoint"
                                   : "torch and safetensors";
}

std::string InstallHint(std::string_view module) {
  return absl::StrFormat(
      "what reads it is the Python package ckptree (`pip install .` in its "
      "sources) with %s: install them for `%s`, or name another interpreter "
      "by CKPTREE_PYTHON",
      PackagesOf(module), Escape(Interpreter()));
}

// Before any import of a file: the folder we are in is an empty entry, and a
// module that came with a checkpoint, called as one of Python's own, would be
// run. `sys` is in no file.
constexpr std::string_view kNoCurrentFolder =
    "import sys; sys.path = [p for p in sys.path if p]\n";

// Then it gets SIGTERM when this process ends, however.
constexpr std::string_view kEndsWithParent = R"(
import os
_parent = os.getppid()
try:
    import ctypes
    ctypes.CDLL(None).prctl(1, 15, 0, 0, 0)
except (ImportError, OSError, AttributeError):
    pass
if os.getppid() != _parent:
    sys.exit(1)
)";

// SIGTERM stops it as Ctrl-C does: what is half written is taken away. Ctrl-C
// in a terminal reaches it twice, by itself and by this process.
constexpr std::string_view kStopsOnce = R"(
import signal
def _stop(number, frame):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise KeyboardInterrupt
signal.signal(signal.SIGTERM, _stop)
if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, _stop)
)";

// Our environment, less empty entries of PYTHONPATH, as `export
// PYTHONPATH=$PYTHONPATH:more` makes them: Python takes each for the folder we
// are in, and looks there even before its first line. Pythons that it starts,
// too, look no longer there, from 3.11 on.
std::vector<std::string> Environment() {
  constexpr std::string_view kPath = "PYTHONPATH=";
  std::vector<std::string> variables;
  for (char** at = environ; *at != nullptr; ++at) {
    std::string variable = *at;
    if (variable.starts_with("PYTHONSAFEPATH=")) continue;
    if (variable.starts_with(kPath)) {
      const std::vector<std::string> folders =
          absl::StrSplit(variable.substr(kPath.size()), ':', absl::SkipEmpty());
      if (folders.empty()) continue;
      variable = std::string(kPath) + absl::StrJoin(folders, ":");
    }
    variables.push_back(std::move(variable));
  }
  variables.emplace_back("PYTHONSAFEPATH=1");
  return variables;
}

std::string LastLineOf(int file) {
  constexpr off_t kMost = 64 << 10;
  const off_t size = ::lseek(file, 0, SEEK_END);
  std::string text(static_cast<std::size_t>(std::clamp<off_t>(size, 0, kMost)),
                   '\0');
  const ssize_t got = ::pread(file, text.data(), text.size(),
                              size - static_cast<off_t>(text.size()));
  text.resize(got < 0 ? 0 : static_cast<std::size_t>(got));
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) {
    text.pop_back();
  }
  return text.substr(text.rfind('\n') + 1);
}

}  // namespace

absl::StatusOr<std::unique_ptr<PythonProgram>> PythonProgram::Start(
    std::string_view module, const std::string& path,
    const std::vector<std::string>& arguments) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    return absl::ResourceExhaustedError(
        absl::StrFormat("starting Python: %s", std::strerror(errno)));
  }
  const int errors = ::memfd_create("ckptree-python", MFD_CLOEXEC);
  const bool lends = !arguments.empty() && arguments[0] == "lend";
  const std::string code = absl::StrFormat(
      "%s%s%sfrom %s.__main__ import main; sys.exit(main())", kNoCurrentFolder,
      kEndsWithParent, lends ? "" : kStopsOnce, module);
  const std::string program = Interpreter();
  std::vector<const char*> words = {program.c_str(), "-c", code.c_str()};
  for (const std::string& argument : arguments) {
    words.push_back(argument.c_str());
  }
  words.push_back(nullptr);
  const std::vector<std::string> environment = Environment();
  std::vector<const char*> variables;
  for (const std::string& variable : environment) {
    variables.push_back(variable.c_str());
  }
  variables.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  if (errors >= 0) {
    posix_spawn_file_actions_adddup2(&actions, errors, STDERR_FILENO);
  }
  pid_t pid = 0;
  const int failed =
      ::posix_spawnp(&pid, program.c_str(), &actions, SpawnedSignals().get(),
                     const_cast<char* const*>(words.data()),
                     const_cast<char* const*>(variables.data()));
  posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  if (failed != 0) {
    ::close(ends[0]);
    if (errors >= 0) ::close(errors);
    return WithHint(absl::FailedPreconditionError(absl::StrFormat(
                        "%s goes through Python, and `%s` cannot be run: %s",
                        Escape(path), Escape(program), std::strerror(failed))),
                    InstallHint(module));
  }
  return std::unique_ptr<PythonProgram>(
      new PythonProgram(module, path, pid, ends[0], errors));
}

PythonProgram::~PythonProgram() {
  ::close(socket_);
  if (pid_ > 0) {
    ::kill(pid_, SIGTERM);
    Wait();
  }
  if (errors_ >= 0) ::close(errors_);
}

int PythonProgram::Wait() {
  int status = 0;
  if (pid_ > 0 && Interrupted()) ::kill(pid_, SIGTERM);
  while (pid_ > 0 && ::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    if (Interrupted()) ::kill(pid_, SIGTERM);
  }
  if (pid_ > 0) {
    code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  pid_ = 0;
  return code_;
}

absl::Status PythonProgram::Failure() {
  const int code = Wait();
  if (Interrupted()) return absl::CancelledError("interrupted");
  std::string said = LastLineOf(errors_);
  if (said.find("No module named") != std::string::npos) {
    return WithHint(
        absl::FailedPreconditionError(absl::StrFormat(
            "%s goes through Python, and `%s` lacks what it takes: %s",
            Escape(path_), Escape(Interpreter()), Escape(said))),
        InstallHint(module_));
  }
  for (const std::string& begin :
       {"python -m " + module_ + ": ", std::string("ImportError: ")}) {
    if (said.starts_with(begin)) said.erase(0, begin.size());
  }
  if (said.empty()) said = absl::StrFormat("Python ended with %d", code);
  if (said.find(path_) == said.npos) said = path_ + ": " + said;
  return WithHint(absl::FailedPreconditionError(Escape(said)),
                  absl::StrFormat("`%s -m %s --help` does the same",
                                  Escape(Interpreter()), module_));
}

absl::Status PythonProgram::Write(std::string_view text) {
  while (!text.empty()) {
    const ssize_t sent =
        ::send(socket_, text.data(), text.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR && !Interrupted()) continue;
    if (sent <= 0) return Failure();
    text.remove_prefix(static_cast<std::size_t>(sent));
  }
  return absl::OkStatus();
}

absl::Status PythonProgram::Read(std::span<std::byte> destination) {
  while (!destination.empty()) {
    const ssize_t got =
        ::recv(socket_, destination.data(), destination.size(), 0);
    if (got < 0 && errno == EINTR && !Interrupted()) continue;
    if (got <= 0) return Failure();
    destination = destination.subspan(static_cast<std::size_t>(got));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> PythonProgram::ReadLine() {
  constexpr std::size_t kMost = std::size_t{256} << 20;
  std::string line;
  while (line.size() < kMost) {
    // What is there is looked at before it is taken: behind the line there may
    // be bytes of an array.
    char some[4096];
    const ssize_t there = ::recv(socket_, some, sizeof some, MSG_PEEK);
    if (there < 0 && errno == EINTR && !Interrupted()) continue;
    if (there <= 0) return Failure();
    const char* const end = static_cast<const char*>(
        std::memchr(some, '\n', static_cast<std::size_t>(there)));
    const std::size_t taken = end == nullptr
                                  ? static_cast<std::size_t>(there)
                                  : static_cast<std::size_t>(end - some) + 1;
    if (absl::Status status =
            Read(std::as_writable_bytes(std::span(some, taken)));
        !status.ok()) {
      return status;
    }
    line.append(some, end == nullptr ? taken : taken - 1);
    if (end != nullptr) return line;
  }
  return absl::ResourceExhaustedError("Python says too much");
}

absl::StatusOr<std::string> PythonProgram::Finish() {
  ::shutdown(socket_, SHUT_WR);
  std::string text;
  char some[4096];
  while (!Interrupted()) {
    // A signal between the question and the wait would not end the wait.
    pollfd ready = {.fd = socket_, .events = POLLIN, .revents = 0};
    if (::poll(&ready, 1, /*timeout=*/100) <= 0) continue;
    const ssize_t got = ::recv(socket_, some, sizeof some, 0);
    if (got < 0 && errno == EINTR && !Interrupted()) continue;
    if (got <= 0) break;
    text.append(some, static_cast<std::size_t>(got));
  }
  if (Wait() != 0 || Interrupted()) return Failure();
  return text;
}

}  // namespace ckptree::tools
