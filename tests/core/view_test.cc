// SPDX-License-Identifier: Apache-2.0

// Views: which box each piece is, and who outlives whom.

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <ios>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "tests/core/fixture.h"
#include "tests/testutil/flip_byte.h"

namespace ckptree::testing {
namespace {

using ::testing::HasSubstr;

constexpr auto kNotFound = absl::StatusCode::kNotFound;

class ViewTest : public CoreTest {};

// Of an array that was put as two boxes side by side, each cut into chunks.
TEST_F(ViewTest, AViewSaysWhichBoxEachPieceIs) {
  const std::int64_t rows = 1 << 10, columns = 1 << 10;
  Bytes halves[2];
  StepBuilder put = store_->Begin(1);
  for (std::int64_t half = 0; half < 2; ++half) {
    halves[half] = RandomBytes(4 * rows * columns / 2, 7 + half);
    Tensor tensor = Array(DType::kInt32, {rows, columns / 2}, halves[half]);
    tensor.start = {0, half * columns / 2};
    tensor.global_shape = {rows, columns};
    tensor.chunk_shape = {rows / 4, columns / 4};
    put.Put("w", std::move(tensor));
  }
  ASSERT_OK(Commit(std::move(put)));
  const Step step = Restored(Latest());
  ASSERT_OK_AND_ASSIGN(const LeafView view, step.View("w"));
  std::uint64_t seen = 0;
  for (const LeafView::Piece& piece : view.pieces()) {
    Bytes read(piece.bytes.size());
    ASSERT_OK(step.ReadBox("w", piece.box, read));
    EXPECT_TRUE(std::ranges::equal(read, piece.bytes));
    seen += read.size();
  }
  EXPECT_EQ(view.pieces().size(), 16u);
  EXPECT_EQ(seen, static_cast<std::uint64_t>(4 * rows * columns));
}

TEST_F(ViewTest, EveryPieceOfAnArrayHasABox) {
  const std::vector<Shape> shapes = {{8, 8}, {8, 9}, {0, 3}, {5}, {}};
  std::vector<Bytes> bytes;
  StepBuilder put = store_->Begin(1);
  for (const Shape& shape : shapes) {
    std::size_t size = 4;
    for (const std::int64_t extent : shape) {
      size *= static_cast<std::size_t>(extent);
    }
    bytes.push_back(RandomBytes(size, bytes.size()));
  }
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    put.Put(absl::StrFormat("a%d", i),
            Array(DType::kFloat32, shapes[i], bytes[i]));
  }
  ASSERT_OK(Commit(std::move(put)));
  const Step step = Restored(Latest());
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    SCOPED_TRACE(i);
    ASSERT_OK_AND_ASSIGN(const LeafView view,
                         step.View(absl::StrFormat("a%d", i)));
    ASSERT_EQ(view.pieces().size(), 1u);
    const LeafView::Piece& piece = view.pieces().front();
    EXPECT_EQ(piece.box.shape, shapes[i]);
    EXPECT_EQ(piece.box.start, Shape(shapes[i].size(), 0));
    EXPECT_TRUE(std::ranges::equal(piece.bytes, bytes[i]));
  }
}

TEST_F(ViewTest, AViewOutlivesTheStoreAndHoldsNothingUp) {
  const Bytes large = RandomBytes(3 << 20, 1);
  const Bytes small = RandomBytes(99, 2);
  StepBuilder put = store_->Begin(1);
  put.Put("large", Uint8s(large)).Put("small", Uint8s(small));
  ASSERT_OK(Commit(std::move(put)));
  std::vector<LeafView> views;
  for (const char* name : {"large", "small"}) {
    auto view = Restored(Latest()).View(At(name));
    ASSERT_OK(view);
    views.push_back(*std::move(view));
  }
  EXPECT_TRUE(views[0].zero_copy());
  const auto is_there = [&] {
    Bytes bytes;
    for (const LeafView::Piece& piece : views[0].pieces()) {
      bytes.insert(bytes.end(), piece.bytes.begin(), piece.bytes.end());
    }
    return bytes == large &&
           std::ranges::equal(views[1].pieces()[0].bytes, small);
  };
  store_.reset();
  EXPECT_TRUE(is_there());
  Open();  // A writer: the lock was given back.
  EXPECT_TRUE(is_there());
  ASSERT_OK(store_->Delete(1));
  ASSERT_OK(Save(2, RandomBytes(99, 3)));
  ASSERT_OK(store_->Collect({.min_dead_fraction = 0}));
  EXPECT_TRUE(is_there());
  ExpectClean();
  store_.reset();
  std::filesystem::remove_all(path());
  EXPECT_TRUE(is_there());
}

// Where in the files of the store the first chunk of `bytes` stands.
std::pair<std::string, std::size_t> PlaceOf(const std::string& store,
                                            const Bytes& bytes) {
  const std::string wanted(reinterpret_cast<const char*>(bytes.data()), 4096);
  for (const auto& entry : std::filesystem::directory_iterator(store + "/db")) {
    if (entry.path().extension() != ".sst") continue;
    std::string all(entry.file_size(), '\0');
    std::ifstream(entry.path(), std::ios::binary)
        .read(all.data(), static_cast<std::streamsize>(all.size()));
    const std::size_t at = all.find(wanted);
    if (at != std::string::npos) return {entry.path(), at};
  }
  ADD_FAILURE() << "no file has these bytes";
  return {};
}

TEST_F(ViewTest, AChunkIsComparedByTheFirstViewOfAProcessAlone) {
  const Bytes large = RandomBytes(3 << 20, 1);
  StepBuilder put = store_->Begin(1);
  put.Put("large", Uint8s(large));
  ASSERT_OK(Commit(std::move(put)));
  ASSERT_OK(Restored(Latest()).View("large"));
  // Other files come: what is mapped stays so.
  const Bytes more = RandomBytes(3 << 20, 2);
  StepBuilder next = store_->Begin(2);
  next.Put("large", Uint8s(more));
  ASSERT_OK(Commit(std::move(next)));
  for (const Bytes* const bytes : {&large, &more}) {
    const auto [file, at] = PlaceOf(dir_ / "store", *bytes);
    FlipByte(file, at + 30000);
  }
  {
    ASSERT_OK_AND_ASSIGN(const Step step, store_->OpenStep(1));
    const auto view = step.View("large");
    ASSERT_OK(view);
    EXPECT_TRUE(view->zero_copy());
    // Reads compare each time.
    Bytes read(large.size());
    EXPECT_THAT(step.Read("large", read),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr("large")));
  }
  {
    ASSERT_OK_AND_ASSIGN(const Step step, store_->OpenStep(2));
    EXPECT_THAT(step.View("large"),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr("large")));
  }
}

TEST_F(ViewTest, ViewsStandInTheFileAndOutliveTheStep) {
  const Bytes large = RandomBytes((3 << 20) + 8, 1);
  const Bytes packed = RandomBytes(5000, 2);
  StepBuilder put = store_->Begin(1);
  put.Put("large", Array(DType::kFloat64, {(3 << 17) + 1}, large))
      .Put("packed", Uint8s(packed))
      .PutInt("small", 7);
  ASSERT_OK(Commit(std::move(put)));
  const auto joined = [](const LeafView& view) {
    Bytes bytes;
    for (const LeafView::Piece& piece : view.pieces()) {
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(piece.bytes.data()) % 64, 0u);
      bytes.insert(bytes.end(), piece.bytes.begin(), piece.bytes.end());
    }
    return bytes;
  };
  for (int opened = 0; opened < 2; ++opened) {
    std::optional<Step> step(Restored(AtStep(1)));
    std::vector<LeafView> views;
    for (const char* name : {"large", "packed", "small"}) {
      auto view = step->View(At(name));
      ASSERT_OK(view);
      views.push_back(*std::move(view));
    }
    EXPECT_TRUE(views[0].zero_copy());
    EXPECT_TRUE(views[1].zero_copy());
    EXPECT_EQ(views[0].pieces().size(), step->Detail(At("large"))->chunk_count);
    EXPECT_THAT(step->View(At("lage")),
                StatusIs(kNotFound, HasSubstr("did you mean large?")));
    if (opened == 1) {
      ASSERT_OK(store_->Delete(1));
      ASSERT_OK(Save(2, packed));
      EXPECT_TRUE(step->Value("large")->bytes == large);
      EXPECT_THAT(store_->OpenStep(AtStep(1)), StatusIs(kNotFound));
      step.reset();
    }
    EXPECT_TRUE(joined(views[0]) == large);
    EXPECT_TRUE(joined(views[1]) == packed);
    EXPECT_EQ(joined(views[2])[0], std::byte{7});
    views.clear();
    step.reset();
    if (opened == 0) Open();
  }
  ExpectClean();
}

}  // namespace
}  // namespace ckptree::testing
