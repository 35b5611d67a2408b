// SPDX-License-Identifier: Apache-2.0

// ckptree_bench [--quick] [--guard] [--json] [--mib N] [--dir DIR] [CASE...]:
// measures the engine beside what the machine can do, in the same run. --json:
// one figure a line, as data. --list: the names of the cases. --machine: what
// the machine itself does now.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "bench/cases.h"
#include "bench/measure.h"
#include "bench/raw_io.h"
#include "bench/state.h"

namespace {

struct Case {
  const char* name;
  bool (*run)(const ckptree::bench::Settings&);
};

constexpr Case kCases[] = {
    {"full_save", ckptree::bench::FullSave},
    {"incremental_1", ckptree::bench::Incremental},
    {"small_leaves", ckptree::bench::SmallLeaves},
    {"many_steps", ckptree::bench::ManySteps},
    {"memory", ckptree::bench::Memory},
    {"long_run", ckptree::bench::LongRun},
    {"processors", ckptree::bench::Processors},
    {"training_beside", ckptree::bench::TrainingBeside},
    {"query", ckptree::bench::Query},
    {"restore_cold", ckptree::bench::RestoreCold},
    {"restore_warm", ckptree::bench::RestoreWarm},
    {"views", ckptree::bench::Views},
    {"collect_whole", ckptree::bench::CollectWhole},
    {"collect_shared", ckptree::bench::CollectShared},
    {"save_beside_gc", ckptree::bench::SaveBesideCollection},
    {"keep_3", ckptree::bench::KeepThree},
    {"manager", ckptree::bench::ManagerLoop},
    {"delete_100k", ckptree::bench::DeleteManyLeaves},
    {"space", ckptree::bench::Space},
    {"command", ckptree::bench::Command},
    {"ranks_commit", ckptree::bench::RanksCommit},
    {"ranks_open", ckptree::bench::RanksOpen},
    {"remote_large", ckptree::bench::RemoteLarge},
    {"remote_small", ckptree::bench::RemoteSmall},
    {"remote_open", ckptree::bench::RemoteOpen},
    {"remote_beside", ckptree::bench::RemoteBeside},
};

// What one processor computes where memory does not hold it up. Seconds.
double Sort(std::vector<std::uint64_t> numbers) {
  const ckptree::bench::Stopwatch watch;
  std::sort(numbers.begin(), numbers.end());
  return watch.Seconds();
}

// Raw writes, raw reads and copies of as many bytes, and how fast a processor
// sorts, by which it is seen whether the machine does its own work alone.
void MeasureMachine(const ckptree::bench::Settings& settings) {
  constexpr std::size_t kBytes = std::size_t{256} << 20;
  constexpr int kTurns = 5;
  ckptree::bench::State state(kBytes);
  ckptree::bench::State memory(kBytes);
  std::vector<std::uint64_t> numbers(std::size_t{1} << 20);  // 8 MiB.
  std::mt19937_64 random(1);
  std::generate(numbers.begin(), numbers.end(), std::ref(random));
  std::vector<double> write, read, copy, sort;
  for (int i = 0; i < kTurns; ++i) {
    const auto rate = [](double seconds) { return kBytes / seconds / 1e9; };
    const std::string& directory = settings.directory;
    write.push_back(rate(ckptree::bench::RawWrite(directory, state.bytes())));
    read.push_back(rate(
        ckptree::bench::RawReadOf(directory, state.bytes(), memory.bytes())));
    copy.push_back(
        rate(ckptree::bench::CopyPass(state.bytes(), memory.bytes())));
    sort.push_back(8e-9 * static_cast<double>(numbers.size()) / Sort(numbers));
  }
  ckptree::bench::Print("machine", "raw O_DIRECT write", write, "GB/s");
  ckptree::bench::Print("machine", "raw O_DIRECT read", read, "GB/s");
  ckptree::bench::Print("machine", "memcpy", copy, "GB/s");
  ckptree::bench::Print("machine", "sort", sort, "GB/s");
}

int Usage() {
  std::fprintf(stderr,
               "usage: ckptree_bench [--quick] [--guard] [--json] [--mib N] "
               "[--dir DIR] [CASE...]\n       ckptree_bench --list\n"
               "       ckptree_bench --machine [--json] [--dir DIR]\ncases:");
  for (const Case& one : kCases) std::fprintf(stderr, " %s", one.name);
  std::fprintf(stderr, "\n");
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 5 && std::strcmp(argv[1], "--query") == 0) {
    return ckptree::bench::QueryAlone(argv[2], argv[3], argv[4]);
  }
  if (argc == 6 && std::strcmp(argv[1], "--memory") == 0) {
    return ckptree::bench::MemoryAlone(argv[2], argv[3], argv[4], argv[5]);
  }
  ckptree::bench::Settings settings;
  settings.directory = "build/bench-data";
  std::vector<const Case*> chosen;
  bool machine = false;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg == "--quick") {
      settings.quick = true;
    } else if (arg == "--guard") {
      settings.guard = true;
    } else if (arg == "--json") {
      ckptree::bench::WriteFiguresAsJson();
    } else if (arg == "--machine") {
      machine = true;
    } else if (arg == "--list") {
      for (const Case& one : kCases) std::printf("%s\n", one.name);
      return 0;
    } else if (arg == "--mib" && i + 1 < argc) {
      settings.mib = std::strtoul(argv[++i], nullptr, 10);
    } else if (arg == "--dir" && i + 1 < argc) {
      settings.directory = argv[++i];
    } else {
      const Case* found = nullptr;
      for (const Case& one : kCases) {
        if (arg == one.name) found = &one;
      }
      if (found == nullptr) return Usage();
      chosen.push_back(found);
    }
  }
  if (chosen.empty()) {
    for (const Case& one : kCases) {
      // These need a server.
      if (std::strncmp(one.name, "remote_", 7) != 0) chosen.push_back(&one);
    }
  }
  std::filesystem::create_directories(settings.directory);
  bool good = true;
  if (machine) {
    MeasureMachine(settings);
    chosen.clear();
  }
  for (const Case* one : chosen) good = one->run(settings) && good;
  std::filesystem::remove_all(settings.directory);
  if (!good) std::fprintf(stderr, "ckptree_bench: a floor was missed\n");
  return good ? 0 : 1;
}
