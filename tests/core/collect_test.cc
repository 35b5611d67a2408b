// SPDX-License-Identifier: Apache-2.0

// Collection: what nothing needs any more goes, and nothing else.

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "ckptree/ckptree.h"
#include "core/collect/collector.h"
#include "core/engine/engine.h"
#include "core/engine/hold_listed.h"
#include "core/engine/store_engine.h"
#include "core/process/logger.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kv/commit_kind.h"
#include "kv/database.h"
#include "schema/keys.h"
#include "tests/core/fixture.h"
#include "tests/testutil/flip_byte.h"
#include "tests/testutil/status_matchers.h"

namespace ckptree {
namespace {

using testing::Bytes;
using testing::CoreTest;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::IsOkAndHolds;
using testing::kChunk;
using ::testing::Not;
using ::testing::Optional;
using testing::RandomBytes;
using ::testing::SizeIs;
using testing::StatusIs;

// Larger than what rides in a batch.
constexpr std::size_t kLarge = 4 << 20;
CollectOptions Everything() { return {.min_dead_fraction = 0}; }

class CollectTest : public CoreTest {
 protected:
  // Bytes of all table files.
  std::uint64_t TableBytes() const {
    std::uint64_t bytes = 0;
    for (const auto& entry :
         std::filesystem::directory_iterator(path() + "/db")) {
      if (entry.path().extension() == ".sst") bytes += entry.file_size();
    }
    return bytes;
  }
  std::set<std::string> Tables() const {
    std::set<std::string> tables;
    for (const auto& entry :
         std::filesystem::directory_iterator(path() + "/db")) {
      if (entry.path().extension() == ".sst") tables.insert(entry.path());
    }
    return tables;
  }
  std::vector<std::string> LargeTables() const {
    std::vector<std::string> tables;
    for (const auto& entry :
         std::filesystem::directory_iterator(path() + "/db")) {
      if (entry.path().extension() == ".sst" &&
          entry.file_size() > kLarge / 2) {
        tables.push_back(entry.path());
      }
    }
    std::sort(tables.begin(), tables.end());
    return tables;
  }

  CollectReport Collect(const CollectOptions& options = Everything()) {
    absl::StatusOr<CollectReport> report = store_->Collect(options);
    EXPECT_OK(report);
    return report.ok() ? *report : CollectReport();
  }

  // `base` with the chunks `which` changed.
  static Bytes Changed(Bytes base, std::initializer_list<std::size_t> which,
                       std::uint64_t seed) {
    for (const std::size_t chunk : which) {
      const Bytes fresh = RandomBytes(kChunk, seed * 100 + chunk);
      std::copy(fresh.begin(), fresh.end(),
                base.begin() + static_cast<std::ptrdiff_t>(chunk * kChunk));
    }
    return base;
  }
};

TEST_F(CollectTest, AStepThatSharesNothingGoesAsAWhole) {
  for (int step = 1; step <= 3; ++step) {
    ASSERT_OK(Save(step, RandomBytes(kLarge, step)));
  }
  const std::uint64_t before = TableBytes();
  ASSERT_OK(store_->Delete(2));
  const CollectReport report = Collect();
  EXPECT_EQ(report.versions, 1);
  EXPECT_GE(report.bytes_freed, kLarge);
  EXPECT_LT(report.bytes_freed, kLarge + 4096);
  EXPECT_GE(report.files_dropped, 1);
  EXPECT_EQ(report.bytes_written, 0);
  EXPECT_THAT(report.kept, IsEmpty());
  EXPECT_LT(TableBytes() + kLarge - 100000, before);
  EXPECT_EQ(Read(AtStep(1)), RandomBytes(kLarge, 1));
  EXPECT_EQ(Read(AtStep(3)), RandomBytes(kLarge, 3));
  ExpectClean();
  Open();
  EXPECT_EQ(Read(AtStep(1)), RandomBytes(kLarge, 1));
  EXPECT_EQ(Read(AtStep(3)), RandomBytes(kLarge, 3));
  ExpectClean();
  EXPECT_EQ(Collect().versions, 0);
}

TEST_F(CollectTest, SharedChunksOutliveTheirStep) {
  StoreOptions options = Options();
  options.threads = 1;  // One segment a save.
  Open(options);
  const Bytes first = RandomBytes(kLarge, 1);
  Bytes second = first;  // The second half is new.
  std::copy_n(RandomBytes(kLarge / 2, 2).begin(), kLarge / 2,
              second.begin() + kLarge / 2);
  const Bytes third = Changed(second, {0, 1, 2}, 3);
  ASSERT_OK(Save(1, first));
  ASSERT_OK(Save(2, second));
  ASSERT_OK(Save(3, third));
  ASSERT_OK(store_->Delete(1));
  CollectReport report = Collect();
  EXPECT_EQ(report.versions, 1);
  EXPECT_GE(report.bytes_freed, kLarge / 2);
  EXPECT_LT(report.bytes_freed, kLarge / 2 + 4096);
  EXPECT_GE(report.files_rewritten, 1);
  EXPECT_LT(report.bytes_written, kLarge / 2 + 100000);
  EXPECT_EQ(Read(AtStep(2)), second);
  EXPECT_EQ(Read(AtStep(3)), third);
  ExpectClean();
  ASSERT_OK(store_->Delete(2));
  report = Collect();
  // Three chunks and a record.
  EXPECT_GE(report.bytes_freed, 3 * kChunk);
  EXPECT_LT(report.bytes_freed, 3 * kChunk + 8192);
  EXPECT_EQ(Read(AtStep(3)), third);
  ExpectClean();
  Open();
  EXPECT_EQ(Read(AtStep(3)), third);
  ExpectClean();
  // And what is rewritten can be a base.
  const Bytes fourth = Changed(third, {5}, 4);
  ASSERT_OK(Save(4, fourth));
  EXPECT_EQ(Read(AtStep(4)), fourth);
  EXPECT_LT(store_->Resolve(AtStep(4))->new_bytes, 2 * kChunk);
  ExpectClean();
}

TEST_F(CollectTest, TheTipMovesBack) {
  const Bytes first = RandomBytes(kLarge, 1);
  ASSERT_OK(Save(1, first));
  ASSERT_OK(Save(2, Changed(first, {3}, 2)));
  ASSERT_OK(store_->Delete(2));
  EXPECT_EQ(Collect().versions, 1);
  ExpectClean();
  // The next save is compared with step 1.
  ASSERT_OK(Save(3, Changed(first, {4}, 3)));
  EXPECT_EQ(store_->Resolve(AtStep(3))->base,
            store_->Resolve(AtStep(1))->version);
  EXPECT_LT(store_->Resolve(AtStep(3))->new_bytes, 2 * kChunk);
  ExpectClean();
  ASSERT_OK(store_->Delete(1));
  ASSERT_OK(store_->Delete(3));
  EXPECT_EQ(Collect().versions, 2);
  ExpectClean();
  EXPECT_THAT(LargeTables(), IsEmpty());
  ASSERT_OK(Save(4, first));
  EXPECT_EQ(store_->Resolve(AtStep(4))->base, 0);
  EXPECT_EQ(Read(AtStep(4)), first);
  ExpectClean();
}

TEST_F(CollectTest, SmallSavesLeaveNothing) {
  const Bytes part = RandomBytes(1000, 1);
  for (int step = 1; step <= 50; ++step) {
    StepBuilder builder = store_->Begin(step);
    builder.Put("same", testing::Uint8s(part));
    const Bytes changes = RandomBytes(50000, static_cast<unsigned>(step));
    builder.Put("changes", testing::Uint8s(changes));
    ASSERT_OK(std::move(builder).Commit().WaitCommitted(testing::kLong));
  }
  for (int step = 1; step < 50; ++step) ASSERT_OK(store_->Delete(step));
  const CollectReport report = Collect();
  EXPECT_EQ(report.versions, 49);
  EXPECT_GE(report.bytes_freed, 49u * 50000);
  EXPECT_EQ(Read(AtStep(50), "same"), part);
  EXPECT_EQ(Read(AtStep(50), "changes"), RandomBytes(50000, 50));
  ExpectClean();
  Open();
  ExpectClean();
  EXPECT_EQ(Read(AtStep(50), "same"), part);
}

TEST_F(CollectTest, WhereNothingIsDeadNoTableIsWrittenAnew) {
  for (int step = 1; step <= 9; ++step) {
    ASSERT_OK(Save(step, RandomBytes(20000, static_cast<unsigned>(step))));
  }
  ASSERT_OK(store_->Delete(2));
  EXPECT_EQ(Collect().versions, 1);
  const std::set<std::string> tables = Tables();
  EXPECT_THAT(tables, Not(IsEmpty()));
  EXPECT_EQ(Collect().versions, 0);
  EXPECT_EQ(Tables(), tables);
  // Also of one that has yet to be written to a table.
  ASSERT_OK(store_->Delete(3));
  EXPECT_EQ(Collect().versions, 1);
  EXPECT_NE(Tables(), tables);
  ExpectClean();
}

// What a version left behind that no row lists, amid those that are there.
TEST_F(CollectTest, BlocksThatNoVersionHasGo) {
  for (int step = 1; step <= 9; ++step) {
    ASSERT_OK(Save(step, RandomBytes(20000, static_cast<unsigned>(step))));
  }
  ASSERT_OK_AND_ASSIGN(const StepInfo info, store_->Resolve(AtStep(4)));
  const std::uint64_t gone = info.version;
  ASSERT_OK(store_->Delete(4));
  EXPECT_EQ(Collect().versions, 1);
  const std::vector<std::string> keys = {
      schema::SmallKey(gone, 0, schema::BlockKind::kHeader, 0),
      schema::SmallKey(gone, 0, schema::BlockKind::kChunk, 7)};
  kv::CommitRequest planted;
  planted.kind = kv::CommitKind::kCollect;
  for (const std::string& key : keys) {
    planted.batch.Put(schema::Space::kSmall, key, "left behind");
  }
  const auto any = [](const kv::Database&, const kv::OpenReport&) {
    return absl::OkStatus();
  };
  store_.reset();
  {
    ASSERT_OK_AND_ASSIGN(
        const auto database,
        kv::Database::Open(path(), {}, kv::Mode::kReadWrite, any));
    ASSERT_OK(database->Commit(std::move(planted)).status);
  }
  Open();
  const kv::Database& database = internal::StoreEngine::Of(*store_).database();
  for (const std::string& key : keys) {
    ASSERT_THAT(database.Get(schema::Space::kSmall, key),
                IsOkAndHolds(Optional(std::string("left behind"))));
  }
  Collect();
  for (const std::string& key : keys) {
    EXPECT_THAT(database.Get(schema::Space::kSmall, key),
                IsOkAndHolds(std::nullopt));
  }
  ExpectClean();
  for (const int step : {1, 2, 3, 5, 6, 7, 8, 9}) {
    EXPECT_EQ(Read(AtStep(step)),
              RandomBytes(20000, static_cast<unsigned>(step)));
  }
}

TEST_F(CollectTest, AnOverwrittenStepIsCollected) {
  const Bytes old = RandomBytes(kLarge, 1);
  const Bytes now = Changed(old, {1, 2}, 2);
  ASSERT_OK(Save(1, old));
  ASSERT_OK(Save(1, now, {.overwrite = true}));
  EXPECT_EQ(Collect().versions, 1);
  EXPECT_EQ(Read(AtStep(1)), now);
  ExpectClean();
}

TEST_F(CollectTest, AnOpenStepIsReadToTheEnd) {
  const Bytes first = RandomBytes(kLarge, 1);
  ASSERT_OK(Save(1, first));
  ASSERT_OK(Save(2, RandomBytes(kLarge, 2)));
  {
    const Step open = Restored(AtStep(1));
    ASSERT_OK(store_->Delete(1));
    const CollectReport report = Collect();
    EXPECT_EQ(report.versions, 0);
    ASSERT_THAT(report.kept, SizeIs(1));
    EXPECT_EQ(report.kept[0].step, 1);
    EXPECT_THAT(report.kept[0].why, HasSubstr("a reader of this process"));
    const absl::StatusOr<LeafValue> value = open.Value("w");
    ASSERT_OK(value);
    EXPECT_EQ(value->bytes, first);
  }
  EXPECT_EQ(Collect().versions, 1);
  EXPECT_THAT(store_->OpenStep(AtStep(1)),
              StatusIs(absl::StatusCode::kNotFound));
  ExpectClean();
}

TEST_F(CollectTest, ADamagedFileIsLeftAloneAndTheRestGoesOn) {
  StoreOptions options = Options();
  options.threads = 1;  // One segment a save.
  Open(options);
  const Bytes first = RandomBytes(kLarge, 1);
  const Bytes second = Changed(first, {1, 2, 3, 4, 5}, 2);
  ASSERT_OK(Save(1, first));
  const std::vector<std::string> tables = LargeTables();
  ASSERT_FALSE(tables.empty());
  ASSERT_OK(Save(2, second));
  const Bytes third = RandomBytes(kLarge, 3);
  ASSERT_OK(Save(3, third));
  ASSERT_OK(Save(4, Changed(third, {7, 8}, 4)));
  ASSERT_OK(store_->Delete(1));
  // A chunk that step 2 needs.
  testing::FlipByte(tables[0], kLarge / 2);
  CollectReport report = Collect();
  EXPECT_EQ(report.versions, 1);
  ASSERT_THAT(report.damaged, SizeIs(1));
  EXPECT_THAT(report.damaged[0], HasSubstr("is damaged"));
  EXPECT_THAT(store_->OpenStep(AtStep(2))->Value("w"),
              StatusIs(absl::StatusCode::kDataLoss));
  // It is not tried again, and everything else goes on.
  ASSERT_OK(store_->Delete(3));
  report = Collect();
  EXPECT_EQ(report.versions, 1);
  EXPECT_THAT(report.damaged, IsEmpty());
  EXPECT_GE(report.files_rewritten, 1);
  ASSERT_OK(Save(5, first));
  EXPECT_EQ(Read(AtStep(5)), first);
  EXPECT_EQ(Read(AtStep(4)), Changed(third, {7, 8}, 4));
  Open();
  EXPECT_THAT(Collect().damaged, IsEmpty());
  // With the step that needs it the file goes as a whole.
  ASSERT_OK(store_->Delete(2));
  EXPECT_EQ(Collect().versions, 1);
  ExpectClean();
}

TEST_F(CollectTest, StopsBetweenVersionsAndGoesOnLater) {
  for (int step = 1; step <= 6; ++step) {
    ASSERT_OK(Save(step, RandomBytes(kLarge, step)));
  }
  for (int step = 1; step <= 5; ++step) ASSERT_OK(store_->Delete(step));
  std::uint64_t done = 0;
  CollectOptions options = Everything();
  options.on_progress = [&done](const CollectProgress& progress) {
    EXPECT_EQ(progress.versions_total, 5);
    done = progress.versions_done;
  };
  // A commit takes one version, the next one two, the next one four; asked
  // before each of them, it ends with those that were planned.
  int asked = 0;
  options.cancelled = [&asked] { return ++asked >= 3; };
  EXPECT_THAT(store_->Collect(options), StatusIs(absl::StatusCode::kCancelled));
  EXPECT_EQ(done, 2);
  ExpectClean();
  EXPECT_EQ(Collect().versions, 3);
  ExpectClean();
  EXPECT_THAT(StepNumbers(), ElementsAre(6));
  EXPECT_LE(TableBytes(), kLarge + 200000);
}

TEST_F(CollectTest, ManyVersionsGoInFewCommits) {
  Bytes value = RandomBytes(kLarge, 0);
  for (int step = 1; step <= 17; ++step) {
    value = Changed(value, {static_cast<std::size_t>(step % 4)},
                    static_cast<std::uint64_t>(step));
    ASSERT_OK(Save(step, value));
  }
  std::vector<StepSelector> all;
  for (int step = 1; step <= 15; ++step) all.push_back(AtStep(step));
  ASSERT_OK(store_->Delete(all));
  const kv::Database& database = internal::StoreEngine::Of(*store_).database();
  const std::uint64_t before = database.newest_ordinal();
  EXPECT_EQ(Collect().versions, 15);
  // 1 + 2 + 4 + 8 versions, and at most one for trees and one for blocks.
  EXPECT_LE(database.newest_ordinal(), before + 6);
  ExpectClean();
}

TEST_F(CollectTest, OneThatCannotBeReadDoesNotHoldTheOthersOfItsCommit) {
  for (int step = 1; step <= 16; ++step) {
    ASSERT_OK(Save(step, RandomBytes(kLarge, step)));
  }
  // Without the row that its dead blocks would be marked in.
  kv::Database& database =
      *internal::StoreEngine::Of(*store_).mutable_database();
  kv::CommitRequest request;
  request.kind = kv::CommitKind::kCollect;
  for (std::uint8_t builder = 0; builder < 16; ++builder) {
    request.batch.Delete(
        schema::Space::kRecords,
        schema::SegmentKey(9, 0, schema::Space::kChunks, builder));
  }
  ASSERT_OK(database.Commit(std::move(request)).status);
  std::vector<StepSelector> all;
  for (int step = 1; step <= 14; ++step) all.push_back(AtStep(step));
  ASSERT_OK(store_->Delete(all));
  const CollectReport report = Collect();
  EXPECT_EQ(report.versions, 13);
  ASSERT_THAT(report.kept, SizeIs(1));
  EXPECT_EQ(report.kept[0].step, 9);
  EXPECT_THAT(report.kept[0].why, HasSubstr("is missing"));
  for (const int step : {15, 16}) {
    EXPECT_EQ(Read(AtStep(step)), RandomBytes(kLarge, step));
  }
}

TEST_F(CollectTest, TheBackgroundCollects) {
  StoreOptions options = Options();
  options.collect = true;
  Open(options);
  for (int step = 1; step <= 8; ++step) {
    ASSERT_OK(Save(step, RandomBytes(kLarge, step)));
    if (step > 2) {
      ASSERT_OK(store_->Delete(step - 2));
    }
  }
  // A pass of ours waits for its own to end.
  EXPECT_THAT(Collect().kept, IsEmpty());
  ExpectClean();
  EXPECT_LE(TableBytes(), 2 * kLarge + 200000);
  EXPECT_EQ(Read(AtStep(8)), RandomBytes(kLarge, 8));
}

TEST_F(CollectTest, ManySmallFilesBecomeFew) {
  // 300 segments of 1.2 MB.
  constexpr int kSteps = 300;
  constexpr std::size_t kBytes = 1200000;
  for (int step = 1; step <= kSteps; ++step) {
    ASSERT_OK(Save(step, RandomBytes(kBytes, static_cast<unsigned>(step))));
  }
  const auto files = [this] {
    std::size_t count = 0;
    for (const auto& entry :
         std::filesystem::directory_iterator(path() + "/db")) {
      count += entry.path().extension() == ".sst" ? 1 : 0;
    }
    return count;
  };
  EXPECT_GE(files(), 300);
  const CollectReport report = Collect({});
  EXPECT_GE(report.files_rewritten, 100);
  EXPECT_LE(report.bytes_written, kSteps * (kBytes + 5000));
  EXPECT_LE(files(), 210);
  for (const int step : {1, 2, 44, 45, 46, 299, 300}) {
    EXPECT_EQ(Read(AtStep(step)),
              RandomBytes(kBytes, static_cast<unsigned>(step)));
  }
  // What is merged can still go.
  for (int step = 1; step <= kSteps; step += 2) ASSERT_OK(store_->Delete(step));
  EXPECT_EQ(Collect().versions, kSteps / 2);
  ExpectClean();
  EXPECT_LE(TableBytes(), kSteps / 2 * (kBytes + 5000) + 2000000);
  Open();
  EXPECT_EQ(Read(AtStep(300)), RandomBytes(kBytes, 300));
}

TEST_F(CollectTest, ADeadListThatCannotBeReadStopsIt) {
  const Bytes first = RandomBytes(kLarge, 1);
  ASSERT_OK(Save(1, first));
  ASSERT_OK(Save(2, Changed(first, {3}, 2)));
  ASSERT_OK(Save(3, Changed(first, {4}, 3)));
  ASSERT_OK(store_->Delete(2));
  const std::uint64_t version = store_->Resolve(AtStep(3))->version;
  store_.reset();
  {
    const auto any = [](const kv::Database&, const kv::OpenReport&) {
      return absl::OkStatus();
    };
    ASSERT_OK_AND_ASSIGN(
        const auto database,
        kv::Database::Open(path(), {}, kv::Mode::kReadWrite, any));
    kv::CommitRequest request;
    request.kind = kv::CommitKind::kDelete;
    request.batch.Put(schema::Space::kRecords, schema::DeadKey(version),
                      "no dead list");
    ASSERT_EQ(database->Commit(request).outcome, kv::Outcome::kCommitted);
  }
  Open();
  // Version 2 may have this successor or another: nobody can tell what is dead.
  EXPECT_THAT(
      store_->Collect(Everything()),
      StatusIs(absl::StatusCode::kDataLoss, HasSubstr("nothing is collected")));
  EXPECT_THAT(store_->Usage(), StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_EQ(Read(AtStep(1)), first);
  EXPECT_EQ(Read(AtStep(3)), Changed(first, {4}, 3));
  ASSERT_OK(Save(4, Changed(first, {5}, 4)));
  EXPECT_EQ(Read(AtStep(4)), Changed(first, {5}, 4));
}

// The thread of the background finds no memory: it says so, and goes on the
// next time.
TEST_F(CollectTest, NoMemoryInTheBackgroundIsAWarning) {
  StoreOptions options = Options();  // Collects nothing by itself.
  options.threads = 1;               // One segment a save.
  Open(options);
  ASSERT_OK(Save(1, RandomBytes(kLarge, 1)));
  ASSERT_OK(Save(2, RandomBytes(kLarge, 2)));
  ASSERT_OK(store_->Delete(1));
  ASSERT_THAT(LargeTables(), SizeIs(2));
  internal::Engine& engine = internal::StoreEngine::Of(*store_);
  absl::Mutex mu;
  int asked = 0;
  std::vector<std::string> logged;
  const internal::Logger logger(
      [&](LogSeverity, std::string_view, std::string_view text) {
        const absl::MutexLock lock(&mu);
        logged.emplace_back(text);
      });
  internal::CollectorContext context;
  context.database = engine.mutable_database();
  context.keeper = &engine.keeper();
  context.logger = &logger;
  context.arena = &engine.arena();
  context.version_in_flight = [] { return std::uint64_t{0}; };
  context.leased = [&]() -> std::map<std::uint64_t, std::string> {
    const absl::MutexLock lock(&mu);
    if (asked++ == 0) throw std::bad_alloc();
    return {};
  };
  internal::Collector collector(std::move(context));
  {
    const auto said = [&] { return !logged.empty(); };
    const absl::MutexLock lock(&mu);
    mu.Await(absl::Condition(&said));
    EXPECT_THAT(logged, ElementsAre("collecting: there is no memory"));
  }
  EXPECT_THAT(LargeTables(), SizeIs(2));
  collector.Notify();
  {
    const auto again = [&] { return asked == 2; };
    const absl::MutexLock lock(&mu);
    mu.Await(absl::Condition(&again));
  }
  // Not beside the pass that was begun.
  ASSERT_OK(collector.Collect(Everything()));
  collector.Stop();
  EXPECT_THAT(LargeTables(), SizeIs(1));
  EXPECT_THAT(logged, SizeIs(1));
  EXPECT_EQ(Read(AtStep(2)), RandomBytes(kLarge, 2));
}

TEST_F(CollectTest, RefusesOptionsThatMeanNothing) {
  EXPECT_THAT(store_->Collect({.min_dead_fraction = 1.5}),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(store_->Collect({.min_dead_fraction = -1}),
              StatusIs(absl::StatusCode::kInvalidArgument));
  Open(ReadOnly());
  EXPECT_THAT(store_->Collect(),
              StatusIs(absl::StatusCode::kFailedPrecondition));
}

// A policy removes steps between a list of them and the look at each.
TEST_F(CollectTest, WhatIsListedWhileItIsHeldCanBeRead) {
  for (int i = 1; i <= 3; ++i) ASSERT_OK(Save(i, RandomBytes(kLarge, i)));
  const Store reader = Store::Open(path(), ReadOnly()).value();
  ASSERT_TRUE(reader.Info().following);
  ASSERT_OK(Save(4, RandomBytes(kLarge, 4)));
  {
    ASSERT_OK_AND_ASSIGN(const std::shared_ptr<const void> held,
                         internal::HoldListed(reader));
    ASSERT_NE(held, nullptr);
    ASSERT_OK_AND_ASSIGN(const std::vector<StepInfo> steps, reader.Steps());
    ASSERT_THAT(steps, SizeIs(4));  // It has caught up.
    for (int i = 1; i <= 3; ++i) ASSERT_OK(store_->Delete(i));
    EXPECT_THAT(Collect().kept, SizeIs(3));
    for (const StepInfo& info : steps) {
      ASSERT_OK_AND_ASSIGN(const Step step, reader.OpenStep(AtStep(info.step)));
      ASSERT_OK_AND_ASSIGN(const LeafValue value, step.Value("w"));
      EXPECT_EQ(value.bytes,
                RandomBytes(kLarge, static_cast<std::uint64_t>(info.step)));
    }
  }
  EXPECT_THAT(Collect().kept, IsEmpty());
  // As it is without.
  EXPECT_FALSE(reader.OpenStep(AtStep(1)).ok());
  // A writer needs none.
  ASSERT_OK_AND_ASSIGN(const std::shared_ptr<const void> none,
                       internal::HoldListed(*store_));
  EXPECT_EQ(none, nullptr);
}

}  // namespace
}  // namespace ckptree
