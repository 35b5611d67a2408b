#include "kv/hash.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "kv/commit_log.h"
#include "kv/head.h"
#include "kv/write_batch.h"

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

Hash HashOf(std::string_view bytes) {
  return ToHash(XXH3_128bits(bytes.data(), bytes.size()));
}

Hash HashOfBatch(const WriteBatch& batch) {
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(
      XXH3_createState(), &XXH3_freeState);
  XXH3_128bits_reset(state.get());
  const auto add = [&](std::string_view bytes) {
    XXH3_128bits_update(state.get(), bytes.data(), bytes.size());
  };
  std::string frame;
  for (const WriteBatch::Operation& operation : batch.operations()) {
    frame.clear();
    AppendBigEndian(static_cast<std::uint8_t>(operation.space), &frame);
    AppendBigEndian(static_cast<std::uint8_t>(operation.value.has_value()),
                    &frame);
    AppendBigEndian(static_cast<std::uint32_t>(operation.key.size()), &frame);
    add(frame);
    add(operation.key);
    if (!operation.value.has_value()) continue;
    frame.clear();
    AppendBigEndian(static_cast<std::uint32_t>(operation.value->size()),
                    &frame);
    add(frame);
    add(*operation.value);
  }
  return ToHash(XXH3_128bits_digest(state.get()));
}

}  // namespace ckptree::kv
