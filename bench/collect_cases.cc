// SPDX-License-Identifier: Apache-2.0

// Collection beside `rm`, beside saves, and over many small steps.

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include "absl/strings/str_format.h"
#include "bench/cases.h"
#include "bench/raw_io.h"
#include "bench/state.h"

namespace ckptree::bench {
namespace {

constexpr std::size_t kMiB = 1 << 20;
constexpr std::size_t kArrayBytes = 16 * kMiB;
constexpr std::size_t kChunkBytes = 4 * kMiB;

// Without the background: the case says when.
Store QuietStore(const std::string& path) {
  std::filesystem::remove_all(path);
  StoreOptions options;
  options.collect = false;
  auto store = Store::Create(path, options);
  Check(store.status());
  return *std::move(store);
}

std::uint64_t BytesBelow(const std::string& path) {
  std::uint64_t bytes = 0;
  std::error_code error;
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(path, error)) {
    const std::uint64_t size = entry.file_size(error);
    if (!error) bytes += size;
  }
  return bytes;
}

// Seconds to remove files of these sizes and sync the directory.
double RemoveFiles(const std::string& directory,
                   const std::vector<std::uint64_t>& sizes, State& state) {
  const std::string folder = directory + "/rm";
  std::filesystem::create_directories(folder);
  std::vector<std::string> names;
  for (const std::uint64_t size : sizes) {
    names.push_back(absl::StrFormat("%s/%d", folder, names.size()));
    const int fd = open(names.back().c_str(), O_WRONLY | O_CREAT, 0600);
    for (std::uint64_t at = 0; at < size;) {
      const std::uint64_t piece =
          std::min<std::uint64_t>(size - at, state.bytes().size());
      if (write(fd, state.bytes().data(), piece) !=
          static_cast<ssize_t>(piece)) {
        Fail("the files beside could not be written");
      }
      at += piece;
    }
    if (fsync(fd) != 0 || close(fd) != 0) Fail("fsync of the files beside");
  }
  const Stopwatch watch;
  for (const std::string& name : names) unlink(name.c_str());
  const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY);
  if (fsync(fd) != 0) Fail("fsync of their directory");
  const double seconds = watch.Seconds();
  close(fd);
  std::filesystem::remove_all(folder);
  return seconds;
}

// Pairs of steps of which the second changes every other chunk: half of the
// first is still needed when it goes.
void SavePairs(Store& store, State& state, int pairs) {
  for (int pair = 0; pair < pairs; ++pair) {
    const auto salt = static_cast<std::uint64_t>(pair) * 2 + 1;
    state.Touch(4096, salt);
    SaveLeaves(store, 2 * pair, state, kArrayBytes, Ownership::kBorrow);
    state.Touch(2 * kChunkBytes, salt + 1);
    SaveLeaves(store, 2 * pair + 1, state, kArrayBytes, Ownership::kBorrow);
  }
}

CollectReport Collected(Store& store, const CollectOptions& options) {
  auto report = store.Collect(options);
  Check(report.status());
  return *std::move(report);
}

}  // namespace

bool CollectWhole(const Settings& settings) {
  const int steps = settings.quick ? 12 : 20;
  State state((settings.quick ? 64 : 256) * kMiB);
  std::vector<double> ours, beside, written;
  const std::string path = settings.directory + "/collect";
  for (int round = 0; round < (settings.quick ? 2 : 3); ++round) {
    Store store = QuietStore(path);
    for (int step = 0; step < steps; ++step) {
      state.Touch(4096, static_cast<std::uint64_t>(round * 100 + step) + 1);
      SaveLeaves(store, step, state, kArrayBytes, Ownership::kBorrow);
    }
    std::vector<std::uint64_t> sizes;
    const Stopwatch watch;
    for (int step = 0; step + 3 < steps; ++step) {
      if (step % 10 == 0) continue;
      Check(store.Delete(step));
      sizes.push_back(state.bytes().size());
    }
    const CollectReport report = Collected(store, {});
    ours.push_back(watch.Seconds());
    if (report.versions != sizes.size()) Fail("something was kept");
    written.push_back(static_cast<double>(report.bytes_written) / 1e6);
    beside.push_back(RemoveFiles(settings.directory, sizes, state));
    Check(store.Close());
    std::filesystem::remove_all(path);
  }
  const bool small = Report(settings, {.name = "collect_whole",
                                       .what = "nothing shared: written",
                                       .unit = "MB",
                                       .values = written,
                                       .floor = 1,
                                       .at_least = false});
  return Report(settings,
                {.name = "collect_whole",
                 .what = "nothing shared: steps deleted and collected",
                 .unit = "s",
                 .values = ours,
                 .beside = "rm of equal files and a sync",
                 .beside_values = beside,
                 .floor = 2,
                 .at_least = false}) &&
         small;
}

bool CollectShared(const Settings& settings) {
  const int pairs = settings.quick ? 3 : 10;
  State state((settings.quick ? 64 : 256) * kMiB);
  const std::string path = settings.directory + "/collect";
  std::vector<double> seconds, written, living;
  {
    Store store = QuietStore(path);
    SavePairs(store, state, pairs);
    for (int pair = 0; pair < pairs; ++pair) Check(store.Delete(2 * pair));
    const Stopwatch watch;
    const CollectReport report = Collected(store, {.min_dead_fraction = 0});
    seconds.push_back(watch.Seconds());
    const double live = static_cast<double>(state.bytes().size()) / 2 * pairs;
    written.push_back(static_cast<double>(report.bytes_written) / 1e6);
    living.push_back(live / 1e6);
    if (static_cast<double>(report.bytes_freed) < live) Fail("too little died");
    Check(store.Close());
  }
  std::filesystem::remove_all(path);
  Print("collect_shared", "half shared: collected", seconds, "s");
  return Report(settings, {.name = "collect_shared",
                           .what = "half shared: written",
                           .unit = "MB",
                           .values = written,
                           .beside = "the living bytes",
                           .beside_values = living,
                           .floor = 1.3,
                           .at_least = false});
}

bool SaveBesideCollection(const Settings& settings) {
  const int pairs = settings.quick ? 4 : 12;
  State state((settings.quick ? 64 : 256) * kMiB);
  State saved(16 * kMiB);
  const std::string path = settings.directory + "/collect";
  std::vector<double> idle, busy;
  std::uint64_t rewritten = 0;
  {
    Store store = QuietStore(path);
    SavePairs(store, state, pairs);
    std::int64_t step = 1000;
    const auto save = [&] {
      saved.Touch(4096, static_cast<std::uint64_t>(step));
      return SaveLeaves(store, step++, saved, 4 * kMiB, Ownership::kBorrow) *
             1e3;
    };
    for (int i = 0; i < 20; ++i) idle.push_back(save());
    for (int pair = 1; pair < pairs; ++pair) Check(store.Delete(2 * pair));
    std::atomic<bool> done = false;
    std::thread collector([&] {
      // As fast as the background does it.
      rewritten =
          Collected(store, {.min_dead_fraction = 0,
                            .bytes_per_second =
                                StoreOptions().collect_bytes_per_second})
              .files_rewritten;
      done = true;
    });
    while (!done) busy.push_back(save());
    collector.join();
    Check(store.Close());
  }
  std::filesystem::remove_all(path);
  if (rewritten == 0 || busy.size() < 5) Fail("collection was over too soon");
  return Report(settings, {.name = "save_beside_gc",
                           .what = "save of 16 MiB beside collection",
                           .unit = "ms",
                           .values = {Median(busy)},
                           .beside = "the same on an idle store",
                           .beside_values = idle,
                           .floor = 1.5,
                           .at_least = false});
}

bool KeepThree(const Settings& settings) {
  const int steps = settings.quick ? 2000 : 10000;
  State state(64 << 10);
  const std::string path = settings.directory + "/keep";
  std::vector<double> commits;
  std::uint64_t largest = 0;
  {
    Store store = FreshStore(path);  // With the background.
    for (int step = 0; step < steps; ++step) {
      state.Touch(4096, static_cast<std::uint64_t>(step) + 1);
      const Stopwatch watch;
      SaveLeaves(store, step, state, 64 << 10, Ownership::kCopy);
      if (step >= 3) Check(store.Delete(step - 3));
      commits.push_back(watch.Seconds() * 1e3);
      if (step % 50 == 0) largest = std::max(largest, BytesBelow(path));
    }
    Check(store.Close());
  }
  const auto after = static_cast<double>(BytesBelow(path));
  std::filesystem::remove_all(path);
  const auto mib = [](double bytes) { return bytes / kMiB; };
  bool good = Report(settings, {.name = "keep_3",
                                .what = "64 KiB saved and deleted",
                                .unit = "ms",
                                .values = commits,
                                .floor = 10,
                                .at_least = false});
  good &= Report(settings, {.name = "keep_3",
                            .what = "the store, when it was largest",
                            .unit = "MiB",
                            .values = {mib(static_cast<double>(largest))},
                            .floor = 96,
                            .at_least = false});
  return Report(settings, {.name = "keep_3",
                           .what = "the store, closed",
                           .unit = "MiB",
                           .values = {mib(after)},
                           .floor = 32,
                           .at_least = false}) &&
         good;
}

bool DeleteManyLeaves(const Settings& settings) {
  const std::size_t leaves = settings.quick ? 20000 : 100000;
  State state(leaves * 4096);
  const std::string path = settings.directory + "/delete";
  std::vector<double> seconds;
  {
    Store store = QuietStore(path);
    for (int step = 0; step < 4; ++step) {
      state.Touch(4096, static_cast<std::uint64_t>(step) + 1);
      SaveLeaves(store, step, state, 4096, Ownership::kBorrow);
    }
    for (int step = 0; step < 3; ++step) {
      const Stopwatch watch;
      Check(store.Delete(step));
      if (Collected(store, {}).versions != 1) Fail("the step was kept");
      seconds.push_back(watch.Seconds());
    }
    Check(store.Close());
  }
  std::filesystem::remove_all(path);
  return Report(settings, {.name = "delete_100k",
                           .what = "a step deleted and collected",
                           .unit = "s",
                           .values = seconds,
                           .floor = 2,
                           .at_least = false});
}

}  // namespace ckptree::bench
