// SPDX-License-Identifier: Apache-2.0

// small_leaves and many_steps: the cost of names.

#include <algorithm>
#include <filesystem>
#include <vector>

#include "bench/cases.h"
#include "bench/raw_io.h"
#include "bench/state.h"

namespace ckptree::bench {
namespace {

constexpr std::size_t kLeafBytes = 4096;

// Seconds to read every leaf of the latest step into memory that was touched
// before; compares it with `expected`.
double RestoreAll(const Store& store, State& expected,
                  std::vector<std::byte>* memory) {
  const Stopwatch watch;
  auto step = store.OpenStep(Latest());
  Check(step.status());
  auto leaves = step->Leaves();
  Check(leaves.status());
  std::vector<ReadRequest> requests(leaves->size());
  for (std::size_t i = 0; i < leaves->size(); ++i) {
    requests[i].path = (*leaves)[i].path;
    requests[i].destination =
        std::span(*memory).subspan(i * kLeafBytes, kLeafBytes);
  }
  Check(step->ReadMany(requests));
  const double seconds = watch.Seconds();
  if (!std::equal(memory->begin(), memory->end(), expected.bytes().begin())) {
    Fail("a restore gave other bytes than were saved");
  }
  return seconds;
}

}  // namespace

bool SmallLeaves(const Settings& settings) {
  const std::size_t leaves = settings.quick ? 20000 : 100000;
  const int age = settings.quick ? 10 : 100;
  State state(leaves * kLeafBytes);
  std::vector<double> saved, aged_saved, restored, raw;
  const auto count = static_cast<double>(leaves);
  {
    Store store = FreshStore(settings.directory + "/small");
    for (int i = 0; i < age; ++i) {
      state.Touch(kLeafBytes, static_cast<std::uint64_t>(i) + 1);
      const double seconds =
          SaveLeaves(store, i, state, kLeafBytes, Ownership::kCopy);
      (i < 3 ? saved : aged_saved).push_back(count / seconds / 1e3);
    }
    for (int i = 0; i < 3; ++i) {
      raw.push_back(count / RawWrite(settings.directory, state.bytes()) / 1e3);
    }
  }
  std::vector<std::byte> memory(state.bytes().size(), std::byte{1});
  for (int i = 0; i < 3; ++i) {
    if (!DropCaches() && i == 0) {
      std::printf("small_leaves   (the page cache could not be dropped)\n");
    }
    auto store = Store::Open(settings.directory + "/small");
    Check(store.status());
    restored.push_back(count / RestoreAll(*store, state, &memory) / 1e3);
  }
  std::filesystem::remove_all(settings.directory + "/small");
  Print("small_leaves", "raw O_DIRECT write of the same bytes", raw,
        "k leaves/s");
  Print("small_leaves", "save, fresh store", saved, "k leaves/s");
  bool good = Judge(settings, "small_leaves", "save, aged store, k leaves/s",
                    aged_saved, 100, /*at_least=*/true, /*absolute=*/true);
  return Judge(settings, "small_leaves", "cold restore, aged, k leaves/s",
               restored, 100, /*at_least=*/true, /*absolute=*/true) &&
         good;
}

bool ManySteps(const Settings& settings) {
  const int steps = settings.quick ? 1000 : 10000;
  const int window = steps / 10;
  State state(64 << 10);
  std::vector<double> commits, sync, one_sync, nothing_new, one_new;
  const std::string path = settings.directory + "/many";
  {
    Store store = FreshStore(path);
    RawSyncs raw(settings.directory, std::size_t{16} << 20);
    for (int i = 0; i < steps; ++i) {
      state.Touch(4096, static_cast<std::uint64_t>(i) + 1);
      commits.push_back(
          SaveLeaves(store, i, state, 64 << 10, Ownership::kCopy) * 1e3);
      if (i % 10 == 0) one_sync.push_back(raw.Write(state.bytes()) * 1e3);
      if (i % window == 0) {
        sync.push_back(RawWrite(settings.directory, state.bytes()) * 1e3);
      }
    }
    // A reader beside the writer.
    const auto refresh = [](Store& reader) {
      const Stopwatch watch;
      Check(reader.Refresh());
      return watch.Seconds() * 1e6;
    };
    auto reader = Store::Open(path, {.read_only = true});
    Check(reader.status());
    for (int i = 0; i < 100; ++i) {
      state.Touch(4096, static_cast<std::uint64_t>(steps + i) + 1);
      SaveLeaves(store, steps + i, state, 64 << 10, Ownership::kCopy);
      one_new.push_back(refresh(*reader));
      if (reader->Steps()->back().step != steps + i) Fail("not the newest");
      for (int j = 0; j < 10; ++j) nothing_new.push_back(refresh(*reader));
    }
  }
  const std::vector<double> first(commits.begin(), commits.begin() + window);
  const std::vector<double> last(commits.end() - window, commits.end());
  std::vector<double> open, log;
  for (int i = 0; i < 3; ++i) {
    DropCaches();
    const Stopwatch watch;
    auto store = Store::Open(path);
    Check(store.status());
    open.push_back(watch.Seconds() * 1e3);
    const Stopwatch list;
    const auto all = store->Steps();
    Check(all.status());
    if (all->size() != static_cast<std::size_t>(steps) + one_new.size()) {
      Fail("steps are lost");
    }
    log.push_back(list.Seconds() * 1e3);
  }
  std::filesystem::remove_all(path);
  Print("many_steps", "raw O_DIRECT write + sync of 64 KiB", sync, "ms");
  Print("many_steps", "one write + fdatasync of 64 KiB", one_sync, "ms");
  Print("many_steps", "commit, first tenth", first, "ms");
  Print("many_steps", "commit, last tenth", last, "ms");
  Print("many_steps", "commit p99, last tenth", {Percentile(last, 0.99)}, "ms");
  Print("many_steps", "open, cold", open, "ms");
  Print("many_steps", "list all steps", log, "ms");
  Print("many_steps", "refresh, one new step", one_new, "us");
  const bool fresh =
      Judge(settings, "many_steps", "refresh, nothing new, us", nothing_new, 50,
            /*at_least=*/false, /*absolute=*/true);
  const bool near = Judge(settings, "many_steps", "commit p50 / one fdatasync",
                          {Median(commits) / Median(one_sync)}, 1.2,
                          /*at_least=*/false);
  return Judge(settings, "many_steps", "commit p50, last / first",
               {Median(last) / Median(first)}, 1.2, /*at_least=*/false) &&
         near && fresh;
}

}  // namespace ckptree::bench
