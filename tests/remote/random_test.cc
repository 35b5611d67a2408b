// SPDX-License-Identifier: Apache-2.0

// Random operations on a store with a remote, whose process dies in between and
// whose disk is lost: what is there is a state that the model was in, and no
// older one than was acknowledged, read by its address and by a machine that
// takes it over with an empty disk.

#include "tests/fault/random.h"

#include <signal.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "ckptree/ckptree.h"
#include "gtest/gtest.h"
#include "tests/core/fixture.h"
#include "tests/fault/directory.h"
#include "tests/fault/fs.h"
#include "tests/fault/runner.h"
#include "tests/fault/scale.h"
#include "tests/model/driver.h"
#include "tests/model/executor.h"
#include "tests/model/state.h"
#include "tests/model/store.h"
#include "tests/objects/fixture.h"
#include "tests/remote/fixture.h"
#include "tests/testutil/temp_dir.h"

namespace ckptree::testing {
namespace {

namespace fs = std::filesystem;

constexpr int kOperationsOfAnEpisode = 150;
constexpr int kOperationsOfALife = 20;
constexpr unsigned kSeconds = 300;  // Of one process.

// How a process ends that no fault ends.
enum class End { kCloses, kDies };

// One process, and what it opens.
struct Life {
  std::string directory;
  std::string scratch;
  StoreOptions options;
  FaultCounts* counts = nullptr;
  std::vector<ModelState> allowed;  // What it must find.
  int operations = 0;
  End end = End::kCloses;
  std::uint64_t seed = 0;
};

void Live(const Life& life, ModelDriver driver, const TrialPipe& pipe) {
  FaultRandom random(life.seed);
  ModelExecutor executor(life.directory,
                         std::make_shared<FaultFs>(life.scratch, life.counts),
                         life.options);
  if (absl::Status status = executor.Open(/*create=*/false); !status.ok()) {
    pipe.Say("WRONG open: " + std::string(status.ToString()));
    return;
  }
  const auto wait = [&] {
    const absl::Status there = executor.store().WaitReplicated(kLong);
    pipe.Say(there.ok() ? "THERE"
                        : "WRONG wait: " + std::string(there.ToString()));
    return there.ok();
  };
  const std::optional<std::size_t> found =
      JudgeOpened(executor.store(), life.allowed, pipe);
  if (!found.has_value()) return;
  driver.Adopt(life.allowed[*found]);
  if (random.OneIn(2) && !wait()) return;
  for (int left = life.operations; left > 0; --left) {
    const ModelOperation operation = driver.Next();
    std::vector<bool> results;
    if (auto wrong =
            executor.Execute(operation, driver.state(), pipe, &results)) {
      pipe.Say("WRONG " + operation.Text() + ": " + *wrong);
      return;
    }
    driver.Apply(operation, results);
    pipe.Say("DONE");
    if (random.OneIn(8) && !wait()) return;
  }
  if (executor.store().Info().far_bytes > 0) pipe.Say("FAR");
  if (life.end == End::kDies) {
    pipe.Say("DIES");
    kill(getpid(), SIGKILL);
  }
  const std::optional<std::string> wrong = executor.Close();
  pipe.Say(wrong ? "WRONG Close: " + *wrong : "CLOSED");
}

// What a machine sees that has nothing but the address.
void ReadThere(const std::string& address, const std::string& cache,
               const std::vector<ModelState>& allowed, bool may_be_absent,
               const TrialPipe& pipe) {
  setenv("XDG_CACHE_HOME", cache.c_str(), 1);
  StoreOptions options = TrialOptions(1);
  options.read_only = true;
  const absl::StatusOr<Store> store = Store::Open(address, options);
  if (may_be_absent && absl::IsNotFound(store.status())) {
    pipe.Say("STATE 0");
    return;
  }
  if (!store.ok()) {
    pipe.Say("UNOPENABLE " + std::string(store.status().ToString()));
    return;
  }
  if (!JudgeOpened(*store, allowed, pipe).has_value()) return;
  if (auto findings = DeepFindings(*store)) pipe.Say("FINDING " + *findings);
}

struct Totals {
  int operations = 0;
  int committed = 0;
  int deaths = 0;  // In the middle of an operation.
  int crashes = 0;
  int read = 0;
  int lost = 0;    // Disks, and each was taken over.
  int behind = 0;  // Of these, those of which the remote lacked something.
  int far = 0;     // Lives in which segments had left the disk.
};

class RemoteRandomTest : public ObjectStoreTest {
 protected:
  void SetUp() override { UseServers(); }

  // Plays one store's history; what went wrong.
  std::optional<std::string> Play(std::uint64_t seed, Durable durable,
                                  Totals* totals);
  void Run(Durable durable);

  // Hears what a process said, and keeps what it tells of here and there.
  std::optional<std::string> Hear(const TrialResult& result, Durable durable,
                                  const Life& life, bool lost);

  ModelDriver driver_{0};
  // The states of which one is there.
  std::vector<ModelState> there_;
  bool nothing_there_ = true;     // It may be that no store is.
  std::vector<ModelState> here_;  // And of which one is on the disk.
  Totals* totals_ = nullptr;
  int done_ = 0;
};

std::optional<std::string> RemoteRandomTest::Hear(const TrialResult& result,
                                                  Durable durable,
                                                  const Life& life, bool lost) {
  std::vector<bool> results;
  ModelOperation operation;
  bool pending = false, between = false;
  const auto acknowledged = [&](ModelState state) {
    there_ = {std::move(state)};
    nothing_there_ = false;
  };
  for (const std::string& line : result.lines) {
    if (line.starts_with("STATE ")) {
      const auto which = static_cast<std::size_t>(std::stoi(line.substr(6)));
      driver_.Adopt(life.allowed[which]);
      const bool behind =
          life.allowed[which].Text() != life.allowed.back().Text();
      totals_->behind += lost && behind ? 1 : 0;
      if (lost) there_.clear();
      there_.push_back(driver_.state());
    } else if (line == "THERE" || line == "CLOSED") {
      acknowledged(driver_.state());
    } else if (line == "FAR") {
      ++totals_->far;
    } else if (line == "DIES") {
      between = true;
    } else if (line.starts_with("SAVED ") || line == "DONE") {
      if (!pending) operation = driver_.Next();
      pending = true;
      if (line == "DONE") {
        driver_.Apply(operation, results);
        there_.push_back(driver_.state());
        if (operation.kind == ModelOperation::Kind::kReopen) {
          acknowledged(driver_.state());
        }
        results.clear();
        pending = false;
        ++done_;
      } else {
        results.push_back(line == "SAVED 1");
        totals_->committed += line == "SAVED 1" ? 1 : 0;
        ModelState known = driver_.Possible(operation, results)[0];
        if (line == "SAVED 1" && durable == Durable::kRemote) {
          acknowledged(std::move(known));
        } else {
          there_.push_back(std::move(known));
        }
      }
    } else {
      return absl::StrFormat("operation %d: %s", done_, line);
    }
  }
  here_ = {driver_.state()};
  if (between || !result.killed) {
    totals_->crashes += between ? 1 : 0;
    return result.broken() ? std::optional("worker: " + result.Text())
                           : std::nullopt;
  }
  if (life.counts->fired == 0) return "killed without a fault";
  ++totals_->deaths;
  ++done_;
  if (!pending) operation = driver_.Next();
  here_ = driver_.Possible(operation, results);
  there_.insert(there_.end(), here_.begin(), here_.end());
  return std::nullopt;
}

std::optional<std::string> RemoteRandomTest::Play(std::uint64_t seed,
                                                  Durable durable,
                                                  Totals* totals) {
  TrialDirectory directory;
  SharedFaultCounts counts;
  FaultRandom random(seed);
  const std::string address = absl::StrCat(Address(), "/", seed);
  driver_ = ModelDriver(seed);
  there_ = here_ = {ModelState()};
  nothing_there_ = true;
  totals_ = totals;
  done_ = 0;
  bool lost = false;
  while (true) {
    counts->Reset();
    Life life;
    life.directory = directory.store();
    life.scratch = directory.scratch();
    life.counts = counts.get();
    life.options = TrialOptions(1);
    life.options.create_if_missing = true;
    life.options.remote = address;
    life.options.durable = durable;
    life.options.take_over = true;
    // What is dead there goes at once, or not at all.
    if (random.OneIn(2)) {
      life.options.remote_grace = absl::ZeroDuration();
    } else if (random.OneIn(2)) {
      life.options.local_keep = LatestN{1};
    }
    life.allowed = lost ? there_ : here_;
    const bool last = done_ >= kOperationsOfAnEpisode;
    life.operations = last ? 0 : 1 + random.Int(kOperationsOfALife);
    life.end = last || random.OneIn(3) ? End::kCloses : End::kDies;
    life.seed = random.Next();
    const TrialResult result = RunChild(
        [&](const TrialPipe& pipe) { Live(life, driver_, pipe); }, kSeconds);
    if (auto wrong = Hear(result, durable, life, lost)) return wrong;
    if (random.OneIn(2) || last) {
      const TrialResult judged = RunChild(
          [&](const TrialPipe& pipe) {
            ReadThere(address, directory.path() + "/cache", there_,
                      nothing_there_, pipe);
          },
          kSeconds);
      const std::vector<std::string> wrongs = Wrongs(judged);
      if (!wrongs.empty()) {
        return absl::StrFormat("by its address, after operation %d: %s", done_,
                               wrongs[0]);
      }
      ++totals->read;
    }
    if (last && lost) break;  // Nothing was left but what is there.
    lost = last || random.OneIn(3);
    if (lost) {
      fs::remove_all(directory.store());
      ++totals->lost;
    }
  }
  totals->operations += done_;
  return std::nullopt;
}

void RemoteRandomTest::Run(Durable durable) {
  Totals totals;
  const int wanted =
      StoreKind() == "file" ? Scaled(3000) : ScaledWithServers(1500);
  std::uint64_t seed = TrialSeed() * 1000003;
  for (; totals.operations < wanted; ++seed) {
    if (auto wrong = Play(seed, durable, &totals)) {
      FAIL() << "history " << seed << ": " << *wrong;
    }
  }
  const char* const where =
      durable == Durable::kRemote ? "there" : "on the disk";
  absl::PrintF(
      "trial remote, %s, random operations, durable %s: %d operations, %d "
      "saves committed, %d deaths in an operation, %d between two, %d looks by "
      "address, %d disks lost and taken over (%d behind the disk), %d lives of "
      "which segments had left the disk: all equal\n",
      StoreKind(), where, totals.operations, totals.committed, totals.deaths,
      totals.crashes, totals.read, totals.lost, totals.behind, totals.far);
  EXPECT_GT(totals.committed, 0);
  EXPECT_GT(totals.crashes, 0);
  EXPECT_GT(totals.lost, 0);
  if (totals.operations >= 1000) {
    EXPECT_GT(totals.deaths, 5);
    EXPECT_GT(totals.far, 0);
  }
}

TEST_F(RemoteRandomTest, AgreeWithTheModelWhereSavesAreDurableThere) {
  Run(Durable::kRemote);
}

TEST_F(RemoteRandomTest, AgreeWithTheModelWhereSavesAreDurableOnTheDisk) {
  Run(Durable::kLocal);
}

}  // namespace
}  // namespace ckptree::testing
