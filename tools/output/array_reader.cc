// SPDX-License-Identifier: Apache-2.0

#include "tools/output/array_reader.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "tools/output/element_text.h"

namespace ckptree::tools {
namespace {

// Of a piece that ReadPieces hands on, about.
constexpr std::int64_t kPieceBytes = 64 << 20;

bool IsDense(const Selection& selection) {
  return std::all_of(selection.begin(), selection.end(),
                     [](const DimSelection& dim) { return dim.step == 1; });
}

// Dimension `d` of `selection` cut to the elements [first, first + count).
void Narrow(Selection* selection, std::size_t d, std::int64_t first,
            std::int64_t count) {
  DimSelection& dim = (*selection)[d];
  dim.start += first * dim.step;
  dim.count = count;
}

}  // namespace

absl::Status ArrayReader::ReadBox(const BoxSpec& box,
                                  std::span<std::byte> to) const {
  return step_ != nullptr ? step_->ReadBox(leaf_.path, box, to)
                          : read_(box, to);
}

absl::StatusOr<std::vector<std::byte>> ArrayReader::Read(
    const Selection& selection) const {
  const auto element = static_cast<std::size_t>(ElementBytes(leaf_.dtype));
  const auto count = static_cast<std::size_t>(SelectedCount(selection));
  std::vector<std::byte> elements(count * element);
  if (count == 0) return elements;
  if (leaf_.packed) {
    // Rows of packed elements do not start at bytes: the whole is read.
    const auto bytes = ArrayBytes(leaf_.dtype, true, leaf_.shape).value_or(0);
    std::vector<std::byte> packed(static_cast<std::size_t>(bytes));
    if (absl::Status status = step_->Read(leaf_.path, packed); !status.ok()) {
      return status;
    }
    const std::vector<std::byte> whole =
        Unpack(leaf_.dtype, packed, 0, ElementCount(leaf_.shape).value_or(0));
    const BoxSpec box = CoveringBox(selection);
    std::vector<std::byte> inside(
        static_cast<std::size_t>(*ElementCount(box.shape)));
    Shape index(box.shape.size(), 0);
    for (std::byte& out : inside) {
      std::int64_t source = 0;
      for (std::size_t d = 0; d < index.size(); ++d) {
        source = source * leaf_.shape[d] + box.start[d] + index[d];
      }
      out = whole[static_cast<std::size_t>(source)];
      for (std::size_t d = index.size(); d-- > 0;) {
        if (++index[d] < box.shape[d]) break;
        index[d] = 0;
      }
    }
    Gather(selection, 1, inside, elements);
    return elements;
  }
  const BoxSpec box = CoveringBox(selection);
  if (IsDense(selection)) {
    if (absl::Status status = ReadBox(box, elements); !status.ok()) {
      return status;
    }
    return elements;
  }
  std::size_t box_bytes = element;
  for (std::int64_t size : box.shape) {
    box_bytes *= static_cast<std::size_t>(size);
  }
  std::vector<std::byte> bytes(box_bytes);
  if (absl::Status status = ReadBox(box, bytes); !status.ok()) {
    return status;
  }
  Gather(selection, element, bytes, elements);
  return elements;
}

absl::StatusOr<std::vector<std::byte>> ArrayReader::ReadEdges(
    const Selection& selection, std::int64_t edge, Shape* kept) const {
  const auto element = static_cast<std::size_t>(ElementBytes(leaf_.dtype));
  const std::size_t rank = selection.size();
  std::vector<std::size_t> cut;  // Dimensions of which only the ends are kept.
  kept->clear();
  Shape full_kept;
  for (std::size_t d = 0; d < rank; ++d) {
    const bool ends = selection[d].count > 2 * edge;
    if (ends) cut.push_back(d);
    full_kept.push_back(ends ? 2 * edge : selection[d].count);
    if (!selection[d].dropped) kept->push_back(full_kept.back());
  }
  std::size_t total = element;
  for (std::int64_t size : full_kept) total *= static_cast<std::size_t>(size);
  std::vector<std::byte> result(total);
  if (total == 0) return result;

  // One corner for each choice of an end of each cut dimension.
  for (std::size_t corner = 0; corner < (std::size_t{1} << cut.size());
       ++corner) {
    Selection part = selection;
    Shape offset(rank, 0);
    for (std::size_t i = 0; i < cut.size(); ++i) {
      const std::size_t d = cut[i];
      const bool end = ((corner >> i) & 1) != 0;
      Narrow(&part, d, end ? selection[d].count - edge : 0, edge);
      if (end) offset[d] = edge;
    }
    const absl::StatusOr<std::vector<std::byte>> bytes = Read(part);
    if (!bytes.ok()) return bytes.status();
    Shape index(rank, 0);
    for (std::size_t from = 0; from < bytes->size(); from += element) {
      std::int64_t to = 0;
      for (std::size_t d = 0; d < rank; ++d) {
        to = to * full_kept[d] + offset[d] + index[d];
      }
      std::memcpy(result.data() + static_cast<std::size_t>(to) * element,
                  bytes->data() + from, element);
      for (std::size_t d = rank; d-- > 0;) {
        if (++index[d] < part[d].count) break;
        index[d] = 0;
      }
    }
  }
  return result;
}

absl::Status ArrayReader::ReadPieces(
    const Selection& selection,
    const std::function<absl::Status(std::span<const std::byte>)>& take) const {
  const std::int64_t element = ElementBytes(leaf_.dtype);
  std::size_t d = 0;
  while (d < selection.size() && selection[d].count == 1) ++d;
  const std::int64_t rows = d < selection.size() ? selection[d].count : 1;
  const std::int64_t count = SelectedCount(selection);
  if (count == 0) return absl::OkStatus();
  std::int64_t rows_a_piece = rows;
  if (!leaf_.packed && count * element > kPieceBytes && rows > 1) {
    rows_a_piece =
        std::max<std::int64_t>(1, kPieceBytes / (count / rows * element));
    // Whole chunks: none is read for two pieces.
    Shape chunks;
    if (step_ != nullptr) {
      absl::StatusOr<LeafDetail> detail = step_->Detail(leaf_.path);
      if (!detail.ok()) return detail.status();
      chunks = std::move(detail->chunk_shape);
    }
    if (d < chunks.size() && chunks[d] > 0) {
      rows_a_piece = std::max(chunks[d], rows_a_piece / chunks[d] * chunks[d]);
    }
  }
  for (std::int64_t first = 0; first < rows; first += rows_a_piece) {
    Selection part = selection;
    if (d < selection.size()) {
      Narrow(&part, d, first, std::min(rows_a_piece, rows - first));
    }
    const absl::StatusOr<std::vector<std::byte>> bytes = Read(part);
    if (!bytes.ok()) return bytes.status();
    if (absl::Status status = take(*bytes); !status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace ckptree::tools
