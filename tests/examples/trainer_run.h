// SPDX-License-Identifier: Apache-2.0

// A run of char_lm, which a signal may end.

#ifndef CKPTREE_TESTS_EXAMPLES_TRAINER_RUN_H_
#define CKPTREE_TESTS_EXAMPLES_TRAINER_RUN_H_

#include <chrono>
#include <csignal>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ckptree/ckptree.h"

namespace char_lm {

// From the environment, so that a failure can be run again.
std::uint64_t NumberFromEnvironment(const char* name, std::uint64_t otherwise);

struct TrainerOutcome {
  bool killed = false;  // By SIGKILL; else it ended by itself.
  int exit_code = -1;
  std::string output;
  std::chrono::nanoseconds took{};

  // The highest N in lines "<before>N<after>"; -1 where there are none.
  std::int64_t Highest(std::string_view before, std::string_view after) const;

  std::int64_t LastCommitted() const { return Highest("step ", ": committed"); }
  std::int64_t ResumedFrom() const {
    return Highest("resumed from step ", " in");
  }
};

// When a run is signalled: `after` it began.
struct TrainerSignal {
  int signal = SIGKILL;
  std::chrono::nanoseconds after{};
};

// Runs char_lm with these options until it ends.
TrainerOutcome RunTrainer(const std::vector<std::string>& options,
                          std::optional<TrainerSignal> signal = std::nullopt);

ckptree::Store OpenForReading(const std::string& directory);
// Of everything, deep.
void ExpectSound(const ckptree::Store& store);

}  // namespace char_lm

#endif  // CKPTREE_TESTS_EXAMPLES_TRAINER_RUN_H_
