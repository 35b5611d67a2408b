// SPDX-License-Identifier: Apache-2.0

// The fixed parts of a rows file: see rows_file.h for the bytes.

#ifndef CKPTREE_KV_JOURNAL_ROWS_LAYOUT_H_
#define CKPTREE_KV_JOURNAL_ROWS_LAYOUT_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "kv/journal/row.h"
#include "kv/journal/rows_file.h"

namespace ckptree::kv {

inline constexpr std::size_t kRowsPrefaceBytes = 76;
inline constexpr std::size_t kRowsHeaderBytes = 44;
inline constexpr std::size_t kRowsFooterBytes = 108;
inline constexpr std::string_view kRowsHeaderMagic = "ROWB";

std::string EncodeRowsPreface(const RowsHead& head);
// All Decode functions give nothing where anything is wrong.
std::optional<RowsHead> DecodeRowsPreface(std::string_view bytes);
// The checksum that ends the preface of `head`.
std::uint64_t RowsPrefaceChecksum(const RowsHead& head);

struct RowsBlockHeader {
  std::uint32_t length = 0;
  std::uint32_t count = 0;
  std::uint64_t rows_before = 0;
  std::uint64_t checksum = 0;  // Of the entries.
};

std::string EncodeRowsBlockHeader(const RowsBlockHeader& header,
                                  std::uint64_t offset,
                                  std::uint64_t preface_checksum);
std::optional<RowsBlockHeader> DecodeRowsBlockHeader(
    std::string_view bytes, std::uint64_t offset,
    std::uint64_t preface_checksum);

// The digest of the headers with one more.
std::uint64_t ExtendRowsDigest(std::uint64_t digest, std::string_view header);

struct RowsFooter {
  RowsHead head;
  std::uint64_t rows = 0;
  std::uint64_t blocks = 0;
  std::uint64_t digest = 0;
};

std::string EncodeRowsFooter(const RowsFooter& footer, std::uint64_t offset);
std::optional<RowsFooter> DecodeRowsFooter(std::string_view bytes,
                                           std::uint64_t offset);

// Bytes that AppendRowsEntry() adds.
std::uint64_t RowsEntryBytes(const RowKey& key, const RowValue& value);
void AppendRowsEntry(const RowKey& key, const RowValue& value,
                     std::string* bytes);
// Takes one entry from the front of `bytes`; false where there is none.
bool TakeRowsEntry(std::string_view* bytes, RowsEntry* entry);

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_JOURNAL_ROWS_LAYOUT_H_
