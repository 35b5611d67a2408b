// SPDX-License-Identifier: Apache-2.0

// Fuzzes slices. An input is a rank, so many dimensions of a byte each, and the
// text of a slice.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "ckptree/tensor.h"
#include "tests/fuzz/require.h"
#include "tools/output/slice.h"

namespace ckptree::fuzz {
namespace {

constexpr std::size_t kMaxRank = 4;
constexpr std::int64_t kSmallSide = 8;  // At most 4096 elements.

// Offsets in an array of `shape`, which is row-major, of what is selected.
std::vector<std::int64_t> OffsetsOf(const tools::Selection& selection,
                                    const Shape& shape) {
  std::vector<std::int64_t> offsets = {0};
  for (std::size_t d = 0; d < shape.size(); ++d) {
    std::vector<std::int64_t> next;
    for (const std::int64_t offset : offsets) {
      for (std::int64_t i = 0; i < selection[d].count; ++i) {
        next.push_back(offset * shape[d] + selection[d].start +
                       i * selection[d].step);
      }
    }
    offsets = std::move(next);
  }
  return offsets;
}

void FuzzGather(const tools::Selection& selection, const Shape& shape) {
  const BoxSpec box = tools::CoveringBox(selection);
  // The box's bytes are the places of its elements in the whole array.
  tools::Selection whole;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    whole.push_back({box.start[d], 1, box.shape[d], false});
  }
  const std::vector<std::int64_t> elements = OffsetsOf(whole, shape);
  std::vector<std::int64_t> out(
      static_cast<std::size_t>(tools::SelectedCount(selection)));
  tools::Gather(selection, sizeof(std::int64_t),
                std::as_bytes(std::span(elements)),
                std::as_writable_bytes(std::span(out)));
  Require(out == OffsetsOf(selection, shape), "a slice picks its elements");
}

void FuzzSlice(const Shape& shape, bool small, std::string_view text) {
  if (const auto split = tools::SplitSlice(text)) {
    Require(std::string(split->first) + std::string(split->second) == text,
            "a slice is the end of its text");
  }
  const absl::StatusOr<std::vector<tools::SliceItem>> items =
      tools::ParseSlice(text);
  if (!items.ok()) return RequireInvalid(items.status());
  Require(!items->empty(), "a slice selects something");
  const absl::StatusOr<tools::Selection> selection =
      tools::Select(*items, shape);
  if (!selection.ok()) return RequireInvalid(selection.status());
  Require(selection->size() == shape.size(), "every dimension is selected");
  const BoxSpec box = tools::CoveringBox(*selection);
  for (std::size_t d = 0; d < shape.size(); ++d) {
    Require(box.start[d] >= 0 && box.shape[d] >= 0 &&
                box.start[d] + box.shape[d] <= shape[d],
            "what is selected is within the array");
  }
  Require(tools::SelectedCount(*selection) >= 0, "a count");
  if (small) FuzzGather(*selection, shape);
}

}  // namespace
}  // namespace ckptree::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data,
                                      std::size_t size) {
  if (size == 0) return 0;
  const std::size_t rank = data[0] % (ckptree::fuzz::kMaxRank + 1);
  const bool small = data[0] < 0x80;
  if (size < 1 + rank) return 0;
  ckptree::Shape shape;
  for (std::size_t d = 0; d < rank; ++d) {
    const std::uint8_t side = data[1 + d];
    // Large ones are at most 2^56 together.
    shape.push_back(small ? side % ckptree::fuzz::kSmallSide
                          : std::int64_t{1} << (side % (56 / rank + 1)));
  }
  ckptree::fuzz::FuzzSlice(
      shape, small, ckptree::fuzz::TextOf(data + 1 + rank, size - 1 - rank));
  return 0;
}
