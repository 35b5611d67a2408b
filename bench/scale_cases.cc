// SPDX-License-Identifier: Apache-2.0

// long_run and processors: many steps, and many threads.

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "bench/cases.h"
#include "bench/raw_io.h"
#include "bench/state.h"
#include "ckptree/history.h"

namespace ckptree::bench {
namespace {

// Seconds of `ckptree log -n 3`, a process of its own; the command of this
// build.
double LogOfNewest(const std::string& path) {
  std::error_code error;
  const std::string program =
      (std::filesystem::read_symlink("/proc/self/exe", error)
           .parent_path()
           .parent_path() /
       "tools/ckptree")
          .string();
  std::vector<const char*> arguments = {
      program.c_str(), "-C", path.c_str(), "log", "-n", "3", nullptr};
  posix_spawn_file_actions_t quiet;
  posix_spawn_file_actions_init(&quiet);
  posix_spawn_file_actions_addopen(&quiet, STDOUT_FILENO, "/dev/null", O_WRONLY,
                                   0);
  const Stopwatch watch;
  pid_t pid = 0;
  int status = 0;
  if (posix_spawn(&pid, program.c_str(), &quiet, nullptr,
                  const_cast<char* const*>(arguments.data()), environ) != 0 ||
      waitpid(pid, &status, 0) != pid || status != 0) {
    Fail(program + " log -n 3 failed: build the target ckptree_command");
  }
  const double seconds = watch.Seconds();
  posix_spawn_file_actions_destroy(&quiet);
  return seconds;
}

// Seconds to free the first `count` steps, which share nothing with others.
double CollectFirst(const std::string& path, int count) {
  auto store = Store::Open(path);
  Check(store.status());
  std::vector<StepSelector> steps;
  for (int step = 0; step < count; ++step) steps.push_back(AtStep(step));
  Check(store->Delete(steps));
  const Stopwatch watch;
  const auto report = store->Collect({});
  Check(report.status());
  return watch.Seconds();
}

}  // namespace

bool LongRun(const Settings& settings) {
  const int steps = settings.quick ? 5000 : 100000;
  const std::string path = settings.directory + "/long";
  State state(4096);
  {
    Store store = FreshStore(path);
    for (int step = 0; step < steps; ++step) {
      state.Touch(4096, static_cast<std::uint64_t>(step) + 1);
      SaveLeaves(store, step, state, 4096, Ownership::kCopy);
    }
  }
  std::vector<double> write, read, newest, list, history;
  for (int i = 0; i < 3; ++i) {
    DropCaches();
    {
      const Stopwatch watch;
      const auto store = Store::Open(path);
      Check(store.status());
      write.push_back(watch.Seconds());
    }
    newest.push_back(LogOfNewest(path));
    const Stopwatch watch;
    const auto store = Store::Open(path, {.read_only = true});
    Check(store.status());
    read.push_back(watch.Seconds());
    const Stopwatch listing;
    const auto all = store->Steps();
    Check(all.status());
    list.push_back(listing.Seconds());
    if (all->size() != static_cast<std::size_t>(steps)) Fail("steps are lost");
    const Stopwatch asking;
    const auto values = History(*store, LeafName(0));
    Check(values.status());
    history.push_back(asking.Seconds());
    if (values->size() != all->size()) Fail("values are lost");
  }
  const double collected = CollectFirst(path, steps / 5 * 2);
  std::filesystem::remove_all(path);
  Print("long_run", "open to read", read, "s");
  const auto report = [&](const char* what, std::vector<double> values,
                          double floor, double goal) {
    return Report(settings, {.name = "long_run",
                             .what = what,
                             .unit = "s",
                             .values = std::move(values),
                             .floor = floor,
                             .goal = goal,
                             .at_least = false});
  };
  bool good = report("open to write", write, 0.3, 0.1);
  good &= report("`log -n 3`, a process of its own", newest, 0.05, 0.02);
  good &= report("list all steps", list, 0.3, 0.1);
  good &= report("history of one leaf", history, 0.5, 0.2);
  return report("collect two steps of five", {collected}, 4, 2) && good;
}

namespace {

constexpr std::size_t kScaleLeafBytes = 16 << 20;

// Rates of one store with so many threads, in GB/s.
struct Rates {
  double saved = 0, restored = 0, verified = 0;
};

// The store is made anew; what is read comes out of the disk.
Rates RatesWith(const std::string& path, int threads, State* state,
                State* memory) {
  Rates rates;
  const double gigabytes = static_cast<double>(state->bytes().size()) / 1e9;
  std::filesystem::remove_all(path);
  StoreOptions options;
  options.create_if_missing = true;
  options.threads = threads;
  auto store = Store::Open(path, options);
  Check(store.status());
  rates.saved = gigabytes / SaveLeaves(*store, 0, *state, kScaleLeafBytes,
                                       Ownership::kBorrow);
  ForgetFiles(path);
  const auto step = store->OpenStep(Latest());
  Check(step.status());
  std::vector<ReadRequest> requests(state->bytes().size() / kScaleLeafBytes);
  for (std::size_t leaf = 0; leaf < requests.size(); ++leaf) {
    requests[leaf].path = Path::Parse(LeafName(leaf)).value();
    requests[leaf].destination =
        memory->bytes().subspan(leaf * kScaleLeafBytes, kScaleLeafBytes);
  }
  const Stopwatch reading;
  Check(step->ReadMany(requests));
  rates.restored = gigabytes / reading.Seconds();
  ForgetFiles(path);
  const Stopwatch verifying;
  const auto report = store->Verify({.level = VerifyOptions::Level::kDeep});
  Check(report.status());
  if (!report->findings.empty()) Fail("a new store is damaged");
  rates.verified = gigabytes / verifying.Seconds();
  return rates;
}

}  // namespace

bool Processors(const Settings& settings) {
  constexpr int kRepeats = 5;
  constexpr std::array kThreads = {1, 2, 4, 8, 16};
  State state(settings.quick ? std::size_t{256} << 20 : std::size_t{1} << 30);
  State memory(state.bytes().size());
  const std::string path = settings.directory + "/processors";
  Print("processors", "of this machine",
        {static_cast<double>(std::thread::hardware_concurrency())}, "");
  std::map<int, std::vector<double>> saved, restored, verified;
  // In turns: a disk that gets slower on its way does not make one of them so.
  for (int i = 0; i < kRepeats; ++i) {
    for (const int threads : kThreads) {
      const Rates rates = RatesWith(path, threads, &state, &memory);
      saved[threads].push_back(rates.saved);
      restored[threads].push_back(rates.restored);
      verified[threads].push_back(rates.verified);
    }
  }
  std::filesystem::remove_all(path);
  // The least of all rates beside the best with fewer threads.
  const auto judge = [&](const std::string& what,
                         const std::map<int, std::vector<double>>& by_threads) {
    double best = 0;
    double slowest = 1;
    for (const auto& [threads, rates] : by_threads) {
      Print("processors", absl::StrFormat("%s, %d threads", what, threads),
            rates, "GB/s");
      if (best > 0) slowest = std::min(slowest, Median(rates) / best);
      best = std::max(best, Median(rates));
    }
    return Judge(settings, "processors",
                 what + " / the best with fewer threads", {slowest}, 0.9,
                 /*at_least=*/true);
  };
  bool good = judge("restore, cold", restored);
  good &= judge("save", saved);
  return judge("verify, cold", verified) && good;
}

}  // namespace ckptree::bench
