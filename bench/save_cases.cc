// SPDX-License-Identifier: Apache-2.0

// full_save and incremental_1: the cost of the bytes.

#include <vector>

#include "bench/cases.h"
#include "bench/raw_io.h"
#include "bench/state.h"

namespace ckptree::bench {

bool FullSave(const Settings& settings) {
  const std::size_t bytes =
      settings.quick ? std::size_t{512} << 20 : std::size_t{2} << 30;
  const int repeats = settings.quick ? 3 : 5;
  State state(bytes);
  const double gigabytes = static_cast<double>(bytes) / 1e9;
  std::vector<double> raw, save, copied_save, stall, copy;
  {
    Store store = FreshStore(settings.directory + "/full");
    for (int i = 0; i < repeats; ++i) {
      const double before = RawWrite(settings.directory, state.bytes());
      state.Touch(1 << 20, static_cast<std::uint64_t>(i) + 1);
      const double borrowed =
          SaveLeaves(store, 2 * i, state, 16 << 20, Ownership::kBorrow);
      state.Touch(1 << 20, static_cast<std::uint64_t>(i) + 100);
      double staged = 0;
      const double copied = SaveLeaves(store, 2 * i + 1, state, 16 << 20,
                                       Ownership::kCopy, &staged);
      const double after = RawWrite(settings.directory, state.bytes());
      const double ceiling = (before + after) / 2;
      raw.push_back(gigabytes / ceiling);
      save.push_back(gigabytes / borrowed);
      copied_save.push_back(gigabytes / copied);
      stall.push_back(staged);
    }
    std::vector<std::byte> pool(bytes, std::byte{1});
    for (int i = 0; i < repeats; ++i) {
      copy.push_back(CopyPass(state.bytes(), pool));
    }
  }
  std::filesystem::remove_all(settings.directory + "/full");
  // The first save makes the pages of the pool.
  stall.erase(stall.begin());
  copy.erase(copy.begin());
  copied_save.erase(copied_save.begin());
  bool good = Report(settings, {.name = "full_save",
                                .what = "all changed, durable, memory lent",
                                .unit = "GB/s",
                                .values = save,
                                .beside = "raw O_DIRECT write",
                                .beside_values = raw,
                                .floor = 0.65});
  raw.erase(raw.begin());
  good &= Report(settings, {.name = "full_save",
                            .what = "all changed, durable, memory copied",
                            .unit = "GB/s",
                            .values = copied_save,
                            .beside = "raw O_DIRECT write",
                            .beside_values = raw,
                            .floor = 0.85,
                            .goal = 0.95});
  return Report(settings, {.name = "full_save",
                           .what = "wait for that copy, from the 2nd save on",
                           .unit = "s",
                           .values = stall,
                           .beside = "memcpy into touched memory",
                           .beside_values = copy,
                           .floor = 1.3,
                           .goal = 1.1,
                           .at_least = false}) &&
         good;
}

bool Incremental(const Settings& settings) {
  const std::size_t bytes =
      settings.quick ? std::size_t{512} << 20 : std::size_t{2} << 30;
  const std::size_t chunk = 4 << 20;
  const std::size_t chunks = bytes / chunk;
  const std::size_t changed = std::max<std::size_t>(1, chunks / 100);
  State state(bytes);
  std::vector<double> ceiling, seconds, needed, written;
  {
    Store store = FreshStore(settings.directory + "/incremental");
    SaveLeaves(store, 0, state, 16 << 20, Ownership::kBorrow);
    std::mt19937_64 random(11);
    for (int i = 1; i <= (settings.quick ? 5 : 9); ++i) {
      for (std::size_t c = 0; c < changed; ++c) {
        const std::uint64_t word = random();
        std::memcpy(state.bytes().data() + random() % chunks * chunk, &word,
                    sizeof(word));
      }
      const double base = HashPass(state.bytes()) +
                          RawWrite(settings.directory,
                                   state.bytes().subspan(0, changed * chunk));
      const double save =
          SaveLeaves(store, i, state, 16 << 20, Ownership::kBorrow);
      ceiling.push_back(base * 1e3);
      seconds.push_back(save * 1e3);
      const auto info = store.Resolve(AtStep(i));
      Check(info.status());
      written.push_back(static_cast<double>(info->new_bytes) / 1e6);
      needed.push_back(static_cast<double>(changed * chunk) / 1e6);
    }
  }
  std::filesystem::remove_all(settings.directory + "/incremental");
  const bool good =
      Report(settings, {.name = "incremental_1",
                        .what = "1 % of the chunks changed: written",
                        .unit = "MB",
                        .values = written,
                        .beside = "the changed chunks",
                        .beside_values = needed,
                        .floor = 1.05,
                        .at_least = false});
  return Report(settings, {.name = "incremental_1",
                           .what = "1 % of the chunks changed: saved",
                           .unit = "ms",
                           .values = seconds,
                           .beside = "XXH3 pass + raw write of the changed",
                           .beside_values = ceiling,
                           .floor = 2,
                           .at_least = false}) &&
         good;
}

}  // namespace ckptree::bench
