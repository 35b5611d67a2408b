// SPDX-License-Identifier: Apache-2.0

// Readers in other processes beside a writer that collects: what they read is
// always one step as it was saved, whole, and a step that was opened stays
// readable; one that is deleted on the way to being opened is StepGone.

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "tests/fault/directory.h"
#include "tests/fault/random.h"
#include "tests/fault/runner.h"
#include "tests/fault/scale.h"
#include "tests/model/store.h"

namespace ckptree::testing {
namespace {

const std::uint64_t kSeed = TrialSeed();
constexpr int kReaders = 4;

// Long enough for some thousand saves; CKPTREE_TEST_SECONDS makes it longer.
int Seconds() {
  const char* const wanted = std::getenv("CKPTREE_TEST_SECONDS");
  return wanted == nullptr ? std::max(5, Scaled(30)) : std::atoi(wanted);
}

// ---- what a step holds follows from one number, its salt ----

// Every fourth save is small and rides in its batch.
int LeafCount(std::int64_t salt) { return salt % 4 == 0 ? 6 : 40; }

std::string NameOf(int leaf) { return absl::StrFormat("params/w%d", leaf); }

// Inline, packed and chunked ones; a third changes with every save, the rest
// with every tenth.
std::vector<std::byte> ValueOf(std::int64_t salt, int leaf) {
  static constexpr std::size_t kSizes[] = {100, 700, 9000, 40'000, 150'000, 3};
  const auto seed =
      static_cast<std::uint64_t>(leaf % 3 == 0 ? salt : salt / 10);
  std::vector<std::byte> value(kSizes[leaf % 6]);
  FaultRandom(seed * 1000 + static_cast<std::uint64_t>(leaf)).Fill(value);
  return value;
}

absl::Status SaveSalt(Store& store, std::int64_t step, std::int64_t salt,
                      bool overwrite) {
  StepBuilder builder = store.Begin(step, {.overwrite = overwrite});
  builder.PutInt("salt", salt);
  std::vector<std::vector<std::byte>> values;
  for (int leaf = 0; leaf < LeafCount(salt); ++leaf) {
    const auto& value = values.emplace_back(ValueOf(salt, leaf));
    Tensor tensor;
    tensor.dtype = DType::kUint8;
    tensor.shape = {static_cast<std::int64_t>(value.size())};
    tensor.data = value.data();
    builder.Put(NameOf(leaf), std::move(tensor), Ownership::kBorrow);
  }
  return std::move(builder).Commit().WaitCommitted(absl::Seconds(60));
}

// Empty where `step` is whole.
std::string WrongWith(const Step& step) {
  const auto salt = step.Value("salt");
  if (!salt.ok()) return std::string(salt.status().message());
  const std::int64_t number = salt->Int().value();
  const auto leaves = step.Leaves();
  if (!leaves.ok()) return std::string(leaves.status().message());
  if (leaves->size() != static_cast<std::size_t>(LeafCount(number)) + 1) {
    return absl::StrFormat("salt %d with %d leaves", number, leaves->size());
  }
  for (int leaf = 0; leaf < LeafCount(number); ++leaf) {
    const auto value = step.Value(NameOf(leaf));
    if (!value.ok()) return std::string(value.status().message());
    if (value->bytes != ValueOf(number, leaf)) {
      return absl::StrFormat("salt %d: %s is of another save", number,
                             NameOf(leaf));
    }
  }
  return "";
}

// ---- the processes ----

// Reads until `done` is there, then says how many steps were whole.
void ReadUntil(const std::string& directory, const std::string& done,
               std::uint64_t seed, const TrialPipe& pipe) {
  FaultRandom random(seed);
  int whole = 0;
  int opened = 0;
  int gone = 0;
  // Steps that were open and went: the writer came after they were opened, so
  // nothing held them (core/collect/README.md). Each is the last of a store
  // that was opened.
  int late = 0;
  const auto went_late = [&](const std::string& wrong) {
    return wrong.find("was deleted or overwritten while it was read") !=
               std::string::npos &&
           ++late <= opened;
  };
  std::optional<Store> store;
  std::optional<Step> kept;  // For some rounds: its step may be deleted.
  for (bool last = false; !last;) {
    last = std::filesystem::exists(done);
    if (kept.has_value() && random.Int(4) == 0) {
      const std::string wrong = WrongWith(*kept);
      if (!wrong.empty() && !went_late(wrong)) {
        pipe.Say("WRONG step that was open: " + wrong);
        return;
      }
      kept.reset();
    }
    if (!store.has_value() || random.Int(8) == 0) {
      kept.reset();
      store.reset();
      absl::StatusOr<Store> open = OpenStore(directory, 1, nullptr, true);
      if (!open.ok()) {
        pipe.Say(absl::StrFormat("WRONG open: %s", open.status().message()));
        return;
      }
      store.emplace(*std::move(open));
      ++opened;
    } else if (const absl::Status status = store->Refresh(); !status.ok()) {
      pipe.Say(absl::StrFormat("WRONG refresh: %s", status.message()));
      return;
    }
    const auto steps = store->Steps();
    if (!steps.ok() || steps->empty()) {
      pipe.Say("WRONG no steps");
      return;
    }
    // The newest, and any other.
    for (const std::size_t at :
         {steps->size() - 1, static_cast<std::size_t>(random.Int(
                                 static_cast<int>(steps->size())))}) {
      auto step = store->OpenStep(AtStep((*steps)[at].step));
      if (IsStepGone(step.status())) {
        ++gone;
        continue;
      }
      const std::string wrong =
          step.ok() ? WrongWith(*step) : std::string(step.status().message());
      if (!wrong.empty()) {
        if (step.ok() && went_late(wrong)) continue;
        pipe.Say(
            absl::StrFormat("WRONG step %d: %s", (*steps)[at].step, wrong));
        return;
      }
      ++whole;
      kept.emplace(*std::move(step));
    }
  }
  pipe.Say(absl::StrFormat("WHOLE %d", whole));
  pipe.Say(absl::StrFormat("GONE %d", gone));
  pipe.Say(absl::StrFormat("OPENED %d", opened));
}

absl::StatusOr<Store> OpenCollecting(const std::string& directory) {
  StoreOptions options;
  options.threads = 2;
  options.log = [](LogSeverity, std::string_view, std::string_view) {};
  options.collect = true;
  return Store::Open(directory, options);
}

// Saves, overwrites, deletes, collects, closes and opens for `seconds`.
void WriteFor(const std::string& directory, int seconds,
              const TrialPipe& pipe) {
  const auto must = [&pipe](const absl::Status& status, const char* what) {
    if (status.ok()) return;
    pipe.Say(absl::StrFormat("WRONG %s: %s", what, status.message()));
    _exit(1);
  };
  FaultRandom random(kSeed);
  const absl::Time end = absl::Now() + absl::Seconds(seconds);
  std::int64_t salt = 1;
  int counts[4] = {};
  std::uint64_t collected = 0, rewritten = 0, waited = 0;
  while (absl::Now() < end) {
    absl::StatusOr<Store> store = OpenCollecting(directory);
    must(store.status(), "open");
    for (int i = 0; i < 100; ++i) {
      const std::vector<StepInfo> steps = store->Steps().value();
      const int draw = random.Int(10);
      if (steps.size() > 20 || (draw == 0 && steps.size() > 2)) {
        const auto at = static_cast<std::size_t>(
            random.Int(static_cast<int>(steps.size()) - 1));
        must(store->Delete(steps[at].step), "delete");
        ++counts[1];
        if (random.Int(4) == 0) {
          const auto report = store->Collect({.min_dead_fraction = 0});
          must(report.status(), "collect");
          collected += report->versions;
          rewritten += report->files_rewritten;
          waited += report->kept.size();
        }
      } else if (draw == 1) {
        must(SaveSalt(*store, steps.back().step, ++salt, true), "overwrite");
        ++counts[2];
      } else {
        must(SaveSalt(*store, steps.back().step + 1, ++salt, false), "save");
        ++counts[0];
      }
    }
    must(store->Close(), "close");
    ++counts[3];
  }
  pipe.Say(
      absl::StrFormat("WROTE %d saves, %d deletes, %d overwrites, %d times "
                      "closed",
                      counts[0], counts[1], counts[2], counts[3]));
  pipe.Say(
      absl::StrFormat("COLLECTED %d versions, rewrote %d files, %d times a "
                      "reader kept one",
                      collected, rewritten, waited));
  if (collected * rewritten * waited == 0) pipe.Say("WRONG nothing collected");
  for (const int count : counts) {
    if (count == 0) pipe.Say("WRONG something was never done");
  }
}

TEST(TrialReadersTest, EveryStepIsWholeBesideAWriter) {
  const TrialDirectory directory;
  const std::string done = directory.path() + "/done";
  const TrialResult made = RunChild([&](const TrialPipe& pipe) {
    absl::StatusOr<Store> store = CreateStore(directory.store(), 1);
    if (!store.ok() || !SaveSalt(*store, 1, 1, false).ok() ||
        !store->Close().ok()) {
      pipe.Say("WRONG");
    }
  });
  ASSERT_FALSE(made.broken()) << made.Text();
  ASSERT_TRUE(made.lines.empty()) << made.Text();
  const auto limit = static_cast<unsigned>(Seconds() + 240);
  // Each reader is the child of a process that waits for it.
  std::vector<pid_t> readers;
  for (int i = 0; i < kReaders; ++i) {
    const pid_t pid = fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) {
      const TrialResult read = RunChild(
          [&](const TrialPipe& pipe) {
            ReadUntil(directory.store(), done,
                      kSeed + static_cast<std::uint64_t>(i), pipe);
          },
          limit);
      const auto whole = read.Said("WHOLE");
      const bool good = !read.broken() && !read.killed && whole.size() == 1 &&
                        std::atoi(whole[0].c_str()) >= Scaled(20);
      std::cout << absl::StrFormat(
                       "trial readers, %d: %s\n", i,
                       good ? whole[0] + " steps read whole" : read.Text())
                << std::flush;
      _exit(good ? 0 : 1);
    }
    readers.push_back(pid);
  }
  const TrialResult wrote = RunChild(
      [&](const TrialPipe& pipe) {
        WriteFor(directory.store(), Seconds(), pipe);
      },
      limit);
  std::ofstream(done) << "done";
  EXPECT_FALSE(wrote.broken()) << wrote.Text();
  ASSERT_EQ(wrote.lines.size(), 2) << wrote.Text();
  std::cout << "trial readers: " << wrote.lines[0] << "\n"
            << "trial readers: " << wrote.lines[1] << "\n";
  EXPECT_EQ(wrote.Said("WROTE").size(), 1) << wrote.Text();
  for (const pid_t pid : readers) {
    int status = 0;
    ASSERT_EQ(waitpid(pid, &status, 0), pid);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  // Nobody is left: everything goes that was kept for them.
  const TrialResult after = RunChild([&](const TrialPipe& pipe) {
    absl::StatusOr<Store> store = OpenStore(directory.store(), 2);
    if (!store.ok()) return pipe.Say("WRONG open");
    if (const auto wrong = CollectAll(*store)) pipe.Say("WRONG " + *wrong);
    if (const auto wrong = DeepFindings(*store, /*and_leaks=*/true)) {
      pipe.Say("WRONG " + *wrong);
    }
  });
  EXPECT_FALSE(after.broken()) << after.Text();
  EXPECT_TRUE(after.lines.empty()) << after.Text();
}

}  // namespace
}  // namespace ckptree::testing
