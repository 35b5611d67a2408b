// SPDX-License-Identifier: Apache-2.0

// Random operations on a store, compared with a model outside of it.
//
//   model_test [--seed=N] [--ops=N] [--history=N] [--episode=N]
//
// An episode is one store with its history of at most 200 operations, at the
// end of which it is verified deeply, all that may go is collected, and it is
// verified again. What is printed with a
// failure repeats it.

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_format.h"
#include "gtest/gtest.h"
#include "tests/fault/directory.h"
#include "tests/fault/random.h"
#include "tests/fault/runner.h"
#include "tests/fault/scale.h"
#include "tests/model/driver.h"
#include "tests/model/executor.h"
#include "tests/model/store.h"

namespace ckptree::testing {
namespace {

std::uint64_t FLAG_seed = TrialSeed();
int FLAG_operations = Scaled(20000);
int FLAG_history = 200;  // Operations of an episode.
std::optional<std::uint64_t> FLAG_episode;

struct Totals {
  int operations = 0;
  int saves = 0;
  int committed = 0;
  int deaths = 0;
  int kept = 0;  // Of the operations that the process died in.
  int processes = 0;
};

// Runs operations in a child until `left` are done or it dies.
void Work(const std::string& directory, const std::string& scratch,
          FaultCounts* counts, ModelDriver driver, bool create, int left,
          const TrialPipe& pipe) {
  auto fs = std::make_shared<FaultFs>(scratch, counts);
  ModelExecutor executor(directory, fs);
  if (absl::Status status = executor.Open(create); !status.ok()) {
    pipe.Say("WRONG open: " + std::string(status.ToString()));
    return;
  }
  pipe.Say("OPEN");
  for (; left > 0; --left) {
    const ModelOperation operation = driver.Next();
    std::vector<bool> results;
    if (auto wrong =
            executor.Execute(operation, driver.state(), pipe, &results)) {
      pipe.Say("WRONG " + operation.Text() + ": " + *wrong);
      return;
    }
    driver.Apply(operation, results);
    pipe.Say("DONE");
  }
  if (auto wrong = executor.Close()) pipe.Say("WRONG Close: " + *wrong);
}

// Plays an episode; what went wrong, or nothing.
std::optional<std::string> Play(std::uint64_t seed, int operations,
                                Totals* totals) {
  TrialDirectory directory;
  SharedFaultCounts counts;
  ModelDriver driver(seed);
  bool create = true;
  for (int done = 0; done < operations;) {
    counts->Reset();
    ++totals->processes;
    const TrialResult result = RunChild(
        [&](const TrialPipe& pipe) {
          Work(directory.store(), directory.scratch(), counts.get(), driver,
               create, operations - done, pipe);
        },
        /*seconds=*/300);
    create = false;
    std::vector<bool> results;
    ModelOperation operation;
    bool pending = false;
    for (const std::string& line : result.lines) {
      if (line.starts_with("WRONG ")) {
        return absl::StrFormat("operation %d: %s", done, line.substr(6));
      }
      if (!pending) {
        if (line == "OPEN") continue;
        operation = driver.Next();
        pending = true;
      }
      if (line.starts_with("SAVED ")) {
        results.push_back(line == "SAVED 1");
        ++totals->saves;
        totals->committed += line == "SAVED 1" ? 1 : 0;
      } else if (line == "DONE") {
        driver.Apply(operation, results);
        results.clear();
        pending = false;
        ++done;
      }
    }
    if (!result.killed) {
      if (result.broken()) return "worker: " + result.Text();
      continue;
    }
    // It died in the middle of an operation.
    if (counts->fired == 0) return "killed without a fault";
    if (!pending) operation = driver.Next();
    ++done;
    ++totals->deaths;
    const std::vector<ModelState> possible =
        driver.Possible(operation, results);
    const TrialResult judged = RunChild([&](const TrialPipe& pipe) {
      JudgeState(directory.store(), possible, pipe);
    });
    const std::vector<std::string> wrongs = Wrongs(judged);
    if (!wrongs.empty()) {
      return absl::StrFormat("operation %d, died in %s at %s: %s", done - 1,
                             operation.Text(), counts->FiredAt(), wrongs[0]);
    }
    const std::size_t fits =
        static_cast<std::size_t>(std::stoi(judged.Said("STATE")[0]));
    totals->kept += fits > 0 ? 1 : 0;
    driver.Adopt(possible[fits]);
  }
  totals->operations += operations;
  const TrialResult judged = RunChild([&](const TrialPipe& pipe) {
    JudgeStore(directory.store(), {driver.state()}, false, pipe);
  });
  const std::vector<std::string> wrongs = Wrongs(judged);
  if (!wrongs.empty()) return "at the end: " + wrongs[0];
  return std::nullopt;
}

TEST(ModelTest, RandomOperationsAgreeWithTheModel) {
  Totals totals;
  const std::uint64_t first = FLAG_episode.value_or(0);
  int left = FLAG_episode ? FLAG_history : FLAG_operations;
  std::cout << "--seed=" << FLAG_seed << " --ops=" << left << std::endl;
  for (std::uint64_t episode = first; left > 0; ++episode) {
    const int operations = std::min(left, FLAG_history);
    left -= operations;
    if (auto wrong = Play(FLAG_seed * 1000003 + episode, operations, &totals)) {
      FAIL() << "--seed=" << FLAG_seed << " --history=" << FLAG_history
             << " --episode=" << episode << ": " << *wrong;
    }
  }
  std::cout << absl::StrFormat(
                   "trial model: %d operations, %d saves (%d committed), %d "
                   "deaths (%d of them after the commit), %d processes: all "
                   "equal",
                   totals.operations, totals.saves, totals.committed,
                   totals.deaths, totals.kept, totals.processes)
            << std::endl;
  EXPECT_GT(totals.committed, 0);
  if (totals.operations >= 5000) {
    EXPECT_GT(totals.deaths, 10);
  }
}

bool Flag(std::string_view argument, std::string_view name,
          std::uint64_t* value) {
  if (!argument.starts_with(name)) return false;
  argument.remove_prefix(name.size());
  return std::from_chars(argument.data(), argument.data() + argument.size(),
                         *value)
             .ec == std::errc();
}

}  // namespace
}  // namespace ckptree::testing

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  using namespace ckptree::testing;  // NOLINT
  for (int i = 1; i < argc; ++i) {
    std::uint64_t value = 0;
    if (Flag(argv[i], "--seed=", &value)) {
      FLAG_seed = value;
    } else if (Flag(argv[i], "--ops=", &value)) {
      FLAG_operations = static_cast<int>(value);
    } else if (Flag(argv[i], "--history=", &value)) {
      FLAG_history = static_cast<int>(std::max<std::uint64_t>(value, 1));
    } else if (Flag(argv[i], "--episode=", &value)) {
      FLAG_episode = value;
    } else {
      std::cerr << "what is " << argv[i] << "?\n";
      return 2;
    }
  }
  return RUN_ALL_TESTS();
}
