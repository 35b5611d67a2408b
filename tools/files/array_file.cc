// SPDX-License-Identifier: Apache-2.0

#include "tools/files/array_file.h"

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "tools/output/element_text.h"
#include "tools/output/failure.h"
#include "tools/output/terminal.h"

namespace ckptree::tools {
namespace {

// The bytes of the array before the element at `index`.
std::uint64_t PlaceOf(const Shape& shape, const Shape& index,
                      std::uint64_t element) {
  std::uint64_t place = 0;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    place = place * static_cast<std::uint64_t>(shape[d]) +
            static_cast<std::uint64_t>(index[d]);
  }
  return place * element;
}

// The same element where the first dimension is the fastest.
std::uint64_t FortranPlaceOf(const Shape& shape, const Shape& index,
                             std::uint64_t element) {
  std::uint64_t place = 0;
  for (std::size_t d = shape.size(); d-- > 0;) {
    place = place * static_cast<std::uint64_t>(shape[d]) +
            static_cast<std::uint64_t>(index[d]);
  }
  return place * element;
}

// Goes to the next index of `shape` before dimension `rank`; false at the end.
bool Advance(const Shape& shape, std::size_t rank, Shape* index) {
  for (std::size_t d = rank; d-- > 0;) {
    if (++(*index)[d] < shape[d]) return true;
    (*index)[d] = 0;
  }
  return false;
}

}  // namespace

absl::Status ArrayFile::ReadBox(const FileArray& array, const BoxSpec& box,
                                std::span<std::byte> destination) const {
  if (array.leaf.dtype == DType::kNone) {
    return WithHint(absl::FailedPreconditionError(absl::StrFormat(
                        "`%s` of %s cannot be read: %s", Escape(array.name),
                        Escape(path_), array.why_not)),
                    "`ckptree ls FILE` says the type of each array");
  }
  if (destination.empty()) return absl::OkStatus();
  const Shape& shape = array.leaf.shape;
  const auto element =
      static_cast<std::uint64_t>(ElementBytes(array.leaf.dtype));
  if (array.fortran && shape.size() > 1) {
    std::vector<std::byte> whole(array.bytes);
    if (absl::Status status = ReadAt(array, 0, whole); !status.ok()) {
      return status;
    }
    Shape index(shape.size(), 0), place(shape.size(), 0);
    std::byte* to = destination.data();
    do {
      for (std::size_t d = 0; d < shape.size(); ++d) {
        place[d] = box.start[d] + index[d];
      }
      std::memcpy(to, whole.data() + FortranPlaceOf(shape, place, element),
                  element);
      to += element;
    } while (Advance(box.shape, shape.size(), &index));
    return absl::OkStatus();
  }
  // Dimensions from here on are whole: one run for each index before them.
  std::size_t rank = shape.size();
  std::uint64_t run = element;
  while (rank > 0) {
    run *= static_cast<std::uint64_t>(box.shape[rank - 1]);
    --rank;
    if (box.shape[rank] != shape[rank]) break;
  }
  Shape index(shape.size(), 0), place(box.start);
  std::size_t at = 0;
  do {
    for (std::size_t d = 0; d < rank; ++d) place[d] = box.start[d] + index[d];
    if (absl::Status status = ReadAt(array, PlaceOf(shape, place, element),
                                     destination.subspan(at, run));
        !status.ok()) {
      return status;
    }
    at += run;
  } while (Advance(box.shape, rank, &index));
  return absl::OkStatus();
}

}  // namespace ckptree::tools
