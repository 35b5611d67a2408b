// SPDX-License-Identifier: Apache-2.0

// Hot path: per chunk.

#include "base/digest.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/digest_kernel.h"

namespace ckptree::base {

DigestKernels KernelsHere() {
  DigestKernels here{{&kBaselineKernel}, 1};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) {
    here.kernels[here.count++] = &kAvx2Kernel;
  }
  if (__builtin_cpu_supports("avx512f")) {
    here.kernels[here.count++] = &kAvx512Kernel;
  }
#endif
  return here;
}

const DigestKernel& ChosenKernel() {
  static const DigestKernel& chosen = []() -> const DigestKernel& {
    const DigestKernels here = KernelsHere();
    return *here.kernels[here.count - 1];
  }();
  return chosen;
}

std::string Digest::Hex() const {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  text.reserve(2 * bytes.size());
  for (const std::uint8_t byte : bytes) {
    text.push_back(kDigits[byte >> 4]);
    text.push_back(kDigits[byte & 0xf]);
  }
  return text;
}

Digest Digest::FromBytes(std::string_view raw) {
  Digest digest;
  // Shorter input is a caller's mistake; it must not become a wild read.
  std::memcpy(
      digest.bytes.data(), raw.data(),
      raw.size() < digest.bytes.size() ? raw.size() : digest.bytes.size());
  return digest;
}

Digest DigestOf(std::span<const std::byte> content) {
  Digest digest;
  ChosenKernel().digest(content.data(), content.size(), digest.bytes.data());
  return digest;
}

Digest DigestOf(std::string_view content) {
  Digest digest;
  ChosenKernel().digest(content.data(), content.size(), digest.bytes.data());
  return digest;
}

std::uint64_t ChecksumOf(std::string_view content) {
  return ChosenKernel().checksum(content.data(), content.size());
}

std::uint64_t ChecksumOf(std::string_view first, std::string_view second) {
  // Below this many bytes a copy is cheaper than hashing in two pieces.
  constexpr std::size_t kCopyBytes = 520;
  const DigestKernel& kernel = ChosenKernel();
  const std::size_t size = first.size() + second.size();
  if (size > kCopyBytes) {
    return kernel.checksum_of_pair(first.data(), first.size(), second.data(),
                                   second.size());
  }
  char joined[kCopyBytes];
  std::copy(second.begin(), second.end(),
            std::copy(first.begin(), first.end(), joined));
  return kernel.checksum(joined, size);
}

struct DigestStream::State {
  DigestState hash;
};

DigestStream::DigestStream() : state_(std::make_unique<State>()) {
  ChosenKernel().begin(&state_->hash);
}
DigestStream::~DigestStream() = default;
DigestStream::DigestStream(DigestStream&&) noexcept = default;
DigestStream& DigestStream::operator=(DigestStream&&) noexcept = default;

void DigestStream::Update(std::span<const std::byte> piece) {
  if (piece.empty()) return;
  ChosenKernel().update(&state_->hash, piece.data(), piece.size());
}

void DigestStream::Update(std::string_view piece) {
  if (piece.empty()) return;
  ChosenKernel().update(&state_->hash, piece.data(), piece.size());
}

Digest DigestStream::Finish() const {
  Digest digest;
  ChosenKernel().finish(&state_->hash, digest.bytes.data());
  return digest;
}

}  // namespace ckptree::base
