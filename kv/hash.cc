#include "kv/hash.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace ckptree::kv {
namespace {

// Canonical: most significant byte first.
Hash ToHash(XXH128_hash_t value) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, value);
  Hash hash;
  std::copy_n(canonical.digest, hash.size(), hash.begin());
  return hash;
}

}  // namespace

std::uint64_t Checksum(std::string_view bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

std::uint64_t Checksum2(std::string_view first, std::string_view second) {
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(
      XXH3_createState(), &XXH3_freeState);
  XXH3_64bits_reset(state.get());
  XXH3_64bits_update(state.get(), first.data(), first.size());
  XXH3_64bits_update(state.get(), second.data(), second.size());
  return XXH3_64bits_digest(state.get());
}

Hash HashOf(std::string_view bytes) {
  return ToHash(XXH3_128bits(bytes.data(), bytes.size()));
}

}  // namespace ckptree::kv
