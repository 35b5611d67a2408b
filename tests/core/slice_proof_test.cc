// SPDX-License-Identifier: Apache-2.0

// What stands behind the slices of packs never makes a read give another value
// than what was saved, whatever stands where a reader guesses the value to be.

#include "schema/slice_proof.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "ckptree/ranks.h"
#include "core/engine/step_difference.h"
#include "core/engine/store_engine.h"
#include "core/version/pack_guess.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kv/database.h"
#include "schema/keys.h"
#include "tests/core/fixture.h"

namespace ckptree::testing {
namespace {

using internal::PackGuesses;
using internal::StepReader;
using ::testing::HasSubstr;

struct Value {
  DType dtype = DType::kUint8;
  Bytes bytes;
};
using Values = std::map<std::string, Value>;

class SliceProofTest : public CoreTest {
 protected:
  static std::string Name(int i) { return absl::StrFormat("w%03d", i); }

  static Tensor TensorOf(const Value& value) {
    const std::size_t width = BytesOf(value.dtype, false, {1});
    return Array(value.dtype,
                 {static_cast<std::int64_t>(value.bytes.size() / width)},
                 value.bytes);
  }
  absl::Status SaveAll(std::int64_t step, const Values& values,
                       SaveOptions options = {}) {
    StepBuilder builder = store_->Begin(step, options);
    for (const auto& [name, value] : values) {
      builder.Put(name, TensorOf(value));
    }
    builder.PutInt("n", step).PutString("text", "short");
    return Commit(std::move(builder));
  }
  static Values Some(int count, std::size_t bytes, int seed) {
    Values values;
    for (int i = 0; i < count; ++i) {
      values[Name(i)].bytes = RandomBytes(bytes, 1000 * seed + i);
    }
    return values;
  }

  // Whether the leaf is read without its record; what is read then is right.
  bool IsProved(std::int64_t number, const std::string& name,
                const Bytes& expected) {
    const Step step = Restored(AtStep(number));
    const StepReader& reader = internal::StepInside::Of(step);
    const StepReader::Part& part = reader.parts().at(0);
    const auto entry = part.tree->Find(At(name).Encode());
    EXPECT_TRUE(entry.ok() && entry->has_value());
    Bytes read(expected.size());
    PackGuesses guesses;
    PackGuesses::Trial trial;
    const bool proved = guesses.ReadProved(
        reader.engine().database(),
        {.tree = *part.tree,
         .map = part.map,
         .version = static_cast<std::uint64_t>(reader.info().version),
         .part = part.part,
         .ordinal = (*entry)->ordinal},
        reader.digest(), read, &trial);
    if (proved) EXPECT_EQ(read, expected) << number << " " << name;
    return proved;
  }

  // Each way to read gives the value.
  void ExpectValues(std::int64_t number, const Values& values) {
    const Step step = Restored(AtStep(number));
    for (const auto& [name, value] : values) {
      Bytes read(value.bytes.size());
      ASSERT_OK(step.Read(name, read)) << number << " " << name;
      ASSERT_EQ(read, value.bytes) << number << " " << name;
      const Tensor tensor = TensorOf(value);
      const BoxSpec all{Shape(tensor.shape.size()), tensor.shape};
      Bytes boxed(value.bytes.size());
      ASSERT_OK(step.ReadBox(name, all, boxed)) << number << " " << name;
      ASSERT_EQ(boxed, value.bytes) << number << " " << name;
      ASSERT_OK_AND_ASSIGN(const LeafValue whole, step.Value(name));
      ASSERT_EQ(whole.bytes, value.bytes) << number << " " << name;
      ASSERT_EQ(whole.info.dtype, value.dtype) << number << " " << name;
    }
  }

  // Where the leaf's slice is.
  schema::ChunkRef RefOf(std::int64_t number, const std::string& name) {
    const Step step = Restored(AtStep(number));
    const auto located = internal::StepInside::Of(step).Locate(At(name));
    EXPECT_OK(located.status());
    return located->records.at(0).chunks.at(0);
  }
  static std::string KeyOf(const schema::ChunkRef& ref) {
    return schema::SmallKey(ref.version, ref.part, schema::BlockKind::kChunk,
                            ref.n);
  }
  std::string PackOf(const schema::ChunkRef& ref) {
    return internal::StoreEngine::Of(*store_)
        .database()
        .Get(schema::Space::kSmall, KeyOf(ref))
        .value()
        .value();
  }
  // Its slice and what is behind it.
  std::string SliceOf(const schema::ChunkRef& ref) {
    return PackOf(ref).substr(ref.offset,
                              ref.length + schema::kSliceProofBytes);
  }
  // Puts other bytes from the leaf's slice on; in tables, as after a restart.
  void Plant(const schema::ChunkRef& ref, const std::string& bytes) {
    // Of what was planted before a read may have told, and the store then takes
    // the right pack out of its journal when it is opened next.
    for (int i = 0; i < 3; ++i) {
      std::string pack = PackOf(ref);
      pack.replace(ref.offset, bytes.size(), bytes);
      PutPack(ref, pack);
      Open();
      if (PackOf(ref) == pack) return;
    }
    FAIL() << "the pack is mended again and again";
  }
  // A block has one value for good, and is read from any table that has it: the
  // old one goes first, out of all tables.
  void PutPack(const schema::ChunkRef& ref, const std::string& pack) {
    kv::Database& database =
        *internal::StoreEngine::Of(*store_).mutable_database();
    for (const bool put : {false, true}) {
      kv::CommitRequest request;
      request.kind = kv::CommitKind::kTag;
      if (put) {
        request.batch.Put(schema::Space::kSmall, KeyOf(ref), pack);
      } else {
        request.batch.Delete(schema::Space::kSmall, KeyOf(ref));
      }
      ASSERT_EQ(database.Commit(std::move(request)).outcome,
                kv::Outcome::kCommitted);
      if (!put) {
        ASSERT_OK(database.CompactSmall());
      }
    }
  }

  // The value, or an error that names the leaf.
  void ExpectRightOrError(std::int64_t number, const std::string& name,
                          const Bytes& expected) {
    const Step step = Restored(AtStep(number));
    Bytes read(expected.size());
    const absl::Status status = step.Read(name, read);
    if (status.ok()) {
      EXPECT_EQ(read, expected) << number << " " << name;
    } else {
      EXPECT_TRUE(absl::IsDataLoss(status)) << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr(name));
    }
    const auto value = step.Value(name);
    EXPECT_EQ(value.ok(), status.ok());
    if (value.ok()) EXPECT_EQ(value->bytes, expected);
  }
};

TEST_F(SliceProofTest, LeavesAreReadWithoutTheirRecords) {
  std::mt19937_64 random(7);
  Values values;
  for (int i = 0; i < 90; ++i) {
    const std::size_t size = 300 + random() % (i % 5 == 0 ? 30000 : 1500);
    values[Name(i)].bytes = RandomBytes(size, i);
  }
  ASSERT_OK(SaveAll(1, values));
  Values second = values;
  for (auto& [name, value] : second) {
    if (random() % 3 == 0) value.bytes = RandomBytes(value.bytes.size(), 9);
  }
  ASSERT_OK(SaveAll(2, second));
  Open();
  for (const auto& [name, value] : values) {
    EXPECT_EQ(IsProved(1, name, value.bytes), value.bytes.size() >= 512)
        << value.bytes.size();
    const Bytes& now = second[name].bytes;
    // Of an older version nothing is guessed.
    const bool written = RefOf(2, name).version == RefOf(2, Name(0)).version;
    if (now != value.bytes) {
      EXPECT_EQ(IsProved(2, name, now), now.size() >= 512);
    } else if (!written) {
      EXPECT_FALSE(IsProved(2, name, now));
    }
  }
  ExpectValues(1, values);
  ExpectValues(2, second);
  ExpectClean();
}

TEST_F(SliceProofTest, TheBoxOfAllOfAnArrayIsReadAsTheArrayIs) {
  const Values values = Some(30, 1000, 1);
  ASSERT_OK(SaveAll(1, values));
  const std::string name = Name(3);
  const Bytes& right = values.at(name).bytes;
  std::string record;
  {
    const Step step = Restored(AtStep(1));
    const StepReader& reader = internal::StepInside::Of(step);
    const StepReader::Part& part = reader.parts().at(0);
    const auto entry = part.tree->Find(At(name).Encode());
    ASSERT_TRUE(entry.ok() && entry->has_value());
    record = schema::SmallKey(static_cast<std::uint64_t>(reader.info().version),
                              part.part, schema::BlockKind::kLeafRecord,
                              part.map.At((*entry)->ordinal).source + 1);
  }
  kv::CommitRequest request;
  request.kind = kv::CommitKind::kTag;
  request.batch.Delete(schema::Space::kSmall, record);
  ASSERT_EQ(internal::StoreEngine::Of(*store_)
                .mutable_database()
                ->Commit(std::move(request))
                .outcome,
            kv::Outcome::kCommitted);
  Open();
  const Step step = Restored(AtStep(1));
  Bytes read(1000);
  EXPECT_OK(step.ReadBox(name, {{0}, {1000}}, read));
  EXPECT_EQ(read, right);
  // Of a part the record says where it is.
  Bytes most(999);
  EXPECT_FALSE(step.ReadBox(name, {{0}, {999}}, most).ok());
  EXPECT_FALSE(step.ReadBox(name, {{1}, {999}}, most).ok());
  Bytes more(1001);
  EXPECT_FALSE(step.ReadBox(name, {{0}, {1001}}, more).ok());
}

TEST_F(SliceProofTest, OtherBytesInThePlaceAreNotTheValue) {
  const Values first = Some(30, 1000, 1);
  Values second = Some(30, 1000, 2);
  ASSERT_OK(SaveAll(1, first));
  ASSERT_OK(SaveAll(2, second));
  const std::string name = Name(3);
  const Bytes& right = second[name].bytes;
  const schema::ChunkRef ref = RefOf(2, name);
  const std::string whole = SliceOf(ref);
  const std::string of_neighbour = SliceOf(RefOf(2, Name(4)));
  const std::string of_older = SliceOf(RefOf(1, name));
  ASSERT_EQ(RefOf(1, name).offset, ref.offset);
  Open();
  ASSERT_TRUE(IsProved(2, name, right));
  const std::string no_proof(schema::kSliceProofBytes, '\0');
  struct Wrong {
    const char* what;
    std::string bytes;
    bool readable;
  };
  std::vector<Wrong> planted = {
      {"another leaf's", of_neighbour, false},
      {"another leaf's, with its own proof",
       of_neighbour.substr(0, 1000) + whole.substr(1000), false},
      {"an older step's", of_older, false},
      {"an older step's, with the new proof",
       of_older.substr(0, 1000) + whole.substr(1000), false},
      {"no proof", whole.substr(0, 1000) + no_proof, true},
      {"another leaf's proof",
       whole.substr(0, 1000) + of_neighbour.substr(1000), true},
      {"an older step's proof", whole.substr(0, 1000) + of_older.substr(1000),
       true}};
  for (const std::size_t at : {0u, 500u, 999u, 1000u, 1007u, 1015u}) {
    std::string flipped = whole;
    flipped[at] = static_cast<char>(flipped[at] ^ 8);
    planted.push_back({"a flipped bit", flipped, at >= 1000});
  }
  for (const Wrong& wrong : planted) {
    SCOPED_TRACE(wrong.what);
    Plant(ref, wrong.bytes);
    EXPECT_FALSE(IsProved(2, name, right));
    ExpectRightOrError(2, name, right);
    Bytes read(right.size());
    if (wrong.readable) EXPECT_OK(Restored(AtStep(2)).Read(name, read));
    // The others of the pack are what they were.
    EXPECT_TRUE(IsProved(2, Name(2), second[Name(2)].bytes));
    EXPECT_TRUE(IsProved(2, Name(5), second[Name(5)].bytes));
  }
  Plant(ref, whole);
  EXPECT_TRUE(IsProved(2, name, right));
  ExpectClean();
}

// The bytes may be the same, and are not what the step says of them.
TEST_F(SliceProofTest, BytesOfAnotherTypeAreNotTheValue) {
  Values first = Some(20, 1024, 1);
  Values second = first;
  for (auto& [name, value] : second) value.dtype = DType::kFloat32;
  ASSERT_OK(SaveAll(1, first));
  ASSERT_OK(SaveAll(2, second));
  const std::string of_bytes = SliceOf(RefOf(1, Name(1)));
  const schema::ChunkRef ref = RefOf(2, Name(1));
  ASSERT_GT(ref.version, RefOf(1, Name(1)).version);
  Open();
  ASSERT_TRUE(IsProved(2, Name(1), second[Name(1)].bytes));
  Plant(ref, of_bytes);
  EXPECT_FALSE(IsProved(2, Name(1), second[Name(1)].bytes));
  ExpectValues(1, first);
  ExpectValues(2, second);
}

// A step that is overwritten, and a fork, have the same places.
TEST_F(SliceProofTest, StepsOfOtherBranchesAndOverwrittenOnesAreTheirOwn) {
  Values first = Some(40, 2000, 1);
  ASSERT_OK(SaveAll(1, first));
  ASSERT_OK(store_->Fork(1, "other"));
  const Values second = Some(40, 2000, 2);
  ASSERT_OK(SaveAll(1, second, {.overwrite = true}));
  const Values third = Some(40, 2000, 3);
  SaveOptions on_other;
  on_other.branch = "other";
  ASSERT_OK(SaveAll(2, third, on_other));
  Open();
  ExpectValues(1, second);
  for (const auto& [name, value] : second) {
    EXPECT_TRUE(IsProved(1, name, value.bytes));
  }
  const auto step = store_->OpenStep(AtStep(2, "other"));
  ASSERT_OK(step);
  for (const auto& [name, value] : third) {
    ASSERT_OK_AND_ASSIGN(const LeafValue read, step->Value(name));
    EXPECT_EQ(read.bytes, value.bytes);
  }
  ExpectClean();
}

// With proofs it would not fit: without them they stay where they were.
TEST_F(SliceProofTest, ASaveThatFitsOnlyWithoutProofsHasNone) {
  const Values fits = Some(255, 4096, 1);
  const Values full = Some(256, 4096, 2);
  const Values above = Some(257, 4096, 3);
  ASSERT_OK(SaveAll(1, fits));
  ASSERT_OK(SaveAll(2, full));
  ASSERT_OK(SaveAll(3, above));
  Open();
  EXPECT_EQ(RefOf(1, Name(9)).place, schema::Space::kSmall);
  EXPECT_EQ(RefOf(2, Name(9)).place, schema::Space::kSmall);
  EXPECT_EQ(RefOf(3, Name(9)).place, schema::Space::kChunks);
  EXPECT_EQ(RefOf(1, Name(9)).offset, 9u * (4096 + 16));
  EXPECT_EQ(RefOf(2, Name(9)).offset, 9u * 4096);
  EXPECT_EQ(RefOf(3, Name(9)).offset, 9u * 4096);
  EXPECT_TRUE(IsProved(1, Name(9), fits.at(Name(9)).bytes));
  EXPECT_FALSE(IsProved(2, Name(9), full.at(Name(9)).bytes));
  EXPECT_FALSE(IsProved(3, Name(9), above.at(Name(9)).bytes));
  ExpectValues(1, fits);
  ExpectValues(2, full);
  ExpectValues(3, above);
  ExpectClean();
}

// What a reader does not know the size of has room for a proof, and none.
TEST_F(SliceProofTest, PackedBitsAndOtherValuesAreWhatTheyWere) {
  const Bytes bits = RandomBytes(1000, 2);
  for (const std::int64_t number : {1, 2}) {
    StepBuilder builder = store_->Begin(number);
    Tensor packed = Array(DType::kInt4, {2000}, bits);
    packed.packed = true;
    builder.Put("bits", packed);
    if (number == 2) builder.PutBytes("text", std::string(700, 't'));
    ASSERT_OK(Commit(std::move(builder)));
  }
  Open();
  EXPECT_TRUE(IsProved(1, "bits", bits));
  EXPECT_FALSE(IsProved(2, "text", Bytes(700)));
  for (const std::int64_t number : {1, 2}) {
    ASSERT_OK_AND_ASSIGN(const LeafValue read,
                         Restored(AtStep(number)).Value("bits"));
    EXPECT_EQ(read.bytes, bits);
    EXPECT_TRUE(read.info.packed);
  }
  ASSERT_OK_AND_ASSIGN(const LeafValue text, Restored(AtStep(2)).Value("text"));
  EXPECT_EQ(text.bytes, Bytes(700, std::byte{'t'}));
}

// Parts of ranks have none: who saves one does not know the step's digest.
TEST_F(SliceProofTest, WithoutProofsAllIsReadAsBefore) {
  store_.reset();
  auto group = RankGroup::Open(path(), {.store = Options()});
  ASSERT_OK(group.status());
  const Values values = Some(40, 2000, 1);
  StepBuilder builder = group->Begin(1);
  for (const auto& [name, value] : values) builder.Put(name, TensorOf(value));
  ASSERT_OK(std::move(builder).Commit().WaitCommitted(kLong));
  ASSERT_OK(group->Close());
  Open();
  for (const auto& [name, value] : values) {
    EXPECT_FALSE(IsProved(1, name, value.bytes));
  }
  ExpectValues(1, values);
  // And once such are there again.
  const Values second = Some(40, 2000, 2);
  ASSERT_OK(SaveAll(2, second));
  ExpectValues(1, values);
  ExpectValues(2, second);
}

// Whatever saves, removals and collections there are, each leaf of each step
// is what the model has.
TEST_F(SliceProofTest, EveryValueIsThatOfTheModel) {
  for (int seed = 0; seed < 6; ++seed) {
    SCOPED_TRACE(seed);
    store_.reset();
    TempDir dir;
    StoreOptions options = Options();
    const std::string at = dir / "store";
    const auto open = [&] {
      store_.reset();
      auto store = Store::Open(at, options);
      ASSERT_OK(store);
      store_.emplace(*std::move(store));
    };
    open();
    std::mt19937_64 random(static_cast<std::uint64_t>(seed));
    std::map<std::int64_t, Values> model;
    Values now;
    std::size_t proved = 0;
    for (std::int64_t number = 1; number <= 14; ++number) {
      // Leaves come, go, change, and change their type and size.
      for (int i = 0; i < 40; ++i) {
        const std::string name = Name(i);
        const std::size_t size = 4 * (64 + random() % 1200);
        switch (random() % 8) {
          case 0:
            now.erase(name);
            break;
          case 1:
            now[name] = {DType::kFloat32, RandomBytes(size, random())};
            break;
          case 2:
          case 3:
            now[name] = {DType::kUint8, RandomBytes(size, random())};
            break;
          case 4:
          case 5:
            if (now.contains(name)) {
              now[name].bytes = RandomBytes(now[name].bytes.size(), random());
            }
            break;
          default:
            break;
        }
      }
      ASSERT_OK(SaveAll(number, now));
      model[number] = now;
      if (random() % 3 == 0 && model.size() > 2) {
        const auto gone = std::next(
            model.begin(),
            static_cast<std::ptrdiff_t>(random() % (model.size() - 1)));
        ASSERT_OK(store_->Delete(gone->first));
        model.erase(gone);
      }
      if (random() % 3 == 0) {
        ASSERT_OK(store_->Collect());
      }
      if (random() % 3 == 0) open();
      for (const auto& [step, values] : model) ExpectValues(step, values);
    }
    open();
    for (const auto& [step, values] : model) {
      ExpectValues(step, values);
      for (const auto& [name, value] : values) {
        proved += IsProved(step, name, value.bytes) ? 1 : 0;
      }
    }
    EXPECT_GT(proved, 20u);
    ExpectClean();
  }
}

}  // namespace
}  // namespace ckptree::testing
