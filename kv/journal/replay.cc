// SPDX-License-Identifier: Apache-2.0

#include "kv/journal/replay.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "base/digest.h"
#include "base/status_macros.h"
#include "kv/file_system.h"
#include "kv/journal/record.h"
#include "kv/store_directory.h"

namespace ckptree::kv {
namespace {

using schema::Space;

absl::Status Missing(std::uint64_t ordinal) {
  return absl::DataLossError(absl::StrFormat(
      "commit %d was acknowledged and is missing in the journal", ordinal));
}

absl::Status ForEachChange(const JournalContent& journal, std::uint64_t after,
                           std::uint64_t up_to,
                           absl::FunctionRef<void(const JournalRecord& record,
                                                  const RowChange& change)>
                               visit) {
  for (std::uint64_t ordinal = after + 1; ordinal <= up_to; ++ordinal) {
    const auto found = journal.records.find(ordinal);
    if (found == journal.records.end()) return Missing(ordinal);
    CKPTREE_ASSIGN_OR_RETURN(const std::vector<RowChange> changes,
                             DecodeRows(found->second.rows));
    for (const RowChange& change : changes) visit(found->second, change);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<RowChanges> ChangesOf(const JournalContent& journal,
                                     std::uint64_t after, std::uint64_t up_to) {
  RowChanges rows;
  CKPTREE_RETURN_IF_ERROR(
      ForEachChange(journal, after, up_to,
                    [&rows](const JournalRecord&, const RowChange& change) {
                      std::optional<RowValue>& value =
                          rows[{change.space, std::string(change.key)}];
                      switch (change.what) {
                        case RowChange::What::kDelete:
                          value.reset();
                          break;
                        case RowChange::What::kPut:
                          value.emplace(std::string(change.value));
                          break;
                        case RowChange::What::kBlock:
                          value.emplace(change.block);
                          break;
                      }
                    }));
  return rows;
}

std::optional<std::string_view> BytesOfBlock(const JournalRecord& record,
                                             const RowChange& change) {
  if (change.what != RowChange::What::kBlock ||
      change.block.length > record.blocks.size() ||
      change.block_offset > record.blocks.size() - change.block.length) {
    return std::nullopt;
  }
  return record.blocks.substr(change.block_offset, change.block.length);
}

std::optional<std::string_view> BlockOf(const JournalRecord& record,
                                        const RowChange& change) {
  const auto bytes = BytesOfBlock(record, change);
  if (!bytes.has_value() || base::DigestOf(*bytes) != change.block.digest) {
    return std::nullopt;
  }
  return bytes;
}

bool BlocksAreWhole(const JournalRecord& record) {
  const auto rows = DecodeRows(record.rows);
  if (!rows.ok() || record.blocks.size() != record.header.block_bytes) {
    return false;
  }
  return std::all_of(rows->begin(), rows->end(), [&](const RowChange& row) {
    return row.what != RowChange::What::kBlock ||
           BlockOf(record, row).has_value();
  });
}

namespace {

// Calls `visit` with each block that is there, and is not what its row names.
void ForEachWrongBlock(
    const JournalRecord& record,
    absl::FunctionRef<void(const RowChange& row, std::string_view bytes)>
        visit) {
  if (record.blocks.empty()) return;
  const auto rows = DecodeRows(record.rows);
  if (!rows.ok()) return;
  for (const RowChange& row : *rows) {
    const auto bytes = BytesOfBlock(record, row);
    if (bytes.has_value() && !BlockOf(record, row).has_value()) {
      visit(row, *bytes);
    }
  }
}

}  // namespace

std::string WholeBlocks(const JournalRecord& record) {
  std::string blocks(record.blocks);
  blocks.resize(record.header.block_bytes, '\0');
  ForEachWrongBlock(record, [&](const RowChange& row, std::string_view bytes) {
    blocks.replace(row.block_offset, bytes.size(), bytes.size(), '\0');
  });
  return blocks;
}

std::optional<std::uint64_t> PlaceOfWrongBlock(const JournalRecord& record) {
  const bool copied = record.header.file != record.file;
  std::optional<std::uint64_t> place;
  ForEachWrongBlock(record, [&](const RowChange& row, std::string_view bytes) {
    if (place.has_value() || (copied && AllZero(bytes))) return;
    place = record.a_blocks() + row.block_offset;
  });
  return place;
}

JournalBlocks BlocksIn(const JournalContent& journal) {
  JournalBlocks blocks;
  for (const auto& [ordinal, record] : journal.records) {
    const absl::StatusOr<std::vector<RowChange>> changes =
        DecodeRows(record.rows);
    if (!changes.ok()) continue;
    for (const RowChange& change : *changes) {
      if (const auto bytes = BlockOf(record, change)) {
        blocks.whole[std::string(change.key)] = *bytes;
      } else if (const auto broken = BytesOfBlock(record, change)) {
        blocks.damaged[std::string(change.key)] = *broken;
      }
    }
  }
  return blocks;
}

absl::StatusOr<Overlay::Changes> ChangesOverIndex(const JournalContent& journal,
                                                  std::uint64_t after_records,
                                                  std::uint64_t after_small) {
  Overlay::Changes rows;
  CKPTREE_RETURN_IF_ERROR(ForEachChange(
      journal, std::min(after_records, after_small), journal.tip.ordinal,
      [&](const JournalRecord& record, const RowChange& change) {
        const std::uint64_t after =
            change.space == Space::kRecords ? after_records : after_small;
        if (record.header.ordinal <= after) return;
        RowKey key{change.space, std::string(change.key)};
        switch (change.what) {
          case RowChange::What::kDelete:
            rows[std::move(key)].reset();
            break;
          case RowChange::What::kPut:
            rows[std::move(key)].emplace(change.value);
            break;
          case RowChange::What::kBlock:
            // The only place that has it.
            if (const auto bytes = BytesOfBlock(record, change)) {
              rows[std::move(key)].emplace(*bytes);
            }
            break;
        }
      }));
  return rows;
}

absl::StatusOr<RowsFile> FindRowsFile(const Options& options,
                                      const std::string& directory) {
  const std::string journal = Join(directory, kJournalName);
  CKPTREE_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                           ListDirectory(options, journal));
  RowsFile newest;
  for (const std::string& name : names) {
    const auto named = OrdinalOfRowsFile(name);
    if (!named.has_value()) continue;
    RowsFile file;
    file.ordinal = *named;
    file.path = Join(journal, name);
    const absl::StatusOr<std::unique_ptr<RowsReader>> reader =
        RowsReader::Open(options, file.path, RowsReader::OnDamage::kGoOn);
    if (reader.ok()) {
      file.ordinal = (*reader)->head().ordinal;
      file.hash = (*reader)->head().hash;
    } else {
      if (absl::IsDataLoss(reader.status())) {
        file.damage = std::string(reader.status().message());
      }
      // A name alone says nothing of commits that the journal does not know of.
      const absl::StatusOr<JournalContent> records = ReadJournal(
          options, directory, ~std::uint64_t{0}, /*beside_writer=*/true);
      if (records.ok() && records->tip.ordinal != 0 &&
          *named > records->tip.ordinal) {
        continue;
      }
    }
    // A file under its own name goes before another that says the same.
    if (file.ordinal > newest.ordinal ||
        (file.ordinal == newest.ordinal && *named == file.ordinal)) {
      newest = std::move(file);
    }
  }
  if (newest.ordinal > 0) {
    const absl::StatusOr<std::uint64_t> bytes = FileSize(options, newest.path);
    newest.bytes = bytes.ok() ? *bytes : 0;
  }
  return newest;
}

absl::StatusOr<RowsFile> FindRowsFileAnywhere(const Options& options,
                                              const std::string& directory) {
  CKPTREE_ASSIGN_OR_RETURN(RowsFile file, FindRowsFile(options, directory));
  if (file.ordinal == 0 || file.hash.has_value()) return file;
  const std::string folder = IndexDirectory(directory);
  CKPTREE_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                           ListDirectory(options, folder));
  for (const std::string& name : names) {
    const std::string path = Join(folder, name);
    const absl::StatusOr<std::unique_ptr<RowsReader>> reader =
        RowsReader::Open(options, path);
    if (!reader.ok() || (*reader)->head().ordinal != file.ordinal) continue;
    file.hash = (*reader)->head().hash;
    CKPTREE_ASSIGN_OR_RETURN(file.bytes, FileSize(options, path));
    file.path = path;
    file.damage.clear();
    break;
  }
  return file;
}

absl::Status AllRows(
    const Options& options, const RowsFile& file, const JournalContent& journal,
    absl::FunctionRef<absl::Status(const RowKey& key, const RowValue& value)>
        sink) {
  std::unique_ptr<RowsReader> base;
  if (file.ordinal > 0) {
    CKPTREE_ASSIGN_OR_RETURN(base, RowsReader::Open(options, file.path));
  }
  // A record before the first that is there is needed only without the file.
  CKPTREE_ASSIGN_OR_RETURN(
      const RowChanges changes,
      ChangesOf(journal, file.ordinal,
                std::max(file.ordinal, journal.tip.ordinal)));
  if (base != nullptr && journal.tip.ordinal > file.ordinal) {
    const auto next = journal.records.find(file.ordinal + 1);
    if (next->second.header.previous != base->head().hash) {
      return absl::DataLossError(
          absl::StrFormat("%s is not of the chain of commits", file.path));
    }
  }
  auto change = changes.begin();
  const auto give = [&](const RowKey& key,
                        const std::optional<RowValue>& value) {
    return value.has_value() ? sink(key, *value) : absl::OkStatus();
  };
  while (base != nullptr) {
    CKPTREE_ASSIGN_OR_RETURN(const RowsEntry* const entry, base->Next());
    if (entry == nullptr) break;
    while (change != changes.end() && change->first < entry->key) {
      CKPTREE_RETURN_IF_ERROR(give(change->first, change->second));
      ++change;
    }
    if (change != changes.end() && change->first == entry->key) continue;
    CKPTREE_RETURN_IF_ERROR(sink(entry->key, entry->value));
  }
  for (; change != changes.end(); ++change) {
    CKPTREE_RETURN_IF_ERROR(give(change->first, change->second));
  }
  return absl::OkStatus();
}

}  // namespace ckptree::kv
