// SPDX-License-Identifier: Apache-2.0

#include "kv/rocks/table_check.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

#include "kv/rocks/table_parts.h"

namespace ckptree::kv {
namespace {

// Whether RocksDB can parse the block: its entries lie within it, keys share
// what there is to share, and each restart is at an entry with a whole key.
// What is given to `entry` is the key, where it is whole, and the value.
template <typename EntryFn>
bool IsSound(std::string_view block, const EntryFn& entry) {
  const std::string_view entries = BlockEntries(block);
  if (entries.empty()) return false;
  BlockReader reader(entries);
  std::vector<std::size_t> whole;
  std::uint64_t key_before = 0;
  while (!reader.empty()) {
    const std::size_t at = entries.size() - reader.left();
    const auto shared = reader.Varint();
    const auto key_bytes = reader.Varint();
    const auto value_bytes = reader.Varint();
    if (!value_bytes.has_value() || *shared > key_before) return false;
    const auto key = reader.Bytes(*key_bytes);
    const auto value = reader.Bytes(*value_bytes);
    if (!key.has_value() || !value.has_value()) return false;
    if (*shared == 0) {
      whole.push_back(at);
      entry(*key, *value);
    }
    key_before = *shared + *key_bytes;
  }
  std::string_view restarts = block.substr(entries.size());
  if (restarts.size() < 8) return false;
  for (restarts.remove_suffix(4); !restarts.empty();
       restarts.remove_prefix(4)) {
    if (!std::ranges::binary_search(whole,
                                    LittleEndian32(restarts.substr(0, 4)))) {
      return false;
    }
  }
  return true;
}

}  // namespace

Opening CheckOpening(rocksdb::FSRandomAccessFile* file,
                     std::uint64_t file_bytes) {
  TableTail tail(file, file_bytes);
  const std::optional<TableTail::Footer> footer = tail.ReadFooter();
  if (!footer.has_value()) return Opening::kTold;
  const std::optional<TableTail::Block> metaindex =
      tail.ReadBlock(footer->metaindex);
  if (!metaindex.has_value() || !metaindex->whole) return Opening::kTold;
  std::optional<BlockPlace> place;
  const bool sound = IsSound(metaindex->bytes,
                             [&](std::string_view key, std::string_view value) {
                               if (key == "rocksdb.properties")
                                 place = BlockReader(value).Place();
                             });
  if (!sound || !place.has_value()) return Opening::kHarmful;
  const std::optional<TableTail::Block> block = tail.ReadBlock(*place);
  if (!block.has_value()) return Opening::kTold;
  return block->whole && IsSound(block->bytes,
                                 [](std::string_view, std::string_view) {})
             ? Opening::kWhole
             : Opening::kHarmful;
}

}  // namespace ckptree::kv
