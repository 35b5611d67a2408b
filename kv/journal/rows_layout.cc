// SPDX-License-Identifier: Apache-2.0

#include "kv/journal/rows_layout.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "base/big_endian.h"
#include "base/digest.h"
#include "kv/journal/row.h"
#include "kv/journal/rows_file.h"
#include "schema/spaces.h"

namespace ckptree::kv {
namespace {

constexpr std::string_view kRowsMagic = "CKPTROWS";
constexpr std::string_view kRowsFooterMagic = "CKPTROWE";
constexpr std::uint32_t kRowsLayout = 1;
constexpr std::size_t kRowsChecksumBytes = sizeof(std::uint64_t);

enum class RowForm : std::uint8_t { kBytes = 0, kBlockName = 1 };

void AppendHead(const RowsHead& head, std::string* bytes) {
  base::AppendBig(kRowsLayout, bytes);
  bytes->append(head.uuid.begin(), head.uuid.end());
  base::AppendBig(head.ordinal, bytes);
  bytes->append(head.hash.view());
  base::AppendBig(head.incarnation, bytes);
  base::AppendBig(head.version_ceiling, bytes);
}

std::optional<RowsHead> ReadHead(base::BigEndianReader& reader) {
  if (reader.Read<std::uint32_t>() != kRowsLayout) return std::nullopt;
  RowsHead head;
  reader.ReadBytes(head.uuid);
  head.ordinal = reader.Read<std::uint64_t>();
  reader.ReadBytes(head.hash.bytes);
  head.incarnation = reader.Read<std::uint64_t>();
  head.version_ceiling = reader.Read<std::uint64_t>();
  return head;
}

// Of `size` bytes that begin with `magic` and end with their checksum.
bool IsWhole(std::string_view bytes, std::size_t size, std::string_view magic) {
  if (bytes.size() != size || !bytes.starts_with(magic)) return false;
  base::BigEndianReader reader(bytes.substr(size - kRowsChecksumBytes));
  return reader.Read<std::uint64_t>() ==
         base::ChecksumOf(bytes.substr(0, size - kRowsChecksumBytes));
}

std::uint64_t HeaderChecksum(std::uint64_t preface_checksum,
                             std::string_view fields) {
  std::string bytes;
  base::AppendBig(preface_checksum, &bytes);
  bytes.append(fields);
  return base::ChecksumOf(bytes);
}

}  // namespace

std::string EncodeRowsPreface(const RowsHead& head) {
  std::string bytes(kRowsMagic);
  AppendHead(head, &bytes);
  base::AppendBig(base::ChecksumOf(bytes), &bytes);
  return bytes;
}

std::optional<RowsHead> DecodeRowsPreface(std::string_view bytes) {
  if (!IsWhole(bytes, kRowsPrefaceBytes, kRowsMagic)) return std::nullopt;
  base::BigEndianReader reader(bytes);
  reader.Skip(kRowsMagic.size());
  return ReadHead(reader);
}

std::uint64_t RowsPrefaceChecksum(const RowsHead& head) {
  const std::string bytes = EncodeRowsPreface(head);
  return base::ChecksumOf(
      std::string_view(bytes).substr(0, bytes.size() - kRowsChecksumBytes));
}

std::string EncodeRowsBlockHeader(const RowsBlockHeader& header,
                                  std::uint64_t offset,
                                  std::uint64_t preface_checksum) {
  std::string bytes(kRowsHeaderMagic);
  base::AppendBig(header.length, &bytes);
  base::AppendBig(header.count, &bytes);
  base::AppendBig(header.rows_before, &bytes);
  base::AppendBig(offset, &bytes);
  base::AppendBig(header.checksum, &bytes);
  base::AppendBig(HeaderChecksum(preface_checksum, bytes), &bytes);
  return bytes;
}

std::optional<RowsBlockHeader> DecodeRowsBlockHeader(
    std::string_view bytes, std::uint64_t offset,
    std::uint64_t preface_checksum) {
  if (bytes.size() != kRowsHeaderBytes ||
      !bytes.starts_with(kRowsHeaderMagic)) {
    return std::nullopt;
  }
  base::BigEndianReader reader(bytes);
  reader.Skip(kRowsHeaderMagic.size());
  RowsBlockHeader header;
  header.length = reader.Read<std::uint32_t>();
  header.count = reader.Read<std::uint32_t>();
  header.rows_before = reader.Read<std::uint64_t>();
  const auto place = reader.Read<std::uint64_t>();
  header.checksum = reader.Read<std::uint64_t>();
  if (place != offset || header.count == 0 ||
      reader.Read<std::uint64_t>() !=
          HeaderChecksum(
              preface_checksum,
              bytes.substr(0, kRowsHeaderBytes - kRowsChecksumBytes))) {
    return std::nullopt;
  }
  return header;
}

std::uint64_t ExtendRowsDigest(std::uint64_t digest, std::string_view header) {
  std::string bytes;
  base::AppendBig(digest, &bytes);
  bytes.append(header);
  return base::ChecksumOf(bytes);
}

std::string EncodeRowsFooter(const RowsFooter& footer, std::uint64_t offset) {
  std::string bytes(kRowsFooterMagic);
  AppendHead(footer.head, &bytes);
  base::AppendBig(footer.rows, &bytes);
  base::AppendBig(footer.blocks, &bytes);
  base::AppendBig(footer.digest, &bytes);
  base::AppendBig(offset, &bytes);
  base::AppendBig(base::ChecksumOf(bytes), &bytes);
  return bytes;
}

std::optional<RowsFooter> DecodeRowsFooter(std::string_view bytes,
                                           std::uint64_t offset) {
  if (!IsWhole(bytes, kRowsFooterBytes, kRowsFooterMagic)) return std::nullopt;
  base::BigEndianReader reader(bytes);
  reader.Skip(kRowsFooterMagic.size());
  const std::optional<RowsHead> head = ReadHead(reader);
  if (!head.has_value()) return std::nullopt;
  RowsFooter footer;
  footer.head = *head;
  footer.rows = reader.Read<std::uint64_t>();
  footer.blocks = reader.Read<std::uint64_t>();
  footer.digest = reader.Read<std::uint64_t>();
  if (reader.Read<std::uint64_t>() != offset) return std::nullopt;
  return footer;
}

std::uint64_t RowsEntryBytes(const RowKey& key, const RowValue& value) {
  std::uint64_t bytes = 2 + sizeof(std::uint32_t) + key.key.size();
  if (const auto* const stored = std::get_if<std::string>(&value)) {
    bytes += sizeof(std::uint32_t) + stored->size();
  } else {
    bytes += sizeof(std::uint64_t) + sizeof(base::Digest);
  }
  return bytes;
}

void AppendRowsEntry(const RowKey& key, const RowValue& value,
                     std::string* bytes) {
  const auto* const stored = std::get_if<std::string>(&value);
  base::AppendBig(static_cast<std::uint8_t>(key.space), bytes);
  base::AppendBig(
      static_cast<std::uint8_t>(stored != nullptr ? RowForm::kBytes
                                                  : RowForm::kBlockName),
      bytes);
  base::AppendBig(static_cast<std::uint32_t>(key.key.size()), bytes);
  bytes->append(key.key);
  if (stored != nullptr) {
    base::AppendBig(static_cast<std::uint32_t>(stored->size()), bytes);
    bytes->append(*stored);
    return;
  }
  const auto& name = std::get<BlockName>(value);
  base::AppendBig(name.length, bytes);
  bytes->append(name.digest.view());
}

bool TakeRowsEntry(std::string_view* bytes, RowsEntry* entry) {
  // Each is checked to be there before it is read.
  const auto has = [&](std::uint64_t count) { return bytes->size() >= count; };
  const auto take = [&](std::size_t count) {
    const std::string_view taken = bytes->substr(0, count);
    bytes->remove_prefix(count);
    return taken;
  };
  const auto take_length = [&] {
    return base::BigEndianReader(take(sizeof(std::uint32_t)))
        .Read<std::uint32_t>();
  };
  if (!has(2 + sizeof(std::uint32_t))) return false;
  const auto space = static_cast<schema::Space>(take(1).front());
  const auto kind = static_cast<RowForm>(take(1).front());
  if (space != schema::Space::kRecords && space != schema::Space::kSmall) {
    return false;
  }
  entry->key.space = space;
  const std::uint32_t key_length = take_length();
  if (!has(key_length)) return false;
  entry->key.key = take(key_length);
  if (kind == RowForm::kBytes) {
    if (!has(sizeof(std::uint32_t))) return false;
    const std::uint32_t length = take_length();
    if (!has(length)) return false;
    entry->value = std::string(take(length));
    return true;
  }
  if (kind != RowForm::kBlockName ||
      !has(sizeof(std::uint64_t) + sizeof(base::Digest))) {
    return false;
  }
  BlockName name;
  name.length =
      base::BigEndianReader(take(sizeof(std::uint64_t))).Read<std::uint64_t>();
  base::BigEndianReader(take(sizeof(base::Digest)))
      .ReadBytes(name.digest.bytes);
  entry->value = name;
  return true;
}

}  // namespace ckptree::kv
