// SPDX-License-Identifier: Apache-2.0

// What all ranks have alike, where one of them has it otherwise: the step fails
// on all, by name, whichever rank would save it. Nobody's value, and no tie, is
// left out without a word.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/ranks/fixture.h"

namespace ckptree::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr int kWorld = 2;
// Enough that each rank is the one that saves some.
constexpr const char* kNames[] = {"a", "b", "c", "d", "e", "f"};

class RanksAlikeTest : public RanksTest {
 protected:
  static absl::Status Save(RankGroup& group, std::int64_t step,
                           const std::function<void(StepBuilder&)>& put) {
    StepBuilder builder = group.Begin(step);
    put(builder);
    return std::move(builder).Commit().WaitCommitted(kLong);
  }
  Bytes Read(std::int64_t step, const std::string& name) const {
    const absl::StatusOr<Store> store =
        Store::Open(path(), ToRead(QuietOptions()));
    EXPECT_OK(store);
    const absl::StatusOr<Step> read = store->OpenStep(step);
    EXPECT_OK(read);
    const absl::StatusOr<LeafValue> value = read->Value(name);
    EXPECT_OK(value);
    return value.ok() ? value->bytes : Bytes();
  }
  // The target of a tie; nothing where there is no tie.
  std::optional<std::string> TargetOf(std::int64_t step,
                                      const std::string& name) const {
    const absl::StatusOr<Store> store =
        Store::Open(path(), ToRead(QuietOptions()));
    EXPECT_OK(store);
    const absl::StatusOr<Step> read = store->OpenStep(step);
    EXPECT_OK(read);
    const auto leaves = read->Leaves();
    EXPECT_OK(leaves);
    for (const LeafInfo& leaf : *leaves) {
      if (leaf.name == name && leaf.tie_to.has_value()) {
        return leaf.tie_to->Text();
      }
    }
    return std::nullopt;
  }
};

// `rows` x `columns` bytes, and how they lie in memory.
struct Lying {
  const char* name;
  // The memory, and the first element and the strides in it.
  std::function<Tensor(const Bytes& values, std::int64_t rows,
                       std::int64_t columns, Bytes* memory)>
      in;
};

const std::vector<Lying>& Lyings() {
  static const auto* const all = new std::vector<Lying>{
      {"Dense",
       [](const Bytes& values, std::int64_t rows, std::int64_t columns,
          Bytes* memory) {
         *memory = values;
         return Array(DType::kUint8, {rows, columns}, *memory);
       }},
      {"Transposed",
       [](const Bytes& values, std::int64_t rows, std::int64_t columns,
          Bytes* memory) {
         memory->resize(values.size());
         for (std::int64_t i = 0; i < rows * columns; ++i) {
           const std::int64_t to = i % columns * rows + i / columns;
           (*memory)[static_cast<std::size_t>(to)] =
               values[static_cast<std::size_t>(i)];
         }
         Tensor tensor = Array(DType::kUint8, {rows, columns}, *memory);
         tensor.strides = {1, rows};
         return tensor;
       }},
      {"Backwards",
       [](const Bytes& values, std::int64_t rows, std::int64_t columns,
          Bytes* memory) {
         memory->assign(values.rbegin(), values.rend());
         Tensor tensor = Array(DType::kUint8, {rows, columns}, *memory);
         tensor.data = memory->data() + memory->size() - 1;
         tensor.strides = {-columns, -1};
         return tensor;
       }},
  };
  return *all;
}

TEST_F(RanksAlikeTest, ValuesThatAreNotRowMajor) {
  constexpr std::int64_t kWide = 20;
  const Bytes values = RandomBytes(kRows * kWide, 1);
  InGroup(kWorld, [&](RankGroup& group) {
    std::int64_t step = 0;
    for (const Lying& first : Lyings()) {
      for (const Lying& second : Lyings()) {
        const Lying& lying = group.rank() == 0 ? first : second;
        for (const bool same : {false, true}) {
          for (const char* name : kNames) {
            SCOPED_TRACE(
                absl::StrFormat("%s %s %s", first.name, second.name, name));
            Bytes mine = values;
            // One element in the middle of it.
            if (!same) mine[43] = static_cast<std::byte>(group.rank());
            Bytes memory;
            const Tensor tensor = lying.in(mine, kRows, kWide, &memory);
            const absl::Status saved =
                Save(group, ++step,
                     [&](StepBuilder& builder) { builder.Put(name, tensor); });
            if (same) {
              EXPECT_OK(saved);
            } else {
              EXPECT_THAT(saved,
                          StatusIs(kInvalid,
                                   HasSubstr(absl::StrFormat(
                                       ": %s is not the same on ranks 0 and 1",
                                       name))));
            }
          }
        }
      }
    }
  });
  const std::size_t last =
      2 * std::size(kNames) * Lyings().size() * Lyings().size();
  EXPECT_TRUE(Read(static_cast<std::int64_t>(last),
                   kNames[std::size(kNames) - 1]) == values);
}

// README says so of values above 64 KiB.
TEST_F(RanksAlikeTest, TypeAndShapeAloneOfALargeValue) {
  constexpr std::int64_t kSide = 256;
  for (const std::int64_t rows : {kSide, kSide + 1}) {
    InGroup(kWorld, [&](RankGroup& group) {
      const Bytes memory(static_cast<std::size_t>(rows * kSide),
                         static_cast<std::byte>(group.rank()));
      Tensor tensor = Array(DType::kUint8, {rows, kSide}, memory);
      tensor.strides = {1, rows};
      const absl::Status saved =
          Save(group, rows, [&](StepBuilder& b) { b.Put("w", tensor); });
      EXPECT_EQ(saved.ok(), rows > kSide) << saved;
    });
  }
}

// Rank 0 has it in the memory of a device, and is not asked.
TEST_F(RanksAlikeTest, EachIsComparedWithTheFirstThatLooked) {
  constexpr int kThree = 3;
  const Bytes values = RandomBytes(100, 1);
  InGroup(kThree, [&](RankGroup& group) {
    std::int64_t step = 0;
    for (const char* name : kNames) {
      for (const int other : {1, 2, -1}) {
        Bytes mine = values;
        if (group.rank() == other) mine[7] ^= std::byte{1};
        Tensor tensor = Array(DType::kUint8, {100}, mine);
        if (group.rank() == 0) {
          tensor.data = nullptr;
          tensor.copy = [&mine](std::uint64_t at, std::span<std::byte> to) {
            std::copy_n(mine.begin() + static_cast<std::ptrdiff_t>(at),
                        to.size(), to.begin());
            return absl::OkStatus();
          };
        }
        // Beside one that all look at.
        const absl::Status saved =
            Save(group, ++step, [&](StepBuilder& builder) {
              builder.Put(name, tensor).PutInt("z", 1).PutInt("0", 1);
            });
        if (other < 0) {
          EXPECT_OK(saved);
          continue;
        }
        EXPECT_THAT(
            saved, StatusIs(kInvalid,
                            HasSubstr(absl::StrFormat(
                                "%s is not the same on ranks 1 and 2", name))));
      }
    }
  });
}

TEST_F(RanksAlikeTest, ATieThatOneRankDoesNotHave) {
  // Of the first step, behind one without it, and behind one with it.
  for (const char* name : kNames) {
    std::int64_t step = 0;
    InGroup(kWorld, [&](RankGroup& group) {
      std::int64_t at = step;
      const auto save = [&](int without) {
        return Save(group, ++at, [&](StepBuilder& builder) {
          builder.PutInt(name, 5);
          if (without == group.rank() || without > 1) return;
          builder.Tie("0/before", name).Tie("z/behind", name);
        });
      };
      const auto expect_named = [&] {
        for (const int rank : {0, 1}) {
          const absl::Status saved = save(rank);
          EXPECT_THAT(
              saved, StatusIs(kInvalid, HasSubstr(absl::StrFormat(
                                            ": 0/before was put by rank %d and "
                                            "not by rank %d: ",
                                            1 - rank, rank))))
              << name;
        }
      };
      expect_named();
      ASSERT_OK(save(/*without=*/2));
      expect_named();
      ASSERT_OK(save(-1));
      expect_named();
      ASSERT_OK(save(-1));
      if (group.rank() == 0) step = at;
    });
    EXPECT_EQ(TargetOf(step, "z/behind"), name);
    std::filesystem::remove_all(path());
  }
}

TEST_F(RanksAlikeTest, TiesToOtherTargets) {
  InGroup(kWorld, [&](RankGroup& group) {
    std::int64_t step = 0;
    for (const char* first : kNames) {
      for (const char* second : kNames) {
        const auto save = [&](const char* target) {
          return Save(group, ++step, [&](StepBuilder& builder) {
            for (const char* name : kNames) builder.PutInt(name, *name);
            builder.Tie("t", target);
          });
        };
        if (std::string(first) != second) {
          EXPECT_THAT(
              save(group.rank() == 0 ? first : second),
              StatusIs(kInvalid, HasSubstr("t is not the same on ranks 0 and "
                                           "1")));
        }
        ASSERT_OK(save(second));
        if (group.rank() == 0) EXPECT_EQ(TargetOf(step, "t"), second);
      }
    }
  });
}

// It is a leaf of its own on the other.
TEST_F(RanksAlikeTest, ATieAndALeaf) {
  InGroup(kWorld, [&](RankGroup& group) {
    std::int64_t step = 0;
    for (const char* name : kNames) {
      EXPECT_THAT(Save(group, ++step,
                       [&](StepBuilder& builder) {
                         builder.PutInt(name, 5);
                         if (group.rank() == 0) builder.Tie("t", name);
                         if (group.rank() == 1) builder.PutInt("t", 5);
                       }),
                  StatusIs(kInvalid, HasSubstr("t has another kind, type or "
                                               "shape on rank ")));
    }
  });
}

// Ties to what is not on all ranks: a box of it, what is a rank's own. They go
// with it, and none is left out.
TEST_F(RanksAlikeTest, TiesToWhatARankHasForItself) {
  const Bytes rows = RandomBytes(kRows * kColumns * 4, 1);
  InGroup(kWorld, [&](RankGroup& group) {
    const int rank = group.rank();
    const std::string own = absl::StrFormat("own/%d", rank);
    std::int64_t step = 0;
    const auto save = [&](const std::function<void(StepBuilder&)>& put) {
      return Save(group, ++step, [&](StepBuilder& builder) {
        builder.SetPerRank("own");
        builder.Put("w", Shard(rank, kWorld, rows));
        builder.PutInt(own + "/x", rank).PutInt("alike", 1);
        builder.Tie(own + "/y", own + "/x").Tie("tied", "w");
        put(builder);
      });
    };
    // One rank says nothing of the tie, and both.
    const auto one = [&](StepBuilder& builder) {
      if (rank == 1) builder.Tie("of_0", "own/0/x");
    };
    const auto both = [](StepBuilder& b) { b.Tie("of_0", "own/0/x"); };
    const auto none = [](StepBuilder&) {};
    for (int round = 0; round < 2; ++round) {
      ASSERT_OK(save(none));
      EXPECT_THAT(
          save(one),
          StatusIs(kInvalid, HasSubstr("of_0 was put by rank 1 and not by rank "
                                       "0, which has own/0/x, to which it is "
                                       "tied")));
      ASSERT_OK(save(none));
      ASSERT_OK(save(both));
      ASSERT_OK(save(both));
      EXPECT_THAT(save([&](StepBuilder& builder) {
                    builder.Tie("of_0", rank == 0 ? "own/0/x" : "own/1/x");
                  }),
                  StatusIs(kInvalid, HasSubstr("of_0")));
      EXPECT_THAT(save([&](StepBuilder& builder) {
                    if (rank == 0) builder.PutInt("own/0/v", 1);
                    if (rank == 0) builder.Tie("of_0", "own/0/v");
                    if (rank == 1) builder.Tie("of_0", "own/0/x");
                  }),
                  StatusIs(kInvalid,
                           HasSubstr("of_0 is not the same on ranks 0 and 1")));
      ASSERT_OK(save(both));
    }
    if (rank == 0) {
      EXPECT_EQ(TargetOf(step, "of_0"), "own/0/x");
      EXPECT_EQ(TargetOf(step, "own/1/y"), "own/1/x");
      EXPECT_EQ(TargetOf(step, "tied"), "w");
    }
    // A rank's own tie to what another one saves: it is said, too.
    for (const char* name : kNames) {
      const absl::Status saved = save([&](StepBuilder& builder) {
        builder.PutInt(name, 5).Tie(own + "/t", name);
      });
      EXPECT_THAT(
          saved,
          StatusIs(kInvalid,
                   AllOf(HasSubstr("/t was put by rank "),
                         HasSubstr(absl::StrFormat(
                             "which has %s, to which it is tied", name)))));
    }
  });
}

}  // namespace
}  // namespace ckptree::testing
