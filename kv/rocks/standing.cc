// SPDX-License-Identifier: Apache-2.0

#include "kv/rocks/standing.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <string_view>
#include <utility>

#include "absl/strings/str_format.h"
#include "base/big_endian.h"
#include "base/digest.h"
#include "base/status_macros.h"
#include "kv/file_system.h"
#include "kv/files/file_system_of.h"
#include "kv/rocks/guard.h"
#include "kv/rocks/marker.h"
#include "kv/rocks/memory_index.h"
#include "kv/rocks/table_source.h"
#include "kv/store_directory.h"
#include "rocksdb/db.h"
#include "rocksdb/file_system.h"
#include "rocksdb/metadata.h"

namespace ckptree::kv {
namespace {

using schema::Space;

absl::Status Lost(std::uint64_t first, std::uint64_t last) {
  return absl::DataLossError(Text(LostCommits{first, last}));
}

// Whether rows up to `marker` are those of this journal's commits.
std::string CheckMarker(const JournalContent& journal,
                        const ChainPoint& marker) {
  const std::optional<base::Digest> known = HashAt(journal, marker.ordinal);
  if (marker.ordinal > journal.tip.ordinal) return "";  // Told as a loss.
  if (!known.has_value()) {
    return absl::StrFormat("it ends at commit %d, older than the journal",
                           marker.ordinal);
  }
  if (*known != marker.hash) {
    return absl::StrFormat("its commit %d is not the journal's",
                           marker.ordinal);
  }
  return "";
}

// The commit that all rows are as of, without the journal's records.
ChainPoint CommitOfRows(const Standing& standing) {
  if (standing.index == nullptr) {
    return {standing.rows.ordinal, standing.rows.hash.value_or(base::Digest{})};
  }
  return standing.records.ordinal < standing.small.ordinal ? standing.records
                                                           : standing.small;
}

// Of commits that nobody has a record of: those that the index does not have
// either are lost, or the file of all rows where that is read in its place.
// Where it has the last ones, it is known by them how far the chain goes.
void JudgeLosses(Standing* standing, bool beside_writer) {
  JournalContent& journal = standing->journal;
  std::vector<LostCommits> all = journal.lost;
  const std::uint64_t seen =
      std::max({standing->records.ordinal, standing->small.ordinal,
                standing->rows.ordinal});
  const std::uint64_t tip = journal.tip.ordinal;
  if (seen > tip && !all.empty() && all.back().last > tip) {
    all.back().last = std::max(all.back().last, seen);
  } else if (seen > tip) {
    all.push_back({tip + 1, seen});
  }
  const ChainPoint rows = CommitOfRows(*standing);
  // Beside a writer one of the two was read too early.
  const bool goes_on = rows.ordinal > tip && !beside_writer;
  const std::uint64_t had =
      beside_writer ? std::min(rows.ordinal, tip) : rows.ordinal;
  for (const LostCommits& lost : all) {
    // Files of records that the file of all rows covers are dropped, and after
    // a crash an older one may still be there: a directory loses its entries in
    // any order.
    if (lost.last <= standing->rows.ordinal && lost.last < tip) continue;
    const std::uint64_t last = std::min(lost.last, had);
    if (lost.first <= last) {
      standing->damage.push_back(absl::StrFormat(
          "the journal has no record of %s any more; %s",
          lost.first == last
              ? absl::StrFormat("commit %d", last)
              : absl::StrFormat("commits %d to %d", lost.first, last),
          standing->index == nullptr
              ? RowsFileName(standing->rows.ordinal) + " has the rows"
              : "the index has the rows"));
    }
    if (lost.last > had && standing->lost.ok()) {
      standing->lost = Lost(std::max(lost.first, had + 1), lost.last);
    }
  }
  if (goes_on) {
    journal.tip = rows;
    // A seal of an earlier file says nothing of what came behind that.
    if (journal.open_end.empty()) {
      journal.open_end = absl::StrFormat(
          "the journal has no commit after %d, there was one", tip);
    }
  }
  if (standing->lost.ok()) standing->lost = journal.doubt;
  if (standing->lost.ok() && !journal.open_end.empty() &&
      journal.noted != journal.tip) {
    standing->lost = absl::DataLossError(absl::StrFormat(
        "%s, and nobody can tell whether commits after %d are missing",
        journal.open_end, journal.tip.ordinal));
  }
}

// Why the file of all rows has another name than its own; empty: it has it.
std::string WrongName(const RowsFile& rows) {
  const std::filesystem::path path(rows.path);
  const std::filesystem::path folder = path.parent_path().filename();
  return rows.ordinal == 0 || (folder == kJournalName &&
                               path.filename() == RowsFileName(rows.ordinal))
             ? ""
             : absl::StrFormat("%s is %s under another name",
                               (folder / path.filename()).string(),
                               RowsFileName(rows.ordinal));
}

// Damage that cost no row, the index being whole.
std::vector<std::string> DamageOfJournal(const Standing& standing,
                                         bool beside_writer) {
  std::vector<std::string> damage = standing.journal.damage;
  if (beside_writer) return damage;
  const RowsFile& rows = standing.rows;
  if (std::string wrong = WrongName(rows); !wrong.empty()) {
    damage.push_back(std::move(wrong));
  }
  if (!rows.damage.empty()) {
    damage.push_back(IndexHasRows(rows.damage));
  }
  const std::uint64_t wanted = standing.journal.begins_behind;
  if (rows.ordinal < wanted) {
    damage.push_back(absl::StrFormat(
        "journal/%s is missing: the index alone has the rows of commits %d to "
        "%d",
        RowsFileName(wanted), rows.ordinal + 1, wanted));
  }
  return damage;
}

absl::StatusOr<Standing> LookOnce(const Options& options,
                                  const std::string& directory, Role role,
                                  bool beside_writer, bool all_files) {
  Standing standing;
  const auto mend = [&](std::string problem) -> absl::StatusOr<Standing> {
    if (beside_writer) return absl::DataLossError(problem);
    CKPTREE_RETURN_IF_ERROR(ReadAllRows(options, directory, std::move(problem),
                                        /*beside_writer=*/false, &standing));
    return std::move(standing);
  };
  absl::StatusOr<std::shared_ptr<Instance>> opened = Instance::Open(
      role, IndexDirectory(directory), options, nullptr, nullptr);
  if (!opened.ok()) {
    if (absl::IsDataLoss(opened.status())) {
      return mend(std::string(opened.status().message()));
    }
    return opened.status();
  }
  std::array<ChainPoint, 2> markers;
  for (const Space space : {Space::kRecords, Space::kSmall}) {
    const auto marker = ReadMarker(**opened, space);
    if (absl::IsDataLoss(marker.status())) {
      return mend(std::string(marker.status().message()));
    }
    CKPTREE_RETURN_IF_ERROR(marker.status());
    if (!marker->has_value()) return mend("it does not say how far it is");
    markers[static_cast<std::size_t>(space)] = **marker;
  }
  standing.records = markers[0];
  standing.small = markers[1];
  CKPTREE_ASSIGN_OR_RETURN(standing.rows, FindRowsFile(options, directory));
  const std::uint64_t from =
      std::min(standing.records.ordinal, standing.small.ordinal);
  CKPTREE_ASSIGN_OR_RETURN(
      standing.journal,
      ReadJournal(options, directory,
                  all_files ? 1 : std::max<std::uint64_t>(from, 1),
                  beside_writer));
  for (const ChainPoint& marker : markers) {
    if (const std::string problem = CheckMarker(standing.journal, marker);
        !problem.empty()) {
      return mend(problem);
    }
  }
  absl::StatusOr<Overlay::Changes> changes = ChangesOverIndex(
      standing.journal, standing.records.ordinal, standing.small.ordinal);
  if (!changes.ok()) return mend(std::string(changes.status().message()));
  standing.index = *std::move(opened);
  if (!changes->empty()) {
    standing.overlay = Overlay::Make(*std::move(changes), {});
  }
  standing.damage = DamageOfJournal(standing, beside_writer);
  JudgeLosses(&standing, beside_writer);
  return standing;
}

bool IsWell(const absl::StatusOr<Standing>& standing) {
  return standing.ok() && standing->problem.empty() && standing->lost.ok() &&
         standing->damage.empty();
}

// The page cache gives up what it has of the index and the journal, as far as
// the system lets it: what is read next comes from the disk.
void ForgetWhatWasRead(const Options& options, const std::string& directory) {
  const DamagedTablesWelcome welcome;
  const auto file_system = FileSystemOf(options);
  for (const std::string& folder :
       {IndexDirectory(directory), Join(directory, kJournalName)}) {
    const auto names = ListDirectory(options, folder);
    if (!names.ok()) continue;
    for (const std::string& name : *names) {
      std::unique_ptr<rocksdb::FSRandomAccessFile> file;
      if (file_system
              ->NewRandomAccessFile(Join(folder, name), rocksdb::FileOptions(),
                                    &file, nullptr)
              .ok()) {
        file->InvalidateCache(0, 0).PermitUncheckedError();
      }
    }
  }
}

// `rows`, where the folder of the index of `directory`, in which they may
// stand, is read as `folder`.
RowsFile WithIndexAt(RowsFile rows, const std::string& directory,
                     const std::string& folder) {
  const std::filesystem::path path(rows.path);
  if (path.parent_path() == IndexDirectory(directory)) {
    rows.path = Join(folder, path.filename().string());
  }
  return rows;
}

}  // namespace

std::string IndexHasRows(std::string_view damage) {
  return absl::StrFormat("%s; the index has these rows", damage);
}

absl::StatusOr<Standing> LookAtStanding(const Options& options,
                                        const std::string& directory, Role role,
                                        bool beside_writer, bool all_files) {
  absl::StatusOr<Standing> standing =
      LookOnce(options, directory, role, beside_writer, all_files);
  if (beside_writer || IsWell(standing) ||
      absl::IsNotFound(standing.status())) {
    return standing;
  }
  // Bits may have been flipped on their way, or a read have failed that does
  // not fail again: then nothing is told, and nothing made anew.
  standing = Standing();
  ForgetWhatWasRead(options, directory);
  return LookOnce(options, directory, role, beside_writer, all_files);
}

absl::Status ReadAllRows(const Options& options, const std::string& directory,
                         std::string problem, bool beside_writer,
                         Standing* standing) {
  *standing = Standing();
  standing->problem = std::move(problem);
  CKPTREE_ASSIGN_OR_RETURN(standing->rows,
                           FindRowsFileAnywhere(options, directory));
  // The record that the rows are as of, too: the next file begins with it.
  CKPTREE_ASSIGN_OR_RETURN(
      standing->journal,
      ReadJournal(options, directory,
                  std::max<std::uint64_t>(standing->rows.ordinal, 1),
                  beside_writer));
  JournalContent& journal = standing->journal;
  // The file of all rows may be newer than every record that is left.
  const absl::Status whole =
      AllRows(options, standing->rows, journal,
              [](const RowKey&, const RowValue&) { return absl::OkStatus(); });
  if (!whole.ok() && whole.message() == standing->problem) {
    // A hole in the journal: nothing is wrong with the index but that it ends
    // before it.
    return absl::Status(whole.code(), absl::StrFormat("%s and in the index",
                                                      standing->problem));
  }
  if (!whole.ok()) {
    return absl::Status(
        whole.code(),
        absl::StrFormat("the index is damaged (%s), and so are the rows in "
                        "the journal (%s)",
                        standing->problem, whole.message()));
  }
  standing->damage = journal.damage;
  if (std::string wrong = WrongName(standing->rows); !wrong.empty()) {
    standing->damage.push_back(std::move(wrong));
  }
  standing->damage.push_back(
      absl::StrFormat("the index is damaged: %s", standing->problem));
  JudgeLosses(standing, beside_writer);
  return absl::OkStatus();
}

absl::StatusOr<RebuildReport> MakeIndex(const Options& from_options,
                                        const std::string& directory,
                                        const std::string& db_directory,
                                        const Standing& standing,
                                        const std::string& to,
                                        const Options& to_options) {
  // Files from before the rows are kept for a while: their blocks count.
  const absl::StatusOr<JournalContent> all =
      ReadJournal(from_options, directory, 1, /*beside_writer=*/true);
  const JournalBlocks blocks = BlocksIn(all.ok() ? *all : standing.journal);
  RebuildSource source;
  source.db_directory = db_directory;
  source.journal_directory = Join(directory, kJournalName);
  source.options = from_options;
  source.keeps_unreadable = !IsInMemory(to_options);
  source.space_of = [&from_options](std::string_view value) {
    return from_options.segment_space ? from_options.segment_space(value)
                                      : std::nullopt;
  };
  FindIn(blocks, &source);
  const RowsFile rows = WithIndexAt(standing.rows, directory, db_directory);
  source.rows = [&](RowSink sink) -> absl::Status {
    // The marker stands behind all other rows of its space.
    const std::string marker = EncodeMarker(standing.journal.tip);
    bool records = true;
    const auto mark = [&](Space space) {
      return sink({space, std::string(kMarkerKey)}, marker);
    };
    CKPTREE_RETURN_IF_ERROR(
        AllRows(from_options, rows, standing.journal,
                [&](const RowKey& key, const RowValue& value) -> absl::Status {
                  if (!records || key.space == Space::kRecords) {
                    return sink(key, value);
                  }
                  records = false;
                  const absl::Status marked = mark(Space::kRecords);
                  return marked.ok() ? sink(key, value) : marked;
                }));
    if (records) CKPTREE_RETURN_IF_ERROR(mark(Space::kRecords));
    return mark(Space::kSmall);
  };
  return RebuildIndex(source, to, to_options, [] { return false; });
}

std::uint64_t HighestVersionInFiles(const Instance& instance) {
  std::vector<rocksdb::LiveFileMetaData> files;
  instance.db()->GetLiveFilesMetaData(&files);
  std::uint64_t highest = 0;
  for (const rocksdb::LiveFileMetaData& file : files) {
    for (const Space space : {Space::kLeaves, Space::kChunks}) {
      if (file.column_family_name == schema::NameOf(space) &&
          file.largestkey.size() >= sizeof(std::uint64_t)) {
        highest = std::max(
            highest,
            base::BigEndianReader(file.largestkey).Read<std::uint64_t>());
      }
    }
  }
  return highest;
}

absl::StatusOr<bool> TablesDiffer(const Options& options,
                                  const Instance& instance) {
  std::vector<rocksdb::LiveFileMetaData> files;
  instance.db()->GetLiveFilesMetaData(&files);
  std::set<std::string, std::less<>> known;
  for (const rocksdb::LiveFileMetaData& file : files) {
    known.emplace(BaseName(file.relative_filename));
    const absl::StatusOr<std::uint64_t> size = FileSize(
        options, Join(instance.directory(), BaseName(file.relative_filename)));
    if (!size.ok() || *size != file.size) return true;
  }
  CKPTREE_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                           ListDirectory(options, instance.directory()));
  return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
    return name.ends_with(".sst") && !known.contains(name);
  });
}

}  // namespace ckptree::kv
