// SPDX-License-Identifier: Apache-2.0

// Coding of blocks that are on the disk already.

#ifndef CKPTREE_CORE_COLLECT_REWRITE_CODER_H_
#define CKPTREE_CORE_COLLECT_REWRITE_CODER_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "core/coding/block_coder.h"
#include "core/coding/block_decoder.h"

namespace ckptree::internal {

// Confined to one thread.
class RewriteCoder {
 public:
  // Sets `coded` to the coding of a block's `value`; false where it is coded
  // already, not worth it, or where there is no memory. What it gives was
  // decoded and compared: the value is the only one there is.
  bool Code(std::string_view value, std::string* coded);

 private:
  bool CodeChecked(std::string_view value, std::string* coded);

  BlockCoder coder_;
  BlockDecoder decoder_;
  std::vector<std::byte> decoded_;
};

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_COLLECT_REWRITE_CODER_H_
