// Hashes and big-endian integers of what kv writes itself.

#ifndef CKPTREE_KV_HASH_H_
#define CKPTREE_KV_HASH_H_

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace ckptree::kv {

// 16 bytes of XXH3-128, canonical.
using Hash = std::array<std::uint8_t, 16>;
Hash HashOf(std::string_view bytes);

// XXH3-64.
std::uint64_t Checksum(std::string_view bytes);
// Of both, one after the other.
std::uint64_t Checksum2(std::string_view first, std::string_view second);

template <std::unsigned_integral T>
void AppendBigEndian(T value, std::string* bytes) {
  for (std::size_t i = sizeof(T); i-- > 0;) {
    bytes->push_back(static_cast<char>((value >> (8 * i)) & 0xff));
  }
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

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_HASH_H_
