// SPDX-License-Identifier: Apache-2.0

#include "core/array/stream_copy.h"

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace ckptree::internal {
namespace {

TEST(StreamCopy, CopiesAllAndNothingElse) {
  constexpr std::size_t kLarge = std::size_t{1} << 20;
  std::mt19937_64 random(5);
  std::vector<std::byte> from(kLarge + 4096);
  for (std::byte& byte : from) byte = static_cast<std::byte>(random());
  // Below and above where it goes past the caches, at all kinds of places.
  for (const std::size_t bytes :
       {std::size_t{0}, std::size_t{1}, kLarge - 1, kLarge, kLarge + 1,
        kLarge + 63, kLarge + 64, kLarge + 999}) {
    for (const std::size_t shift :
         std::initializer_list<std::size_t>{0, 1, 16, 63, 64}) {
      std::vector<std::byte> to(bytes + 256, std::byte{0x5a});
      StreamCopy(to.data() + shift, from.data() + 2 * shift, bytes);
      for (std::size_t i = 0; i < to.size(); ++i) {
        const bool inside = i >= shift && i < shift + bytes;
        const std::byte wanted =
            inside ? from[2 * shift + i - shift] : std::byte{0x5a};
        if (to[i] != wanted) {
          FAIL() << "byte " << i << " of " << bytes << " at " << shift;
        }
      }
    }
  }
}

}  // namespace
}  // namespace ckptree::internal
