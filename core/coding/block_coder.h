// SPDX-License-Identifier: Apache-2.0

// Codes blocks of array bytes, without loss, where that saves something.

#ifndef CKPTREE_CORE_CODING_BLOCK_CODER_H_
#define CKPTREE_CORE_CODING_BLOCK_CODER_H_

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>

#include "base/digest.h"

namespace ckptree::internal {

// Keeps its memory from block to block. Confined to one thread at a time.
class BlockCoder {
 public:
  BlockCoder();
  ~BlockCoder();
  BlockCoder(BlockCoder&&) noexcept;
  BlockCoder& operator=(BlockCoder&&) noexcept;

  // The coding of `payload`, good until the next call; empty where it would not
  // be kMostOfRaw of it or less. `digest` is that of the payload. Where that
  // ends with the rounded copy of what is before, the copy is not stored.
  // REQUIRES: at most 16 MiB.
  std::string_view Encode(std::span<const std::byte> payload,
                          const base::Digest& digest);

  // What the coding of `payload` would have of its bytes, by a sample of them:
  // 1 where it is not worth it.
  double ShareBySample(std::span<const std::byte> payload);

  static constexpr double kMostOfRaw = 0.95;

 private:
  struct State;
  State& state();
  std::unique_ptr<State> state_;
};

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_CODING_BLOCK_CODER_H_
