// SPDX-License-Identifier: Apache-2.0

// Big-endian integers of fixed width.

#ifndef CKPTREE_BASE_BIG_ENDIAN_H_
#define CKPTREE_BASE_BIG_ENDIAN_H_

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace ckptree::base {

// To the sizeof(T) bytes at `out`.
template <std::unsigned_integral T>
void WriteBig(T value, char* out) {
  for (std::size_t i = sizeof(T); i-- > 0;) {
    out[i] = static_cast<char>(value & 0xff);
    if constexpr (sizeof(T) > 1) value = static_cast<T>(value >> 8);
  }
}

template <std::unsigned_integral T>
void AppendBig(T value, std::string* out) {
  char bytes[sizeof(T)];
  WriteBig(value, bytes);
  out->append(bytes, sizeof(T));
}

// REQUIRES: at + sizeof(T) <= bytes.size().
template <std::unsigned_integral T>
T ReadBig(std::string_view bytes, std::size_t at) {
  T value = 0;
  for (std::size_t i = 0; i < sizeof(T); ++i) {
    if constexpr (sizeof(T) > 1) value = static_cast<T>(value << 8);
    value = static_cast<T>(value | static_cast<unsigned char>(bytes[at + i]));
  }
  return value;
}

// Reads past the end give zeros; the caller checks the size first.
class BigEndianReader {
 public:
  explicit BigEndianReader(std::string_view bytes) : bytes_(bytes) {}

  template <std::unsigned_integral T>
  T Read() {
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < sizeof(T); ++i) value = (value << 8) | Next();
    return static_cast<T>(value);
  }
  template <std::size_t kSize>
  void ReadBytes(std::array<std::uint8_t, kSize>& out) {
    for (std::uint8_t& byte : out) byte = Next();
  }
  void Skip(std::size_t count) { position_ += count; }
  std::size_t position() const { return position_; }

 private:
  std::uint8_t Next() {
    const std::size_t at = position_++;
    return at < bytes_.size() ? static_cast<std::uint8_t>(bytes_[at])
                              : std::uint8_t{0};
  }

  std::string_view bytes_;
  std::size_t position_ = 0;
};

}  // namespace ckptree::base

#endif  // CKPTREE_BASE_BIG_ENDIAN_H_
