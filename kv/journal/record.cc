// SPDX-License-Identifier: Apache-2.0

#include "kv/journal/record.h"

#include <utility>

#include "absl/strings/str_format.h"
#include "base/big_endian.h"
#include "base/digest.h"

namespace ckptree::kv {
namespace {

constexpr std::uint8_t kRecordLayout = 1;
constexpr std::size_t kChecksumBytes = sizeof(std::uint64_t);
constexpr std::size_t kHeaderCheckedBytes = kRecordHeaderBytes - kChecksumBytes;
// Of rows_bytes and block_bytes in the header.
constexpr std::size_t kLengthsAt = 80;
// Far above any length, and far below where a sum of some would wrap.
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 40;

bool IsKind(std::uint8_t kind) {
  return kind >= static_cast<std::uint8_t>(CommitKind::kCreate) &&
         kind <= static_cast<std::uint8_t>(CommitKind::kSeal);
}

absl::Status Broken(std::size_t at) {
  return absl::DataLossError(
      absl::StrFormat("the rows of a commit end at byte %d", at));
}

}  // namespace

std::uint64_t ParsedRecord::a_blocks() const {
  return a_place + kRecordHeaderBytes + header.rows_bytes;
}

std::uint64_t ParsedRecord::a_end() const {
  return a_place +
         ToSectors(kRecordHeaderBytes + header.rows_bytes + header.block_bytes);
}

std::uint64_t ParsedRecord::b_end() const {
  return b_place + kRecordHeaderBytes + header.rows_bytes;
}

std::string EncodeRecord(const RecordHeader& header, std::string_view rows) {
  std::string bytes;
  bytes.reserve(kRecordHeaderBytes + rows.size());
  bytes.append(kRecordMagic);
  base::AppendBig(kRecordLayout, &bytes);
  base::AppendBig(static_cast<std::uint8_t>(header.kind), &bytes);
  base::AppendBig(std::uint16_t{0}, &bytes);
  base::AppendBig(header.file, &bytes);
  base::AppendBig(header.session, &bytes);
  base::AppendBig(header.ordinal, &bytes);
  base::AppendBig(header.version, &bytes);
  base::AppendBig(header.version_ceiling, &bytes);
  base::AppendBig(header.incarnation, &bytes);
  base::AppendBig(static_cast<std::uint64_t>(header.time_ns), &bytes);
  base::AppendBig(header.a_offset, &bytes);
  base::AppendBig(header.b_offset, &bytes);
  base::AppendBig(std::uint64_t{rows.size()}, &bytes);
  base::AppendBig(header.block_bytes, &bytes);
  bytes.append(header.previous.view());
  const std::uint64_t checksum = base::ChecksumOf(bytes, rows);
  base::AppendBig(checksum, &bytes);
  bytes.append(rows);
  return bytes;
}

EncodedBatch EncodeBatch(const WriteBatch& batch) {
  EncodedBatch encoded;
  encoded.rows.reserve(batch.bytes() + 16 * batch.operations().size());
  for (const WriteBatch::Operation& operation : batch.operations()) {
    const auto what = !operation.value.has_value() ? RowChange::What::kDelete
                      : operation.block            ? RowChange::What::kBlock
                                                   : RowChange::What::kPut;
    base::AppendBig(static_cast<std::uint8_t>(operation.space), &encoded.rows);
    base::AppendBig(static_cast<std::uint8_t>(what), &encoded.rows);
    base::AppendBig(static_cast<std::uint32_t>(operation.key.size()),
                    &encoded.rows);
    encoded.rows.append(operation.key);
    if (what == RowChange::What::kPut) {
      base::AppendBig(static_cast<std::uint32_t>(operation.value->size()),
                      &encoded.rows);
      encoded.rows.append(*operation.value);
    } else if (what == RowChange::What::kBlock) {
      base::AppendBig(std::uint64_t{operation.value->size()}, &encoded.rows);
      const base::Digest digest = base::DigestOf(*operation.value);
      encoded.rows.append(digest.view());
      encoded.blocks.append(*operation.value);
    }
  }
  return encoded;
}

std::optional<ParsedRecord> ParseRecord(std::string_view bytes,
                                        std::uint64_t offset) {
  if (offset > bytes.size() || bytes.size() - offset < kRecordHeaderBytes) {
    return std::nullopt;
  }
  const std::string_view at = bytes.substr(offset);
  if (!at.starts_with(kRecordMagic)) return std::nullopt;
  base::BigEndianReader reader(at);
  reader.Skip(kRecordMagic.size());
  if (reader.Read<std::uint8_t>() != kRecordLayout) return std::nullopt;
  const auto kind = reader.Read<std::uint8_t>();
  if (!IsKind(kind) || reader.Read<std::uint16_t>() != 0) return std::nullopt;
  ParsedRecord record;
  RecordHeader& header = record.header;
  header.kind = static_cast<CommitKind>(kind);
  header.file = reader.Read<std::uint64_t>();
  header.session = reader.Read<std::uint64_t>();
  header.ordinal = reader.Read<std::uint64_t>();
  header.version = reader.Read<std::uint64_t>();
  header.version_ceiling = reader.Read<std::uint64_t>();
  header.incarnation = reader.Read<std::uint64_t>();
  header.time_ns = static_cast<std::int64_t>(reader.Read<std::uint64_t>());
  header.a_offset = reader.Read<std::uint64_t>();
  header.b_offset = reader.Read<std::uint64_t>();
  header.rows_bytes = reader.Read<std::uint64_t>();
  header.block_bytes = reader.Read<std::uint64_t>();
  reader.ReadBytes(header.previous.bytes);
  // Lengths before anything that is sized by them.
  if (header.rows_bytes > at.size() - kRecordHeaderBytes ||
      header.block_bytes > kMostBytes || header.a_offset > kMostBytes ||
      header.b_offset > kMostBytes) {
    return std::nullopt;
  }
  const auto checksum = reader.Read<std::uint64_t>();
  record.rows = at.substr(kRecordHeaderBytes, header.rows_bytes);
  if (checksum !=
      base::ChecksumOf(at.substr(0, kHeaderCheckedBytes), record.rows)) {
    return std::nullopt;
  }
  record.a_place = header.a_offset;
  record.b_place = header.b_offset;
  record.hash =
      base::DigestOf(at.substr(0, kRecordHeaderBytes + header.rows_bytes));
  return record;
}

std::optional<std::uint64_t> RecordBytes(std::string_view bytes) {
  if (bytes.size() < kRecordHeaderBytes || !bytes.starts_with(kRecordMagic)) {
    return std::nullopt;
  }
  base::BigEndianReader reader(bytes);
  reader.Skip(kLengthsAt);
  const auto rows_bytes = reader.Read<std::uint64_t>();
  const auto block_bytes = reader.Read<std::uint64_t>();
  if (rows_bytes > kMostBytes || block_bytes > kMostBytes) return std::nullopt;
  return kRecordHeaderBytes + rows_bytes + block_bytes;
}

absl::StatusOr<std::vector<RowChange>> DecodeRows(std::string_view rows) {
  std::vector<RowChange> changes;
  std::size_t at = 0;
  std::uint64_t block_offset = 0;
  const auto left = [&] { return rows.size() - at; };
  while (at < rows.size()) {
    constexpr std::size_t kFront = 1 + 1 + sizeof(std::uint32_t);
    if (left() < kFront) return Broken(at);
    base::BigEndianReader reader(rows.substr(at));
    RowChange change;
    const auto space = reader.Read<std::uint8_t>();
    const auto what = reader.Read<std::uint8_t>();
    const auto key_bytes = reader.Read<std::uint32_t>();
    at += kFront;
    if (space > static_cast<std::uint8_t>(schema::Space::kSmall) ||
        what > static_cast<std::uint8_t>(RowChange::What::kBlock) ||
        left() < key_bytes) {
      return Broken(at);
    }
    change.space = static_cast<schema::Space>(space);
    change.what = static_cast<RowChange::What>(what);
    change.key = rows.substr(at, key_bytes);
    at += key_bytes;
    if (change.what == RowChange::What::kPut) {
      if (left() < sizeof(std::uint32_t)) return Broken(at);
      const auto value_bytes =
          base::BigEndianReader(rows.substr(at)).Read<std::uint32_t>();
      at += sizeof(std::uint32_t);
      if (left() < value_bytes) return Broken(at);
      change.value = rows.substr(at, value_bytes);
      at += value_bytes;
    } else if (change.what == RowChange::What::kBlock) {
      constexpr std::size_t kName =
          sizeof(std::uint64_t) + sizeof(base::Digest);
      if (left() < kName) return Broken(at);
      base::BigEndianReader name(rows.substr(at));
      change.block.length = name.Read<std::uint64_t>();
      name.ReadBytes(change.block.digest.bytes);
      at += kName;
      change.block_offset = block_offset;
      block_offset += change.block.length;
    }
    changes.push_back(change);
  }
  return changes;
}

}  // namespace ckptree::kv
