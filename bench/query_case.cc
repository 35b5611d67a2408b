// SPDX-License-Identifier: Apache-2.0

// query: one small leaf of a run with many steps.

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "bench/cases.h"
#include "bench/raw_io.h"
#include "bench/state.h"

namespace ckptree::bench {
namespace {

constexpr std::size_t kLeafBytes = 4096;
constexpr std::size_t kLeaves = 200;

struct Question {
  std::int64_t step;
  std::string path;
};

// Distinct ones, in no order.
std::vector<Question> Questions(int steps, std::size_t count) {
  std::vector<Question> all;
  for (int step = 0; step < steps; ++step) {
    for (std::size_t leaf = 0; leaf < kLeaves; ++leaf) {
      all.push_back({step, LeafName(leaf)});
    }
  }
  std::shuffle(all.begin(), all.end(), std::mt19937_64(3));
  all.resize(std::min(count, all.size()));
  return all;
}

// Microseconds of each, the step being opened and not.
struct Answers {
  std::vector<double> opened, read;
};

Answers Ask(
    const Store& store, const std::vector<Question>& questions,
    const std::function<void()>& between = [] {}) {
  Answers answers;
  std::vector<std::byte> value(kLeafBytes);
  for (const Question& question : questions) {
    between();
    const Stopwatch whole;
    const auto step = store.OpenStep(AtStep(question.step));
    Check(step.status());
    const Stopwatch watch;
    Check(step->Read(question.path, value));
    answers.read.push_back(watch.Seconds() * 1e6);
    answers.opened.push_back(whole.Seconds() * 1e6);
  }
  return answers;
}

// Seconds of a process that opens the store and reads one leaf.
double OfItsOwn(const std::string& path, const Question& question) {
  const std::string step = std::to_string(question.step);
  std::vector<const char*> arguments = {"/proc/self/exe",      "--query",
                                        path.c_str(),          step.c_str(),
                                        question.path.c_str(), nullptr};
  const Stopwatch watch;
  pid_t pid = 0;
  int status = 0;
  if (posix_spawn(&pid, arguments.front(), nullptr, nullptr,
                  const_cast<char* const*>(arguments.data()), environ) != 0 ||
      waitpid(pid, &status, 0) != pid || status != 0) {
    Fail("a process that reads one leaf failed");
  }
  return watch.Seconds();
}

}  // namespace

int QueryAlone(const char* path, const char* step, const char* leaf) {
  const auto store = Store::Open(path, {.read_only = true});
  Check(store.status());
  Ask(*store, {{std::atoll(step), leaf}});
  return 0;
}

bool Query(const Settings& settings) {
  const int steps = settings.quick ? 100 : 1000;
  const std::string path = settings.directory + "/query";
  State state(kLeaves * kLeafBytes);
  Answers warm, cold;
  std::vector<double> raw, alone;
  {
    Store store = FreshStore(path);
    for (int step = 0; step < steps; ++step) {
      state.Touch(kLeafBytes, static_cast<std::uint64_t>(step) + 1);
      SaveLeaves(store, step, state, kLeafBytes, Ownership::kCopy);
    }
  }
  const std::vector<Question> questions = Questions(steps, 5000);
  const std::vector<Question> few(questions.begin(), questions.begin() + 500);
  const auto store = Store::Open(path, {.read_only = true});
  Check(store.status());
  // Each is the first of its step and leaf; a page of the disk may have been
  // read by one before.
  ForgetFiles(path);
  RawPages pages(settings.directory, std::size_t{256} << 20);
  cold = Ask(*store, few, [&] { raw.push_back(pages.Read() * 1e6); });
  Ask(*store, questions);
  warm = Ask(*store, questions);
  for (int i = 0; i < (settings.quick ? 5 : 15); ++i) {
    alone.push_back(OfItsOwn(path, few[static_cast<std::size_t>(i)]) * 1e3);
  }
  std::filesystem::remove_all(path);
  Print("query", "the step being opened, read before", warm.opened, "us");
  Print("query", "the step being opened, for the first time", cold.opened,
        "us");
  bool good = Report(settings, {.name = "query",
                                .what = "leaf of an open step, read before",
                                .unit = "us",
                                .values = warm.read,
                                .floor = 6,
                                .goal = 4,
                                .at_least = false});
  good &= Report(settings, {.name = "query",
                            .what = "leaf of an open step, read before, p99",
                            .unit = "us",
                            .values = {Percentile(warm.read, 0.99)},
                            .floor = 40,
                            .at_least = false});
  good &= Report(settings, {.name = "query",
                            .what = "leaf of an open step, for the first time",
                            .unit = "us",
                            .values = cold.read,
                            .beside = "one O_DIRECT read of 4 KiB",
                            .beside_values = {Median(raw)},
                            .floor = 1.3,
                            .goal = 1.1,
                            .at_least = false});
  return Report(settings, {.name = "query",
                           .what = "leaf by a process of its own",
                           .unit = "ms",
                           .values = alone,
                           .floor = 25,
                           .goal = 12,
                           .at_least = false}) &&
         good;
}

}  // namespace ckptree::bench
