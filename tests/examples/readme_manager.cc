// SPDX-License-Identifier: Apache-2.0

// The manager of the README, compiled and run; tests/house/readme_test.py
// compares the two.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "absl/status/status.h"
#include "ckptree/ckptree.h"

namespace {

void Check(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::exit(1);
}

double Train(std::vector<float>& wte) { return wte[0] *= 0.99f; }

void Loop(const char* directory) {
  using namespace ckptree;  // NOLINT: as a reader would have it.
  constexpr std::int64_t kSteps = 40;
  std::vector<float> wte(512 * 64, 0.5f);
  // README: begin
  auto manager = CheckpointManager::Open(
      directory,
      {.save_interval_steps = 10,
       .preservation = LatestN{3} | EveryNSteps{1000} |
                       BestN{.metric = "loss", .mode = BestMode::kMin, .n = 1},
       .watch_sigterm = true});
  for (std::int64_t step = 1; step <= kSteps; ++step) {
    const double loss = Train(wte);
    Check(manager
              ->Save(step,
                     [&](StepBuilder& builder) {
                       builder.Put("params/wte",
                                   {DType::kFloat32, {512, 64}, wte.data()});
                       return builder.status();
                     },
                     {.metrics = {{"loss", loss}}})
              .status());
    if (manager->SavedForPreemption()) break;  // SIGTERM: it is on the disk.
  }
  Check(manager->Close());
  // README: end
  manager = CheckpointManager::Open(directory);
  Check(manager.status());
  Check(manager->AllSteps()->size() == 3 ? absl::OkStatus()
                                         : absl::DataLossError("the steps"));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  Loop(argv[1]);
  return 0;
}
