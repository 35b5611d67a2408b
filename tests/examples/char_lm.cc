// SPDX-License-Identifier: Apache-2.0

// Trains a small character-level language model and keeps its whole state in a
// ckptree store: started again after any end, it goes on as if never stopped.

#include <algorithm>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "ckptree/ckptree.h"
#include "tests/examples/char_model.h"
#include "tests/examples/char_trainer.h"

namespace char_lm {
namespace {

using Clock = std::chrono::steady_clock;

constexpr char kUsage[] =
    "usage: char_lm --store DIR [--steps N] [--save-every N] [--text FILE]\n"
    "               [--keep POLICY] [--tiny] [--batch N] [--seed N] [--kill-at "
    "N]\n"
    "               [--remote ADDRESS] [--quiet]\n"
    "\n"
    "Trains a character-level language model. Goes on from the latest step of\n"
    "the store where there is one. At SIGTERM it saves once more and ends.\n"
    "  --store DIR     where the steps are saved; created when absent\n"
    "  --steps N       train until step N (120)\n"
    "  --save-every N  save each N steps, and the last one (10)\n"
    "  --keep POLICY   which steps live, such as 'latest(3) | every(100)'\n"
    "  --text FILE     what to learn (/usr/share/common-licenses/GPL-3)\n"
    "  --tiny          a model of 0.2 MiB instead of 38 MiB\n"
    "  --batch N       windows of text a step (8)\n"
    "  --seed N        of the first values and the batches (1)\n"
    "  --kill-at N     SIGKILL itself in the middle of step N\n"
    "  --remote ADDRESS  each step is there, too, when it is committed; an\n"
    "                  absent store is fetched from there, and whoever wrote\n"
    "                  before is ended\n"
    "  --quiet         print the last line only\n";

constexpr absl::Duration kStageTimeout = absl::Minutes(2);
constexpr absl::Duration kCommitTimeout = absl::Minutes(5);

struct Options {
  std::string store;
  std::string keep;
  std::string remote;
  std::string text = "/usr/share/common-licenses/GPL-3";
  std::int64_t steps = 120;
  std::int64_t save_every = 10;
  std::int64_t kill_at = -1;
  TrainerOptions trainer;
  bool quiet = false;
};

double MillisecondsSince(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start)
      .count();
}

absl::StatusOr<Options> ParseOptions(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view flag = argv[i];
    if (flag == "--tiny") {
      options.trainer.tiny = true;
      continue;
    }
    if (flag == "--quiet") {
      options.quiet = true;
      continue;
    }
    std::int64_t* number = flag == "--steps"        ? &options.steps
                           : flag == "--save-every" ? &options.save_every
                           : flag == "--batch"      ? &options.trainer.batch
                           : flag == "--seed"       ? &options.trainer.seed
                           : flag == "--kill-at"    ? &options.kill_at
                                                    : nullptr;
    std::string* text = flag == "--store"    ? &options.store
                        : flag == "--keep"   ? &options.keep
                        : flag == "--text"   ? &options.text
                        : flag == "--remote" ? &options.remote
                                             : nullptr;
    if (number == nullptr && text == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrFormat("unknown option %s", flag));
    }
    if (++i == argc) {
      return absl::InvalidArgumentError(
          absl::StrFormat("%s needs a value", flag));
    }
    const std::string_view value = argv[i];
    if (text != nullptr) {
      *text = value;
      continue;
    }
    const char* end = value.data() + value.size();
    const auto parsed = std::from_chars(value.data(), end, *number);
    if (parsed.ec != std::errc() || parsed.ptr != end || *number < 0) {
      return absl::InvalidArgumentError(
          absl::StrFormat("%s needs a number, not %s", flag, value));
    }
  }
  if (options.store.empty()) {
    return absl::InvalidArgumentError("--store is missing");
  }
  if (options.save_every == 0 || options.trainer.batch == 0 ||
      options.trainer.batch > 1024) {
    return absl::InvalidArgumentError(
        "--save-every must be at least 1, --batch 1 to 1024");
  }
  return options;
}

absl::StatusOr<std::string> LoadText(const std::string& file) {
  std::ifstream stream(file, std::ios::binary);
  if (!stream) {
    return absl::NotFoundError(absl::StrCat("cannot read the text ", file));
  }
  std::string text((std::istreambuf_iterator<char>(stream)),
                   std::istreambuf_iterator<char>());
  std::erase_if(text, [](char c) {
    return static_cast<unsigned char>(c) >= CharModel::kCharacters;
  });
  if (text.size() < 1024) {
    return absl::InvalidArgumentError(
        absl::StrCat("the text ", file, " is too short: ", text.size(),
                     " ASCII characters, at least 1024 are needed"));
  }
  return text;
}

// Their first mistake comes out of CheckpointManager::Open().
absl::StatusOr<ckptree::ManagerOptions> ManagerOptionsOf(
    const Options& options) {
  ckptree::ManagerOptions manager;
  manager.store.staging_bytes = std::size_t{256} << 20;
  // A run that was just killed may not be gone yet.
  manager.store.lock_wait = absl::Seconds(5);
  manager.save_decision = ckptree::AnySave{
      {ckptree::FixedInterval{options.save_every}, ckptree::OnPreemption{}}};
  manager.watch_sigterm = true;
  manager.max_saves_in_flight = 2;
  if (!options.remote.empty()) {
    manager.store.remote = options.remote;
    manager.store.durable = ckptree::Durable::kRemote;
    // Who starts it again knows that the one before is gone.
    manager.store.take_over = true;
  }
  if (!options.keep.empty()) {
    absl::StatusOr<ckptree::Preservation> policy =
        ckptree::ParsePreservation(options.keep);
    if (!policy.ok()) return policy.status();
    manager.preservation = *std::move(policy);
  }
  return manager;
}

// True where it ends because of a SIGTERM.
absl::StatusOr<bool> Run(const Options& options) {
  absl::StatusOr<std::string> text = LoadText(options.text);
  if (!text.ok()) return text.status();
  Trainer trainer(options.trainer, *std::move(text));

  absl::StatusOr<ckptree::ManagerOptions> manager_options =
      ManagerOptionsOf(options);
  if (!manager_options.ok()) return manager_options.status();
  absl::StatusOr<ckptree::CheckpointManager> manager =
      ckptree::CheckpointManager::Open(options.store,
                                       *std::move(manager_options));
  if (!manager.ok()) return manager.status();

  absl::FPrintF(stdout, "model: %d parameters, a step is %.1f MiB\n",
                trainer.parameter_count(),
                static_cast<double>(trainer.state_bytes()) / (1 << 20));
  std::string note;
  const auto opened = Clock::now();
  if (absl::StatusOr<ckptree::Step> latest = manager->OpenStep(); latest.ok()) {
    if (absl::Status status = trainer.Restore(*latest); !status.ok()) {
      return status;
    }
    note = absl::StrCat("resumed from step ", trainer.step());
    absl::FPrintF(stdout, "%s in %.1f ms\n", note, MillisecondsSince(opened));
  } else if (absl::IsNotFound(latest.status())) {
    absl::FPrintF(stdout, "the store is empty: starting at step 0\n");
  } else {
    return latest.status();
  }
  std::fflush(stdout);

  ckptree::SaveHandle save;
  bool staging = false;
  double stall_ms = 0.0;
  double longest_stall_ms = 0.0;
  int saves = 0;
  // The parameters may change once the save has copied them.
  const auto finish_staging = [&]() -> absl::Status {
    if (!staging) return absl::OkStatus();
    staging = false;
    const auto start = Clock::now();
    if (absl::Status status = save.WaitStaged(kStageTimeout); !status.ok()) {
      return status;
    }
    stall_ms += MillisecondsSince(start);
    longest_stall_ms = std::max(longest_stall_ms, stall_ms);
    if (!options.quiet) {
      absl::FPrintF(stdout, "step %4d: save stalled training for %.1f ms\n",
                    save.step(), stall_ms);
      std::fflush(stdout);
    }
    return absl::OkStatus();
  };

  auto interval_start = Clock::now();
  std::int64_t interval_steps = 0;
  while (trainer.step() < options.steps) {
    if (options.kill_at == trainer.step() + 1) {
      absl::FPrintF(stdout, "step %4d: SIGKILL, the last save is %s\n",
                    options.kill_at,
                    saves > 0 && !save.Done() ? "in flight" : "done");
      std::fflush(stdout);
      std::raise(SIGKILL);
    }
    trainer.ComputeGradient();
    if (absl::Status status = finish_staging(); !status.ok()) return status;
    trainer.Update();
    ++interval_steps;

    const bool last = trainer.step() == options.steps;
    const absl::StatusOr<bool> due = manager->ShouldSave(trainer.step());
    if (!due.ok()) return due.status();
    if (!last && !*due) continue;
    if (!options.quiet) {
      absl::FPrintF(stdout, "step %4d: loss %.4f, %.1f ms a step\n",
                    trainer.step(), trainer.average_loss(),
                    MillisecondsSince(interval_start) /
                        static_cast<double>(interval_steps));
      std::fflush(stdout);
    }
    const auto start = Clock::now();
    ckptree::SaveArguments arguments;
    arguments.metrics = {{"loss", trainer.average_loss()}};
    arguments.note = last ? "end of the run" : note;
    arguments.force = true;  // It was asked just now.
    const absl::StatusOr<bool> begun = manager->Save(
        trainer.step(),
        [&trainer](ckptree::StepBuilder& builder) {
          trainer.Fill(builder);
          return builder.status();
        },
        arguments);
    if (!begun.ok()) return begun.status();
    save = manager->LastSave();
    stall_ms = MillisecondsSince(start);
    staging = true;
    ++saves;
    note.clear();
    if (!options.quiet) {
      save.OnCommitted([step = trainer.step()](const absl::Status& status) {
        absl::FPrintF(stdout, "step %4d: %s\n", step,
                      status.ok() ? "committed" : status.ToString());
        std::fflush(stdout);
      });
    }
    interval_start = Clock::now();
    interval_steps = 0;
    if (manager->SavedForPreemption() && !last) {
      absl::FPrintF(stdout, "preempted: step %d is saved, it can go on there\n",
                    trainer.step());
      return true;
    }
  }
  if (absl::Status status = finish_staging(); !status.ok()) return status;
  if (absl::Status status = manager->WaitUntilFinished(kCommitTimeout);
      !status.ok()) {
    return status;
  }
  absl::FPrintF(
      stdout, "done: step %d, loss %.4f, %d saves, longest stall %.1f ms\n",
      trainer.step(), trainer.average_loss(), saves, longest_stall_ms);
  return false;
}

}  // namespace
}  // namespace char_lm

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]) == "--help") {
      std::fputs(char_lm::kUsage, stdout);
      return 0;
    }
  }
  absl::StatusOr<char_lm::Options> options = char_lm::ParseOptions(argc, argv);
  if (!options.ok()) {
    absl::FPrintF(stderr, "char_lm: %s\n%s", options.status().message(),
                  char_lm::kUsage);
    return 2;
  }
  const absl::StatusOr<bool> preempted = char_lm::Run(*options);
  if (!preempted.ok()) {
    absl::FPrintF(stderr, "char_lm: %s\n", preempted.status().ToString());
    return 1;
  }
  return *preempted ? 128 + SIGTERM : 0;
}
