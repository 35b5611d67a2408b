// SPDX-License-Identifier: Apache-2.0

// What was read of a file, to be given once more.

#ifndef CKPTREE_KV_ROCKS_READ_PIECES_H_
#define CKPTREE_KV_ROCKS_READ_PIECES_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace ckptree::kv {

// A value; not thread-safe.
class ReadPieces {
 public:
  // Of two at one place the longer one is kept.
  void Keep(std::uint64_t offset, std::string_view bytes);
  // Copies `bytes` of them from `offset` on where one piece has all of these.
  bool Find(std::uint64_t offset, std::size_t bytes, char* to) const;

 private:
  std::map<std::uint64_t, std::string> pieces_;  // By their places.
};

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_ROCKS_READ_PIECES_H_
