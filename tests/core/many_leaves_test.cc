// SPDX-License-Identifier: Apache-2.0

// Reads of many small leaves at once: by batches, neighbours together.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <ios>
#include <random>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/engine/engine.h"
#include "core/engine/store_engine.h"
#include "tests/core/fixture.h"
#include "tests/testutil/flip_byte.h"

namespace ckptree::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// More than the batches that are read at once where there are few threads.
constexpr std::size_t kLeaves = 6000;
constexpr std::size_t kLeafBytes = 4000;
constexpr std::size_t kLargeBytes = std::size_t{5} << 18;

// By threads: one, and many that wait for the disk.
class ManyLeavesTest : public CoreTest,
                       public ::testing::WithParamInterface<int> {
 protected:
  // Of each leaf the bytes that it should have.
  using State = std::vector<Bytes>;

  static std::string Name(std::size_t i) { return "w" + std::to_string(i); }

  // Some of them so small that they lie in their record, a few large.
  static State Made(std::uint64_t seed) {
    State state;
    for (std::size_t i = 0; i < kLeaves; ++i) {
      const std::size_t bytes = i % 1000 == 500 ? kLargeBytes
                                : i % 100 == 50 ? 8
                                                : kLeafBytes + i % 7;
      state.push_back(RandomBytes(bytes, seed + i));
    }
    return state;
  }
  absl::Status Save(std::int64_t step, const State& state) {
    StepBuilder builder = store_->Begin(step);
    for (std::size_t i = 0; i < state.size(); ++i) {
      builder.Put(Name(i), Array(DType::kUint8,
                                 {static_cast<std::int64_t>(state[i].size())},
                                 state[i]));
    }
    return Commit(std::move(builder));
  }

  void SetUp() override {
    StoreOptions options = Options();
    options.threads = GetParam();
    Open(options);
    ASSERT_OK(Save(1, state_));
  }

  // Requests for `leaves`, and memory for them.
  struct Asked {
    State memory;
    std::vector<ReadRequest> requests;
  };
  Asked For(const std::vector<std::size_t>& leaves) const {
    Asked asked;
    for (const std::size_t leaf : leaves) {
      asked.memory.emplace_back(state_[leaf].size());
    }
    for (std::size_t i = 0; i < leaves.size(); ++i) {
      asked.requests.push_back(
          {At(Name(leaves[i])), std::nullopt, asked.memory[i]});
    }
    return asked;
  }
  std::vector<std::size_t> All() const {
    std::vector<std::size_t> all(state_.size());
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = i;
    return all;
  }

  // Where the largest table of array bytes is.
  std::string LargestOfChunks() {
    std::string path;
    const auto files =
        internal::StoreEngine::Of(*store_).database().LiveFiles();
    for (const kv::LiveFile& file : files.value()) {
      if (file.space == schema::Space::kChunks &&
          (path.empty() || std::filesystem::file_size(file.path) >
                               std::filesystem::file_size(path))) {
        path = file.path;
      }
    }
    EXPECT_FALSE(path.empty());
    return path;
  }

  // What a read of each leaf alone gives is what a read of all gives: the
  // error of one of them, by name, or none; and all others come. Returns those
  // that cannot be read.
  std::vector<std::size_t> CompareWithReadsOfOne() {
    const Step step = Restored(AtStep(1));
    std::vector<std::size_t> whole, lost;
    std::set<std::string> errors;
    for (std::size_t i = 0; i < state_.size(); ++i) {
      Bytes one(state_[i].size());
      const absl::Status status = step.Read(Name(i), one);
      if (status.ok()) {
        EXPECT_TRUE(one == state_[i]) << Name(i);
        whole.push_back(i);
      } else {
        errors.insert(status.ToString());
        lost.push_back(i);
      }
    }
    Asked all = For(All());
    const absl::Status status = step.ReadMany(all.requests);
    if (errors.empty()) {
      EXPECT_OK(status);
      EXPECT_TRUE(all.memory == state_);
    } else {
      EXPECT_TRUE(errors.contains(status.ToString())) << status;
      Asked rest = For(whole);
      EXPECT_OK(step.ReadMany(rest.requests));
      for (std::size_t i = 0; i < whole.size(); ++i) {
        EXPECT_TRUE(rest.memory[i] == state_[whole[i]]) << Name(whole[i]);
      }
    }
    return lost;
  }

  State state_ = Made(1);
};

TEST_P(ManyLeavesTest, EveryByteComesInAnyOrder) {
  // Bytes and records of two saves.
  for (std::size_t i = 0; i < state_.size(); i += 3) {
    state_[i] = RandomBytes(state_[i].size(), 100000 + i);
  }
  ASSERT_OK(Save(2, state_));
  const Step step = Restored(AtStep(2));
  std::vector<std::size_t> order = All();
  for (const bool shuffled : {false, true}) {
    if (shuffled) std::shuffle(order.begin(), order.end(), std::mt19937(5));
    Asked asked = For(order);
    ASSERT_OK(step.ReadMany(asked.requests));
    for (std::size_t i = 0; i < order.size(); ++i) {
      ASSERT_TRUE(asked.memory[i] == state_[order[i]]) << Name(order[i]);
    }
  }
}

TEST_P(ManyLeavesTest, AFlippedBitIsTheErrorOfItsLeaf) {
  const std::string path = LargestOfChunks();
  const std::uint64_t bytes = std::filesystem::file_size(path);
  for (std::uint64_t i = 1; i < 10; ++i) FlipByte(path, bytes * i / 10);
  EXPECT_GE(CompareWithReadsOfOne().size(), 1);
  // Without the large ones, which are read in another way.
  std::vector<std::size_t> small = All();
  std::erase_if(small, [this](std::size_t leaf) {
    return state_[leaf].size() == kLargeBytes;
  });
  Asked asked = For(small);
  EXPECT_THAT(Restored(AtStep(1)).ReadMany(asked.requests),
              StatusIs(absl::StatusCode::kDataLoss,
                       AllOf(HasSubstr("step 1"), HasSubstr(", chunk 0"))));
}

TEST_P(ManyLeavesTest, ATableThatWasCutIsAnError) {
  const std::string path = LargestOfChunks();
  std::filesystem::resize_file(path, std::filesystem::file_size(path) / 2);
  EXPECT_GE(CompareWithReadsOfOne().size(), 1);
}

TEST_P(ManyLeavesTest, ATableOfANewerFormatIsReadAsBefore) {
  const std::string path = LargestOfChunks();
  // The number of the format stands before the last eight bytes.
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(-12, std::ios::end);
  file.put('\x63');
  file.close();
  CompareWithReadsOfOne();
}

TEST_P(ManyLeavesTest, ADamagedRecordIsTheErrorOfItsLeaf) {
  std::vector<std::string> paths;
  {
    const kv::Database& database =
        internal::StoreEngine::Of(*store_).database();
    for (const auto& files : {database.LiveFiles(), database.LeafCopies()}) {
      for (const kv::LiveFile& file : files.value()) {
        if (file.space == schema::Space::kLeaves) paths.push_back(file.path);
      }
    }
  }
  ASSERT_EQ(paths.size(), 2);
  for (const std::string& path : paths) {
    FlipByte(path, std::filesystem::file_size(path) / 2);
  }
  const Step step = Restored(AtStep(1));
  Asked all = For(All());
  EXPECT_THAT(step.ReadMany(all.requests),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("step 1")));
}

TEST_P(ManyLeavesTest, TheFirstThatIsNotThereIsNamed) {
  const Step step = Restored(AtStep(1));
  Asked all = For(All());
  all.requests[4321].path = At("w4321/not_there");
  EXPECT_THAT(step.ReadMany(all.requests),
              StatusIs(absl::StatusCode::kNotFound,
                       AllOf(HasSubstr("step 1"), HasSubstr("not_there"))));
  all = For(All());
  all.requests[77].destination = all.requests[77].destination.first(5);
  EXPECT_THAT(step.ReadMany(all.requests),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("w77")));
}

TEST_P(ManyLeavesTest, IsFollowed) {
  const Step step = Restored(AtStep(1));
  Asked all = For(All());
  std::uint64_t in_chunks = 0;
  for (const Bytes& leaf : state_)
    in_chunks += leaf.size() > 8 ? leaf.size() : 0;
  std::vector<std::uint64_t> done, totals;
  ReadOptions options;
  options.on_progress = [&](std::uint64_t so_far, std::uint64_t total) {
    EXPECT_LE(so_far, total);
    done.push_back(so_far);
    totals.push_back(total);
  };
  ASSERT_OK(step.ReadMany(all.requests, options));
  EXPECT_TRUE(all.memory == state_);
  EXPECT_TRUE(std::is_sorted(done.begin(), done.end()));
  EXPECT_TRUE(std::is_sorted(totals.rbegin(), totals.rend()));
  ASSERT_FALSE(done.empty());
  EXPECT_EQ(done.front(), 0);
  EXPECT_EQ(done.back(), in_chunks);
  EXPECT_EQ(totals.back(), in_chunks);
}

TEST_P(ManyLeavesTest, StopsWhereItIsAskedTo) {
  const Step step = Restored(AtStep(1));
  Asked all = For(All());
  ReadOptions options;
  options.cancelled = [] { return true; };
  EXPECT_THAT(step.ReadMany(all.requests, options),
              StatusIs(absl::StatusCode::kCancelled));
  int asked = 0;
  options.cancelled = [&asked] { return ++asked == 2; };
  const absl::Status stopped = step.ReadMany(all.requests, options);
  // One thread is asked before each batch and each run.
  if (GetParam() == 1 || !stopped.ok()) {
    EXPECT_THAT(stopped,
                StatusIs(absl::StatusCode::kCancelled, HasSubstr("step 1")));
  }
  ASSERT_OK(step.ReadMany(all.requests));
  EXPECT_TRUE(all.memory == state_);
}

TEST_P(ManyLeavesTest, LeavesAreListedInOrder) {
  const Step step = Restored(AtStep(1));
  std::vector<std::string> names;
  for (std::size_t i = 0; i < state_.size(); ++i) names.push_back(Name(i));
  std::sort(names.begin(), names.end());
  const auto all = step.Leaves();
  ASSERT_OK(all);
  std::vector<std::string> listed;
  for (const LeafInfo& leaf : *all) listed.push_back(leaf.name);
  EXPECT_EQ(listed, names);
  const auto some = step.Leaves("w5*");
  ASSERT_OK(some);
  listed.clear();
  for (const LeafInfo& leaf : *some) listed.push_back(leaf.name);
  std::erase_if(names, [](const std::string& name) { return name[1] != '5'; });
  EXPECT_EQ(listed, names);
}

INSTANTIATE_TEST_SUITE_P(Threads, ManyLeavesTest, ::testing::Values(1, 16));

}  // namespace
}  // namespace ckptree::testing
