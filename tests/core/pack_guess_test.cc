// SPDX-License-Identifier: Apache-2.0

// Where a reader guesses the bytes of small leaves to be is where a save put
// them.

#include "core/version/pack_guess.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <utility>

#include "absl/strings/str_format.h"
#include "core/engine/step_difference.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/fixture.h"

namespace ckptree::testing {
namespace {

using internal::StepReader;

class PackGuessTest : public CoreTest {
 protected:
  absl::Status SaveAll(std::int64_t step,
                       const std::map<std::string, Bytes>& leaves) {
    StepBuilder builder = store_->Begin(step);
    for (const auto& [name, bytes] : leaves) builder.Put(name, Uint8s(bytes));
    builder.PutInt("n", step).PutString("text", "short");
    return Commit(std::move(builder));
  }

  // Of the leaves of a step how many were guessed; each must be right.
  std::size_t Guessed(std::int64_t number,
                      const std::map<std::string, Bytes>& leaves) {
    const Step step = Restored(AtStep(number));
    const StepReader& reader = internal::StepInside::Of(step);
    const StepReader::Part& part = reader.parts().at(0);
    std::size_t guessed = 0;
    for (const auto& [name, bytes] : leaves) {
      const auto entry = part.tree->Find(At(name).Encode());
      EXPECT_TRUE(entry.ok() && entry->has_value());
      const auto guess = internal::GuessPack(
          {.tree = *part.tree,
           .map = part.map,
           .version = static_cast<std::uint64_t>(reader.info().version),
           .part = part.part,
           .ordinal = (*entry)->ordinal},
          internal::PackLayout::Kind::kProved);
      if (!guess.has_value()) continue;
      ++guessed;
      const auto located = reader.Locate(At(name));
      EXPECT_OK(located.status());
      const schema::ChunkRef& ref = located->records.at(0).chunks.at(0);
      EXPECT_EQ(ref.place, schema::Space::kSmall) << name;
      EXPECT_EQ(ref.n, guess->n) << name;
      EXPECT_EQ(ref.offset, guess->offset) << name;
      EXPECT_EQ(ref.length, guess->bytes) << name;
      EXPECT_EQ(ref.block_length, guess->block_bytes) << name;
      EXPECT_EQ(ref.version, reader.info().version) << name;
    }
    return guessed;
  }
};

TEST_F(PackGuessTest, IsWhereTheSavePutThem) {
  std::mt19937_64 random(1);
  std::map<std::string, Bytes> leaves;
  std::size_t packed = 0;
  for (int i = 0; i < 120; ++i) {
    const std::size_t size = 1 + random() % (random() % 4 == 0 ? 20000 : 1200);
    packed += size > 256 ? 1 : 0;
    leaves[absl::StrFormat("layer%d/w%03d", i % 5, i)] =
        RandomBytes(size, random());
  }
  ASSERT_OK(SaveAll(1, leaves));
  EXPECT_EQ(Guessed(1, leaves), packed);
  // Of those that changed alone.
  std::size_t changed = 0;
  for (auto& [name, bytes] : leaves) {
    if (random() % 3 != 0) continue;
    changed += bytes.size() > 256 ? 1 : 0;
    bytes = RandomBytes(bytes.size(), random());
  }
  ASSERT_OK(SaveAll(2, leaves));
  const std::size_t guessed = Guessed(2, leaves);
  EXPECT_GE(guessed, changed);  // And of packs that were left behind.
  // Values come back where records are read from the disk, too.
  for (const bool closed : {false, true}) {
    if (closed) Open();
    for (const auto& [name, bytes] : leaves) {
      EXPECT_EQ(Read(AtStep(2), name), bytes);
    }
  }
}

// Padding and proofs are of the leaf that has them: a leaf that is half of a
// pack, or more, is not written again because its neighbour changes.
TEST_F(PackGuessTest, HalfOfAPackIsKept) {
  std::int64_t step = 0;
  for (const std::size_t others : {0u, 3u << 20}) {
    for (const std::size_t size : {300u, 511u, 512u, 1000u, 8000u, 8192u}) {
      SCOPED_TRACE(absl::StrFormat("%d beside %d bytes", size, others));
      std::map<std::string, Bytes> leaves;
      if (others > 0) leaves["z"] = RandomBytes(others, ++step);
      for (const char* name : {"a", "b", "c", "d"}) {
        leaves[name] = RandomBytes(size, ++step);
      }
      ASSERT_OK(SaveAll(++step, leaves));
      const std::int64_t first = step;
      EXPECT_EQ(Guessed(first, leaves), others == 0 ? 4u : 0u);
      leaves["a"] = RandomBytes(size, ++step);
      leaves["c"] = RandomBytes(size, ++step);
      ASSERT_OK(SaveAll(++step, leaves));
      EXPECT_LT(store_->Resolve(AtStep(step))->new_bytes, 2 * (size + 64));
      EXPECT_EQ(Guessed(step, leaves), 2u);
      // A quarter is left behind.
      leaves["b"] = RandomBytes(size, ++step);
      ASSERT_OK(SaveAll(++step, leaves));
      EXPECT_GE(store_->Resolve(AtStep(step))->new_bytes, 2 * size);
      for (const auto& [name, bytes] : leaves) {
        EXPECT_EQ(Read(AtStep(step), name), bytes);
      }
      EXPECT_EQ(Read(AtStep(first), "d"), leaves["d"]);
    }
  }
}

TEST_F(PackGuessTest, NothingOfALargeLeafOrALargeSave) {
  std::map<std::string, Bytes> leaves;
  leaves["a"] = RandomBytes(1000, 1);
  leaves["b"] = RandomBytes(40 << 10, 2);
  ASSERT_OK(SaveAll(1, leaves));
  EXPECT_EQ(Guessed(1, leaves), 0u);
  leaves.erase("b");
  for (int i = 0; i < 100; ++i) {
    leaves[absl::StrFormat("c%03d", i)] = RandomBytes(20000, i);
  }
  ASSERT_OK(SaveAll(2, leaves));
  EXPECT_EQ(Guessed(2, leaves), 0u);
}

}  // namespace
}  // namespace ckptree::testing
