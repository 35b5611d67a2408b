// SPDX-License-Identifier: Apache-2.0

// Hot path: per leaf that is read.

#include "schema/slice_proof.h"

#include <array>
#include <concepts>
#include <cstddef>
#include <cstring>
#include <string_view>

namespace ckptree::schema {
namespace {

// 'v', version, part, ordinal, and three digests.
constexpr std::size_t kProvedBytes =
    1 + sizeof(std::uint64_t) + sizeof(std::uint16_t) + sizeof(std::uint32_t) +
    3 * base::kDigestBytes;

// Big-endian.
template <std::unsigned_integral T>
char* Put(T value, char* to) {
  for (std::size_t i = 0; i < sizeof(T); ++i) {
    to[i] = static_cast<char>((value >> (8 * (sizeof(T) - 1 - i))) & 0xff);
  }
  return to + sizeof(T);
}

char* Put(const base::Digest& digest, char* to) {
  std::memcpy(to, digest.bytes.data(), base::kDigestBytes);
  return to + base::kDigestBytes;
}

}  // namespace

base::Digest SliceProof(const ProvedLeaf& leaf, const base::Digest& value) {
  std::array<char, kProvedBytes> all;
  all[0] = 'v';
  char* to = Put(leaf.version, all.data() + 1);
  to = Put(leaf.part, to);
  to = Put(leaf.ordinal, to);
  to = Put(leaf.tree, to);
  to = Put(leaf.step, to);
  Put(value, to);
  return base::DigestOf(std::string_view(all.data(), all.size()));
}

}  // namespace ckptree::schema
