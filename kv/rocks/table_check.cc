// SPDX-License-Identifier: Apache-2.0

#include "kv/rocks/table_check.h"

#include <optional>
#include <string_view>

#include "kv/rocks/table_parts.h"

namespace ckptree::kv {
namespace {

// Where the metaindex says the properties are. Its keys are whole: a restart at
// each.
std::optional<BlockPlace> FindProperties(std::string_view metaindex) {
  BlockReader reader(BlockEntries(metaindex));
  while (const auto shared = reader.Varint()) {
    const auto key_bytes = reader.Varint();
    const auto value_bytes = reader.Varint();
    if (*shared != 0 || !key_bytes.has_value() || !value_bytes.has_value()) {
      return std::nullopt;
    }
    const auto key = reader.Bytes(*key_bytes);
    const auto value = reader.Bytes(*value_bytes);
    if (!key.has_value() || !value.has_value()) return std::nullopt;
    if (*key == "rocksdb.properties") return BlockReader(*value).Place();
  }
  return std::nullopt;
}

}  // namespace

bool TablePropertiesAreWhole(rocksdb::FSRandomAccessFile* file,
                             std::uint64_t file_bytes) {
  TableTail tail(file, file_bytes);
  const std::optional<TableTail::Footer> footer = tail.ReadFooter();
  if (!footer.has_value()) return true;
  const auto place = FindProperties(
      tail.Read(footer->metaindex.offset, footer->metaindex.size));
  if (!place.has_value()) return true;
  const std::optional<TableTail::Block> block = tail.ReadBlock(*place);
  return !block.has_value() || block->whole;
}

}  // namespace ckptree::kv
