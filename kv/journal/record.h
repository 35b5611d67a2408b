// SPDX-License-Identifier: Apache-2.0

// A record of the journal: one commit, and where it stands in both copies.

#ifndef CKPTREE_KV_JOURNAL_RECORD_H_
#define CKPTREE_KV_JOURNAL_RECORD_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/digest.h"
#include "kv/commit_kind.h"
#include "kv/journal/row.h"
#include "kv/write_batch.h"

namespace ckptree::kv {

// Everything in the first copy stands at multiples of it, so that what was
// acknowledged is never in a sector that is written again.
inline constexpr std::uint64_t kJournalSector = 4096;
// The next multiple of it.
constexpr std::uint64_t ToSectors(std::uint64_t bytes) {
  return (bytes + kJournalSector - 1) / kJournalSector * kJournalSector;
}

// What a record says in addition to its rows. On disk kRecordHeaderBytes,
// big-endian.
struct RecordHeader {
  CommitKind kind = CommitKind::kSave;
  std::uint64_t file = 0;     // Number of the file that it was written to.
  std::uint64_t session = 0;  // Of the open that wrote it.
  std::uint64_t ordinal = 0;  // 1, 2, ... without gap.
  std::uint64_t version = 0;  // That is saved or collected; 0 otherwise.
  std::uint64_t version_ceiling = 0;  // No version above it was used by then.
  std::uint64_t incarnation = 0;
  std::int64_t time_ns = 0;       // UTC since 1970.
  std::uint64_t a_offset = 0;     // Its place in the first copy,
  std::uint64_t b_offset = 0;     // and in the second.
  std::uint64_t rows_bytes = 0;   // Of the rows behind the header.
  std::uint64_t block_bytes = 0;  // Of the blocks behind the rows, in a.
  base::Digest previous{};        // Of the record before; zeros in the first.

  friend bool operator==(const RecordHeader&, const RecordHeader&) = default;
};

inline constexpr std::string_view kRecordMagic = "CKJR";
inline constexpr std::size_t kRecordHeaderBytes = 120;

// The bytes of header and rows: equal in both copies, and what the hash of a
// record is over.
std::string EncodeRecord(const RecordHeader& header, std::string_view rows);

// Fills in rows_bytes and block_bytes; the result is rows and blocks.
struct EncodedBatch {
  std::string rows;
  std::string blocks;
};
EncodedBatch EncodeBatch(const WriteBatch& batch);

// A record as it was found. Views into the bytes it was parsed from.
struct ParsedRecord {
  RecordHeader header;
  base::Digest hash{};
  std::string_view rows;
  // Where it stands; a copy of it keeps the header of the original.
  std::uint64_t a_place = 0;
  std::uint64_t b_place = 0;

  std::uint64_t a_blocks() const;  // Where its blocks begin.
  std::uint64_t a_end() const;     // A multiple of the sector.
  std::uint64_t b_end() const;
};

// The record at `offset` of a copy's bytes: nothing where there is no whole
// one. Where it is from is for the caller to check.
std::optional<ParsedRecord> ParseRecord(std::string_view bytes,
                                        std::uint64_t offset);

// How many bytes a record that begins with `bytes` has in the first copy, its
// blocks included: for one that reads it in two steps. Not checked but for
// being possible; nothing where no record begins there.
std::optional<std::uint64_t> RecordBytes(std::string_view bytes);

// One change of a row.
struct RowChange {
  schema::Space space = schema::Space::kRecords;
  std::string_view key;
  enum class What : std::uint8_t { kDelete = 0, kPut = 1, kBlock = 2 };
  What what = What::kDelete;
  std::string_view value;          // kPut.
  BlockName block;                 // kBlock.
  std::uint64_t block_offset = 0;  // Among the record's blocks.
};

// In their order. kDataLoss where the bytes are no rows.
absl::StatusOr<std::vector<RowChange>> DecodeRows(std::string_view rows);

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_JOURNAL_RECORD_H_
