// SPDX-License-Identifier: Apache-2.0

// What the two copies of the journal say together.

#ifndef CKPTREE_KV_JOURNAL_READER_H_
#define CKPTREE_KV_JOURNAL_READER_H_

#include <array>
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
#include "kv/journal/preface.h"
#include "kv/journal/record.h"
#include "kv/options.h"

namespace ckptree::kv {

// A point of the chain of commits.
struct ChainPoint {
  std::uint64_t ordinal = 0;  // 0: before the first.
  base::Digest hash{};

  friend bool operator==(const ChainPoint&, const ChainPoint&) = default;
};

// A record, and what its bytes stand on.
struct JournalRecord : ParsedRecord {
  std::uint64_t file = 0;  // In which it stands.
  // Of the first copy; empty where that is damaged, though header.block_bytes
  // may not be 0. Each block has a digest in `rows`.
  std::string_view blocks;
  std::shared_ptr<const std::string> held[2];  // The copies' bytes.

  ChainPoint point() const { return {header.ordinal, hash}; }
};

// Commits that were acknowledged and of which no copy has a record.
struct LostCommits {
  std::uint64_t first = 0;
  std::uint64_t last = 0;
};

// "commit 7 was acknowledged and is missing", or of several.
std::string Text(const LostCommits& lost);

struct JournalContent {
  // By ordinal: the chain that ends at the tip, as far as it was asked for.
  std::map<std::uint64_t, JournalRecord> records;
  ChainPoint tip;  // 0: no record was found.
  // Of the last file with a record; the ceiling is the highest of all.
  Preface newest;
  std::uint64_t version_ceiling = 0;
  std::uint64_t highest_file = 0;  // Number of any file, used or not.
  std::uint64_t highest_session = 0;
  // Where the next record will stand, if not in a later file: in the first copy
  // of the last file that was begun. 0: none was.
  std::uint64_t end_file = 0;
  std::uint64_t end_offset = 0;
  bool sealed = false;  // The last open closed it.
  // Commits up to here are in no file that is there, but in that of all rows.
  std::uint64_t begins_behind = 0;
  std::vector<LostCommits> lost;  // Holes in the chain, and behind the tip.
  // At least up to here commits are durable: the writer had their syncs behind
  // it. A record beyond may be one whose sync goes on, or fails.
  std::uint64_t durable = 0;
  // The last that was acknowledged, as `tip` has it; it may be an older one.
  std::optional<ChainPoint> noted;
  // Not OK where newer commits may be missing and nobody can tell.
  absl::Status doubt;
  // The same, unless somebody else knows that `noted` is the last: why.
  std::string open_end;
  // Damage that the other copy made good, and that which cost blocks.
  std::vector<std::string> damage;
  std::vector<JournalFileId> files;  // All that are there, ascending.
  // Second copies that have holes or end early, as a crash leaves them where
  // they were not synced: to be mended without a word.
  std::vector<std::string> ragged;
  // The name of the file that is in the place of `tip`; empty: none is.
  std::string in_tip;
};

// A file that the disk cannot give, by EIO, is taken for a damaged one.
enum class WhereUnreadable {
  // But a first copy: its error is returned.
  kFirstCopyIsRefused,
  kIsDamage,  // Also that: what is left is saved elsewhere.
};

// Reads all records from `from` on, from both copies: nothing is lost while
// each is whole in one of them. `beside_writer`: what is being written right
// now is neither damage nor lost. kNotFound where there is no journal.
//
// Sources: the file number and the place in both copies stand in each record,
// so a record that is whole in one copy shows where the next one begins in the
// other, and bytes of the user's that look like a record are never one.
absl::StatusOr<JournalContent> ReadJournal(
    const Options& options, const std::string& directory, std::uint64_t from,
    bool beside_writer,
    WhereUnreadable unreadable = WhereUnreadable::kFirstCopyIsRefused);

// The hash of a commit, as a record or the tip note says it; nothing where
// neither does.
std::optional<base::Digest> HashAt(const JournalContent& journal,
                                   std::uint64_t ordinal);

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_JOURNAL_READER_H_
