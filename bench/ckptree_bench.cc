// SPDX-License-Identifier: Apache-2.0

// ckptree_bench [--quick] [--guard] [--dir DIR] [CASE...]: measures the engine
// beside what the machine can do, in the same run.

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "bench/cases.h"

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
    {"long_run", ckptree::bench::LongRun},
    {"processors", ckptree::bench::Processors},
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
    {"ranks_commit", ckptree::bench::RanksCommit},
    {"ranks_open", ckptree::bench::RanksOpen},
};

int Usage() {
  std::fprintf(stderr,
               "usage: ckptree_bench [--quick] [--guard] [--dir DIR] "
               "[CASE...]\ncases:");
  for (const Case& one : kCases) std::fprintf(stderr, " %s", one.name);
  std::fprintf(stderr, "\n");
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 5 && std::strcmp(argv[1], "--query") == 0) {
    return ckptree::bench::QueryAlone(argv[2], argv[3], argv[4]);
  }
  ckptree::bench::Settings settings;
  settings.directory = "build/bench-data";
  std::vector<const Case*> chosen;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg == "--quick") {
      settings.quick = true;
    } else if (arg == "--guard") {
      settings.guard = true;
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
    for (const Case& one : kCases) chosen.push_back(&one);
  }
  std::filesystem::create_directories(settings.directory);
  bool good = true;
  for (const Case* one : chosen) good = one->run(settings) && good;
  std::filesystem::remove_all(settings.directory);
  if (!good) std::fprintf(stderr, "ckptree_bench: a floor was missed\n");
  return good ? 0 : 1;
}
