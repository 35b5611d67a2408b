// SPDX-License-Identifier: Apache-2.0

// From records of the journal to rows.

#ifndef CKPTREE_KV_JOURNAL_REPLAY_H_
#define CKPTREE_KV_JOURNAL_REPLAY_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/digest.h"
#include "kv/journal/overlay.h"
#include "kv/journal/reader.h"
#include "kv/journal/rows_file.h"
#include "kv/options.h"

namespace ckptree::kv {

// The rows that the records (after, up_to] left, blocks by their names. The
// records must all be there: kDataLoss, naming the first that is not.
absl::StatusOr<RowChanges> ChangesOf(const JournalContent& journal,
                                     std::uint64_t after, std::uint64_t up_to);

// The same with the bytes of blocks, for an index: of each space what is after
// its own marker. A block whose bytes the journal does not have is left out.
absl::StatusOr<Overlay::Changes> ChangesOverIndex(const JournalContent& journal,
                                                  std::uint64_t after_records,
                                                  std::uint64_t after_small);

// The bytes of a block, where a record has them whole.
std::optional<std::string_view> BlockOf(const JournalRecord& record,
                                        const RowChange& change);
// All of them: each block has the bytes that its row names.
bool BlocksAreWhole(const JournalRecord& record);
// The same as they are: with damage in them, digests of their own tell which
// leaves are whole.
std::optional<std::string_view> BytesOfBlock(const JournalRecord& record,
                                             const RowChange& change);

// The bytes behind its rows, with zeros for blocks that are not whole.
std::string WholeBlocks(const JournalRecord& record);
// Where in its file the first block begins that is not what its row names.
// Zeros are right in a record that an open copied: nobody had the block.
std::optional<std::uint64_t> PlaceOfWrongBlock(const JournalRecord& record);

// The blocks that all records of `journal` have, by their keys in `small`;
// views into the records.
struct JournalBlocks {
  std::map<std::string, std::string_view, std::less<>> whole;
  // As they are, see BytesOfBlock().
  std::map<std::string, std::string_view, std::less<>> damaged;
};
JournalBlocks BlocksIn(const JournalContent& journal);

// The newest file of all rows in <directory>/journal, by what it says it is; by
// its name where it says nothing.
struct RowsFile {
  std::uint64_t ordinal = 0;         // 0: there is none, and none is needed.
  std::optional<base::Digest> hash;  // Of that commit, where the file says it.
  std::uint64_t bytes = 0;
  std::string path;
  std::string damage;  // Why nothing of it can be read; empty: it can.
};
absl::StatusOr<RowsFile> FindRowsFile(const Options& options,
                                      const std::string& directory);

// The same without an index: where that file says nothing it may have changed
// places with another one, and is looked for in the folder of the index, too.
absl::StatusOr<RowsFile> FindRowsFileAnywhere(const Options& options,
                                              const std::string& directory);

// All living rows as of the tip of `journal`, from the file of all rows and the
// records after it, in order, given to `sink`. kDataLoss where either is not
// whole.
absl::Status AllRows(
    const Options& options, const RowsFile& file, const JournalContent& journal,
    absl::FunctionRef<absl::Status(const RowKey& key, const RowValue& value)>
        sink);

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_JOURNAL_REPLAY_H_
