#include "kv/table_check.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "rocksdb/file_system.h"
#include "rocksdb/slice.h"
#include "rocksdb/table.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace ckptree::kv {
namespace {

using rocksdb::IOOptions;
using rocksdb::IOStatus;

// Footer of format 2 to 5: checksum type (1), handles of the metaindex and the
// index as varints, zeros up to 41, format (4), magic (8).
constexpr std::size_t kFooterBytes = 53;
constexpr std::size_t kHandlesAt = 1;
constexpr std::size_t kMagicAt = 45;
constexpr std::string_view kMagic("\xf7\xcf\xf4\x85\xb7\x41\xe2\x88", 8);
constexpr std::uint64_t kTrailerBytes = 5;  // Compression (1), checksum (4).
// Properties and metaindex stand before the footer and are mostly smaller.
constexpr std::uint64_t kTailBytes = 4096;
constexpr std::uint64_t kMaxBlockBytes = 64 << 20;

struct Handle {
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
};

class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}

  std::optional<std::uint64_t> Varint() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64 && !bytes_.empty(); shift += 7) {
      const auto byte = static_cast<unsigned char>(bytes_.front());
      bytes_.remove_prefix(1);
      value |= std::uint64_t{byte & 0x7fu} << shift;
      if (byte < 0x80) return value;
    }
    return std::nullopt;
  }
  std::optional<std::string_view> Bytes(std::uint64_t count) {
    if (count > bytes_.size()) return std::nullopt;
    const std::string_view taken = bytes_.substr(0, count);
    bytes_.remove_prefix(count);
    return taken;
  }
  std::optional<Handle> BlockHandle() {
    const auto offset = Varint();
    const auto size = Varint();
    if (!offset.has_value() || !size.has_value()) return std::nullopt;
    return Handle{*offset, *size};
  }

 private:
  std::string_view bytes_;
};

// The end of the file, and whatever else of it is asked for.
class Tail {
 public:
  Tail(rocksdb::FSRandomAccessFile* file, std::uint64_t file_bytes)
      : file_(file),
        file_bytes_(file_bytes),
        start_(file_bytes - std::min(file_bytes, kTailBytes)) {}

  // Empty where the file does not have them or they cannot be read: RocksDB is
  // about to find the same.
  std::string_view Read(std::uint64_t offset, std::uint64_t size) {
    if (size > file_bytes_ || offset > file_bytes_ - size) return {};
    if (offset < start_) return ReadInto(offset, size, &other_);
    if (tail_.empty() && ReadInto(start_, file_bytes_ - start_, &tail_).empty())
      return {};
    return std::string_view(tail_).substr(offset - start_, size);
  }

 private:
  std::string_view ReadInto(std::uint64_t offset, std::uint64_t size,
                            std::string* buffer) {
    buffer->resize(size);
    rocksdb::Slice read;
    const IOStatus status =
        file_->Read(offset, size, IOOptions(), &read, buffer->data(), nullptr);
    if (!status.ok() || read.size() != size) {
      buffer->clear();
    } else if (read.data() != buffer->data()) {
      buffer->assign(read.data(), read.size());
    }
    return *buffer;
  }

  rocksdb::FSRandomAccessFile* const file_;
  const std::uint64_t file_bytes_;
  const std::uint64_t start_;
  std::string tail_;
  std::string other_;
};

// Checksum::kXXH3 of format 5 (table/format.cc, ComputeBuiltinChecksum): the
// last byte, which is the compression type, is mixed in.
std::uint32_t BlockChecksum(std::string_view block_and_type) {
  constexpr std::uint32_t kPrime = 0x6b9083d9;
  const std::size_t before = block_and_type.size() - 1;
  const auto type = static_cast<unsigned char>(block_and_type.back());
  return static_cast<std::uint32_t>(
             XXH3_64bits(block_and_type.data(), before)) ^
         type * kPrime;
}

std::uint32_t LittleEndian32(std::string_view bytes) {
  std::uint32_t value = 0;
  for (std::size_t i = 4; i-- > 0;) {
    value = (value << 8) | static_cast<unsigned char>(bytes[i]);
  }
  return value;
}

// Where the metaindex says the properties are. Its keys are whole: a restart at
// each.
std::optional<Handle> FindProperties(std::string_view metaindex) {
  if (metaindex.size() < 4) return std::nullopt;
  const std::uint64_t restart_bytes =
      (std::uint64_t{LittleEndian32(metaindex.substr(metaindex.size() - 4))} +
       1) *
      4;
  if (restart_bytes > metaindex.size()) return std::nullopt;
  std::string_view entries = metaindex;
  entries.remove_suffix(restart_bytes);
  Reader reader(entries);
  while (const auto shared = reader.Varint()) {
    const auto key_bytes = reader.Varint();
    const auto value_bytes = reader.Varint();
    if (*shared != 0 || !key_bytes.has_value() || !value_bytes.has_value()) {
      return std::nullopt;
    }
    const auto key = reader.Bytes(*key_bytes);
    const auto value = reader.Bytes(*value_bytes);
    if (!key.has_value() || !value.has_value()) return std::nullopt;
    if (*key == "rocksdb.properties") return Reader(*value).BlockHandle();
  }
  return std::nullopt;
}

}  // namespace

bool TablePropertiesAreWhole(rocksdb::FSRandomAccessFile* file,
                             std::uint64_t file_bytes) {
  if (file_bytes < kFooterBytes) return true;
  Tail tail(file, file_bytes);
  const std::string_view footer =
      tail.Read(file_bytes - kFooterBytes, kFooterBytes);
  if (footer.empty() || footer.substr(kMagicAt) != kMagic ||
      footer[0] != static_cast<char>(rocksdb::kXXH3)) {
    return true;
  }
  const auto metaindex =
      Reader(footer.substr(kHandlesAt, kMagicAt)).BlockHandle();
  if (!metaindex.has_value()) return true;
  const auto handle =
      FindProperties(tail.Read(metaindex->offset, metaindex->size));
  if (!handle.has_value() || handle->size > kMaxBlockBytes) return true;
  const std::string_view block =
      tail.Read(handle->offset, handle->size + kTrailerBytes);
  if (block.empty()) return true;
  return BlockChecksum(block.substr(0, handle->size + 1)) ==
         LittleEndian32(block.substr(handle->size + 1));
}

}  // namespace ckptree::kv
