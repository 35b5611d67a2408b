// SPDX-License-Identifier: Apache-2.0

// The manager of a loop beside the loop that people write by hand.

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <vector>

#include "absl/strings/str_format.h"
#include "bench/cases.h"
#include "bench/state.h"
#include "core/engine/engine.h"
#include "core/engine/store_engine.h"

namespace ckptree::bench {
namespace {

constexpr std::size_t kStepBytes = 64 << 10;
constexpr int kKept = 3;

// What a careful program does without a library: a new file, synced, renamed,
// its directory synced, the oldest one unlinked.
class HandWritten {
 public:
  explicit HandWritten(std::string folder) : folder_(std::move(folder)) {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    directory_ = open(folder_.c_str(), O_RDONLY | O_DIRECTORY);
  }
  ~HandWritten() {
    close(directory_);
    std::filesystem::remove_all(folder_);
  }

  void Save(int step, std::span<const std::byte> bytes) {
    const std::string made = folder_ + "/making";
    const int fd = open(made.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    const auto size = static_cast<ssize_t>(bytes.size());
    if (write(fd, bytes.data(), bytes.size()) != size || fsync(fd) != 0 ||
        close(fd) != 0 || rename(made.c_str(), Name(step).c_str()) != 0 ||
        fsync(directory_) != 0) {
      Fail("the hand-written loop");
    }
    if (step >= kKept) unlink(Name(step - kKept).c_str());
  }

 private:
  std::string Name(int step) const {
    return absl::StrFormat("%s/%d", folder_, step);
  }

  const std::string folder_;
  int directory_ = -1;
};

// Milliseconds to decide what the commit of one more step removes.
double Evaluate(Store& store, const Preservation& policy) {
  Check(store.SetPolicy(policy));
  const internal::Engine& engine = internal::StoreEngine::Of(store);
  auto fresh = std::make_shared<schema::StepRecord>(
      *engine.catalog().Resolve(Latest()).value());
  fresh->step += 1;
  const Stopwatch watch;
  Check(internal::StoreEngine::Of(store)
            .retention()
            .Decide(fresh, false, false, [] { return internal::PriceHead(); })
            .status());
  return watch.Seconds() * 1e3;
}

}  // namespace

bool ManagerLoop(const Settings& settings) {
  constexpr int kBlock = 100;
  const int steps = settings.quick ? 2000 : 10000;
  State state(kStepBytes);
  const std::string path = settings.directory + "/manager";
  std::filesystem::remove_all(path);
  std::vector<double> saves, by_hand;
  {
    auto manager = CheckpointManager::Open(path, {.max_to_keep = kKept});
    Check(manager.status());
    HandWritten beside(settings.directory + "/by_hand");
    const auto fill = [&state](StepBuilder& builder) {
      builder.Put("w", Floats(state.bytes()));
      return builder.status();
    };
    for (int block = 0; block < steps; block += kBlock) {
      double seconds[2] = {0, 0};
      for (int step = block; step < block + kBlock; ++step) {
        state.Touch(64, static_cast<std::uint64_t>(step) + 1);
        Stopwatch watch;
        Check(manager->Save(step, fill).status());
        Check(manager->WaitUntilFinished());  // As durable as the other.
        seconds[0] += watch.Seconds();
        watch = Stopwatch();
        beside.Save(step, state.bytes());
        seconds[1] += watch.Seconds();
      }
      saves.push_back(seconds[0] / kBlock * 1e3);
      by_hand.push_back(seconds[1] / kBlock * 1e3);
    }
    if (manager->AllSteps()->size() != kKept) Fail("other steps are left");
    Check(manager->Close());
  }
  std::filesystem::remove_all(path);
  bool good =
      Report(settings, {.name = "manager",
                        .what = "64 KiB saved and waited for, three kept",
                        .unit = "ms",
                        .values = saves,
                        .beside = "write, fsync, rename, unlink by hand",
                        .beside_values = by_hand,
                        .floor = 4,
                        .at_least = false});

  // One decision over all the steps there are.
  Store store = FreshStore(path);
  for (int step = 0; step < steps; ++step) {
    StepBuilder builder = store.Begin(step);
    builder.PutInt("n", step).SetMetric("loss", 1.0 / (1 + step % 97));
    const SaveHandle save = std::move(builder).Commit();
    if (step % 1000 == 999 || step + 1 == steps) Check(store.Flush());
  }
  const Preservation policies[] = {
      LatestN{steps},
      LatestN{3} | Preservation(EveryNSteps{1}),
      EveryNStepsClosest{1},
      EveryNSeconds{} | Preservation(LatestN{3}),
      BestN{.metric = "loss", .mode = BestMode::kMin, .n = steps / 2} |
          Preservation(LatestN{steps}) | Preservation(Healthy{}) |
          Preservation(Logarithmic{8}),
  };
  for (const Preservation& policy : policies) {
    std::vector<double> milliseconds;
    for (int i = 0; i < 20; ++i) {
      milliseconds.push_back(Evaluate(store, policy));
    }
    good &=
        Report(settings,
               {.name = "manager",
                .what = absl::StrFormat("decision over all: %s", Text(policy)),
                .unit = "ms",
                .values = milliseconds,
                .floor = 1,
                .at_least = false});
  }
  Check(store.Close());
  std::filesystem::remove_all(path);
  return good;
}

}  // namespace ckptree::bench
