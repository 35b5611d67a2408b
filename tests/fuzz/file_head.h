// SPDX-License-Identifier: Apache-2.0

// What holds for the head of any file of arrays.

#ifndef CKPTREE_TESTS_FUZZ_FILE_HEAD_H_
#define CKPTREE_TESTS_FUZZ_FILE_HEAD_H_

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"
#include "tests/fuzz/require.h"
#include "tools/files/array_file.h"

namespace ckptree::fuzz {

// What is listed lies in the file; a beginning of it gives the same, or asks
// for more.
template <typename Parser>
void FuzzHead(const Parser& parse, std::string_view bytes) {
  const absl::StatusOr<tools::FileHead> head = parse(bytes, bytes.size());
  if (!head.ok()) {
    Require(!absl::IsOutOfRange(head.status()), "there is no more to ask for");
    // A good file, whose names a tree has no place for.
    if (absl::IsFailedPrecondition(head.status())) {
      return Require(head.status().message().find("no leaf can have") !=
                         std::string_view::npos,
                     "it says that a name is the reason");
    }
    return RequireInvalid(head.status());
  }
  Require(head->arrays.size() <= bytes.size(), "an array takes a byte");
  for (const tools::FileArray& array : head->arrays) {
    Require(array.offset <= bytes.size() &&
                array.bytes <= bytes.size() - array.offset,
            "an array lies in its file");
    Require(array.leaf.path.Validate().ok(), "its name can be a leaf's");
    if (array.leaf.dtype == DType::kNone) {
      Require(!array.why_not.empty(), "it says why it is not read");
      continue;
    }
    const auto wanted = ArrayBytes(array.leaf.dtype, false, array.leaf.shape);
    Require(wanted && static_cast<std::uint64_t>(*wanted) == array.bytes,
            "its bytes are those of its shape");
  }
  for (std::size_t size = 0; size < std::min<std::size_t>(bytes.size(), 64);
       size += 7) {
    const absl::StatusOr<tools::FileHead> part =
        parse(bytes.substr(0, size), bytes.size());
    Require(part.ok() || absl::IsOutOfRange(part.status()),
            "a beginning of what is right is not wrong");
  }
}

}  // namespace ckptree::fuzz

#endif  // CKPTREE_TESTS_FUZZ_FILE_HEAD_H_
