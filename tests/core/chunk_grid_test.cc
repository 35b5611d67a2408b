// SPDX-License-Identifier: Apache-2.0

#include "core/array/chunk_grid.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

namespace ckptree {
namespace {

using schema::Box;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

using Extents = std::vector<std::int64_t>;

std::int64_t Product(const Extents& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1},
                         std::multiplies<>());
}

// Calls `fn` with every index within `shape`, row-major.
template <class Fn>
void ForEachIndex(const Extents& shape, Fn fn) {
  if (Product(shape) == 0) return;
  Extents index(shape.size());
  while (true) {
    fn(index);
    std::size_t i = shape.size();
    while (i > 0 && ++index[i - 1] == shape[i - 1]) index[--i] = 0;
    if (i == 0) return;
  }
}

std::int64_t RowMajor(const Extents& index, const Extents& shape) {
  std::int64_t at = 0;
  for (std::size_t i = 0; i < shape.size(); ++i) at = at * shape[i] + index[i];
  return at;
}

Extents Plus(const Extents& a, const Extents& b) {
  Extents sum = a;
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += b[i];
  return sum;
}

bool Within(const Extents& index, const Extents& start, const Extents& shape) {
  for (std::size_t i = 0; i < index.size(); ++i) {
    if (index[i] < start[i] || index[i] >= start[i] + shape[i]) return false;
  }
  return true;
}

class Random {
 public:
  explicit Random(unsigned seed) : engine_(seed) {}

  std::int64_t Int(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(engine_);
  }
  Extents Shape(std::int64_t rank, std::int64_t low, std::int64_t high) {
    Extents shape(static_cast<std::size_t>(rank));
    for (std::int64_t& extent : shape) extent = Int(low, high);
    return shape;
  }
  // A box within [0, shape).
  void BoxWithin(const Extents& whole, Extents* start, Extents* shape) {
    start->clear();
    shape->clear();
    for (const std::int64_t extent : whole) {
      start->push_back(Int(0, extent));
      shape->push_back(Int(0, extent - start->back()));
    }
  }
  std::vector<std::byte> Bytes(std::int64_t n) {
    std::vector<std::byte> bytes(static_cast<std::size_t>(n));
    for (std::byte& b : bytes) b = static_cast<std::byte>(engine_());
    return bytes;
  }

 private:
  std::mt19937_64 engine_;
};

TEST(DefaultChunkShape, KeepsAnArrayThatFits) {
  EXPECT_THAT(DefaultChunkShape(DType::kFloat32, false, Extents{4, 8}, 128),
              ElementsAre(4, 8));
  EXPECT_THAT(DefaultChunkShape(DType::kFloat32, false, Extents{}, 1),
              IsEmpty());
}

TEST(DefaultChunkShape, CutsTheFirstDimensionOfWhichARowFits) {
  EXPECT_THAT(DefaultChunkShape(DType::kFloat32, false, Extents{4, 8}, 127),
              ElementsAre(2, 8));
  EXPECT_THAT(DefaultChunkShape(DType::kFloat32, false, Extents{4, 8}, 31),
              ElementsAre(1, 4));
  EXPECT_THAT(DefaultChunkShape(DType::kFloat32, false, Extents{1, 1, 100}, 40),
              ElementsAre(1, 1, 10));
}

TEST(DefaultChunkShape, CutsEvenly) {
  EXPECT_THAT(DefaultChunkShape(DType::kInt8, false, Extents{11}, 10),
              ElementsAre(6));
}

TEST(DefaultChunkShape, GivesALargeElementAChunk) {
  EXPECT_THAT(DefaultChunkShape(DType::kComplex128, false, Extents{3, 1}, 8),
              ElementsAre(1, 1));
}

TEST(DefaultChunkShape, HasNoZero) {
  EXPECT_THAT(DefaultChunkShape(DType::kFloat32, false, Extents{0, 3}, 8),
              ElementsAre(1, 3));
  EXPECT_THAT(DefaultChunkShape(
                  DType::kFloat32, false,
                  Extents{std::int64_t{1} << 60, 0, std::int64_t{1} << 60}, 8),
              testing::Each(testing::Ge(1)));
}

TEST(DefaultChunkShape, CutsPackedElementsOnBytes) {
  // Rows of 12 bits: pairs of them.
  EXPECT_THAT(DefaultChunkShape(DType::kInt4, true, Extents{100, 3}, 10),
              ElementsAre(6, 3));
  // A cut of the second dimension would start rows within a byte.
  EXPECT_THAT(DefaultChunkShape(DType::kInt4, true, Extents{4, 101}, 20),
              ElementsAre(4, 101));
  EXPECT_THAT(DefaultChunkShape(DType::kInt4, true, Extents{4, 102}, 20),
              ElementsAre(1, 34));
}

TEST(DefaultChunkShape, IsContiguousFitsAndCannotBeDoubled) {
  Random random(1);
  for (int round = 0; round < 20'000; ++round) {
    const auto dtypes = AllDTypes();
    const DType dtype = dtypes[static_cast<std::size_t>(
        random.Int(0, static_cast<std::int64_t>(dtypes.size()) - 1))];
    const bool packed = IsSubByte(dtype) && random.Int(0, 1) == 1;
    const Extents shape = random.Shape(random.Int(0, 5), 0, 9);
    const std::int64_t chunk_bytes = random.Int(1, 400);
    const Extents chunk = DefaultChunkShape(dtype, packed, shape, chunk_bytes);
    SCOPED_TRACE(testing::Message()
                 << Name(dtype) << (packed ? " packed " : " ")
                 << testing::PrintToString(shape) << " in " << chunk_bytes
                 << ": " << testing::PrintToString(chunk));
    ASSERT_EQ(chunk.size(), shape.size());
    for (const std::int64_t extent : chunk) ASSERT_GE(extent, 1);
    const Box box = {Extents(shape.size()), shape, chunk};
    const ChunkGrid grid(box);
    ASSERT_TRUE(grid.contiguous());
    ASSERT_EQ(grid.count() == 0, Product(shape) == 0);
    const std::int64_t bits =
        packed ? BitWidth(dtype) : 8 * ArrayBytes(dtype, false, {}).value();
    std::int64_t next = 0;
    for (std::int64_t i = 0; i < grid.count(); ++i) {
      ASSERT_EQ(grid.offset_elements(i), next);
      ASSERT_EQ(next * bits % 8, 0);
      next += grid.cell_elements(i);
    }
    ASSERT_EQ(next, Product(shape));
    if (grid.count() == 0) continue;
    const std::int64_t chunk_bits = grid.cell_elements(0) * bits;
    if (chunk_bits > 8 * chunk_bytes) {
      ASSERT_EQ(grid.count(), packed ? 1 : Product(shape));
      continue;
    }
    // No dimension of more than one cell has room for one cell fewer.
    for (std::size_t i = 0; !packed && i < shape.size(); ++i) {
      const std::int64_t cells = (shape[i] + chunk[i] - 1) / chunk[i];
      const bool inner_whole = std::equal(
          chunk.begin() + static_cast<std::ptrdiff_t>(i) + 1, chunk.end(),
          shape.begin() + static_cast<std::ptrdiff_t>(i) + 1);
      if (cells == 1 || !inner_whole) continue;
      const std::int64_t wider = (shape[i] + cells - 2) / (cells - 1);
      ASSERT_GT(chunk_bits / chunk[i] * wider, 8 * chunk_bytes);
    }
  }
}

TEST(ChunkGrid, CellsTileTheBoxInOrder) {
  Random random(2);
  for (int round = 0; round < 3000; ++round) {
    const std::int64_t rank = random.Int(0, 4);
    const Extents shape = random.Shape(rank, 0, 6);
    const Extents start = random.Shape(rank, 0, 5);
    const Box box = {start, shape, random.Shape(rank, 1, 7)};
    const ChunkGrid grid(box);
    std::vector<int> owner(static_cast<std::size_t>(Product(shape)), -1);
    bool contiguous = true;
    for (std::int64_t i = 0; i < grid.count(); ++i) {
      const ChunkGrid::Cell cell = grid.cell(i);
      ASSERT_EQ(grid.cell_elements(i), Product(cell.shape));
      ASSERT_GT(grid.cell_elements(i), 0);
      std::int64_t next = grid.offset_elements(i);
      ForEachIndex(cell.shape, [&](const Extents& index) {
        Extents within = Plus(cell.start, index);
        for (std::size_t d = 0; d < within.size(); ++d) within[d] -= start[d];
        const std::int64_t at = RowMajor(within, shape);
        contiguous &= at == next++;
        int& mine = owner[static_cast<std::size_t>(at)];
        ASSERT_EQ(mine, -1);
        mine = static_cast<int>(i);
      });
    }
    ASSERT_EQ(std::count(owner.begin(), owner.end(), -1), 0);
    ASSERT_EQ(grid.contiguous(), contiguous)
        << testing::PrintToString(shape) << " by "
        << testing::PrintToString(box.chunk_shape);
  }
}

TEST(ChunkGrid, FindsTheCellsThatABoxTouches) {
  Random random(3);
  for (int round = 0; round < 3000; ++round) {
    const std::int64_t rank = random.Int(0, 4);
    const Box box = {random.Shape(rank, 0, 5), random.Shape(rank, 0, 6),
                     random.Shape(rank, 1, 4)};
    const ChunkGrid grid(box);
    const Extents start = random.Shape(rank, 0, 9);
    const Extents shape = random.Shape(rank, 0, 6);
    std::vector<std::int64_t> want;
    for (std::int64_t i = 0; i < grid.count(); ++i) {
      const ChunkGrid::Cell cell = grid.cell(i);
      bool touches = false;
      ForEachIndex(cell.shape, [&](const Extents& index) {
        touches |= Within(Plus(cell.start, index), start, shape);
      });
      if (touches) want.push_back(i);
    }
    std::vector<std::int64_t> got;
    grid.ForEachOverlap(start, shape,
                        [&](std::int64_t index) { got.push_back(index); });
    ASSERT_EQ(got, want);
    ASSERT_EQ(BoxesOverlap(box, {start, shape, {}}), !want.empty());
  }
}

TEST(ChunkGrid, SurvivesExtremeRequests) {
  const ChunkGrid grid({{5}, {10}, {3}});
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  int calls = 0;
  grid.ForEachOverlap(Extents{1}, Extents{kMost},
                      [&](std::int64_t) { ++calls; });
  EXPECT_EQ(calls, 4);
  grid.ForEachOverlap(Extents{kMost}, Extents{kMost},
                      [&](std::int64_t) { ++calls; });
  EXPECT_EQ(calls, 4);
}

TEST(CheckBox, RefusesWhatIsNotWithinTheArray) {
  EXPECT_TRUE(CheckBox(Extents{0, 2}, Extents{3, 0}, Extents{3, 2}).ok());
  EXPECT_TRUE(CheckBox(Extents{}, Extents{}, Extents{}).ok());
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  for (const auto& [start, shape] :
       std::vector<std::pair<Extents, Extents>>{{{0}, {4}},
                                                {{-1}, {2}},
                                                {{1}, {-1}},
                                                {{4}, {0}},
                                                {{2}, {kMost}},
                                                {{kMost}, {kMost}},
                                                {{}, {1}},
                                                {{0, 0}, {1, 1}}}) {
    const absl::Status status = CheckBox(start, shape, Extents{3});
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument)
        << testing::PrintToString(start) << testing::PrintToString(shape);
  }
}

TEST(CopyBox, CopiesExactlyTheBox) {
  Random random(4);
  for (int round = 0; round < 4000; ++round) {
    const std::int64_t rank = random.Int(0, 5);
    const std::int64_t element = random.Int(0, 5) == 0
                                     ? random.Int(1, 20)
                                     : std::int64_t{1} << random.Int(0, 4);
    const Extents whole = random.Shape(rank, 0, 6);
    Extents start;
    Extents shape;
    random.BoxWithin(whole, &start, &shape);
    // Each buffer holds some box around the one that is copied.
    const auto around = [&](Extents* at, Extents* extents) {
      at->clear();
      extents->clear();
      for (std::size_t i = 0; i < whole.size(); ++i) {
        at->push_back(random.Int(0, start[i]));
        extents->push_back(random.Int(start[i] + shape[i] - at->back(),
                                      whole[i] - at->back()));
      }
    };
    Extents source_start, source_shape, to_start, to_shape;
    around(&source_start, &source_shape);
    around(&to_start, &to_shape);
    const auto source = random.Bytes(Product(source_shape) * element + 1);
    auto got = random.Bytes(Product(to_shape) * element + 1);
    auto want = got;
    ForEachIndex(shape, [&](const Extents& index) {
      Extents from = Plus(start, index);
      Extents to = from;
      for (std::size_t i = 0; i < from.size(); ++i) {
        from[i] -= source_start[i];
        to[i] -= to_start[i];
      }
      std::memcpy(want.data() + RowMajor(to, to_shape) * element,
                  source.data() + RowMajor(from, source_shape) * element,
                  static_cast<std::size_t>(element));
    });
    CopyBox(source.data(), {source_start, source_shape}, got.data(),
            {to_start, to_shape}, start, shape, element);
    ASSERT_EQ(got, want);
  }
}

TEST(CopyBox, WritesThroughStrides) {
  Random random(5);
  const auto source = random.Bytes(70 * 130 * 4);
  std::vector<std::byte> got(source.size());
  const Extents shape = {70, 130};
  const Extents strides = {4, 70 * 4};  // Column-major.
  const Extents origin = {0, 0};
  CopyBox(source.data(), {origin, shape}, got.data(), {origin, shape, strides},
          origin, shape, 4);
  for (std::size_t i = 0; i < 70; ++i) {
    for (std::size_t j = 0; j < 130; ++j) {
      ASSERT_EQ(
          std::memcmp(&got[(j * 70 + i) * 4], &source[(i * 130 + j) * 4], 4),
          0);
    }
  }
}

TEST(Gather, ReadsAnyStrides) {
  Random random(6);
  for (int round = 0; round < 4000; ++round) {
    const std::int64_t rank = random.Int(0, 4);
    const std::int64_t element = std::int64_t{1} << random.Int(0, 4);
    const Extents shape = random.Shape(rank, 0, random.Int(0, 9) ? 5 : 70);
    if (Product(shape) > 100'000) continue;
    // A permutation of row-major strides, some of them turned or broadcast.
    std::vector<std::size_t> order(shape.size());
    std::iota(order.begin(), order.end(), 0u);
    for (std::size_t i = order.size(); i > 1; --i) {
      std::swap(order[i - 1], order[static_cast<std::size_t>(random.Int(
                                  0, static_cast<std::int64_t>(i) - 1))]);
    }
    Extents strides(shape.size());
    std::int64_t stride = element * random.Int(1, 2);
    std::int64_t base = 0;
    for (const std::size_t i : order) {
      strides[i] = stride;
      stride *= std::max<std::int64_t>(shape[i], 1);
      if (random.Int(0, 5) == 0) strides[i] = 0;
      if (random.Int(0, 3) == 0) {
        strides[i] = -strides[i];
        base -= strides[i] * std::max<std::int64_t>(shape[i] - 1, 0);
      }
    }
    const auto source = random.Bytes(stride + element);
    std::vector<std::byte> want;
    ForEachIndex(shape, [&](const Extents& index) {
      std::int64_t at = base;
      for (std::size_t i = 0; i < index.size(); ++i) {
        at += index[i] * strides[i];
      }
      want.insert(want.end(), source.begin() + at,
                  source.begin() + at + element);
    });
    std::vector<std::byte> got(want.size());
    Gather(source.data() + base, strides, shape, element, got.data());
    ASSERT_EQ(got, want);
  }
}

TEST(Gather, TakesRowMajorWithoutStrides) {
  const std::byte source[] = {std::byte{1}, std::byte{2}, std::byte{3}};
  std::byte got[3] = {};
  Gather(source, {}, Extents{3}, 1, got);
  EXPECT_EQ(std::memcmp(source, got, 3), 0);
}

}  // namespace
}  // namespace ckptree
