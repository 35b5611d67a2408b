// SPDX-License-Identifier: Apache-2.0

// Elements of one stored array, picked by a slice.

#ifndef CKPTREE_TOOLS_OUTPUT_ARRAY_READER_H_
#define CKPTREE_TOOLS_OUTPUT_ARRAY_READER_H_

#include <cstddef>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ckptree/step.h"
#include "tools/output/slice.h"

namespace ckptree::tools {

// Reads only the chunks that the covering box of a selection touches. Elements
// come out one to a byte or more, never packed.
class ArrayReader {
 public:
  // `step` and `leaf`, an array, must outlive the reader.
  ArrayReader(const Step& step, const LeafInfo& leaf)
      : step_(&step), leaf_(leaf) {}
  // Of an array that is not in a store, and not packed: `read` fills memory
  // with a box of it.
  using BoxFn =
      std::function<absl::Status(const BoxSpec&, std::span<std::byte>)>;
  ArrayReader(const LeafInfo& leaf, BoxFn read)
      : leaf_(leaf), read_(std::move(read)) {}

  // All selected elements, dense, row-major.
  absl::StatusOr<std::vector<std::byte>> Read(const Selection& selection) const;

  // The first and last `edge` of each dimension that has more than twice as
  // many; `kept` is the shape of the result.
  absl::StatusOr<std::vector<std::byte>> ReadEdges(const Selection& selection,
                                                   std::int64_t edge,
                                                   Shape* kept) const;

  // The same elements as Read in pieces of bounded size, in order. Stops where
  // `take` is not OK.
  absl::Status ReadPieces(
      const Selection& selection,
      const std::function<absl::Status(std::span<const std::byte>)>& take)
      const;

 private:
  absl::Status ReadBox(const BoxSpec& box, std::span<std::byte> to) const;

  const Step* step_ = nullptr;  // Null: `read_`.
  const LeafInfo& leaf_;
  BoxFn read_;
};

}  // namespace ckptree::tools

#endif  // CKPTREE_TOOLS_OUTPUT_ARRAY_READER_H_
