// SPDX-License-Identifier: Apache-2.0

// Each fuzz target with its seeds, whole, cut and with bits flipped. It is no
// search: tests/fuzz/run is. It shows that the targets hold for their seeds,
// and that they are compiled and linked wherever the tests are.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"

// What tests/fuzz/CMakeLists.txt calls the function of each target.
using FuzzOne = int(const std::uint8_t* data, std::size_t size);
extern "C" {
FuzzOne FuzzOne_arguments, FuzzOne_coded, FuzzOne_command, FuzzOne_gguf,
    FuzzOne_glob, FuzzOne_journal, FuzzOne_keys, FuzzOne_leaf, FuzzOne_npy,
    FuzzOne_path, FuzzOne_path_text, FuzzOne_policy, FuzzOne_record,
    FuzzOne_safetensors, FuzzOne_safetensors_file, FuzzOne_segment,
    FuzzOne_slice, FuzzOne_tree;
}

namespace ckptree::fuzz {
namespace {

namespace fs = std::filesystem;

struct Target {
  std::string name;
  FuzzOne* feed;
};

const std::vector<Target> kTargets = {
    {"arguments", FuzzOne_arguments},
    {"coded", FuzzOne_coded},
    {"command", FuzzOne_command},
    {"gguf", FuzzOne_gguf},
    {"glob", FuzzOne_glob},
    {"journal", FuzzOne_journal},
    {"keys", FuzzOne_keys},
    {"leaf", FuzzOne_leaf},
    {"npy", FuzzOne_npy},
    {"path", FuzzOne_path},
    {"path_text", FuzzOne_path_text},
    {"policy", FuzzOne_policy},
    {"record", FuzzOne_record},
    {"safetensors", FuzzOne_safetensors},
    {"safetensors_file", FuzzOne_safetensors_file},
    {"segment", FuzzOne_segment},
    {"slice", FuzzOne_slice},
    {"tree", FuzzOne_tree},
};

const fs::path kRoom = CKPTREE_FUZZ_ROOM;

std::vector<std::string> SeedsOf(const std::string& target) {
  std::set<fs::path> files;  // In one order on each machine.
  for (const auto& entry : fs::directory_iterator(kRoom / "corpus" / target)) {
    files.insert(entry.path());
  }
  std::vector<std::string> seeds;
  for (const fs::path& file : files) {
    std::ifstream in(file, std::ios::binary);
    seeds.emplace_back(std::istreambuf_iterator<char>(in),
                       std::istreambuf_iterator<char>());
  }
  return seeds;
}

// An input stands at the end of its memory, where the address sanitizer sees a
// read behind it.
void Feed(const Target& target, const std::string& input) {
  const std::vector<std::uint8_t> bytes(input.begin(), input.end());
  EXPECT_EQ(target.feed(bytes.data(), bytes.size()), 0);
}

TEST(FuzzCorpusTest, AllTargetsAreHere) {
  const std::string ending = "_fuzz.cc";
  std::set<std::string> of_room;
  for (const auto& entry : fs::directory_iterator(kRoom)) {
    const std::string file = entry.path().filename();
    if (file.ends_with(ending)) {
      of_room.insert(file.substr(0, file.size() - ending.size()));
    }
  }
  std::set<std::string> here;
  for (const Target& target : kTargets) here.insert(target.name);
  EXPECT_EQ(here, of_room);
}

TEST(FuzzCorpusTest, SeedsHold) {
  constexpr unsigned kSeed = 20261127;
  constexpr int kFlips = 64;
  constexpr std::size_t kCuts = 16;
  for (const Target& target : kTargets) {
    SCOPED_TRACE(target.name);
    const std::vector<std::string> seeds = SeedsOf(target.name);
    EXPECT_FALSE(seeds.empty());
    std::mt19937 random(kSeed);
    Feed(target, "");
    for (const std::string& seed : seeds) {
      Feed(target, seed);
      for (std::size_t i = 0; i < kCuts; ++i) {
        Feed(target, seed.substr(0, seed.size() * i / kCuts));
      }
      for (int i = 0; i < kFlips && !seed.empty(); ++i) {
        std::string flipped = seed;
        char& byte = flipped[random() % seed.size()];
        byte = static_cast<char>(byte ^ (1 << random() % 8));
        Feed(target, flipped);
      }
    }
  }
}

}  // namespace
}  // namespace ckptree::fuzz
