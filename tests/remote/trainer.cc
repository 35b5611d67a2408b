// SPDX-License-Identifier: Apache-2.0

#include "tests/remote/trainer.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/require.h"
#include "tests/core/fixture.h"
#include "tests/objects/counting_store.h"

namespace ckptree::testing {
namespace {

constexpr char kTrainer[] = "--trainer";

void Say(const std::string& line) {
  const std::string text = line + "\n";
  // Short enough to be written whole.
  if (write(STDOUT_FILENO, text.data(), text.size()) < 0) std::abort();
}

// As an argument of the program.
std::string TextOf(bool keep, const AtRequest& at) {
  return absl::StrCat(keep ? 1 : 0, ",", static_cast<int>(at.act), ",", at.kind,
                      ",", at.part, ",", at.number);
}

std::optional<AtRequest> AtRequestOf(const std::string& text, bool* keep) {
  const std::vector<std::string> words = absl::StrSplit(text, ',');
  AtRequest at;
  int act = 0;
  if (words.size() != 5 || !absl::SimpleAtoi(words[1], &act) ||
      !absl::SimpleAtoi(words[4], &at.number)) {
    return std::nullopt;
  }
  *keep = words[0] == "1";
  at.act = static_cast<AtRequest::Act>(act);
  at.kind = words[2];
  at.part = words[3];
  return at;
}

// Watches all requests of this process.
class RequestWatch {
 public:
  explicit RequestWatch(const AtRequest& at) : at_(at), left_(at.number) {
    requests_.SetHook([this](const std::string& what) {
      if (!IsBehind() && IsIt(what)) Meet(what);
      return absl::OkStatus();
    });
    requests_.SetAnsweredHook([this](const std::string& what) {
      if (IsBehind() && IsIt(what)) Meet(what);
    });
  }

 private:
  bool IsBehind() const {
    return at_.act == AtRequest::Act::kDiesBehind ||
           at_.act == AtRequest::Act::kStopsBehind;
  }
  bool IsStopped() const {
    return at_.act == AtRequest::Act::kStops ||
           at_.act == AtRequest::Act::kStopsBehind;
  }
  bool IsIt(const std::string& what) {
    return absl::StartsWith(what, at_.kind) &&
           absl::StrContains(what, at_.part) && --left_ == 0;
  }
  void Meet(const std::string& what) const {
    Say(absl::StrCat("AT ", what));
    if (at_.act == AtRequest::Act::kSays) return;
    kill(getpid(), IsStopped() ? SIGSTOP : SIGKILL);
  }

  const AtRequest at_;
  std::atomic<int> left_;
  RequestCount requests_;
};

StoreOptions TrainerOptions(const std::string& address, bool keep) {
  StoreOptions options = QuietOptions();
  options.remote = address;
  options.durable = Durable::kRemote;
  options.take_over = true;
  options.remote_timeout = kLong;
  // Of every other store the disks keep the newest step alone.
  if (keep || (address.back() - '0') % 2 == 0) {
    options.local_keep = LatestN{1};
    options.log = [](LogSeverity, std::string_view, std::string_view message) {
      if (message.find("left the disk") != message.npos) Say("LEFT");
    };
  }
  return options;
}

}  // namespace

std::size_t BytesOfStep(std::int64_t step) {
  // A save of less than 1 MiB has its blocks in rows.
  return step % 3 == 0 ? std::size_t{1100} << 10 : std::size_t{2} << 10;
}

SaveHandle StartStep(Store& store, std::int64_t step) {
  const Bytes bytes = RandomBytes(BytesOfStep(step), step);
  StepBuilder builder = store.Begin(step);
  builder.Put("params/w", Uint8s(bytes)).PutInt("count", step);
  return std::move(builder).Commit();
}

std::string StepFault(const Store& store, std::int64_t step) {
  const absl::StatusOr<Step> read = store.OpenStep(step);
  if (!read.ok()) return std::string(read.status().ToString());
  Bytes bytes(BytesOfStep(step));
  const absl::Status got = read->Read("params/w", std::span(bytes));
  if (!got.ok()) return std::string(got.ToString());
  if (bytes != RandomBytes(BytesOfStep(step), step)) {
    return absl::StrCat("step ", step, " has other bytes");
  }
  return "";
}

std::string RemoteFault(const std::string& address, const Told& told,
                        const std::string& cache) {
  setenv("XDG_CACHE_HOME", cache.c_str(), 1);
  StoreOptions options = ToRead(QuietOptions());
  const absl::StatusOr<Store> store = Store::Open(address, options);
  if (absl::IsNotFound(store.status()) && told.acknowledged.empty()) return "";
  if (!store.ok()) return std::string(store.status().ToString());
  const absl::StatusOr<std::vector<StepInfo>> steps = store->Steps();
  if (!steps.ok()) return std::string(steps.status().ToString());
  std::set<std::int64_t> there;
  for (const StepInfo& info : *steps) {
    there.insert(info.step);
    if (!told.asked.contains(info.step)) {
      return absl::StrCat("step ", info.step, " is there, and nobody saved it");
    }
    if (std::string fault = StepFault(*store, info.step); !fault.empty()) {
      return fault;
    }
  }
  for (const std::int64_t step : told.acknowledged) {
    if (!there.contains(step)) {
      return absl::StrCat("step ", step, " was acknowledged and is lost");
    }
  }
  const absl::StatusOr<VerifyReport> report =
      store->Verify({.level = VerifyOptions::Level::kDeep});
  if (!report.ok()) return std::string(report.status().ToString());
  for (const Finding& finding : report->findings) return finding.what;
  return "";
}

std::string DirectoryFault(const std::string& directory,
                           const std::string& cache) {
  setenv("XDG_CACHE_HOME", cache.c_str(), 1);
  const absl::StatusOr<Store> store =
      Store::Open(directory, ToRead(QuietOptions()));
  if (absl::IsNotFound(store.status())) return "";  // Killed before it had one.
  if (!store.ok()) return std::string(store.status().ToString());
  const absl::StatusOr<std::vector<StepInfo>> steps = store->Steps();
  if (!steps.ok()) return std::string(steps.status().ToString());
  for (const StepInfo& info : *steps) {
    if (std::string fault = StepFault(*store, info.step); !fault.empty()) {
      return absl::StrCat("in the directory: ", fault);
    }
  }
  return "";
}

Trainer::Trainer(const std::string& directory, const std::string& address,
                 const std::string& endpoint, std::int64_t first, bool keep,
                 const AtRequest& at_request) {
  int ends[2];
  base::Require(pipe2(ends, O_CLOEXEC) == 0, "a pipe");
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  std::vector<std::string> words = {"/proc/self/exe",
                                    kTrainer,
                                    directory,
                                    address,
                                    endpoint,
                                    absl::StrCat(first),
                                    TextOf(keep, at_request)};
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const std::string self = std::filesystem::read_symlink("/proc/self/exe");
  base::Require(posix_spawn(&pid_, self.c_str(), &actions, nullptr, argv.data(),
                            environ) == 0,
                "a process");
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  pipe_ = ends[0];
}

Trainer::~Trainer() {
  Told ignored;
  End(&ignored);
}

bool Trainer::Take(const std::string& line, Told* told) {
  const std::size_t space = line.find(' ');
  const std::string word = line.substr(0, space);
  const std::string rest =
      space == std::string::npos ? "" : line.substr(space + 1);
  std::int64_t step = 0;
  if (word == "OPEN") opened_ = true;
  if (word == "FAIL") failed_ = rest;
  if (word == "AT") at_ = rest;
  left_ += word == "LEFT" ? 1 : 0;
  if (word == "ASK" && absl::SimpleAtoi(rest, &step)) told->asked.insert(step);
  if (word == "ACK" && absl::SimpleAtoi(rest, &step)) {
    told->acknowledged.insert(step);
  }
  return true;
}

bool Trainer::Hear(absl::Duration patience, Told* told) {
  while (true) {
    if (const std::size_t end = heard_.find('\n'); end != std::string::npos) {
      const std::string line = heard_.substr(0, end);
      heard_.erase(0, end + 1);
      return Take(line, told);
    }
    pollfd wait{pipe_, POLLIN, 0};
    if (poll(&wait, 1, static_cast<int>(absl::ToInt64Milliseconds(patience))) <=
        0) {
      return false;
    }
    char piece[4096];
    const ssize_t got = read(pipe_, piece, sizeof(piece));
    if (got <= 0) return false;
    heard_.append(piece, static_cast<std::size_t>(got));
  }
}

bool Trainer::HearUntilItCame(Told* told) {
  constexpr int kLines = 1000;
  for (int lines = 0; !came(); ++lines) {
    if (lines == kLines || !Hear(kLong, told)) return false;
  }
  return true;
}

void Trainer::End(Told* told) {
  if (pid_ == 0) return;
  kill(pid_, SIGKILL);
  while (Hear(kLong, told)) {
  }
  waitpid(pid_, nullptr, 0);
  close(pipe_);
  pid_ = 0;
}

bool Trainer::AwaitStopped() const {
  int status = 0;
  return waitpid(pid_, &status, WUNTRACED) == pid_ && WIFSTOPPED(status);
}

void Trainer::Continue() const { kill(pid_, SIGCONT); }

int TrainerMain(int argc, char** argv) {
  if (argc != 7 || std::string(argv[1]) != kTrainer) return -1;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const std::string directory = argv[2], address = argv[3];
  if (argv[4][0] != '\0') setenv("AWS_ENDPOINT_URL_S3", argv[4], 1);
  std::int64_t step = std::atoll(argv[5]);
  bool keep = false;
  const std::optional<AtRequest> at = AtRequestOf(argv[6], &keep);
  base::Require(at.has_value(), "what it meets at a request");
  std::optional<RequestWatch> watch;
  if (at->act != AtRequest::Act::kNothing) watch.emplace(*at);
  absl::StatusOr<Store> store =
      Store::Open(directory, TrainerOptions(address, keep));
  if (!store.ok()) {
    Say(absl::StrCat("FAIL ", store.status().ToString()));
    return 1;
  }
  Say("OPEN");
  for (;; ++step) {
    Say(absl::StrCat("ASK ", step));
    const absl::Status saved = StartStep(*store, step).WaitCommitted(kLong);
    if (!saved.ok()) {
      Say(absl::StrCat("FAIL ", saved.ToString()));
      return 1;
    }
    Say(absl::StrCat("ACK ", step));
  }
}

}  // namespace ckptree::testing
