// SPDX-License-Identifier: Apache-2.0

// training_beside: what a training loop keeps of its speed while its state is
// saved.

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <string>
#include <vector>

#include "bench/cases.h"
#include "bench/state.h"

namespace ckptree::bench {
namespace {

constexpr std::size_t kNumbers = std::size_t{8} << 20;  // 32 MiB an array.
constexpr std::size_t kLeafBytes = 16 << 20;

// a = b + s * c over arrays that no cache holds, on one thread: what a training
// on a processor is bound by.
class Triad {
 public:
  Triad() : a_(kNumbers), b_(kNumbers, 1.0F), c_(kNumbers, 2.0F) {}

  // Steps a second, over at least so many seconds and until `*stop`.
  double Run(double seconds, const std::atomic<bool>* stop) {
    const Stopwatch watch;
    int steps = 0;
    do {
      const auto scale = static_cast<float>(++steps);
      for (std::size_t i = 0; i < kNumbers; ++i) a_[i] = b_[i] + scale * c_[i];
    } while (watch.Seconds() < seconds || (stop != nullptr && !stop->load()));
    if (a_[kNumbers / 2] == 0) Fail("the loop did nothing");
    return steps / watch.Seconds();
  }

 private:
  std::vector<float> a_, b_, c_;
};

}  // namespace

bool TrainingBeside(const Settings& settings) {
  State state(settings.quick ? std::size_t{256} << 20 : std::size_t{1} << 30);
  const double seconds = settings.quick ? 0.5 : 2;
  const std::string path = settings.directory + "/training";
  Triad loop;
  loop.Run(seconds, nullptr);  // Makes its pages.
  std::vector<double> alone, beside, rates;
  {
    Store store = FreshStore(path);
    SaveLeaves(store, 0, state, kLeafBytes, Ownership::kCopy);
    for (int i = 1; i <= (settings.quick ? 3 : 5); ++i) {
      alone.push_back(loop.Run(seconds, nullptr));
      state.Touch(1 << 20, static_cast<std::uint64_t>(i));
      std::atomic<bool> saved = false;
      // The loop waits for the copy; then it goes on beside the save.
      StepBuilder builder = store.Begin(i);
      for (std::size_t at = 0; at < state.bytes().size(); at += kLeafBytes) {
        builder.Put(LeafName(at / kLeafBytes),
                    Floats(state.bytes().subspan(at, kLeafBytes)));
      }
      SaveHandle save = std::move(builder).Commit();
      // Nobody waits for the save: then it leaves a processor to others.
      save.OnCommitted([&saved](const absl::Status& status) {
        Check(status);
        saved.store(true);
      });
      const Stopwatch watch;
      beside.push_back(loop.Run(0, &saved));
      rates.push_back(static_cast<double>(state.bytes().size()) / 1e9 /
                      watch.Seconds());
      Check(save.WaitCommitted(absl::InfiniteDuration()));
      Check(store.Delete(i - 1));
    }
  }
  std::filesystem::remove_all(path);
  Print("training_beside", "the save beside it", rates, "GB/s");
  return Report(settings, {.name = "training_beside",
                           .what = "memory-bound loop on one core while a save "
                                   "is written",
                           .unit = "steps/s",
                           .values = beside,
                           .beside = "the loop alone",
                           .beside_values = alone,
                           .floor = 0.9,
                           .goal = 0.97});
}

}  // namespace ckptree::bench
