// SPDX-License-Identifier: Apache-2.0

// XXH3-128 of raw content: what "unchanged" means everywhere in a store.

#ifndef CKPTREE_BASE_DIGEST_H_
#define CKPTREE_BASE_DIGEST_H_

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace ckptree::base {

inline constexpr std::size_t kDigestBytes = 16;

// Sixteen bytes: the canonical (big-endian) form of XXH3-128, seed 0. Detects
// accidents; it is not cryptographic.
struct Digest {
  std::array<std::uint8_t, kDigestBytes> bytes{};

  friend auto operator<=>(const Digest&, const Digest&) = default;

  // 32 lower-case hexadecimal digits.
  std::string Hex() const;

  // The bytes, as they stand in keys and records.
  std::string_view view() const {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

  // REQUIRES: raw.size() == kDigestBytes.
  static Digest FromBytes(std::string_view raw);
};

// Hashes `content`. The code is compiled for SSE2, AVX2 and AVX-512 and chosen
// once by what the processor has; all give the same digest. Thread-safe.
Digest DigestOf(std::span<const std::byte> content);
Digest DigestOf(std::string_view content);

// XXH3-64 of `content`, seed 0: the checksum of envelopes.
std::uint64_t ChecksumOf(std::string_view content);
// Of both, one after the other.
std::uint64_t ChecksumOf(std::string_view first, std::string_view second);

// Hashes content that comes in pieces. Confined to one thread at a time.
class DigestStream {
 public:
  DigestStream();
  ~DigestStream();
  DigestStream(const DigestStream&) = delete;
  DigestStream& operator=(const DigestStream&) = delete;
  DigestStream(DigestStream&&) noexcept;
  DigestStream& operator=(DigestStream&&) noexcept;

  void Update(std::span<const std::byte> piece);
  void Update(std::string_view piece);

  // The digest of everything so far; more may follow.
  Digest Finish() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ckptree::base

#endif  // CKPTREE_BASE_DIGEST_H_
