// SPDX-License-Identifier: Apache-2.0

// Writes the golden store anew; see README.md beside it.
//   golden_generate FOLDER: FOLDER/store and FOLDER/expected.tsv

#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>

#include "ckptree/ckptree.h"
#include "tests/format/golden/golden_store.h"

// Before the C library's: nothing of the machine gets into the store.
extern "C" int gethostname(char* name, std::size_t size) noexcept {
  std::strncpy(name, "golden", size);
  return 0;
}

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: golden_generate FOLDER\n";
    return 2;
  }
  const std::string folder = std::filesystem::absolute(argv[1]).string();
  const std::string directory = folder + "/store";
  // Lineage takes the command and the folder from the process.
  for (int i = 0; i < argc; ++i) std::memset(argv[i], 0, std::strlen(argv[i]));
  if (chdir("/") != 0) return 1;
  std::filesystem::create_directories(folder);
  if (const absl::Status made =
          ckptree::testing::MakeGoldenStore(directory, ckptree::FormatNumber());
      !made.ok()) {
    std::cerr << made << "\n";
    return 1;
  }
  const auto store = ckptree::Store::Open(directory, {.read_only = true});
  if (!store.ok()) {
    std::cerr << store.status() << "\n";
    return 1;
  }
  const auto listing = ckptree::testing::ListingOf(*store);
  if (!listing.ok()) {
    std::cerr << listing.status() << "\n";
    return 1;
  }
  std::ofstream(folder + "/expected.tsv") << *listing;
  // It names a process.
  std::filesystem::remove(directory + "/LOCK");
  return 0;
}
