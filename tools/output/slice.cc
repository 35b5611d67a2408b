// SPDX-License-Identifier: Apache-2.0

#include "tools/output/slice.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "tools/output/failure.h"
#include "tools/output/terminal.h"
#include "tools/output/trim.h"

namespace ckptree::tools {
namespace {

std::vector<std::string_view> Split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  std::size_t at = 0;
  while (true) {
    const std::size_t next = text.find(separator, at);
    parts.push_back(Trim(text.substr(at, next - at)));
    if (next == std::string_view::npos) return parts;
    at = next + 1;
  }
}

absl::Status Bad(std::string_view item) {
  return absl::InvalidArgumentError(absl::StrFormat(
      "'%s' is no part of a slice: write an index, start:stop:step or ...",
      Escape(item)));
}

absl::StatusOr<std::int64_t> ParseNumber(std::string_view text) {
  std::int64_t value = 0;
  // -2^63 would overflow when a length is added or it is negated.
  if (!absl::SimpleAtoi(std::string(text), &value) ||
      value == std::numeric_limits<std::int64_t>::min()) {
    return Bad(text);
  }
  return value;
}

absl::StatusOr<SliceItem> ParseItem(std::string_view text) {
  SliceItem item;
  if (text == "...") {
    item.kind = SliceItem::Kind::kEllipsis;
    return item;
  }
  const std::vector<std::string_view> parts = Split(text, ':');
  if (parts.size() > 3) return Bad(text);
  std::vector<std::optional<std::int64_t>> numbers(3);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].empty()) continue;
    const absl::StatusOr<std::int64_t> number = ParseNumber(parts[i]);
    if (!number.ok()) return number.status();
    numbers[i] = *number;
  }
  if (parts.size() == 1) {
    if (!numbers[0]) return Bad(text);
    item.kind = SliceItem::Kind::kIndex;
    item.index = *numbers[0];
    return item;
  }
  item.start = numbers[0];
  item.stop = numbers[1];
  item.step = numbers[2].value_or(1);
  if (item.step == 0) {
    return absl::InvalidArgumentError("the step of a slice cannot be 0");
  }
  return item;
}

DimSelection SelectRange(const SliceItem& item, std::int64_t size) {
  const std::int64_t step = item.step;
  const std::int64_t lowest = step > 0 ? 0 : -1;
  const std::int64_t highest = step > 0 ? size : size - 1;
  const auto clip = [&](std::int64_t at) {
    if (at < 0) at += size;
    return std::clamp(at, lowest, highest);
  };
  const std::int64_t start =
      item.start ? clip(*item.start) : (step > 0 ? lowest : highest);
  const std::int64_t stop =
      item.stop ? clip(*item.stop) : (step > 0 ? highest : lowest);
  DimSelection range;
  range.start = start;
  range.step = step;
  if (step > 0 && stop > start) range.count = (stop - start - 1) / step + 1;
  if (step < 0 && stop < start) range.count = (start - stop - 1) / -step + 1;
  if (range.count == 0) range.start = 0;
  if (range.count <= 1) range.step = 1;
  return range;
}

}  // namespace

absl::StatusOr<std::vector<SliceItem>> ParseSlice(std::string_view text) {
  text = Trim(text);
  if (text.size() < 2 || text.front() != '[' || text.back() != ']') {
    return absl::InvalidArgumentError("a slice stands in brackets: [0:10, -1]");
  }
  text = Trim(text.substr(1, text.size() - 2));
  std::vector<SliceItem> items;
  if (text.empty()) return Bad("[]");
  if (text.back() == ',') text.remove_suffix(1);
  bool ellipsis = false;
  for (std::string_view part : Split(text, ',')) {
    absl::StatusOr<SliceItem> item = ParseItem(part);
    if (!item.ok()) return item.status();
    if (item->kind == SliceItem::Kind::kEllipsis) {
      if (ellipsis) {
        return absl::InvalidArgumentError("a slice can hold only one '...'");
      }
      ellipsis = true;
    }
    items.push_back(*item);
  }
  return items;
}

std::optional<std::pair<std::string_view, std::string_view>> SplitSlice(
    std::string_view text) {
  if (text.empty() || text.back() != ']') return std::nullopt;
  const std::size_t open = text.rfind('[');
  if (open == std::string_view::npos) return std::nullopt;
  const std::string_view inside = text.substr(open + 1, text.size() - open - 2);
  if (inside.find_first_not_of("0123456789:,.-+ ") != std::string_view::npos) {
    return std::nullopt;
  }
  return std::pair(text.substr(0, open), text.substr(open));
}

absl::Status WrongSliceOf(std::string_view text,
                          const std::function<bool(std::string_view)>& is_key) {
  if (!text.ends_with(']')) return absl::OkStatus();
  // Keys may have brackets of their own.
  for (std::size_t open = text.rfind('['); open != text.npos && open > 0;
       open = text.rfind('[', open - 1)) {
    if (is_key(text.substr(0, open))) return WhyNoSlice(text.substr(open));
  }
  return absl::OkStatus();
}

absl::Status WhyNoSlice(std::string_view text) {
  return WithHint(ParseSlice(text).status(),
                  "a slice is written as NumPy does, with numbers and `...` "
                  "alone: [0:10, ::2, -1]");
}

absl::StatusOr<Selection> Select(const std::vector<SliceItem>& items,
                                 const Shape& shape) {
  const std::size_t rank = shape.size();
  const auto is_ellipsis = [](const SliceItem& item) {
    return item.kind == SliceItem::Kind::kEllipsis;
  };
  const auto given =
      items.size() - static_cast<std::size_t>(std::count_if(
                         items.begin(), items.end(), is_ellipsis));
  if (given > rank) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "the slice has %d entries, the array %d dimensions", given, rank));
  }
  Selection selection;
  const auto take_whole = [&](std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      selection.push_back({0, 1, shape[selection.size()], false});
    }
  };
  for (const SliceItem& item : items) {
    if (is_ellipsis(item)) {
      take_whole(rank - given);
      continue;
    }
    const std::int64_t size = shape[selection.size()];
    if (item.kind == SliceItem::Kind::kRange) {
      selection.push_back(SelectRange(item, size));
      continue;
    }
    const std::int64_t at = item.index < 0 ? item.index + size : item.index;
    if (at < 0 || at >= size) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "index %d is outside dimension %d, which has %d elements", item.index,
          selection.size(), size));
    }
    selection.push_back({at, 1, 1, true});
  }
  take_whole(rank - selection.size());
  return selection;
}

Selection SelectAll(const Shape& shape) {
  Selection selection;
  for (std::int64_t size : shape) selection.push_back({0, 1, size, false});
  return selection;
}

Shape ResultShape(const Selection& selection) {
  Shape shape;
  for (const DimSelection& dim : selection) {
    if (!dim.dropped) shape.push_back(dim.count);
  }
  return shape;
}

std::int64_t SelectedCount(const Selection& selection) {
  std::int64_t count = 1;
  for (const DimSelection& dim : selection) {
    if (dim.count == 0) return 0;
  }
  for (const DimSelection& dim : selection) count *= dim.count;
  return count;
}

BoxSpec CoveringBox(const Selection& selection) {
  BoxSpec box;
  for (const DimSelection& dim : selection) {
    if (dim.count == 0) {
      box.start.push_back(0);
      box.shape.push_back(0);
      continue;
    }
    const std::int64_t last = dim.start + (dim.count - 1) * dim.step;
    box.start.push_back(std::min(dim.start, last));
    box.shape.push_back(std::max(dim.start, last) - box.start.back() + 1);
  }
  return box;
}

void Gather(const Selection& selection, std::size_t element_bytes,
            std::span<const std::byte> box, std::span<std::byte> out) {
  if (SelectedCount(selection) == 0) return;
  const BoxSpec covering = CoveringBox(selection);
  const std::size_t rank = selection.size();
  if (rank == 0) {
    std::memcpy(out.data(), box.data(), element_bytes);
    return;
  }
  // Bytes from one selected element to the next along each dimension.
  std::vector<std::int64_t> strides(rank);
  std::int64_t stride = static_cast<std::int64_t>(element_bytes);
  std::int64_t source = 0;
  for (std::size_t d = rank; d-- > 0;) {
    strides[d] = stride * selection[d].step;
    source += stride * (selection[d].start - covering.start[d]);
    stride *= covering.shape[d];
  }
  const std::int64_t row = selection[rank - 1].count;
  const std::int64_t row_stride = strides[rank - 1];
  const bool dense = row_stride == static_cast<std::int64_t>(element_bytes);
  std::vector<std::int64_t> index(rank, 0);
  std::byte* to = out.data();
  while (true) {
    const std::byte* from = box.data() + source;
    if (dense) {
      const auto bytes = static_cast<std::size_t>(row) * element_bytes;
      std::memcpy(to, from, bytes);
      to += bytes;
    } else {
      for (std::int64_t i = 0; i < row; ++i) {
        std::memcpy(to, from + i * row_stride, element_bytes);
        to += element_bytes;
      }
    }
    std::size_t d = rank - 1;
    while (d-- > 0) {
      source += strides[d];
      if (++index[d] < selection[d].count) break;
      source -= strides[d] * selection[d].count;
      index[d] = 0;
    }
    if (d == static_cast<std::size_t>(-1)) return;
  }
}

}  // namespace ckptree::tools
