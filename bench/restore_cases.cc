// SPDX-License-Identifier: Apache-2.0

// restore_cold, restore_warm and views: a whole step comes back.

#include <algorithm>
#include <filesystem>
#include <vector>

#include "bench/cases.h"
#include "bench/fresh_memory.h"
#include "bench/raw_io.h"
#include "bench/state.h"

namespace ckptree::bench {
namespace {

constexpr std::size_t kLeafBytes = 16 << 20;

std::size_t BytesOf(const Settings& settings) {
  return settings.quick ? std::size_t{512} << 20 : std::size_t{2} << 30;
}

int RepeatsOf(const Settings& settings) { return settings.quick ? 3 : 7; }

// Opens the latest step and reads all of its leaves; the seconds of it.
double RestoreInto(const Store& store, std::span<std::byte> memory) {
  const Stopwatch watch;
  auto step = store.OpenStep(Latest());
  Check(step.status());
  const auto leaves = step->Leaves();
  Check(leaves.status());
  std::vector<ReadRequest> requests(leaves->size());
  for (std::size_t i = 0; i < leaves->size(); ++i) {
    requests[i].path = (*leaves)[i].path;
    requests[i].destination = memory.subspan(i * kLeafBytes, kLeafBytes);
  }
  Check(step->ReadMany(requests));
  return watch.Seconds();
}

void CheckEqual(std::span<const std::byte> found,
                std::span<const std::byte> saved) {
  if (!std::equal(found.begin(), found.end(), saved.begin(), saved.end())) {
    Fail("a restore gave other bytes than were saved");
  }
}

}  // namespace

bool RestoreCold(const Settings& settings) {
  State state(BytesOf(settings));
  const double gigabytes = static_cast<double>(state.bytes().size()) / 1e9;
  const std::string path = settings.directory + "/restore";
  std::vector<double> raw, raw_fresh, reused, fresh;
  {
    Store store = FreshStore(path);
    SaveLeaves(store, 0, state, kLeafBytes, Ownership::kBorrow);
  }
  State memory(state.bytes().size());
  for (int i = 0; i < RepeatsOf(settings); ++i) {
    const auto cold = [&](std::span<std::byte> destination) {
      ForgetFiles(path);
      const auto store = Store::Open(path, {.read_only = true});
      Check(store.status());
      const double seconds = RestoreInto(*store, destination);
      CheckEqual(destination, state.bytes());
      return seconds;
    };
    const double before = RawRead(settings.directory, memory.bytes());
    const double into_reused = cold(memory.bytes());
    double into_fresh = 0;
    {
      FreshMemory new_memory(memory.bytes().size());
      into_fresh = cold(new_memory.bytes());
    }
    {
      FreshMemory new_memory(memory.bytes().size());
      raw_fresh.push_back(gigabytes / RawReadOf(settings.directory,
                                                memory.bytes(),
                                                new_memory.bytes()));
    }
    const double after = RawRead(settings.directory, memory.bytes());
    const double ceiling = (before + after) / 2;
    raw.push_back(gigabytes / ceiling);
    reused.push_back(gigabytes / into_reused);
    fresh.push_back(gigabytes / into_fresh);
  }
  std::filesystem::remove_all(path);
  bool good = Report(settings, {.name = "restore_cold",
                                .what = "out of the disk, into touched memory",
                                .unit = "GB/s",
                                .values = reused,
                                .beside = "raw O_DIRECT read",
                                .beside_values = raw,
                                .floor = 0.92,
                                .goal = 0.98});
  good &= Report(settings, {.name = "restore_cold",
                            .what = "out of the disk, into fresh memory",
                            .unit = "GB/s",
                            .values = fresh,
                            .beside = "raw O_DIRECT read into touched memory",
                            .beside_values = raw});
  return Report(settings, {.name = "restore_cold",
                           .what = "out of the disk, into fresh memory",
                           .unit = "GB/s",
                           .values = fresh,
                           .beside = "raw read into fresh memory",
                           .beside_values = raw_fresh,
                           .floor = 0.85,
                           .goal = 0.95}) &&
         good;
}

bool RestoreWarm(const Settings& settings) {
  State state(BytesOf(settings));
  const double gigabytes = static_cast<double>(state.bytes().size()) / 1e9;
  const std::string path = settings.directory + "/restore";
  std::vector<double> copy, restore;
  {
    Store store = FreshStore(path);
    SaveLeaves(store, 0, state, kLeafBytes, Ownership::kBorrow);
    State memory(state.bytes().size());
    RestoreInto(store, memory.bytes());
    // A save leaves little of them there, and a restore reads past it.
    RememberFiles(path);
    for (int i = 0; i < RepeatsOf(settings); ++i) {
      const double ceiling = CopyPass(state.bytes(), memory.bytes());
      std::ranges::fill(memory.bytes(), std::byte{0});
      const double seconds = RestoreInto(store, memory.bytes());
      CheckEqual(memory.bytes(), state.bytes());
      copy.push_back(gigabytes / ceiling);
      restore.push_back(gigabytes / seconds);
    }
  }
  std::filesystem::remove_all(path);
  return Report(settings, {.name = "restore_warm",
                           .what = "out of the page cache, touched memory",
                           .unit = "GB/s",
                           .values = restore,
                           .beside = "memcpy",
                           .beside_values = copy,
                           .floor = 0.5,
                           .goal = 0.8});
}

bool Views(const Settings& settings) {
  State state(BytesOf(settings));
  const double gigabytes = static_cast<double>(state.bytes().size()) / 1e9;
  const std::string path = settings.directory + "/views";
  std::vector<double> first, again;
  {
    Store store = FreshStore(path);
    SaveLeaves(store, 0, state, kLeafBytes, Ownership::kBorrow);
    const auto look = [&] {
      const Stopwatch watch;
      auto step = store.OpenStep(Latest());
      Check(step.status());
      const auto leaves = step->Leaves();
      Check(leaves.status());
      std::vector<LeafView> views;
      for (const LeafInfo& leaf : *leaves) {
        auto view = step->View(leaf.path);
        Check(view.status());
        if (!view->zero_copy()) Fail("a view was copied");
        views.push_back(*std::move(view));
      }
      const double seconds = watch.Seconds();
      std::size_t at = 0;
      for (const LeafView& view : views) {
        for (const LeafView::Piece& piece : view.pieces()) {
          CheckEqual(piece.bytes,
                     state.bytes().subspan(at, piece.bytes.size()));
          at += piece.bytes.size();
        }
      }
      if (at != state.bytes().size()) Fail("views lack bytes");
      return seconds;
    };
    first.push_back(gigabytes / look());
    for (int i = 0; i < RepeatsOf(settings); ++i) {
      again.push_back(gigabytes / look());
    }
  }
  std::filesystem::remove_all(path);
  Print("views", "views of all, for the first time", first, "GB/s");
  return Report(settings, {.name = "views",
                           .what = "views of all, checked before",
                           .unit = "GB/s",
                           .values = again,
                           .floor = 10,
                           .goal = 25});
}

}  // namespace ckptree::bench
