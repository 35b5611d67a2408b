// SPDX-License-Identifier: Apache-2.0

// Stores in which the bfloat16 copies of float32 arrays are saved with their
// masters: whatever changes, is removed or is packed, everything reads as it
// was saved.

#include "core/coding/rounded_copy.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "core/coding/coded_block.h"
#include "core/engine/engine.h"
#include "core/engine/store_engine.h"
#include "tests/core/fixture.h"
#include "tests/testutil/flip_byte.h"

namespace ckptree::testing {
namespace {

namespace fs = std::filesystem;

using internal::StoreEngine;
using ::testing::HasSubstr;

constexpr std::size_t kWords = 1 << 18;  // A master of 1 MiB.

Bytes Floats(std::size_t words, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal(0, 0.02f);
  Bytes bytes(words * sizeof(float));
  for (std::size_t i = 0; i < words; ++i) {
    const float value = normal(random);
    std::memcpy(bytes.data() + i * sizeof(float), &value, sizeof(float));
  }
  return bytes;
}

Bytes RoundedOf(const Bytes& master) {
  Bytes copy(master.size() / 2);
  internal::RoundWords(master, copy.data());
  return copy;
}

class RoundedCopyTest : public CoreTest {
 protected:
  void SetUp() override { Open(Coded()); }

  // Four chunks of a master.
  static StoreOptions Coded(Coding coding = Coding::kPlanes) {
    StoreOptions options = Options();
    options.chunk_bytes = 256 << 10;
    options.coding = coding;
    return options;
  }

  // By path: "m..." are float32, others bfloat16. 1024 to a row.
  using State = std::map<std::string, Bytes>;

  static void PutAll(const State& state, StepBuilder* builder) {
    for (const auto& [path, bytes] : state) {
      const bool wide = path[0] == 'm';
      builder->Put(path, Array(wide ? DType::kFloat32 : DType::kBfloat16,
                               {static_cast<std::int64_t>(bytes.size()) /
                                    (wide ? 4096 : 2048),
                                1024},
                               bytes));
    }
  }
  absl::Status SaveState(std::int64_t step, const State& state) {
    StepBuilder builder = store_->Begin(step);
    PutAll(state, &builder);
    return Commit(std::move(builder));
  }

  static State Pair(std::uint64_t seed) {
    const Bytes master = Floats(kWords, seed);
    return {{"copy", RoundedOf(master)}, {"master", master}};
  }

  void ExpectState(std::int64_t step, const State& state) {
    SCOPED_TRACE(step);
    const Step read = Restored(AtStep(step));
    std::map<std::string, Bytes> all;
    std::vector<ReadRequest> requests;
    for (const auto& [path, bytes] : state) {
      EXPECT_TRUE(Read(AtStep(step), path) == bytes) << path;
      all[path].resize(bytes.size());
      requests.push_back({At(path), std::nullopt, all[path]});
    }
    // As a restore reads them.
    ASSERT_OK(read.ReadMany(requests));
    EXPECT_TRUE(all == state);
  }

  // How many values of `chunks` have each coding; 0: plain.
  std::map<int, int> Codings() {
    std::map<int, int> codings;
    const auto& database = StoreEngine::Of(*store_).database();
    auto scan = database.Scan(schema::Space::kChunks, "", "");
    EXPECT_OK(scan);
    for (; scan->Valid(); scan->Next()) {
      const auto block = schema::DecodeBlockKey(scan->key());
      if (!block.has_value()) continue;  // A gap.
      const std::uint32_t sequence = schema::SequenceOf(block->n);
      if (sequence == schema::kHeaderSequence ||
          sequence == schema::kTableSequence) {
        continue;
      }
      ++codings[internal::IsCodedBlock(scan->value()) ? scan->value()[0] : 0];
    }
    EXPECT_OK(scan->status());
    return codings;
  }

  static std::int64_t SinceStep(const Step& step, std::string_view path) {
    const std::vector<LeafInfo> leaves = step.Leaves().value();
    const std::vector<LeafDetail> details = step.Details(leaves).value();
    for (std::size_t i = 0; i < leaves.size(); ++i) {
      if (leaves[i].name == path) return details[i].since_step;
    }
    ADD_FAILURE() << path << " is not there";
    return 0;
  }

  std::uint64_t StoredBytes() {
    const auto usage = store_->Usage();
    EXPECT_OK(usage);
    return usage->living_stored_bytes;
  }
};

TEST_F(RoundedCopyTest, TakesNoBytesOfItsOwn) {
  const State state = Pair(1);
  ASSERT_OK(SaveState(1, state));
  EXPECT_LE(StoredBytes(), kWords * 4 * 87 / 100);
  EXPECT_EQ(Codings(), (std::map<int, int>{{2, 4}}));
  for (const Coding coding : {Coding::kPlanes, Coding::kNone}) {
    Open(Coded(coding));
    ExpectState(1, state);
    ExpectClean();
  }
  Open(ReadOnly());
  ExpectState(1, state);
}

TEST_F(RoundedCopyTest, ReadsAlone) {
  const State state = Pair(2);
  ASSERT_OK(SaveState(1, state));
  const Step step = Restored(AtStep(1));
  for (const auto& [path, bytes] : state) {
    SCOPED_TRACE(path);
    const std::size_t row = bytes.size() / 256;
    for (const std::int64_t at : {0, 15, 16, 63, 64, 200, 255}) {
      Bytes read(row);
      const std::uint64_t before = store_->GetStats().bytes_read;
      ASSERT_OK(step.ReadBox(path, {{at, 0}, {1, 1024}}, read));
      EXPECT_EQ(
          std::memcmp(read.data(),
                      bytes.data() + static_cast<std::size_t>(at) * row, row),
          0)
          << at;
      EXPECT_LE(store_->GetStats().bytes_read - before, 60'000u) << at;
    }
    // Rows of two chunks, and a column.
    Bytes two(2 * row / 2);
    ASSERT_OK(step.ReadBox(path, {{63, 512}, {2, 512}}, two));
    EXPECT_EQ(
        std::memcmp(two.data(), bytes.data() + 63 * row + row / 2, row / 2), 0);
    EXPECT_EQ(std::memcmp(two.data() + row / 2,
                          bytes.data() + 64 * row + row / 2, row / 2),
              0);
    const auto view = step.View(path);
    ASSERT_OK(view);
    Bytes viewed;
    for (const auto& piece : view->pieces()) {
      viewed.insert(viewed.end(), piece.bytes.begin(), piece.bytes.end());
    }
    EXPECT_TRUE(viewed == bytes);
  }
}

TEST_F(RoundedCopyTest, WhatIsNotTheCopyIsStored) {
  State state = Pair(3);
  state["copy"][500'000] ^= std::byte{1};  // In the last chunk.
  ASSERT_OK(SaveState(1, state));
  EXPECT_EQ(Codings(), (std::map<int, int>{{1, 2}, {2, 3}}));
  ExpectState(1, state);
  // One that is of another shape, or rounded in another way, has no master.
  State other = Pair(4);
  for (std::size_t i = 0; i < other["copy"].size(); i += 2) {
    std::memcpy(other["copy"].data() + i, other["master"].data() + 2 * i + 2,
                2);  // Cut off.
  }
  ASSERT_OK(SaveState(2, other));
  ExpectState(2, other);
  EXPECT_EQ(Codings()[2], 3);
  ExpectClean();
}

TEST_F(RoundedCopyTest, FindsTheMasterAmongOthers) {
  // The moments of an optimizer have its shape, too; and there are two pairs.
  State state = Pair(5);
  const State second = Pair(6);
  state["b/copy"] = second.at("copy");
  state["m/b"] = second.at("master");
  state["m/1"] = Floats(kWords, 7);
  state["m/2"] = Floats(kWords, 8);
  ASSERT_OK(SaveState(1, state));
  EXPECT_EQ(Codings(), (std::map<int, int>{{1, 8}, {2, 8}}));
  ExpectState(1, state);
  ExpectClean();
}

TEST_F(RoundedCopyTest, SharesWhatDidNotChange) {
  State state = Pair(9);
  ASSERT_OK(SaveState(1, state));
  const std::uint64_t before = store_->GetStats().bytes_written;
  ASSERT_OK(SaveState(2, state));
  EXPECT_EQ(store_->GetStats().bytes_written, before);
  // One chunk of the master changes by so little that the copy stays.
  Bytes& master = state["master"];
  for (std::size_t i = 0;; i += 4) {
    Bytes changed = master;
    changed[i] ^= std::byte{1};
    if (RoundedOf(changed) != state["copy"]) continue;
    master = changed;
    break;
  }
  ASSERT_OK(SaveState(3, state));
  // Both chunks are written, so that the old block can go with the old step.
  EXPECT_EQ(store_->GetStats().bytes_written - before, (256u + 128) << 10);
  const Step step = Restored(AtStep(3));
  EXPECT_EQ(SinceStep(step, "copy"), 1);
  EXPECT_EQ(SinceStep(step, "master"), 3);
  ASSERT_OK(store_->Delete(1));
  ASSERT_OK(store_->Delete(2));
  ASSERT_OK(store_->Collect({.min_dead_fraction = 0}));
  ExpectState(3, state);
  ExpectClean();
  // What was written anew was so little that it is among the rows.
  EXPECT_EQ(Codings(), (std::map<int, int>{{2, 3}}));
}

TEST_F(RoundedCopyTest, LivesOnWithoutItsMaster) {
  // Of one chunk, which is the same with and without a master.
  const Bytes words = Floats(kWords / 4, 10);
  const State state = {{"copy", RoundedOf(words)}, {"master", words}};
  ASSERT_OK(SaveState(1, state));
  ASSERT_OK(SaveState(2, {{"copy", state.at("copy")}}));
  EXPECT_EQ(SinceStep(Restored(AtStep(2)), "copy"), 1);
  ASSERT_OK(store_->Delete(1));
  ASSERT_OK(store_->Collect({.min_dead_fraction = 0}));
  ExpectState(2, {{"copy", state.at("copy")}});
  ExpectClean();
  // And the master without its copy stays where it is.
  ASSERT_OK(SaveState(3, state));
  ASSERT_OK(SaveState(4, {{"master", state.at("master")}}));
  ASSERT_OK(store_->Delete(2));
  ASSERT_OK(store_->Delete(3));
  ASSERT_OK(store_->Collect({.min_dead_fraction = 0}));
  ExpectState(4, {{"master", state.at("master")}});
  ExpectClean();
}

TEST_F(RoundedCopyTest, APackCodesWhatWasSavedPlain) {
  // The first save of a store that decides by itself is plain.
  Open(Coded(Coding::kAuto));
  const State state = Pair(11);
  ASSERT_OK(SaveState(1, state));
  EXPECT_EQ(Codings(), (std::map<int, int>{{0, 4}}));
  ExpectState(1, state);
  const Step step = Restored(AtStep(1));
  for (const auto& [path, bytes] : state) {
    Bytes row(bytes.size() / 256);
    ASSERT_OK(step.ReadBox(path, {{77, 0}, {1, 1024}}, row));
    EXPECT_EQ(
        std::memcmp(row.data(), bytes.data() + 77 * row.size(), row.size()), 0);
  }
  ASSERT_OK(SaveState(2, Pair(12)));
  const auto report = store_->Collect({.pack = true});
  ASSERT_OK(report);
  EXPECT_GE(report->files_packed, 1u);
  EXPECT_EQ(Codings(), (std::map<int, int>{{0, 4}, {2, 4}}));
  ExpectState(1, state);
  ExpectState(2, Pair(12));
  ExpectClean();
  EXPECT_EQ(store_->Collect({.pack = true})->files_packed, 0u);
}

TEST_F(RoundedCopyTest, EveryFlipIsNamedOrHarmless) {
  const State state = Pair(13);
  ASSERT_OK(SaveState(1, state));
  std::string file;
  const auto files = StoreEngine::Of(*store_).database().LiveFiles().value();
  for (const kv::LiveFile& live : files) {
    if (live.space == schema::Space::kChunks) file = live.path;
  }
  store_.reset();
  std::mt19937_64 random(17);
  int named = 0;
  for (int round = 0; round < 40; ++round) {
    const std::uint64_t at = random() % fs::file_size(file);
    SCOPED_TRACE(at);
    FlipByte(file, at);
    const absl::StatusOr<Store> store = Store::Open(path(), ReadOnly());
    ASSERT_OK(store);
    const Step step = store->OpenStep(Latest()).value();
    bool bad = false;
    for (const auto& [path, bytes] : state) {
      const absl::StatusOr<LeafValue> read = step.Value(path);
      if (read.ok()) {
        EXPECT_TRUE(read->bytes == bytes);
        continue;
      }
      bad = true;
      EXPECT_TRUE(absl::IsDataLoss(read.status())) << read.status();
      EXPECT_THAT(std::string(read.status().message()), HasSubstr(path));
    }
    const auto report = store->Verify({.level = VerifyOptions::Level::kDeep});
    ASSERT_OK(report);
    if (bad) EXPECT_FALSE(report->findings.empty());
    named += bad ? 1 : 0;
    FlipByte(file, at);
  }
  EXPECT_GE(named, 20);
}

TEST_F(RoundedCopyTest, RecoveryAndRepairKeepWhatCanBeRead) {
  State state = Pair(14);
  const State second = Pair(15);
  state["b/copy"] = second.at("copy");
  state["m/b"] = second.at("master");
  ASSERT_OK(SaveState(1, state));
  const std::uint64_t stored = StoredBytes();
  std::string file;
  const auto files = StoreEngine::Of(*store_).database().LiveFiles().value();
  for (const kv::LiveFile& live : files) {
    if (live.space == schema::Space::kChunks) file = live.path;
  }
  store_.reset();
  // Whole, all of it comes back, in as many bytes.
  const std::string whole = dir_ / "whole";
  ASSERT_OK(Recover(path(), whole).status());
  {
    const absl::StatusOr<Store> store = Store::Open(whole, ReadOnly());
    ASSERT_OK(store);
    EXPECT_NEAR(static_cast<double>(store->Usage()->living_stored_bytes),
                static_cast<double>(stored), 2000);
  }
  // A flip in a block costs the copy and the master in it.
  FlipByte(file, fs::file_size(file) / 8);
  std::vector<std::string> lost;
  {
    const absl::StatusOr<Store> store = Store::Open(path(), ReadOnly());
    ASSERT_OK(store);
    const Step step = store->OpenStep(Latest()).value();
    for (const auto& [name, bytes] : state) {
      if (!step.Value(name).ok()) lost.push_back(name);
    }
  }
  ASSERT_EQ(lost.size(), 2u);
  const auto expect_rest = [&](const std::string& directory) {
    const absl::StatusOr<Store> store = Store::Open(directory, ReadOnly());
    ASSERT_OK(store);
    const Step step = store->OpenStep(Latest()).value();
    for (const auto& [name, bytes] : state) {
      const absl::StatusOr<LeafValue> value = step.Value(name);
      const bool is_lost =
          std::find(lost.begin(), lost.end(), name) != lost.end();
      EXPECT_EQ(value.ok(), !is_lost) << name << ": " << value.status();
      if (value.ok()) EXPECT_TRUE(value->bytes == bytes) << name;
    }
    const auto report = store->Verify({.level = VerifyOptions::Level::kDeep});
    ASSERT_OK(report);
    // But what is lost.
    for (const Finding& finding : report->findings) {
      EXPECT_EQ(finding.severity, Finding::Severity::kWarning) << finding.what;
      EXPECT_THAT(finding.what, HasSubstr("recovered: "));
    }
  };
  const std::string saved = dir_ / "saved";
  const absl::StatusOr<RecoverReport> report = Recover(path(), saved);
  ASSERT_OK(report);
  ASSERT_EQ(report->steps.size(), 1u);
  EXPECT_EQ(report->steps[0].lost.size(), 2u);
  expect_rest(saved);
  ASSERT_OK(Repair(path(), {.execute = true}).status());
  expect_rest(path());
}

// Random histories: what changes with what, steps that go, packs, and stores
// that are opened without coding in between.
TEST_F(RoundedCopyTest, EverythingReadsAsItWasSaved) {
  for (const unsigned seed : {1u, 2u, 3u}) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    store_.reset();
    fs::remove_all(path());
    Open(Coded());
    std::map<std::int64_t, State> saved;
    State state = Pair(100 * seed);
    for (std::int64_t step = 1; step <= 24; ++step) {
      SCOPED_TRACE(step);
      const std::size_t chunk = random() % 4 * (256 << 10);
      const Bytes fresh = Floats(64 << 10, random());
      Bytes& master = state["master"];
      if (master.empty()) master = Floats(kWords, random());
      const unsigned how = random() % 8;
      if (how < 5) {
        std::copy(fresh.begin(), fresh.end(),
                  master.begin() + static_cast<std::ptrdiff_t>(chunk));
      }
      // A copy that follows, one that stays behind, one of its own.
      if (how < 4) state["copy"] = RoundedOf(master);
      if (how == 5 && state.contains("copy"))
        state["copy"][chunk / 2 + 7] ^= std::byte{1};
      if (how == 6) state.erase("copy");
      if (how == 7 && state.contains("copy")) state.erase("master");
      if (state.empty()) state = Pair(random());
      ASSERT_OK(SaveState(step, state));
      saved[step] = state;
      if (random() % 3 == 0) {
        const auto victim =
            std::next(saved.begin(),
                      static_cast<std::ptrdiff_t>(random() % saved.size()));
        ASSERT_OK(store_->Delete(victim->first));
        saved.erase(victim);
      }
      if (random() % 4 == 0) {
        ASSERT_OK(store_->Collect(
            {.min_dead_fraction = 0, .pack = random() % 2 == 0}));
        ExpectClean();
      }
      if (random() % 6 == 0) {
        Open(Coded(random() % 2 == 0 ? Coding::kNone : Coding::kPlanes));
      }
    }
    for (const auto& [step, expected] : saved) ExpectState(step, expected);
    ASSERT_OK(store_->Collect({.min_dead_fraction = 0, .pack = true}));
    for (const auto& [step, expected] : saved) ExpectState(step, expected);
    const auto usage = store_->Usage();
    ASSERT_OK(usage);
    EXPECT_EQ(usage->dead_bytes, 0u);
    ExpectClean();
  }
}

}  // namespace
}  // namespace ckptree::testing
