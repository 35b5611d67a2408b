// SPDX-License-Identifier: Apache-2.0

// The ranks of the README, compiled and run, two of them; the house test of the
// README compares the two.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "ckptree/ckptree.h"

namespace {

void Check(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::exit(1);
}

void Loop(const char* directory, int rank, int world) {
  using namespace ckptree;  // NOLINT: as a reader would have it.
  constexpr std::int64_t kSteps = 5;
  const std::vector<float> rows(64 * 768, static_cast<float>(rank));
  // README: begin
  auto group =
      RankGroup::Open(directory, {.rank = rank,
                                  .world = world,
                                  .job = "lm-7",
                                  .store = {.create_if_missing = true}});
  Check(group.status());
  for (std::int64_t step = 1; step <= kSteps; ++step) {
    StepBuilder builder = group->Begin(step);  // The same steps on every rank.
    builder.Put("params/wte", {.dtype = DType::kFloat32,
                               .shape = {64, 768},  // The rows of this rank.
                               .data = rows.data(),
                               .start = {64 * rank, 0},
                               .global_shape = {64 * world, 768}});
    builder.PutInt("epoch", 3);  // Alike on all: one of them saves it.
    Check(std::move(builder).Commit().WaitCommitted());
  }
  // README: end
  const auto step = group->store().OpenStep(kSteps);
  Check(step.status());
  std::vector<float> all(static_cast<std::size_t>(64 * 768 * world));
  Check(step->Read("params/wte", std::as_writable_bytes(std::span(all))));
  for (int other = 0; other < world; ++other) {
    const float value = all[static_cast<std::size_t>(64 * 768 * other)];
    Check(value == static_cast<float>(other)
              ? absl::OkStatus()
              : absl::DataLossError("rows of another rank"));
  }
  Check(group->Close());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  Loop(argv[1], std::atoi(argv[2]), std::atoi(argv[3]));
  return 0;
}
