// SPDX-License-Identifier: Apache-2.0

// A store whose newest save cannot be read any more goes on.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ckptree/history.h"
#include "ckptree/ranks.h"
#include "core/engine/engine.h"
#include "core/engine/store_engine.h"
#include "core/save/step_content.h"
#include "tests/core/fixture.h"
#include "tests/testutil/flip_byte.h"

namespace ckptree::testing {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::Pair;

constexpr int kLeaves = 4000;
constexpr std::size_t kLeafBytes = 300;

// Enough leaves that their records are a segment of their own.
class DamageTest : public CoreTest {
 protected:
  static std::string Name(int i) { return "layer/w" + std::to_string(i); }

  std::span<const std::byte> Value(const Bytes& all, int i) const {
    return std::span(all).subspan(static_cast<std::size_t>(i) * kLeafBytes,
                                  kLeafBytes);
  }
  Tensor LeafOf(const Bytes& all, int i) const {
    Tensor tensor;
    tensor.dtype = DType::kUint8;
    tensor.shape = {static_cast<std::int64_t>(kLeafBytes)};
    tensor.data = Value(all, i).data();
    return tensor;
  }
  absl::Status SaveAll(std::int64_t step, const Bytes& all) {
    StepBuilder builder = store_->Begin(step);
    for (int i = 0; i < kLeaves; ++i) builder.Put(Name(i), LeafOf(all, i));
    return Commit(std::move(builder));
  }
  void ExpectAll(std::int64_t step, const Bytes& all) {
    const Step restored = Restored(AtStep(step));
    for (int i = 0; i < kLeaves; ++i) {
      Bytes value(kLeafBytes);
      ASSERT_OK(restored.Read(Name(i), value));
      ASSERT_TRUE(std::ranges::equal(value, Value(all, i))) << Name(i);
    }
  }

  // Saves steps 1 and 2, all leaves changed in each.
  void SetUp() override {
    CoreTest::SetUp();
    ASSERT_OK(SaveAll(1, first_));
    ASSERT_OK(SaveAll(2, second_));
  }

  // The largest of `files` that holds records of `space` of the newest step.
  static std::string LargestOf(const std::vector<kv::LiveFile>& files,
                               schema::Space space) {
    std::string path, first_key;
    std::uint64_t bytes = 0;
    for (const kv::LiveFile& file : files) {
      if (file.space != space) continue;
      // Keys begin with the version.
      const std::string version = file.first_key.substr(0, 8);
      const std::uint64_t size = std::filesystem::file_size(file.path);
      if (version < first_key || (version == first_key && size < bytes)) {
        continue;
      }
      first_key = version;
      bytes = size;
      path = file.path;
    }
    EXPECT_FALSE(path.empty());
    return path;
  }

  enum class Copies { kFirst, kSecond, kBoth };
  // Flips a bit in the middle of the largest table of `space` of step 2, in
  // `copies` of it where it has two.
  void Damage(schema::Space space, Copies copies = Copies::kBoth) {
    const kv::Database& database =
        internal::StoreEngine::Of(*store_).database();
    std::vector<std::string> paths;
    if (copies != Copies::kSecond) {
      paths.push_back(LargestOf(database.LiveFiles().value(), space));
    }
    if (space == schema::Space::kLeaves && copies != Copies::kFirst) {
      paths.push_back(LargestOf(database.LeafCopies().value(), space));
    }
    store_.reset();
    for (const std::string& path : paths) {
      FlipByte(path, std::filesystem::file_size(path) / 2);
    }
    Open();
  }

  const Bytes first_ = RandomBytes(kLeaves * kLeafBytes, 1);
  const Bytes second_ = RandomBytes(kLeaves * kLeafBytes, 2);
};

TEST_F(DamageTest, TheNextSaveIsWhole) {
  Damage(schema::Space::kLeaves);
  // Nothing changed since step 2, but that cannot be known.
  ASSERT_OK(SaveAll(3, second_));
  EXPECT_EQ(store_->Resolve(AtStep(3))->base, 0);
  EXPECT_EQ(store_->Resolve(AtStep(3))->new_bytes, second_.size());
  ExpectAll(1, first_);
  ExpectAll(3, second_);
  // The damage is told of step 2 and of no other, with its leaves.
  const auto report = store_->Verify({.level = VerifyOptions::Level::kDeep});
  ASSERT_OK(report);
  EXPECT_THAT(report->findings,
              Contains(Field(&Finding::what, HasSubstr("layer/w"))));
  for (const Finding& finding : report->findings) {
    for (const std::int64_t step : finding.steps) EXPECT_EQ(step, 2);
  }
  // And the one after compares with it again.
  ASSERT_OK(SaveAll(4, second_));
  EXPECT_EQ(store_->Resolve(AtStep(4))->new_bytes, 0);
}

// Records that both steps have are not read to tell that they are the same.
TEST_F(DamageTest, ADiffReadsOnlyWhatTheTwoDoNotShare) {
  Bytes third = second_;
  third[0] ^= std::byte{1};
  ASSERT_OK(SaveAll(3, third));
  Damage(schema::Space::kLeaves);
  const auto report = Diff(Restored(AtStep(2)), Restored(AtStep(3)));
  ASSERT_OK(report);
  EXPECT_EQ(report->same, kLeaves - 1);
  EXPECT_THAT(report->changes, ElementsAre(Field(&LeafChange::name, Name(0))));
  // All of them differ here, and one of these is damaged.
  EXPECT_THAT(Diff(Restored(AtStep(1)), Restored(AtStep(3))),
              StatusIs(absl::StatusCode::kDataLoss));
}

// A table of arrays is gone: what was in it is lost, and no save shares it.
TEST_F(DamageTest, NoSaveSharesWhatIsGone) {
  const std::string path = LargestOf(
      internal::StoreEngine::Of(*store_).database().LiveFiles().value(),
      schema::Space::kChunks);
  store_.reset();
  std::filesystem::remove(path);
  Open();
  EXPECT_THAT(store_->Info().warnings, Not(IsEmpty()));
  // Nothing is mended by an open that does not save.
  Open();
  ASSERT_OK(SaveAll(3, second_));
  EXPECT_EQ(store_->Resolve(AtStep(3))->base, 0);
  EXPECT_EQ(store_->Resolve(AtStep(3))->new_bytes, second_.size());
  ExpectAll(1, first_);
  ExpectAll(3, second_);
  ASSERT_OK(SaveAll(4, second_));
  EXPECT_EQ(store_->Resolve(AtStep(4))->new_bytes, 0);
  Open();
  ASSERT_OK(SaveAll(5, second_));
  EXPECT_EQ(store_->Resolve(AtStep(5))->new_bytes, 0);
  ExpectAll(5, second_);
}

// Leaf records have two copies: nothing is lost with one, and what comes next
// still compares with step 2.
TEST_F(DamageTest, OneCopyOfTheLeafRecordsIsEnough) {
  for (const Copies copies : {Copies::kFirst, Copies::kSecond}) {
    Damage(schema::Space::kLeaves, copies);
    ExpectAll(1, first_);
    ExpectAll(2, second_);
    const std::int64_t step = copies == Copies::kFirst ? 3 : 4;
    ASSERT_OK(SaveAll(step, second_));
    EXPECT_EQ(store_->Resolve(AtStep(step))->new_bytes, 0);
    ExpectAll(step, second_);
    // It is told, as damage that costs no leaf of any step.
    const auto report = store_->Verify({.level = VerifyOptions::Level::kDeep});
    ASSERT_OK(report);
    EXPECT_THAT(report->findings,
                Contains(Field(&Finding::what, HasSubstr("second copy"))));
    for (const Finding& finding : report->findings) {
      EXPECT_TRUE(finding.steps.empty()) << finding.what;
      EXPECT_TRUE(finding.leaf.empty()) << finding.what;
    }
    Damage(schema::Space::kLeaves, copies);  // The same bit again.
  }
  const auto report = store_->Verify({.level = VerifyOptions::Level::kDeep});
  ASSERT_OK(report);
  EXPECT_THAT(report->findings, IsEmpty());
}

TEST_F(DamageTest, APartBuiltByAnotherProcessIsWhole) {
  Damage(schema::Space::kLeaves);
  absl::StatusOr<RankedSave> save = RankedSave::Begin(store_->Begin(3), {});
  ASSERT_OK(save);
  absl::StatusOr<Store> rank = Store::Open(path(), ReadOnly());
  ASSERT_OK(rank);
  StepBuilder part = BeginPart(*rank, save->plan(), 0);
  for (int i = 0; i < kLeaves; ++i) {
    part.Put(Name(i), LeafOf(second_, i), Ownership::kBorrow);
  }
  absl::StatusOr<std::string> built = FinishPart(std::move(part));
  ASSERT_OK(built);
  ASSERT_OK(save->Commit({*std::move(built)}).WaitCommitted());
  EXPECT_EQ(store_->Resolve(AtStep(3))->base, 0);
  ExpectAll(3, second_);
  EXPECT_THAT(StepNumbers(), ElementsAre(1, 2, 3));
}

// They fail as it does.
TEST_F(DamageTest, TiesOfWhatIsDamagedAreNamed) {
  StepBuilder builder = store_->Begin(3);
  const Bytes bytes = RandomBytes(40 * kChunk, 3);
  builder.Put("enc", Uint8s(bytes));
  builder.Tie("dec", "enc");
  builder.Tie("a/dec", "enc");
  builder.Put("whole", Uint8s(RandomBytes(10, 4)));
  ASSERT_OK(Commit(std::move(builder)));
  Damage(schema::Space::kChunks);
  std::set<std::string> unreadable;
  const Step step = Restored(AtStep(3));
  for (const char* name : {"enc", "dec", "a/dec", "whole"}) {
    if (!step.Value(name).ok()) unreadable.insert(name);
  }
  EXPECT_EQ(unreadable, (std::set<std::string>{"enc", "dec", "a/dec"}));
  const auto report = store_->Verify({});
  ASSERT_OK(report);
  std::set<std::string> named;
  for (const Finding& finding : report->findings) named.insert(finding.leaf);
  EXPECT_EQ(named, unreadable);
}

// A flipped bit costs the leaf whose bytes it is among: reads go around the
// damage, and verify names that leaf alone, with its steps.
TEST_F(DamageTest, AFlippedBitCostsItsChunkAndNoMore) {
  // Step 3 shares the damaged chunk with step 2, but for some leaves.
  Bytes third = second_;
  for (int i = 0; i < kLeaves; i += 500) {
    third[static_cast<std::size_t>(i) * kLeafBytes] ^= std::byte{1};
  }
  ASSERT_OK(SaveAll(3, third));
  Damage(schema::Space::kChunks);
  ExpectAll(1, first_);
  std::set<std::string> lost;
  for (const auto& [number, values] : {std::pair(2, &second_), {3, &third}}) {
    const Step step = Restored(AtStep(number));
    for (int i = 0; i < kLeaves; ++i) {
      Bytes value(kLeafBytes);
      const absl::Status status = step.Read(Name(i), value);
      if (status.ok()) {
        ASSERT_TRUE(std::ranges::equal(value, Value(*values, i))) << Name(i);
        continue;
      }
      EXPECT_THAT(status,
                  StatusIs(absl::StatusCode::kDataLoss,
                           AllOf(HasSubstr("step " + std::to_string(number)),
                                 HasSubstr(Name(i)))));
      lost.insert(Name(i));
    }
  }
  ASSERT_EQ(lost.size(), 1);
  const auto report = store_->Verify({.level = VerifyOptions::Level::kFull});
  ASSERT_OK(report);
  std::map<std::string, std::vector<std::int64_t>> named;
  for (const Finding& finding : report->findings) {
    if (!finding.leaf.empty()) named[finding.leaf] = finding.steps;
  }
  EXPECT_THAT(named, ElementsAre(Pair(*lost.begin(), ElementsAre(2, 3))));
}

// A save of a few leaves: their bytes are one pack in `small`.
class SmallDamageTest : public CoreTest {
 protected:
  static constexpr int kFew = 8;
  static constexpr std::size_t kFewBytes = 640;          // A pack aligns.
  static constexpr std::size_t kApart = kFewBytes + 16;  // A proof follows.

  static std::string Name(int i) { return "w" + std::to_string(i); }
  Bytes Value(int i) const {
    const auto from = all_.begin() + i * static_cast<std::ptrdiff_t>(kFewBytes);
    return Bytes(from, from + static_cast<std::ptrdiff_t>(kFewBytes));
  }

  void SetUp() override {
    CoreTest::SetUp();
    StepBuilder builder = store_->Begin(1);
    for (int i = 0; i < kFew; ++i) {
      Tensor tensor;
      tensor.dtype = DType::kUint8;
      tensor.shape = {static_cast<std::int64_t>(kFewBytes)};
      tensor.data = all_.data() + static_cast<std::size_t>(i) * kFewBytes;
      builder.Put(Name(i), tensor);
    }
    ASSERT_OK(Commit(std::move(builder)));
    // Into a table.
    store_.reset();
    Open();
    store_.reset();
  }

  // The journal gives its records up: the index alone has the bytes.
  void ForgetRecords() {
    // The newest record stays, and the first file of a session repeats it.
    for (const char* const tag : {"one", "two"}) {
      Open();
      ASSERT_OK(store_->Tag(tag, AtStep(1)));
      ASSERT_OK(
          internal::StoreEngine::Of(*store_).mutable_database()->WriteRows());
      store_.reset();
    }
  }

  void FindBytes() {
    for (const auto& entry : std::filesystem::directory_iterator(
             std::filesystem::path(path()) / "db")) {
      if (entry.path().extension() != ".sst") continue;
      std::ifstream file(entry.path(), std::ios::binary);
      const std::string bytes(std::istreambuf_iterator<char>(file), {});
      const std::string_view wanted(
          reinterpret_cast<const char*>(all_.data()) + 3 * kFewBytes,
          kFewBytes);
      if (const auto at = bytes.find(wanted); at != bytes.npos) {
        table_ = entry.path();
        fourth_ = at;
      }
    }
    ASSERT_FALSE(table_.empty());
  }

  // With the byte `at` flipped under an open handle, `lost` alone is lost.
  void ExpectLost(std::uint64_t at, const std::set<std::string>& lost) {
    SCOPED_TRACE(at);
    const absl::StatusOr<Store> store = Store::Open(path(), ReadOnly());
    ASSERT_OK(store);
    FlipByte(table_, at);
    const absl::StatusOr<Step> step = store->OpenStep(AtStep(1));
    ASSERT_OK(step);
    std::set<std::string> missing, unseen;
    for (int i = 0; i < kFew; ++i) {
      Bytes value(kFewBytes);
      const absl::Status read = step->Read(Name(i), value);
      if (!read.ok()) {
        EXPECT_THAT(read,
                    StatusIs(absl::StatusCode::kDataLoss, HasSubstr(Name(i))));
        missing.insert(Name(i));
      } else {
        EXPECT_EQ(value, Value(i));
      }
      const absl::StatusOr<LeafView> view = step->View(At(Name(i)));
      if (!view.ok()) {
        unseen.insert(Name(i));
        continue;
      }
      Bytes seen;
      for (const auto& piece : view->pieces()) {
        seen.insert(seen.end(), piece.bytes.begin(), piece.bytes.end());
      }
      EXPECT_EQ(seen, Value(i));
    }
    EXPECT_EQ(missing, lost);
    EXPECT_EQ(unseen, lost);
    FlipByte(table_, at);
  }

  // What a deep verification says is damaged.
  std::vector<Finding> Damaged() {
    const absl::StatusOr<Store> store = Store::Open(path(), ReadOnly());
    EXPECT_OK(store);
    VerifyOptions options;
    options.level = VerifyOptions::Level::kDeep;
    absl::StatusOr<VerifyReport> report = store->Verify(options);
    EXPECT_OK(report);
    std::erase_if(report->findings, [](const Finding& finding) {
      return finding.severity == Finding::Severity::kWarning;
    });
    return report->findings;
  }

  const Bytes all_ = RandomBytes(kFew * kFewBytes, 3);
  std::string table_;
  std::uint64_t fourth_ = 0;  // Where the bytes of w3 stand.
};

TEST_F(SmallDamageTest, AFlippedBitCostsTheLeafItIsInAndNoOtherOfItsPack) {
  ASSERT_NO_FATAL_FAILURE(ForgetRecords());
  ASSERT_NO_FATAL_FAILURE(FindBytes());
  ExpectLost(fourth_, {Name(3)});
  ExpectLost(fourth_ + kFewBytes - 1, {Name(3)});
  ExpectLost(fourth_ + kApart, {Name(4)});
  ExpectLost(fourth_ + 4 * kApart, {Name(7)});
}

TEST_F(SmallDamageTest, ABitBesideTheBytesCostsNone) {
  ASSERT_NO_FATAL_FAILURE(ForgetRecords());
  ASSERT_NO_FATAL_FAILURE(FindBytes());
  // A proof, the key of the block, its restarts, its checksum.
  ExpectLost(fourth_ + kFewBytes, {});
  ExpectLost(fourth_ + kApart - 1, {});
  ExpectLost(fourth_ - 3 * kApart - 10, {});
  ExpectLost(fourth_ + 5 * kApart + 2, {});
  ExpectLost(fourth_ + 5 * kApart + 10, {});
}

TEST_F(SmallDamageTest, WhatTheJournalHasIsReadThereAndMendedByTheNextWriter) {
  ASSERT_NO_FATAL_FAILURE(FindBytes());
  ExpectLost(fourth_, {});
  FlipByte(table_, fourth_);
  const std::vector<Finding> damaged = Damaged();
  ASSERT_EQ(damaged.size(), 1u);
  EXPECT_THAT(damaged[0].what, HasSubstr("the index is damaged: "));
  EXPECT_THAT(damaged[0].steps, IsEmpty());
  // Whoever writes meets it in a read, and the next one makes the index anew.
  Open();
  Bytes value(kFewBytes);
  ASSERT_OK(Restored(AtStep(1)).Read(Name(3), value));
  EXPECT_EQ(value, Value(3));
  store_.reset();
  Open();
  store_.reset();
  EXPECT_THAT(Damaged(), IsEmpty());
  ASSERT_NO_FATAL_FAILURE(FindBytes());
  ExpectLost(fourth_, {});
}

// A run that goes on for long lets the journal go, and nobody has read the
// block at the same time.
TEST_F(SmallDamageTest, TheJournalLetsNoBlockGoThatTheIndexDoesNotHaveWhole) {
  ASSERT_NO_FATAL_FAILURE(FindBytes());
  FlipByte(table_, fourth_);
  ASSERT_NO_FATAL_FAILURE(ForgetRecords());
  for (const bool writes : {false, true}) {
    Open(writes ? Options() : ReadOnly());
    for (int i = 0; i < kFew; ++i) {
      Bytes value(kFewBytes);
      ASSERT_OK(Restored(AtStep(1)).Read(Name(i), value));
      EXPECT_EQ(value, Value(i));
    }
  }
  store_.reset();
  EXPECT_THAT(Damaged(), IsEmpty());
}

TEST_F(SmallDamageTest, NoSaveSharesABlockThatIsGone) {
  ASSERT_NO_FATAL_FAILURE(ForgetRecords());
  ASSERT_NO_FATAL_FAILURE(FindBytes());
  std::filesystem::remove(table_);
  Open();
  EXPECT_THAT(store_->Info().warnings, Not(IsEmpty()));
  Open();  // That is over, and the block is as gone as before.
  StepBuilder builder = store_->Begin(2);
  for (int i = 0; i < kFew; ++i) {
    builder.Put(Name(i), {.dtype = DType::kUint8,
                          .shape = {static_cast<std::int64_t>(kFewBytes)},
                          .data = all_.data() +
                                  static_cast<std::size_t>(i) * kFewBytes});
  }
  ASSERT_OK(Commit(std::move(builder)));
  const Step step = Restored(AtStep(2));
  for (int i = 0; i < kFew; ++i) {
    Bytes value(kFewBytes);
    ASSERT_OK(step.Read(Name(i), value));
    EXPECT_EQ(value, Value(i));
  }
}

// Rows that are to be written without those of removed steps, and cannot be
// read in the index: nothing is lost, for the journal has them.
TEST_F(SmallDamageTest, ACollectionTellsOfAnIndexThatItCannotWriteAgain) {
  ASSERT_NO_FATAL_FAILURE(FindBytes());
  FlipByte(table_, fourth_);
  Open();
  ASSERT_OK(Save(2, Value(1)));
  ASSERT_OK(store_->Delete(1));
  const auto report = store_->Collect();
  ASSERT_OK(report);
  EXPECT_THAT(report->damaged, ElementsAre(HasSubstr("rows of small saves")));
  EXPECT_EQ(Read(AtStep(2)), Value(1));
  ASSERT_OK(Save(3, Value(2)));
  store_.reset();
  Open();
  ASSERT_OK_AND_ASSIGN(const CollectReport again, store_->Collect());
  EXPECT_THAT(again.damaged, IsEmpty());
  EXPECT_EQ(Read(AtStep(3)), Value(2));
  store_.reset();
  EXPECT_THAT(Damaged(), IsEmpty());
}

TEST_F(SmallDamageTest, AFileOfSomebodyElseInStagingStopsNobody) {
  std::ofstream(path() + "/staging/garbage") << "no segment";
  Open();
  ASSERT_OK(Save(2, Value(1)));
  EXPECT_EQ(Read(AtStep(2)), Value(1));
}

}  // namespace
}  // namespace ckptree::testing
