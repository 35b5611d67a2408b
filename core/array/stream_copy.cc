// SPDX-License-Identifier: Apache-2.0

// Hot path: per chunk.

#include "core/array/stream_copy.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace ckptree::internal {
namespace {

// What the caches of a processor hold without much else.
[[maybe_unused]] constexpr std::size_t kWorthIt = std::size_t{1} << 20;

}  // namespace

void StreamCopy(std::byte* to, const std::byte* from, std::size_t bytes) {
#ifdef __SSE2__
  constexpr std::size_t kLine = 64;
  if (bytes >= kWorthIt) {
    const std::size_t before =
        (kLine - reinterpret_cast<std::uintptr_t>(to) % kLine) % kLine;
    std::memcpy(to, from, before);
    const std::size_t end = before + (bytes - before) / kLine * kLine;
    for (std::size_t at = before; at < end; at += kLine) {
      const auto* const source = reinterpret_cast<const __m128i*>(from + at);
      auto* const place = reinterpret_cast<__m128i*>(to + at);
      const __m128i a = _mm_loadu_si128(source);
      const __m128i b = _mm_loadu_si128(source + 1);
      const __m128i c = _mm_loadu_si128(source + 2);
      const __m128i d = _mm_loadu_si128(source + 3);
      _mm_stream_si128(place, a);
      _mm_stream_si128(place + 1, b);
      _mm_stream_si128(place + 2, c);
      _mm_stream_si128(place + 3, d);
    }
    // Before others are told that it is there.
    _mm_sfence();
    std::memcpy(to + end, from + end, bytes - end);
    return;
  }
#endif
  std::memcpy(to, from, bytes);
}

}  // namespace ckptree::internal
