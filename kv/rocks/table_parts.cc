// SPDX-License-Identifier: Apache-2.0

#include "kv/rocks/table_parts.h"

#include <algorithm>

#include "base/digest.h"
#include "rocksdb/file_system.h"
#include "rocksdb/slice.h"
#include "rocksdb/table.h"

namespace ckptree::kv {
namespace {

using rocksdb::IOOptions;
using rocksdb::IOStatus;

// Footer of format 2 to 5: checksum type (1), places of the metaindex and the
// index as varints, zeros up to 41, format (4), magic (8).
constexpr std::size_t kFooterBytes = 53;
constexpr std::size_t kPlacesAt = 1;
constexpr std::size_t kMagicAt = 45;
constexpr std::string_view kMagic("\xf7\xcf\xf4\x85\xb7\x41\xe2\x88", 8);
// Properties and metaindex stand before the footer and are mostly smaller.
constexpr std::uint64_t kTailBytes = 4096;
constexpr std::uint64_t kMaxBlockBytes = 64 << 20;

}  // namespace

// Checksum::kXXH3 of format 5 (table/format.cc, ComputeBuiltinChecksum): the
// compression type is mixed in.
std::uint32_t BlockChecksum(std::string_view block, char type) {
  constexpr std::uint32_t kPrime = 0x6b9083d9;
  return static_cast<std::uint32_t>(base::ChecksumOf(block)) ^
         static_cast<unsigned char>(type) * kPrime;
}

std::uint32_t LittleEndian32(std::string_view bytes) {
  std::uint32_t value = 0;
  for (std::size_t i = 4; i-- > 0;) {
    value = (value << 8) | static_cast<unsigned char>(bytes[i]);
  }
  return value;
}

std::optional<std::uint64_t> BlockReader::LongVarint() {
  std::uint64_t value = 0;
  for (int shift = 0; shift < 64 && !bytes_.empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(bytes_.front());
    bytes_.remove_prefix(1);
    value |= std::uint64_t{byte & 0x7fu} << shift;
    if (byte < 0x80) return value;
  }
  return std::nullopt;
}

void AppendVarint(std::uint64_t value, std::string* bytes) {
  for (; value >= 0x80; value >>= 7) {
    bytes->push_back(static_cast<char>(value | 0x80));
  }
  bytes->push_back(static_cast<char>(value));
}

std::optional<std::string_view> BlockReader::Bytes(std::uint64_t count) {
  if (count > bytes_.size()) return std::nullopt;
  const std::string_view taken = bytes_.substr(0, count);
  bytes_.remove_prefix(count);
  return taken;
}

std::optional<BlockPlace> BlockReader::Place() {
  const auto offset = Varint();
  const auto size = Varint();
  if (!offset.has_value() || !size.has_value()) return std::nullopt;
  return BlockPlace{*offset, *size};
}

std::string_view BlockEntries(std::string_view block) {
  if (block.size() < 4) return {};
  const std::uint64_t restart_bytes =
      (std::uint64_t{LittleEndian32(block.substr(block.size() - 4))} + 1) * 4;
  if (restart_bytes > block.size()) return {};
  block.remove_suffix(restart_bytes);
  return block;
}

std::optional<std::vector<IndexEntry>> ParseIndex(std::string_view index) {
  BlockReader reader(BlockEntries(index));
  std::vector<IndexEntry> entries;
  std::uint64_t end = 0;
  while (!reader.empty()) {
    const auto shared = reader.Varint();
    const auto key_bytes = reader.Varint();
    if (!shared.has_value() || *shared != 0 || !key_bytes.has_value()) {
      return std::nullopt;
    }
    const auto key = reader.Bytes(*key_bytes);
    const auto place = reader.Place();
    if (!key.has_value() || !place.has_value() || place->offset != end) {
      return std::nullopt;
    }
    end = place->offset + place->size + kBlockTrailerBytes;
    entries.push_back({std::string(*key), *place});
  }
  return entries;
}

TableTail::TableTail(rocksdb::FSRandomAccessFile* file,
                     std::uint64_t file_bytes)
    : file_(file),
      file_bytes_(file_bytes),
      start_(file_bytes - std::min(file_bytes, kTailBytes)) {}

std::optional<TableTail::Footer> TableTail::ReadFooter() {
  if (file_bytes_ < kFooterBytes) return std::nullopt;
  const std::string_view footer =
      Read(file_bytes_ - kFooterBytes, kFooterBytes);
  if (footer.empty() || footer.substr(kMagicAt) != kMagic ||
      footer[0] != static_cast<char>(rocksdb::kXXH3)) {
    return std::nullopt;
  }
  BlockReader reader(footer.substr(kPlacesAt, kMagicAt));
  const auto metaindex = reader.Place();
  const auto index = reader.Place();
  if (!metaindex.has_value() || !index.has_value()) return std::nullopt;
  return Footer{*metaindex, *index};
}

std::optional<std::vector<IndexEntry>> TableTail::ReadIndex() {
  const std::optional<Footer> footer = ReadFooter();
  if (!footer.has_value()) return std::nullopt;
  const std::optional<Block> block = ReadBlock(footer->index);
  if (!block.has_value() || !block->whole) return std::nullopt;
  return ParseIndex(block->bytes);
}

std::optional<TableTail::IndexBlock> TableTail::ReadIndexBlock() {
  const std::optional<Footer> footer = ReadFooter();
  if (!footer.has_value()) return std::nullopt;
  const BlockPlace& place = footer->index;
  if (place.size > kMaxBlockBytes) return std::nullopt;
  const std::uint64_t size = place.size + kBlockTrailerBytes;
  if (size > file_bytes_ || place.offset > file_bytes_ - size) {
    return std::nullopt;
  }
  IndexBlock block{std::make_unique_for_overwrite<char[]>(size), place.size};
  rocksdb::Slice read;
  const IOStatus status = file_->Read(place.offset, size, IOOptions(), &read,
                                      block.bytes.get(), nullptr);
  if (!status.ok() || read.size() != size) return std::nullopt;
  if (read.data() != block.bytes.get()) {
    std::copy_n(read.data(), read.size(), block.bytes.get());
  }
  const std::string_view all(block.bytes.get(), size);
  if (BlockChecksum(all.substr(0, place.size), all[place.size]) !=
      LittleEndian32(all.substr(place.size + 1))) {
    return std::nullopt;
  }
  return block;
}

std::string_view TableTail::Read(std::uint64_t offset, std::uint64_t size) {
  if (size > file_bytes_ || offset > file_bytes_ - size) return {};
  if (offset < start_) return ReadInto(offset, size, &other_);
  if (tail_.empty() && ReadInto(start_, file_bytes_ - start_, &tail_).empty())
    return {};
  return std::string_view(tail_).substr(offset - start_, size);
}

std::optional<TableTail::Block> TableTail::ReadBlock(const BlockPlace& place) {
  if (place.size > kMaxBlockBytes) return std::nullopt;
  const std::string_view read =
      Read(place.offset, place.size + kBlockTrailerBytes);
  if (read.empty()) return std::nullopt;
  return Block{read.substr(0, place.size),
               BlockChecksum(read.substr(0, place.size), read[place.size]) ==
                   LittleEndian32(read.substr(place.size + 1))};
}

std::string_view TableTail::ReadInto(std::uint64_t offset, std::uint64_t size,
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

}  // namespace ckptree::kv
