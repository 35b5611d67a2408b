// SPDX-License-Identifier: Apache-2.0

#include "kv/rocks/read_pieces.h"

#include <algorithm>

namespace ckptree::kv {

void ReadPieces::Keep(std::uint64_t offset, std::string_view bytes) {
  std::string& piece = pieces_[offset];
  if (piece.size() < bytes.size()) piece = bytes;
}

bool ReadPieces::Find(std::uint64_t offset, std::size_t bytes, char* to) const {
  auto after = pieces_.upper_bound(offset);
  while (after != pieces_.begin()) {
    const auto& [at, piece] = *--after;
    if (at + piece.size() < offset + bytes) continue;
    std::copy_n(piece.data() + (offset - at), bytes, to);
    return true;
  }
  return false;
}

}  // namespace ckptree::kv
