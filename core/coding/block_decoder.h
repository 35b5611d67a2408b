// SPDX-License-Identifier: Apache-2.0

// Decodes coded blocks, or cells of them.

#ifndef CKPTREE_CORE_CODING_BLOCK_DECODER_H_
#define CKPTREE_CORE_CODING_BLOCK_DECODER_H_

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/coding/coded_block.h"

namespace ckptree::internal {

// Keeps its memory from block to block. No decoder of planes runs on bytes
// whose checksum is not right, and nothing is written beyond the raw length.
// Confined to one thread at a time.
class BlockDecoder {
 public:
  BlockDecoder();
  ~BlockDecoder();
  BlockDecoder(BlockDecoder&&) noexcept;
  BlockDecoder& operator=(BlockDecoder&&) noexcept;

  // Decodes the cells [first, end) (of a rounded copy there are none), whose
  // bytes are `cells` and nothing else, to `raw`, which has just their raw
  // bytes. kDataLoss, with `raw` in any state.
  absl::Status DecodeCells(const CodedHead& head, std::size_t first,
                           std::size_t end, std::string_view cells,
                           std::span<std::byte> raw);

  // A whole block of raw.size() bytes, whatever its coding.
  absl::Status Decode(std::string_view stored, std::span<std::byte> raw);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_CODING_BLOCK_DECODER_H_
