// SPDX-License-Identifier: Apache-2.0

// All living rows of a store as of one commit, in one file.
//
// <store>/journal/rows-<ordinal, 20 decimal digits>; written as rows.tmp and
// renamed. All integers are big-endian, all checksums XXH3-64. The file is a
// preface, any number of blocks, a footer; every byte belongs to one of them,
// and one of the checksums is over it. The preface:
//
//   offset  bytes  field
//        0      8  "CKPTROWS"
//        8      4  layout, 1
//       12     16  uuid of the store
//       28      8  ordinal of the commit that the rows are as of
//       36     16  hash of that commit's record
//       52      8  incarnation
//       60      8  version ceiling
//       68      8  checksum of the 68 bytes before
//
// A block is a header, then its entries. A writer closes a block before an
// entry would make its entries longer than 64 KiB; a longer entry has its own
// block. A reader takes any length. The header:
//
//   offset  bytes  field
//        0      4  "ROWB"
//        4      4  length of the entries, in bytes
//        8      4  count of the entries, at least 1
//       12      8  rows in the blocks before
//       20      8  offset of this header in the file
//       28      8  checksum of the entries
//       36      8  checksum of 44 bytes: the 8 at offset 68 of the preface,
//                  then the 36 before this field. So a header is known for one
//                  of this file, at its place, wherever it is met.
//
// An entry; entries are in strictly ascending order of (space, key):
//
//       1  space: 0 records, 1 small
//       1  kind: 0 the value's bytes follow, 1 the name of a block follows
//       4  length of the key
//          key
//   kind 0:
//       4  length of the value
//          value
//   kind 1:
//       8  length of the block
//      16  XXH3-128 of its bytes, canonical
//
// The footer, the last 108 bytes of the file:
//
//   offset  bytes  field
//        0      8  "CKPTROWE"
//        8     60  the 60 bytes at offset 8 of the preface again
//       68      8  count of the rows
//       76      8  count of the blocks
//       84      8  digest of the headers: beginning with the preface's
//                  checksum, for each block the checksum of 52 bytes: the
//                  digest so far, then the block's header
//       92      8  offset of the footer in the file
//      100      8  checksum of the 100 bytes before

#ifndef CKPTREE_KV_JOURNAL_ROWS_FILE_H_
#define CKPTREE_KV_JOURNAL_ROWS_FILE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/digest.h"
#include "kv/journal/row.h"
#include "kv/options.h"

namespace ckptree::kv {

inline constexpr std::string_view kRowsTemporaryName = "rows.tmp";
inline constexpr std::size_t kRowsBlockBytes = std::size_t{64} << 10;

std::string RowsFileName(std::uint64_t ordinal);
// The ordinal in the name; nothing where it is no name of such a file.
std::optional<std::uint64_t> OrdinalOfRowsFile(std::string_view name);

// What the preface says of the file.
struct RowsHead {
  std::array<std::uint8_t, 16> uuid{};
  std::uint64_t ordinal = 0;
  base::Digest hash{};
  std::uint64_t incarnation = 0;
  std::uint64_t version_ceiling = 0;

  friend bool operator==(const RowsHead&, const RowsHead&) = default;
};

// Writes one file.
//
// Confined to one thread at a time. One at a time in a directory.
class RowsWriter {
 public:
  // Begins rows.tmp in `directory`, in place of one that is there.
  // `block_bytes` is for tests.
  static absl::StatusOr<std::unique_ptr<RowsWriter>> Create(
      const Options& options, const std::string& directory,
      const RowsHead& head, std::size_t block_bytes = kRowsBlockBytes);

  // Without Finish() rows.tmp may be left behind.
  ~RowsWriter();
  RowsWriter(const RowsWriter&) = delete;
  RowsWriter& operator=(const RowsWriter&) = delete;

  // REQUIRES: greater than the row before (kInvalidArgument otherwise).
  absl::Status Add(const RowKey& key, const RowValue& value);

  // Syncs the file, reads it back past the page cache, and only then gives it
  // its name, durably. After an error, here or in Add(), rows.tmp is removed,
  // and the name is not there or is what it was; but where the last step, the
  // sync of the directory, failed, the whole file has its name.
  absl::Status Finish();

  std::uint64_t rows() const;
  // Written so far.
  std::uint64_t bytes() const;

 private:
  struct Impl;
  explicit RowsWriter(std::unique_ptr<Impl> impl);
  absl::Status WriteBlock();
  absl::Status WriteFooter();
  absl::Status CheckWritten() const;
  std::unique_ptr<Impl> impl_;
};

struct RowsEntry {
  RowKey key;
  RowValue value;
};

// A part of the file that could not be read.
struct RowsDamage {
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  // Lost with it; nothing where that is not known.
  std::optional<std::uint64_t> rows;
  // Their keys lie between these two; nothing: no such bound.
  std::optional<RowKey> after;
  std::optional<RowKey> before;
  std::string what;
};

// Reads one file, in order, holding one block at a time.
//
// Confined to one thread at a time.
class RowsReader {
 public:
  enum class OnDamage {
    kStop,  // The first damage is an error.
    kGoOn,  // It is noted, and what stands behind it is read.
  };

  // Checks size, preface and footer. kNotFound without the file; kDataLoss
  // where one of them is damaged, with kGoOn only where both are.
  static absl::StatusOr<std::unique_ptr<RowsReader>> Open(
      const Options& options, const std::string& path,
      OnDamage on_damage = OnDamage::kStop);

  ~RowsReader();
  RowsReader(const RowsReader&) = delete;
  RowsReader& operator=(const RowsReader&) = delete;

  const RowsHead& head() const;
  // As the footer says; nothing where it is damaged.
  std::optional<std::uint64_t> rows() const;

  // The next row, valid until the next call; null at the end. kDataLoss names
  // file and offset, and comes again with every further call.
  absl::StatusOr<const RowsEntry*> Next();

  // kGoOn: what was met so far; after the end, all there is. Empty then: the
  // file is whole.
  const std::vector<RowsDamage>& damage() const;

 private:
  struct Impl;
  explicit RowsReader(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Reads all of a file. As RowsReader with kStop says what is wrong.
absl::Status CheckRowsFile(const Options& options, const std::string& path);

// Nothing: the row is deleted.
using RowChanges = std::map<RowKey, std::optional<RowValue>>;

// Adds the rows of `base` (may be null: none) with `changes` over them to
// `writer`, from where `base` stands; Finish() is the caller's. kDataLoss where
// `base` is damaged.
absl::Status MergeRows(RowsReader* base, const RowChanges& changes,
                       RowsWriter* writer);

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_JOURNAL_ROWS_FILE_H_
