// Hashes and big-endian integers of HEAD and the commit records.

#ifndef CKPTREE_KV_HASH_H_
#define CKPTREE_KV_HASH_H_

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "kv/head.h"
#include "kv/write_batch.h"

namespace ckptree::kv {

// XXH3-64.
std::uint64_t Checksum(std::string_view bytes);

// XXH3-128 over every operation in order: u8 space, u8 1 for a put or 0 for a
// delete, u32 key length, key, and for a put u32 value length and value.
Hash HashOfBatch(const WriteBatch& batch);

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
