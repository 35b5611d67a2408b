// SPDX-License-Identifier: Apache-2.0

// What a RocksDB table is made of, as far as we read one ourselves.

#ifndef CKPTREE_KV_ROCKS_TABLE_PARTS_H_
#define CKPTREE_KV_ROCKS_TABLE_PARTS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rocksdb {
class FSRandomAccessFile;
}  // namespace rocksdb

namespace ckptree::kv {

// Where a block stands; its trailer follows: compression (1), checksum (4).
struct BlockPlace {
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
};

inline constexpr std::uint64_t kBlockTrailerBytes = 5;

// Takes numbers and bytes off the front of a block; nothing where it ends
// before they do.
class BlockReader {
 public:
  explicit BlockReader(std::string_view bytes) : bytes_(bytes) {}

  std::optional<std::uint64_t> Varint() {
    if (bytes_.empty()) return std::nullopt;
    const auto byte = static_cast<unsigned char>(bytes_.front());
    if (byte >= 0x80) return LongVarint();
    bytes_.remove_prefix(1);
    return byte;
  }
  std::optional<std::string_view> Bytes(std::uint64_t count);
  std::optional<BlockPlace> Place();
  bool empty() const { return bytes_.empty(); }
  std::size_t left() const { return bytes_.size(); }

 private:
  std::optional<std::uint64_t> LongVarint();

  std::string_view bytes_;
};

// What BlockReader::Varint() takes.
void AppendVarint(std::uint64_t value, std::string* bytes);

// The entries of a block that has only whole keys, without the restarts behind
// them; empty where it is not long enough.
std::string_view BlockEntries(std::string_view block);

// What RocksDB writes behind a block and its compression type, `type`.
std::uint32_t BlockChecksum(std::string_view block, char type);

std::uint32_t LittleEndian32(std::string_view bytes);

struct IndexEntry {
  std::string last_key;  // Not below the key of the block, below the next one.
  BlockPlace place;
};

// The index of a table of format 4 or later with a restart at each entry: no
// key leaves out what it shares with the one before, no place is a difference.
// Nothing where it is another one, or contradicts itself.
std::optional<std::vector<IndexEntry>> ParseIndex(std::string_view index);

// The end of a table, and whatever else of it is asked for.
class TableTail {
 public:
  TableTail(rocksdb::FSRandomAccessFile* file, std::uint64_t file_bytes);

  struct Footer {
    BlockPlace metaindex;
    BlockPlace index;
  };
  // Of a table of format 2 to 5 with kXXH3; nothing of other files.
  std::optional<Footer> ReadFooter();

  // Nothing where the footer or the index is damaged.
  std::optional<std::vector<IndexEntry>> ReadIndex();
  struct IndexBlock {
    std::unique_ptr<char[]> bytes;  // The trailer stands behind them.
    std::size_t size = 0;
  };
  // The same, not decoded.
  std::optional<IndexBlock> ReadIndexBlock();

  // Valid until the next call. Empty where the file does not have them or they
  // cannot be read.
  std::string_view Read(std::uint64_t offset, std::uint64_t size);

  // A block of a size that can be; nothing where it cannot be read. `whole`:
  // the checksum is that of its bytes.
  struct Block {
    std::string_view bytes;
    bool whole = false;
  };
  std::optional<Block> ReadBlock(const BlockPlace& place);

 private:
  std::string_view ReadInto(std::uint64_t offset, std::uint64_t size,
                            std::string* buffer);

  rocksdb::FSRandomAccessFile* const file_;
  const std::uint64_t file_bytes_;
  const std::uint64_t start_;
  std::string tail_;
  std::string other_;
};

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_ROCKS_TABLE_PARTS_H_
