// SPDX-License-Identifier: Apache-2.0

// Stores in which arrays are coded: everything that is done with a store is
// done with these, and gives the same.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/engine/engine.h"
#include "core/engine/store_engine.h"
#include "core/save/coding_choice.h"
#include "core/version/open_check.h"
#include "core/version/store_features.h"
#include "tests/core/fixture.h"
#include "tests/testutil/flip_byte.h"

namespace ckptree::testing {
namespace {

namespace fs = std::filesystem;

using internal::CodingChoice;
using internal::LaneTimes;
using internal::StoreEngine;
using ::testing::Contains;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::size_t kFloats = 1 << 20;  // Of an array: 4 MiB.

// Values of a normal distribution. Made once: they take long.
const Bytes& Floats(std::size_t count, unsigned seed) {
  static std::map<std::pair<std::size_t, unsigned>, Bytes> made;
  Bytes& bytes = made[{count, seed}];
  if (!bytes.empty()) return bytes;
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 0.02f);
  bytes.resize(count * sizeof(float));
  for (std::size_t i = 0; i < count; ++i) {
    const float value = normal(random);
    std::memcpy(bytes.data() + i * sizeof(float), &value, sizeof(float));
  }
  return bytes;
}

Tensor Float32s(const Bytes& bytes, std::int64_t rows = 1024) {
  return Array(
      DType::kFloat32,
      {rows, static_cast<std::int64_t>(bytes.size() / sizeof(float)) / rows},
      bytes);
}

class CodedStoreTest : public CoreTest {
 protected:
  void SetUp() override { Open(Coded()); }

  static StoreOptions Coded(Coding coding = Coding::kPlanes) {
    StoreOptions options = Options();
    options.chunk_bytes = 1 << 20;
    options.coding = coding;
    return options;
  }

  bool HasCodedFeature() {
    return internal::HasFeature(StoreEngine::Of(*store_).database(),
                                internal::kCodedFeature)
        .value();
  }

  absl::Status SaveFloats(std::int64_t step, const Bytes& bytes) {
    StepBuilder builder = store_->Begin(step);
    builder.Put("w", Float32s(bytes));
    return Commit(std::move(builder));
  }

  std::vector<kv::LiveFile> ChunkFiles() {
    std::vector<kv::LiveFile> files =
        StoreEngine::Of(*store_).database().LiveFiles().value();
    std::erase_if(files, [](const kv::LiveFile& file) {
      return file.space != schema::Space::kChunks;
    });
    return files;
  }

  std::uint64_t ChunkFileBytes() {
    std::uint64_t bytes = 0;
    const std::vector<kv::LiveFile> files = ChunkFiles();
    for (const kv::LiveFile& file : files) bytes += file.bytes;
    return bytes;
  }

  CollectReport Collect(const CollectOptions& options) {
    absl::StatusOr<CollectReport> report = store_->Collect(options);
    EXPECT_OK(report);
    return report.ok() ? *std::move(report) : CollectReport();
  }
};

TEST_F(CodedStoreTest, IsSmallerAndGivesTheSame) {
  const Bytes floats = Floats(kFloats, 1);
  const Bytes noise = RandomBytes(2 << 20, 2);
  StepBuilder builder = store_->Begin(1);
  builder.Put("w", Float32s(floats));
  builder.Put("noise", Uint8s(noise));
  std::vector<Bytes> small;
  for (unsigned i = 0; i < 40; ++i) {
    small.push_back(Floats(1000 + 10 * i, i + 7));
    builder.Put("small/" + std::to_string(i), Float32s(small.back(), 1));
  }
  ASSERT_OK(Commit(std::move(builder)));
  const Stats stats = store_->GetStats();
  EXPECT_GE(stats.bytes_coded, floats.size());
  EXPECT_LE(stats.bytes_coded, stats.bytes_written - noise.size());
  EXPECT_LE(static_cast<double>(stats.bytes_coded_to),
            0.86 * static_cast<double>(stats.bytes_coded));
  EXPECT_TRUE(HasCodedFeature());
  for (const bool again : {false, true}) {
    if (again) Open(ReadOnly());
    EXPECT_TRUE(Read(AtStep(1)) == floats);
    EXPECT_TRUE(Read(AtStep(1), "noise") == noise);
    for (unsigned i = 0; i < 40; ++i) {
      EXPECT_TRUE(Read(AtStep(1), "small/" + std::to_string(i)) == small[i]);
    }
    // All of them at once, as a restore reads them.
    const Step step = Restored(AtStep(1));
    std::vector<Bytes> read(small.size());
    std::vector<ReadRequest> requests;
    for (unsigned i = 0; i < 40; ++i) {
      read[i].resize(small[i].size());
      requests.push_back(
          {At("small/" + std::to_string(i)), std::nullopt, read[i]});
    }
    ASSERT_OK(step.ReadMany(requests));
    EXPECT_TRUE(read == small);
    ExpectClean();
  }
}

TEST_F(CodedStoreTest, AStoreThatIsNotCodedHasNoFeature) {
  Open(Coded(Coding::kNone));
  ASSERT_OK(SaveFloats(1, Floats(kFloats, 1)));
  EXPECT_EQ(store_->GetStats().bytes_coded, 0u);
  EXPECT_FALSE(HasCodedFeature());
  // Neither has one whose blocks are not worth it.
  Open(Coded());
  ASSERT_OK(Save(2, RandomBytes(4 << 20, 1)));
  EXPECT_FALSE(HasCodedFeature());
  // The other way round both stand in one store.
  ASSERT_OK(SaveFloats(3, Floats(kFloats, 3)));
  EXPECT_TRUE(HasCodedFeature());
  Open(Coded(Coding::kNone));
  EXPECT_TRUE(Read(AtStep(1)) == Floats(kFloats, 1));
  EXPECT_TRUE(Read(AtStep(3)) == Floats(kFloats, 3));
  ExpectClean();
}

TEST_F(CodedStoreTest, WhatDidNotChangeIsShared) {
  Bytes bytes = Floats(kFloats, 1);
  ASSERT_OK(SaveFloats(1, bytes));
  const std::uint64_t first = store_->GetStats().bytes_written;
  bytes[5] ^= std::byte{1};
  ASSERT_OK(SaveFloats(2, bytes));
  EXPECT_EQ(store_->GetStats().bytes_written - first, 1u << 20);
  EXPECT_TRUE(Read(AtStep(1)) == Floats(kFloats, 1));
  EXPECT_TRUE(Read(AtStep(2)) == bytes);
}

TEST_F(CodedStoreTest, ASliceReadsTheCellsThatItIsIn) {
  const Bytes bytes = Floats(kFloats, 1);
  ASSERT_OK(SaveFloats(1, bytes));
  const Step step = Restored(AtStep(1));
  const auto row = [&](std::int64_t at) {
    return Bytes(bytes.begin() + at * 4096, bytes.begin() + (at + 1) * 4096);
  };
  for (const std::int64_t at : {0, 15, 16, 255, 256, 700, 1023}) {
    Bytes read(4096);
    const std::uint64_t before = store_->GetStats().bytes_read;
    ASSERT_OK(step.ReadBox("w", {{at, 0}, {1, 1024}}, read));
    EXPECT_TRUE(read == row(at)) << at;
    EXPECT_LE(store_->GetStats().bytes_read - before, 60'000u) << at;
  }
  // A column is in every cell.
  Bytes column(1024 * 4);
  ASSERT_OK(step.ReadBox("w", {{0, 7}, {1024, 1}}, column));
  for (std::size_t i = 0; i < 1024; ++i) {
    ASSERT_EQ(
        std::memcmp(column.data() + 4 * i, bytes.data() + i * 4096 + 7 * 4, 4),
        0);
  }
  // Rows that two cells have, and two chunks.
  for (const std::int64_t at : {14, 254}) {
    Bytes read(4 * 4000);
    ASSERT_OK(step.ReadBox("w", {{at, 10}, {4, 1000}}, read));
    for (std::int64_t r = 0; r < 4; ++r) {
      ASSERT_EQ(std::memcmp(read.data() + 4000 * r,
                            bytes.data() + (at + r) * 4096 + 40, 4000),
                0);
    }
  }
}

TEST_F(CodedStoreTest, ViewsAreCopies) {
  const Bytes bytes = Floats(kFloats, 1);
  ASSERT_OK(SaveFloats(1, bytes));
  const absl::StatusOr<LeafView> view = Restored(AtStep(1)).View("w");
  ASSERT_OK(view);
  EXPECT_FALSE(view->zero_copy());
  std::size_t at = 0;
  for (const auto& piece : view->pieces()) {
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(piece.bytes.data()) % 64, 0u);
    EXPECT_EQ(
        std::memcmp(piece.bytes.data(), bytes.data() + at, piece.bytes.size()),
        0);
    at += piece.bytes.size();
  }
  EXPECT_EQ(at, bytes.size());
}

TEST_F(CodedStoreTest, EveryFlipIsNamedOrHarmless) {
  const Bytes bytes = Floats(kFloats, 1);
  const Bytes other = Floats(kFloats, 2);
  StepBuilder builder = store_->Begin(1);
  builder.Put("other", Float32s(other));
  builder.Put("w", Float32s(bytes));
  ASSERT_OK(Commit(std::move(builder)));
  std::vector<std::string> files;
  const std::vector<kv::LiveFile> chunks = ChunkFiles();
  for (const kv::LiveFile& file : chunks) files.push_back(file.path);
  store_.reset();
  int named = 0, harmless = 0;
  std::mt19937_64 random(11);
  for (int round = 0; round < 40; ++round) {
    const std::string& file = files[random() % files.size()];
    const std::uint64_t at = random() % fs::file_size(file);
    SCOPED_TRACE(file + " at " + std::to_string(at));
    FlipByte(file, at);
    {
      const absl::StatusOr<Store> store = Store::Open(path(), ReadOnly());
      ASSERT_OK(store);
      const Step step = store->OpenStep(Latest()).value();
      bool bad = false;
      for (const auto& [name, value] :
           {std::pair("w", &bytes), std::pair("other", &other)}) {
        const absl::StatusOr<LeafValue> read = step.Value(name);
        if (read.ok()) {
          EXPECT_TRUE(read->bytes == *value);
          continue;
        }
        bad = true;
        EXPECT_TRUE(absl::IsDataLoss(read.status())) << read.status();
        EXPECT_THAT(std::string(read.status().message()), HasSubstr(name));
      }
      const auto report = store->Verify({.level = VerifyOptions::Level::kDeep});
      ASSERT_OK(report);
      if (bad) EXPECT_FALSE(report->findings.empty());
      ++(bad ? named : harmless);
    }
    FlipByte(file, at);
  }
  EXPECT_GE(named, 20);
  Open(Coded());
  ExpectClean();
}

TEST_F(CodedStoreTest, AFlipInAnotherCellDoesNotHurtASlice) {
  const Bytes bytes = Floats(kFloats, 1);
  ASSERT_OK(SaveFloats(1, bytes));
  const std::vector<kv::LiveFile> files = ChunkFiles();
  store_.reset();
  // Near the end of each: in the last cells, before the table.
  for (const kv::LiveFile& file : files) {
    FlipByte(file.path, file.bytes - 10'000);
  }
  Open(ReadOnly());
  Bytes read(4096);
  int good = 0;
  for (std::int64_t at = 0; at < 1024; at += 16) {
    const absl::Status status =
        Restored(AtStep(1)).ReadBox("w", {{at, 0}, {1, 1024}}, read);
    if (!status.ok()) {
      EXPECT_TRUE(absl::IsDataLoss(status)) << status;
      continue;
    }
    ++good;
    EXPECT_EQ(std::memcmp(read.data(), bytes.data() + at * 4096, 4096), 0);
  }
  EXPECT_GE(good, 60);
  EXPECT_LE(good, 63);
}

TEST_F(CodedStoreTest, CollectionKnowsWhatIsDead) {
  // One file a save, so that it is known how much of each dies.
  StoreOptions options = Coded();
  options.threads = 1;
  Open(options);
  Bytes bytes = Floats(kFloats, 1);
  ASSERT_OK(SaveFloats(1, bytes));
  for (std::size_t chunk = 0; chunk < 3; ++chunk) {
    const Bytes fresh = Floats(kFloats / 4, static_cast<unsigned>(chunk) + 10);
    std::copy(fresh.begin(), fresh.end(),
              bytes.begin() + static_cast<long>(chunk << 20));
  }
  ASSERT_OK(SaveFloats(2, bytes));
  ASSERT_OK(store_->Delete(1));
  // Three quarters of the first save's bytes are dead: a third of all.
  const absl::StatusOr<FreedBytes> freed = store_->WouldFree({AtStep(2)});
  ASSERT_OK(freed);
  EXPECT_LE(static_cast<double>(freed->stored_bytes),
            0.87 * static_cast<double>(freed->bytes));
  const std::uint64_t before = ChunkFileBytes();
  const CollectReport kept = Collect({.min_dead_fraction = 1});
  EXPECT_EQ(ChunkFileBytes(), before);  // Nothing of it is free yet.
  EXPECT_LE(kept.bytes_freed - kept.bytes_left, kept.bytes_freed / 10);
  const CollectReport report = Collect({.min_dead_fraction = 0.4});
  EXPECT_GE(report.files_rewritten + report.files_dropped, 1u);
  EXPECT_LE(ChunkFileBytes(), before * 62 / 100);
  EXPECT_TRUE(Read(AtStep(2)) == bytes);
  const absl::StatusOr<UsageReport> usage = store_->Usage();
  ASSERT_OK(usage);
  EXPECT_EQ(usage->dead_bytes, 0u);
  EXPECT_GE(usage->living_bytes, 4u << 20);
  EXPECT_LE(static_cast<double>(usage->living_stored_bytes),
            0.87 * static_cast<double>(usage->living_bytes));
  // And its leaf record, which is in no file of these.
  EXPECT_NEAR(static_cast<double>(usage->steps[0].unique_bytes),
              static_cast<double>(usage->living_bytes), 1000);
  EXPECT_NEAR(static_cast<double>(usage->steps[0].unique_stored_bytes),
              static_cast<double>(usage->living_stored_bytes), 1000);
  // Again there is nothing to do.
  EXPECT_EQ(Collect({.min_dead_fraction = 0}).files_rewritten, 0u);
  ExpectClean();
}

TEST_F(CodedStoreTest, DetailsSayWhatIsOnTheDisk) {
  ASSERT_OK(SaveFloats(1, Floats(kFloats, 1)));
  const Step step = Restored(AtStep(1));
  const auto details = step.Details(step.Leaves().value());
  ASSERT_OK(details);
  EXPECT_EQ((*details)[0].bytes, 4u << 20);
  EXPECT_LE((*details)[0].stored_bytes, (4u << 20) * 86 / 100);
  EXPECT_GE((*details)[0].stored_bytes, (4u << 20) * 80 / 100);
}

TEST_F(CodedStoreTest, ABudgetCountsWhatIsOnTheDisk) {
  for (std::int64_t step = 1; step <= 5; ++step) {
    ASSERT_OK(SaveFloats(step, Floats(kFloats, static_cast<unsigned>(step))));
  }
  // Of 4 MiB each; coded some 3.5.
  const auto kept = [&](std::uint64_t bytes) {
    const auto report = store_->PreviewPolicy("", Budget{bytes});
    EXPECT_OK(report);
    int count = 0;
    for (const auto& verdict : report->steps) count += verdict.kept ? 1 : 0;
    return count;
  };
  EXPECT_EQ(kept(std::uint64_t{15} << 20), 4);
  EXPECT_EQ(kept(std::uint64_t{18} << 20), 5);
  EXPECT_EQ(kept(std::uint64_t{8} << 20), 2);
}

class PackTest : public CodedStoreTest {
 protected:
  void SetUp() override { Open(Coded(Coding::kNone)); }

  void SaveSteps(std::int64_t steps) {
    for (std::int64_t step = 1; step <= steps; ++step) {
      ASSERT_OK(SaveFloats(step, Floats(kFloats, static_cast<unsigned>(step))));
    }
  }
  void ExpectSteps(std::int64_t steps) {
    for (std::int64_t step = 1; step <= steps; ++step) {
      EXPECT_TRUE(Read(AtStep(step)) ==
                  Floats(kFloats, static_cast<unsigned>(step)))
          << step;
    }
    ExpectClean();
  }
};

TEST_F(PackTest, CodesAllSavesButTheNewest) {
  SaveSteps(4);
  const std::uint64_t before = ChunkFileBytes();
  EXPECT_EQ(Collect({}).files_packed, 0u);
  EXPECT_FALSE(HasCodedFeature());
  const CollectReport report = Collect({.pack = true});
  EXPECT_GE(report.files_packed, 3u);
  EXPECT_EQ(report.files_rewritten, report.files_packed);
  EXPECT_TRUE(HasCodedFeature());
  EXPECT_LE(ChunkFileBytes(), before * 89 / 100);
  ExpectSteps(4);
  // Once is enough.
  EXPECT_EQ(Collect({.pack = true}).files_packed, 0u);
  // The base of the next save is coded, too.
  Open(Coded(Coding::kNone));
  Bytes bytes = Floats(kFloats, 4);
  bytes[0] ^= std::byte{1};
  ASSERT_OK(SaveFloats(5, bytes));
  EXPECT_EQ(store_->GetStats().bytes_written, 1u << 20);
  EXPECT_GE(Collect({.pack = true}).files_packed, 1u);
  EXPECT_TRUE(Read(AtStep(5)) == bytes);
  ExpectSteps(4);
}

TEST_F(PackTest, LeavesWhatHasNothingToGive) {
  for (std::int64_t step = 1; step <= 3; ++step) {
    ASSERT_OK(Save(step, RandomBytes(4 << 20, step)));
  }
  const CollectReport report = Collect({.pack = true});
  EXPECT_EQ(report.files_rewritten, 0u);
  EXPECT_EQ(report.bytes_written, 0u);
}

TEST_F(PackTest, IsStoppedBetweenFilesAndGoesOn) {
  SaveSteps(6);
  int asked = 0;
  const absl::Status stopped =
      store_
          ->Collect({.pack = true,
                     .cancelled = [&] { return false; },
                     .on_progress = [&](const CollectProgress&) { ++asked; }})
          .status();
  ASSERT_OK(stopped);
  EXPECT_GE(asked, 5);
  ExpectSteps(6);
  SaveSteps(0);
  for (std::int64_t step = 7; step <= 10; ++step) {
    ASSERT_OK(SaveFloats(step, Floats(kFloats, static_cast<unsigned>(step))));
  }
  bool stop = false;
  const absl::Status cancelled =
      store_
          ->Collect({.pack = true,
                     .cancelled = [&] { return stop; },
                     .on_progress =
                         [&](const CollectProgress& progress) {
                           stop = progress.bytes_written > 0;
                         }})
          .status();
  EXPECT_TRUE(absl::IsCancelled(cancelled)) << cancelled;
  const CollectReport rest = Collect({.pack = true});
  EXPECT_GE(rest.files_packed, 1u);
  ExpectSteps(10);
}

TEST_F(PackTest, ARewriteThatHappensAnywayCodesColdSaves) {
  for (const bool cold : {false, true}) {
    SCOPED_TRACE(cold);
    store_.reset();
    fs::remove_all(path());
    StoreOptions plain = Coded(Coding::kNone);
    plain.threads = 1;  // All chunks of a save in one segment.
    Open(plain);
    SaveSteps(1);
    Bytes bytes = Floats(kFloats, 1);
    bytes[0] ^= std::byte{1};
    ASSERT_OK(SaveFloats(2, bytes));
    ASSERT_OK(store_->Delete(1));
    Open(Coded());
    for (std::int64_t step = 3; cold && step <= 19; ++step) {
      StepBuilder builder = store_->Begin(step);
      builder.Put("w", Float32s(bytes));
      builder.PutInt("step", step);
      ASSERT_OK(Commit(std::move(builder)));
    }
    const std::uint64_t before = ChunkFileBytes();
    EXPECT_GE(before, 4u << 20);  // One dead, three living.
    EXPECT_EQ(Collect({.min_dead_fraction = 0}).files_rewritten, 1u);
    EXPECT_LE(ChunkFileBytes(), before - 1'000'000);
    EXPECT_EQ(ChunkFileBytes() < before - (15 << 20) / 10, cold);
    EXPECT_EQ(HasCodedFeature(), cold);
    EXPECT_TRUE(Read(Latest()) == bytes);
    ExpectClean();
  }
}

LaneTimes Times(double computed, double waited, double coding, bool coded) {
  LaneTimes times;
  times.bytes = std::uint64_t{1} << 30;
  times.computed = computed;
  times.waited = waited;
  times.coded_bytes = coded ? times.bytes : times.bytes / 64;
  times.coded_to = times.coded_bytes * 8 / 10;
  times.coding = coded ? coding : coding / 64;
  return times;
}

TEST(CodingChoiceTest, GoesByWhatTheLanesWaitedFor) {
  CodingChoice choice(Coding::kAuto);
  EXPECT_FALSE(choice.Next().code);
  EXPECT_TRUE(choice.Next().measure);
  // A slow disk: 4 s of lanes for a GB, of which coding would take 0.4.
  choice.Note(false, Times(0.3, 3.7, 0.4, false));
  EXPECT_TRUE(choice.Next().code);
  // It is 0.8 of that then, and stays so.
  choice.Note(true, Times(0.24, 2.56, 0.4, true));
  EXPECT_TRUE(choice.Next().code);
  // The disk becomes fast: what computes is what takes long.
  choice.Note(true, Times(0.24, 0.06, 0.4, true));
  choice.Note(false, Times(0.3, 0.1, 0.4, false));
  EXPECT_FALSE(choice.Next().code);
  // A save of little says nothing.
  LaneTimes little = Times(0.3, 3.7, 0.4, false);
  little.bytes = 1 << 20;
  choice.Note(false, little);
  EXPECT_FALSE(choice.Next().code);
  // What has nothing to give is not coded, however slow the disk.
  LaneTimes dense = Times(0.3, 3.7, 0.1, false);
  dense.coded_to = dense.coded_bytes;
  choice.Note(false, dense);
  EXPECT_FALSE(choice.Next().code);
}

TEST(CodingChoiceTest, TheOthersDoNotMeasure) {
  CodingChoice none(Coding::kNone), planes(Coding::kPlanes);
  none.Note(false, Times(0.3, 3.7, 0.4, false));
  planes.Note(true, Times(0.3, 0, 4, true));
  EXPECT_FALSE(none.Next().code || none.Next().measure);
  EXPECT_TRUE(planes.Next().code && !planes.Next().measure);
}

TEST_F(CodedStoreTest, AutoTriesOneChunkOfEachLane) {
  Open(Coded(Coding::kAuto));
  for (std::int64_t step = 1; step <= 3; ++step) {
    ASSERT_OK(
        SaveFloats(step, Floats(6 * kFloats, static_cast<unsigned>(step))));
    EXPECT_TRUE(Read(AtStep(step)) ==
                Floats(6 * kFloats, static_cast<unsigned>(step)));
  }
  ExpectClean();
}

// What no chunk is read for: headers, tables, records of leaves and the copies
// of these.
TEST_F(CodedStoreTest, AFullCheckFindsWhatIsBesideTheChunks) {
  for (std::int64_t step = 1; step <= 2; ++step) {
    StepBuilder builder = store_->Begin(step);
    builder.Put("w",
                Float32s(Floats(kFloats / 2, static_cast<unsigned>(step))));
    // More records of leaves than stand in a save of small ones.
    for (int i = 0; i < 15'000; ++i) {
      builder.PutInt("n/" + std::to_string(i), 15'000 * step + i);
    }
    ASSERT_OK(Commit(std::move(builder)));
  }
  const kv::Database& database = StoreEngine::Of(*store_).database();
  std::vector<kv::LiveFile> files = database.LiveFiles().value();
  const std::vector<kv::LiveFile> copies = database.LeafCopies().value();
  files.insert(files.end(), copies.begin(), copies.end());
  ASSERT_OK(store_->Close());
  store_.reset();
  const auto damage = [&](VerifyOptions::Level level) {
    StoreOptions options = Options();
    options.read_only = true;
    options.create_if_missing = false;
    const auto store = Store::Open(path(), options);
    if (!store.ok()) return absl::IsDataLoss(store.status());
    const VerifyReport report = store->Verify({.level = level}).value();
    return std::any_of(report.findings.begin(), report.findings.end(),
                       [](const Finding& finding) {
                         return finding.severity != Finding::Severity::kWarning;
                       });
  };
  ASSERT_FALSE(damage(VerifyOptions::Level::kDeep));
  int of_copies = 0, of_leaves = 0, of_chunks = 0;
  for (const kv::LiveFile& file : files) {
    const bool chunks = file.space == schema::Space::kChunks;
    std::set<std::uint64_t> places;
    for (std::uint64_t at = 3; at < 91; at += 22) places.insert(at);
    // The rest of a file of chunks is theirs, or for the deep check.
    for (std::uint64_t i = 0; i < 6 && !chunks; ++i) {
      places.insert(file.bytes * i / 6);
    }
    for (const std::uint64_t at : places) {
      FlipByte(file.path, at);
      EXPECT_TRUE(damage(VerifyOptions::Level::kFull))
          << file.path << " at " << at << " of " << file.bytes;
      FlipByte(file.path, at);
    }
    ++(chunks ? of_chunks : file.copy ? of_copies : of_leaves);
  }
  EXPECT_GE(of_chunks, 1);
  EXPECT_GE(of_leaves, 1);
  EXPECT_GE(of_copies, 1);
}

}  // namespace
}  // namespace ckptree::testing
