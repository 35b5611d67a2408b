// Big-endian integers of fixed width.

#ifndef CKPTREE_SCHEMA_BIG_ENDIAN_H_
#define CKPTREE_SCHEMA_BIG_ENDIAN_H_

#include <concepts>
#include <cstddef>
#include <string>
#include <string_view>

namespace ckptree::schema {

template <std::unsigned_integral T>
void AppendBig(T value, std::string* out) {
  char bytes[sizeof(T)];
  for (std::size_t i = sizeof(T); i-- > 0;) {
    bytes[i] = static_cast<char>(value & 0xff);
    if constexpr (sizeof(T) > 1) value = static_cast<T>(value >> 8);
  }
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

}  // namespace ckptree::schema

#endif  // CKPTREE_SCHEMA_BIG_ENDIAN_H_
