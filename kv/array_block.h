// SPDX-License-Identifier: Apache-2.0

// Array blocks that are read together.

#ifndef CKPTREE_KV_ARRAY_BLOCK_H_
#define CKPTREE_KV_ARRAY_BLOCK_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "absl/functional/function_ref.h"

namespace ckptree::kv {

// One of them, in `chunks`: its key, and how many bytes its value has.
struct ArrayBlock {
  std::string key;
  std::uint64_t value_bytes = 0;
};

// Called with the value of the `i`th of them, valid for the call.
using BlockFn =
    absl::FunctionRef<void(std::size_t i, std::span<const std::byte> value)>;

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_ARRAY_BLOCK_H_
