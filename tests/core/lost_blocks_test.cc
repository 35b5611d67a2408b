// SPDX-License-Identifier: Apache-2.0

// What a process could not read is written again by its next save.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "core/engine/engine.h"
#include "core/engine/store_engine.h"
#include "tests/core/fixture.h"
#include "tests/testutil/flip_byte.h"

namespace ckptree::testing {
namespace {

namespace fs = std::filesystem;

using ::testing::IsEmpty;
using ::testing::Not;

constexpr std::size_t kLarge = std::size_t{3} << 20;
constexpr std::size_t kSmall = 700;
constexpr int kFew = 30;

// How the damage is met.
struct Meeting {
  const char* name;
  std::function<void(Store& writer, const std::string& path, int step)> by;
};

void ReadAll(const Store& store, int number) {
  const auto step = store.OpenStep(AtStep(number));
  ASSERT_OK(step);
  const auto leaves = step->Leaves();
  ASSERT_OK(leaves);
  for (const LeafInfo& leaf : *leaves) {
    if (leaf.is_leaf()) step->Value(leaf.name).status().IgnoreError();
  }
}

const std::vector<Meeting>& Meetings() {
  static const auto* const all = new std::vector<Meeting>{
      {"ARead", [](Store& writer, const std::string&,
                   int step) { ReadAll(writer, step); }},
      {"Verify",
       [](Store& writer, const std::string&, int) {
         const auto report =
             writer.Verify({.level = VerifyOptions::Level::kFull});
         ASSERT_OK(report);
         EXPECT_THAT(report->findings, Not(IsEmpty()));
       }},
      {"AnotherHandle",
       [](Store&, const std::string& path, int step) {
         StoreOptions reading = QuietOptions();
         reading.create_if_missing = false;
         reading.read_only = true;
         const auto reader = Store::Open(path, reading);
         ASSERT_OK(reader);
         ReadAll(*reader, step);
       }},
  };
  return *all;
}

class LostBlocksTest : public CoreTest,
                       public ::testing::WithParamInterface<std::size_t> {
 protected:
  // One array of a chunk, and `kFew` small ones, which lie together; `seed`
  // makes other values.
  void SaveBoth(std::int64_t step, std::uint64_t seed) {
    const Bytes large = RandomBytes(kLarge, seed);
    const Bytes small = RandomBytes(kFew * kSmall, seed + 1);
    StepBuilder builder = store_->Begin(step);
    builder.Put("large", Uint8s(large));
    std::deque<Bytes> parts;
    for (int i = 0; i < kFew; ++i) {
      const auto from = small.begin() + i * static_cast<std::ptrdiff_t>(kSmall);
      parts.emplace_back(from, from + static_cast<std::ptrdiff_t>(kSmall));
      builder.Put("small/" + std::to_string(i), Uint8s(parts.back()));
    }
    ASSERT_OK(Commit(std::move(builder)));
  }
  void ExpectBoth(std::int64_t step, std::uint64_t seed) {
    SCOPED_TRACE(step);
    EXPECT_TRUE(Read(AtStep(step), "large") == RandomBytes(kLarge, seed));
    const Bytes small = RandomBytes(kFew * kSmall, seed + 1);
    Bytes found;
    for (int i = 0; i < kFew; ++i) {
      const Bytes part = Read(AtStep(step), "small/" + std::to_string(i));
      found.insert(found.end(), part.begin(), part.end());
    }
    EXPECT_TRUE(found == small);
  }
  // Flips a byte of `bytes`, wherever a table has them.
  void Flip(const Bytes& bytes) {
    int flipped = 0;
    const std::string_view wanted(reinterpret_cast<const char*>(bytes.data()),
                                  std::min<std::size_t>(bytes.size(), 600));
    for (const auto& entry : fs::directory_iterator(path() + "/db")) {
      if (entry.path().extension() != ".sst") continue;
      std::ifstream file(entry.path(), std::ios::binary);
      const std::string content(std::istreambuf_iterator<char>(file), {});
      for (auto at = content.find(wanted); at != content.npos;
           at = content.find(wanted, at + 1)) {
        FlipByte(entry.path(), at + wanted.size() / 2);
        ++flipped;
      }
    }
    ASSERT_GT(flipped, 0);
  }
};

TEST_P(LostBlocksTest, TheNextSaveWritesThemAgain) {
  SaveBoth(1, 10);
  SaveBoth(2, 10);
  ASSERT_EQ(store_->Resolve(AtStep(2))->new_bytes, 0u);
  store_.reset();
  Flip(RandomBytes(kLarge, 10));
  Flip(RandomBytes(kFew * kSmall, 11));
  Open();
  Meetings()[GetParam()].by(*store_, path(), 2);
  SaveBoth(3, 10);
  ExpectBoth(3, 10);
  // It is the same value, since then.
  EXPECT_EQ(store_->Resolve(AtStep(3))->changed_leaves, 0u);
  ASSERT_OK_AND_ASSIGN(const LeafDetail detail,
                       Restored(AtStep(3)).Detail("large"));
  EXPECT_EQ(detail.since_step, 1);
  // Nothing is left to do for the one after.
  SaveBoth(4, 10);
  ExpectBoth(4, 10);
  store_.reset();
  Open();
  ExpectBoth(4, 10);
  SaveBoth(5, 10);
  ExpectBoth(5, 10);
  // Without the steps that had it, what is damaged is of no step and no leaf: a
  // file that cannot be written again is left alone.
  ASSERT_OK(store_->Delete(1));
  ASSERT_OK(store_->Delete(2));
  ASSERT_OK(store_->Collect({.min_dead_fraction = 0}));
  const auto report = store_->Verify({.level = VerifyOptions::Level::kDeep});
  ASSERT_OK(report);
  for (const Finding& finding : report->findings) {
    EXPECT_TRUE(finding.steps.empty()) << finding.what;
    EXPECT_TRUE(finding.leaf.empty()) << finding.what << " " << finding.leaf;
  }
}

// There was no directory yet when it was asked for.
TEST_P(LostBlocksTest, AlsoByTheHandleThatMadeTheStore) {
  SaveBoth(1, 10);
  SaveBoth(2, 10);
  Flip(RandomBytes(kLarge, 10));
  Meetings()[GetParam()].by(*store_, path(), 2);
  SaveBoth(3, 10);
  EXPECT_TRUE(Read(AtStep(3), "large") == RandomBytes(kLarge, 10));
}

// It has no neighbours: its pack is as long as it is. In a file, and in
// `small`, where it is too short for a proof behind it.
TEST_P(LostBlocksTest, ASmallLeafThatStandsAlone) {
  for (const bool in_a_file : {true, false}) {
    SCOPED_TRACE(in_a_file);
    store_.reset();
    std::filesystem::remove_all(path());
    Open();
    const Bytes large = RandomBytes(in_a_file ? kLarge : 0, 10);
    const Bytes lone = RandomBytes(in_a_file ? 1000 : 300, 20);
    const auto save = [&](std::int64_t step) {
      StepBuilder builder = store_->Begin(step);
      builder.Put("bias", Uint8s(lone)).Put("large", Uint8s(large));
      return Commit(std::move(builder));
    };
    ASSERT_OK(save(1));
    // The journal gives up what it has of a small save: the newest record
    // stays, and the first file of a session repeats it.
    for (const char* const tag : {"one", "two"}) {
      Open();
      ASSERT_OK(store_->Tag(tag, AtStep(1)));
      ASSERT_OK(
          internal::StoreEngine::Of(*store_).mutable_database()->WriteRows());
    }
    store_.reset();
    ASSERT_NO_FATAL_FAILURE(Flip(lone));
    Open();
    Meetings()[GetParam()].by(*store_, path(), 1);
    ASSERT_FALSE(Restored(AtStep(1)).Value("bias").ok());
    for (const std::int64_t step : {2, 3}) {
      ASSERT_OK(save(step));
      EXPECT_TRUE(Read(AtStep(step), "bias") == lone);
      EXPECT_TRUE(Read(AtStep(step), "large") == large);
      EXPECT_EQ(store_->Resolve(AtStep(step))->changed_leaves, 0u);
      EXPECT_EQ(store_->Resolve(AtStep(step))->new_bytes,
                step == 2 ? lone.size() : 0u);
    }
    Open();
    EXPECT_TRUE(Read(AtStep(3), "bias") == lone);
  }
}

INSTANTIATE_TEST_SUITE_P(MetBy, LostBlocksTest,
                         ::testing::Range<std::size_t>(0, 3),
                         [](const auto& info) {
                           return std::string(Meetings()[info.param].name);
                         });

}  // namespace
}  // namespace ckptree::testing
