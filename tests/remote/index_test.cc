// SPDX-License-Identifier: Apache-2.0

// What an open, a save and a look cost in requests, and that an index of rows
// that is damaged or gone costs nothing but requests.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "ckptree/ckptree.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/fixture.h"
#include "tests/objects/counting_store.h"
#include "tests/objects/fixture.h"
#include "tests/remote/fixture.h"
#include "tests/testutil/flip_byte.h"
#include "tests/testutil/temp_dir.h"

namespace ckptree::testing {
namespace {

namespace fs = std::filesystem;

class IndexTest : public ::testing::Test {
 protected:
  void SetUp() override { setenv("XDG_CACHE_HOME", Disk("cache").c_str(), 1); }
  std::string Address() { return absl::StrCat("file://", dir_.path()); }
  std::string Disk(const std::string& name) { return disks_ / name; }
  StoreOptions Remote() { return RemoteOptions(Address()); }
  static StoreOptions Reading() {
    StoreOptions options = QuietOptions();
    options.create_if_missing = false;
    options.read_only = true;
    return options;
  }
  std::vector<fs::path> ObjectsOf(const std::string& kind) {
    return testing::ObjectsOf(dir_.path(), kind);
  }

  TempDir dir_;
  TempDir disks_;
};

TEST_F(IndexTest, AnOpenOfTenThousandStepsIsTenRequests) {
  constexpr int kSteps = 10'000;
  RequestCount count;
  {
    StoreOptions options = Remote();
    options.durable = Durable::kRemote;
    options.take_over = true;
    Store store = Store::Open(Disk("a"), options).value();
    for (std::int64_t step = 1; step <= kSteps; ++step) {
      StepBuilder builder = store.Begin(step);
      builder.PutInt("count", step);
      ASSERT_TRUE(builder.Commit().WaitCommitted(kLong).ok());
      // Nor where the writer is alive.
      if (step % 2499 != 0) continue;
      count.Reset();
      const Store reader = Store::Open(Address(), Reading()).value();
      // One more where the cache has a mirror, of which is asked whether it is
      // the newest.
      EXPECT_LE(count.requests().size(), step == 2499 ? 10 : 11)
          << count.Text();
      EXPECT_GE(reader.Steps().value().back().step, step);
    }
    ASSERT_TRUE(store.Close().ok());
  }
  count.Reset();
  const Store reader = Store::Open(Address(), Reading()).value();
  EXPECT_LE(count.requests().size(), 11) << count.Text();
  EXPECT_EQ(reader.Steps().value().size(), kSteps);
  const Step middle = reader.OpenStep(kSteps / 2).value();
  EXPECT_EQ(middle.Read<std::int64_t>("count").value(), kSteps / 2);
  // Who takes it over proves the store first.
  count.Reset();
  Store taken = Store::Open(Disk("b"), Remote()).value();
  EXPECT_LE(count.requests().size(), 40) << count.Text();
  EXPECT_EQ(taken.Steps().value().size(), kSteps);
}

// Opens and closes that ship nothing are passed once.
TEST_F(IndexTest, ALookRemembersWhereItWas) {
  StoreOptions options = Remote();
  options.take_over = true;
  {
    Store store = Store::Open(Disk("a"), options).value();
    SaveStep(store, 1, 4 << 10);
    ASSERT_TRUE(store.Close().ok());
  }
  RequestCount count;
  Store reader = Store::Open(Address(), Reading()).value();
  for (int life = 0; life < 3; ++life) {
    Store store = Store::Open(Disk("a"), options).value();
    ASSERT_TRUE(store.Close().ok());
  }
  count.Reset();
  ASSERT_TRUE(reader.Refresh().ok());
  EXPECT_GT(count.requests().size(), 3) << count.Text();
  count.Reset();
  ASSERT_TRUE(reader.Refresh().ok());
  EXPECT_EQ(count.requests().size(), 1) << count.Text();
  // By another handle of this cache, too, which asks for the newest commit
  // itself: whether what is here is of what is there.
  ASSERT_TRUE(reader.Close().ok());
  count.Reset();
  reader = Store::Open(Address(), Reading()).value();
  EXPECT_EQ(count.requests().size(), 3) << count.Text();
  EXPECT_EQ(StepsOf(reader).size(), 1);
}

// Whoever asks an address where nobody answers is told within about a minute:
// no request of the first look has longer.
TEST_F(IndexTest, AFirstLookHasAMinute) {
  RequestCount count;
  // As a folder it is known to be a store.
  {
    Store store = Store::Open(Disk("a"), Remote()).value();
    SaveStep(store, 1, 4 << 10);
    ASSERT_TRUE(store.Close().ok());
  }
  count.SetHook([](const std::string&) {
    return absl::UnavailableError("127.0.0.1: nobody listens there");
  });
  count.Reset();
  const absl::StatusOr<Store> reader = Store::Open(Address(), Reading());
  EXPECT_TRUE(absl::IsUnavailable(reader.status())) << reader.status();
  EXPECT_THAT(std::string(reader.status().message()),
              ::testing::HasSubstr("127.0.0.1"));
  EXPECT_EQ(count.requests().size(), 1) << count.Text();
  EXPECT_GT(count.longest(), absl::ZeroDuration());
  EXPECT_LE(count.longest(), absl::Seconds(61));
}

TEST_F(IndexTest, ALookAtWhatIsNewIsOneRequest) {
  Store store = Store::Open(Disk("a"), Remote()).value();
  SaveStep(store, 1, 64 << 10);
  ASSERT_TRUE(store.WaitReplicated(kLong).ok());
  RequestCount count;
  Store reader = Store::Open(Address(), Reading()).value();
  count.Reset();
  ASSERT_TRUE(reader.Refresh().ok());
  EXPECT_EQ(count.requests().size(), 1) << count.Text();
  SaveStep(store, 2, 64 << 10);
  ASSERT_TRUE(store.WaitReplicated(kLong).ok());
  ASSERT_TRUE(reader.Refresh().ok());
  ExpectStep(reader, 2, 64 << 10);
  ASSERT_TRUE(reader.Close().ok());
  ASSERT_TRUE(store.Close().ok());
}

// Its record, then its bytes; of coded ones as many.
TEST_F(IndexTest, ALeafOfWhichNothingIsHereIsTwoRequests) {
  constexpr int kLeaves = 24;
  constexpr std::size_t kLeafBytes = std::size_t{3} << 20;
  for (const bool coded : {false, true}) {
    const std::string address = absl::StrCat(Address(), coded ? "/c" : "/p");
    const auto value = [&](int leaf) {
      Bytes bytes = RandomBytes(kLeafBytes, leaf);
      // Sign and exponent say little.
      for (std::size_t i = 3; coded && i < bytes.size(); i += 4) {
        bytes[i] = std::byte{0x3f};
      }
      return bytes;
    };
    RequestCount count;
    StoreOptions options = RemoteOptions(address);
    options.chunk_bytes = std::size_t{1} << 20;
    options.coding = coded ? Coding::kPlanes : Coding::kNone;
    // Chunks of one leaf that two threads wrote stand in two segments, and are
    // a request more.
    options.threads = 1;
    Store store = Store::Open(Disk(coded ? "c" : "p"), options).value();
    {
      StepBuilder builder = store.Begin(1);
      std::vector<Bytes> values;
      for (int leaf = 0; leaf < kLeaves; ++leaf) {
        values.push_back(value(leaf));
      }
      for (int leaf = 0; leaf < kLeaves; ++leaf) {
        builder.Put(absl::StrCat("params/w", leaf),
                    Array(DType::kFloat32, {kLeafBytes / 4},
                          values[static_cast<std::size_t>(leaf)]));
      }
      ASSERT_TRUE(builder.Commit().WaitCommitted(kLong).ok());
    }
    ASSERT_TRUE(store.WaitReplicated(kLong).ok());
    std::uintmax_t uploaded = 0;
    std::size_t segments = 0;
    for (const fs::path& path : ObjectsOf("segment")) {
      if (!absl::StrContains(path.string(), coded ? "/c/" : "/p/")) continue;
      uploaded += fs::file_size(path);
      ++segments;
    }
    EXPECT_EQ(uploaded < kLeaves * kLeafBytes * 95 / 100, coded);
    {
      Store reader = Store::Open(address, Reading()).value();
      const Step step = reader.OpenStep(1).value();
      Bytes bytes(kLeafBytes);
      count.Reset();
      ASSERT_TRUE(step.Read("params/w7", std::span(bytes)).ok());
      EXPECT_LE(count.requests().size(), 2) << count.Text();
      EXPECT_GE(count.requests().size(), 1);
      EXPECT_EQ(bytes, value(7));
      // Records of all leaves came with the first one.
      count.Reset();
      ASSERT_TRUE(step.Read("params/w20", std::span(bytes)).ok());
      EXPECT_EQ(count.requests().size(), 1) << count.Text();
      EXPECT_EQ(bytes, value(20));
      ASSERT_TRUE(reader.Close().ok());
    }
    // All of it: requests of about 12 MiB, and one for each file that is
    // begun.
    Store reader = Store::Open(address, Reading()).value();
    const Step step = reader.OpenStep(1).value();
    std::vector<Bytes> read(kLeaves, Bytes(kLeafBytes));
    std::vector<ReadRequest> requests;
    for (int leaf = 0; leaf < kLeaves; ++leaf) {
      requests.push_back(
          {.path = At(absl::StrCat("params/w", leaf)),
           .destination = std::span(read[static_cast<std::size_t>(leaf)])});
    }
    count.Reset();
    ASSERT_TRUE(step.ReadMany(requests).ok());
    EXPECT_LE(count.requests().size(),
              kLeaves * kLeafBytes / (std::size_t{12} << 20) + 2 * segments)
        << count.Text();
    for (int leaf = 0; leaf < kLeaves; ++leaf) {
      EXPECT_EQ(read[static_cast<std::size_t>(leaf)], value(leaf));
    }
    ExpectWhole(reader);
    ASSERT_TRUE(reader.Close().ok());
    ASSERT_TRUE(store.Close().ok());
  }
}

TEST_F(IndexTest, ASmallSaveIsTwoRequests) {
  constexpr int kSaves = 60;
  RequestCount count;
  StoreOptions options = Remote();
  options.durable = Durable::kRemote;
  Store store = Store::Open(Disk("a"), options).value();
  SaveStep(store, 1, 64 << 10);
  count.Reset();
  for (int step = 2; step < 2 + kSaves; ++step) SaveStep(store, step, 64 << 10);
  ASSERT_TRUE(store.WaitReplicated(kLong).ok());
  // An open looks once for what others left, beside the first saves: how much
  // of that is counted depends on the threads.
  std::vector<std::string> requests = count.requests();
  std::set<std::string> looks;
  std::erase_if(requests, [&looks](const std::string& what) {
    if (!what.starts_with("list ") && !what.starts_with("uploads ")) {
      return false;
    }
    EXPECT_TRUE(looks.insert(what).second) << "twice: " << what;
    return true;
  });
  EXPECT_LE(looks.size(), 6u) << count.Text();
  EXPECT_LE(requests.size(), std::size_t{2} * kSaves) << count.Text();
  ASSERT_TRUE(store.Close().ok());
  EXPECT_FALSE(ObjectsOf("run").empty());
  Store other = Store::Open(Disk("b"), Remote()).value();
  for (int step = 1; step < 2 + kSaves; ++step)
    ExpectStep(other, step, 64 << 10);
  ExpectWhole(other);
}

TEST_F(IndexTest, VerifyTellsOfDamagedOnes) {
  {
    Store store = Store::Open(Disk("a"), Remote()).value();
    for (int step = 1; step <= 12; ++step) {
      SaveStep(store, step, 50 << 10);
      ASSERT_TRUE(store.WaitReplicated(kLong).ok());
    }
    ASSERT_TRUE(store.Close().ok());
  }
  const auto found = [&](VerifyOptions::Level level) {
    const Store reader = Store::Open(Address(), Reading()).value();
    return reader.Verify({.level = level}).value().findings;
  };
  const auto flip = [](const fs::path& path) {
    FlipByte(path.string(), fs::file_size(path) / 2);
  };
  using Level = VerifyOptions::Level;
  ASSERT_GE(ObjectsOf("index").size(), 2u);
  ASSERT_FALSE(ObjectsOf("run").empty());
  EXPECT_TRUE(found(Level::kFull).empty());
  int told = 0;
  for (const std::string kind : {"index", "run"}) {
    std::vector<fs::path> paths = ObjectsOf(kind);
    std::sort(paths.begin(), paths.end());  // Indexes: the newest first.
    for (std::size_t i = 0; i < paths.size(); ++i) {
      const std::string name = paths[i].filename().string();
      flip(paths[i]);
      for (const Level level : {Level::kFull, Level::kDeep}) {
        const std::vector<Finding> findings = found(level);
        for (const Finding& finding : findings) {
          ++told;
          EXPECT_EQ(finding.severity, Finding::Severity::kWarning);
          EXPECT_TRUE(absl::StrContains(finding.what, name)) << finding.what;
        }
        // Older ones wait for their deletion.
        if (kind == "index") EXPECT_EQ(findings.size(), i < 2 ? 1u : 0u) << i;
      }
      flip(paths[i]);
    }
  }
  EXPECT_GE(told, 6);
  for (const fs::path& path : ObjectsOf("run")) fs::remove(path);
  const std::vector<Finding> gone = found(Level::kFull);
  ASSERT_EQ(gone.size(), 1u);
  EXPECT_TRUE(absl::StrContains(gone[0].what, "is missing")) << gone[0].what;
}

// Rows that go, come again and are of segments, through runs that are merged.
TEST_F(IndexTest, IndexesSayWhatTheCommitsSay) {
  {
    Store store = Store::Open(Disk("a"), Remote()).value();
    for (int step = 1; step <= 60; ++step) {
      SaveStep(store, step, step % 7 == 0 ? 2 << 20 : 50 << 10);
      ASSERT_TRUE(store.Tag("newest", step, {.move = true}).ok());
      if (step > 10 && step % 3 != 0) {
        ASSERT_TRUE(store.Delete(step - 10).ok());
      }
      if (step % 20 == 0) {
        ASSERT_TRUE(store.Collect().ok());
      }
      ASSERT_TRUE(store.WaitReplicated(kLong).ok());
    }
    ASSERT_TRUE(store.Close().ok());
  }
  ASSERT_FALSE(ObjectsOf("run").empty());
  std::vector<std::string> with;
  const auto look = [&](const std::string& disk) {
    Store store = Store::Open(Disk(disk), Remote()).value();
    ExpectWhole(store);
    std::vector<std::string> found;
    const std::vector<StepInfo> steps = store.Steps().value();
    for (const StepInfo& info : steps) {
      found.push_back(absl::StrCat(info.step, " ", info.version));
      ExpectStep(store, info.step, info.step % 7 == 0 ? 2 << 20 : 50 << 10);
    }
    EXPECT_EQ(store.OpenStep(Tagged("newest")).value().info().step, 60);
    return found;
  };
  with = look("b");
  // A flipped bit in each index and in each run; then there are none.
  for (const std::string kind : {"run", "index"}) {
    for (const fs::path& path : ObjectsOf(kind)) {
      std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
      file.seekp(40);
      file.put('?');
    }
    EXPECT_EQ(look("damaged-" + kind), with);
  }
  for (const std::string kind : {"run", "index"}) {
    for (const fs::path& path : ObjectsOf(kind)) fs::remove(path);
    EXPECT_EQ(look("gone-" + kind), with);
  }
}

}  // namespace
}  // namespace ckptree::testing
