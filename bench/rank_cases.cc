// SPDX-License-Identifier: Apache-2.0

// Steps of many ranks, in one process: what grows with their number.

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "bench/cases.h"
#include "bench/state.h"
#include "ckptree/ranks.h"

namespace ckptree::bench {
namespace {

// Boxes of int32 that each rank has of as many arrays: `rows` rows of four.
struct Layout {
  int world = 1;
  int arrays = 1;
  std::int64_t rows = 1;
};

// One rank's part, written; returns what the coordinator gets.
std::string Part(const Store& store, const std::string& plan,
                 const Layout& layout, int rank, std::int64_t step) {
  const auto box = static_cast<std::size_t>(layout.rows * 4);
  std::vector<std::int32_t> values(box *
                                   static_cast<std::size_t>(layout.arrays));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<std::int32_t>(i) + rank * 7 +
                static_cast<std::int32_t>(step) * 13;
  }
  StepBuilder part = BeginPart(store, plan, rank);
  for (int array = 0; array < layout.arrays; ++array) {
    Tensor tensor;
    tensor.dtype = DType::kInt32;
    tensor.shape = {layout.rows, 4};
    tensor.data = values.data() + static_cast<std::size_t>(array) * box;
    tensor.start = {rank * layout.rows, 0};
    tensor.global_shape = {layout.world * layout.rows, 4};
    part.Put(absl::StrFormat("w%05d", array), tensor);
  }
  auto token = FinishPart(std::move(part));
  Check(token.status());
  return *std::move(token);
}

// Saves a step; returns the seconds from the last part to the commit.
double Commit(Store& store, const Layout& layout, std::int64_t step) {
  auto save = RankedSave::Begin(store.Begin(step), {.world = layout.world});
  Check(save.status());
  std::vector<std::string> parts;
  for (int rank = 0; rank < layout.world; ++rank) {
    parts.push_back(Part(store, save->plan(), layout, rank, step));
  }
  const Stopwatch watch;
  Check(save->Commit(std::move(parts)).WaitCommitted());
  return watch.Seconds();
}

}  // namespace

bool RanksCommit(const Settings& settings) {
  const Layout layout = {
      .world = settings.quick ? 128 : 1024, .arrays = 10, .rows = 3};
  const std::string path = settings.directory + "/ranks_commit";
  std::vector<double> seconds;
  {
    Store store = FreshStore(path);
    for (std::int64_t step = 0; step < (settings.quick ? 3 : 6); ++step) {
      const double taken = Commit(store, layout, step);
      if (step > 0) seconds.push_back(taken);  // The first makes the store's.
    }
    Check(store.Close());
  }
  std::filesystem::remove_all(path);
  return Report(settings,
                {.name = "ranks_commit",
                 .what = absl::StrFormat("commit of %d parts", layout.world),
                 .unit = "s",
                 .values = seconds,
                 .floor = 1,
                 .at_least = false});
}

bool RanksOpen(const Settings& settings) {
  const Layout layout = {.world = settings.quick ? 8 : 64,
                         .arrays = settings.quick ? 1000 : 10'000};
  const std::string path = settings.directory + "/ranks_open";
  std::vector<double> stores, opens, leaves;
  {
    Store store = FreshStore(path);
    Print("ranks_open", "commit", {Commit(store, layout, 1)}, "s");
    Check(store.Close());
  }
  for (int turn = 0; turn < 5; ++turn) {
    // Anew, so that nothing of the step is known yet.
    Stopwatch watch;
    auto store = Store::Open(path, {.read_only = true});
    Check(store.status());
    stores.push_back(watch.Seconds() * 1e3);
    watch = Stopwatch();
    auto step = store->OpenStep(1);
    Check(step.status());
    opens.push_back(watch.Seconds() * 1e3);
    watch = Stopwatch();
    std::vector<std::int32_t> found(
        static_cast<std::size_t>(layout.world * layout.rows * 4));
    Check(step->Read("w00000", std::as_writable_bytes(std::span(found))));
    leaves.push_back(watch.Seconds() * 1e3);
    if (found[4] != 7 + 13) Fail("ranks_open: another value was read");
    Check(store->Close());
  }
  std::filesystem::remove_all(path);
  Print("ranks_open", "open of the store", stores, "ms");
  Print("ranks_open", "first array of all parts", leaves, "ms");
  return Report(settings,
                {.name = "ranks_open",
                 .what = absl::StrFormat("open of a step of %d parts x %d "
                                         "pieces",
                                         layout.world, layout.arrays),
                 .unit = "ms",
                 .values = opens,
                 .floor = 100,
                 .at_least = false});
}

}  // namespace ckptree::bench
