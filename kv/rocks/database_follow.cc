// SPDX-License-Identifier: Apache-2.0

// Database for a reader: opening beside a writer or without one, following it;
// and rows from the journal where a read met damage in the index.
//
// A reader has an index as of some commit and, over it, the rows of all later
// commits from the journal: it sees each commit as a whole, whatever the writer
// flushes. New commits are read from the journal; the index is opened
// anew only where files of segments are needed that came later. RocksDB's own
// follower, a "secondary", is not used: it stays at an older list of files, and
// says nothing, where the writer removed a file that it had not opened yet.
//
// The index is opened first and the journal read then, at least up to where the
// index is: an index never has what the journal does not.

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/status_macros.h"
#include "kv/database.h"
#include "kv/file_system.h"
#include "kv/journal/replay.h"
#include "kv/journal/rows_file.h"
#include "kv/options.h"
#include "kv/rocks/database_impl.h"
#include "kv/rocks/instance.h"
#include "kv/rocks/memory_index.h"
#include "kv/rocks/standing.h"
#include "kv/store_directory.h"
#include "kv/store_lock.h"
#include "rocksdb/db.h"

namespace ckptree::kv {
namespace {

using schema::Space;

// Each failed attempt means that the writer came, went, or removed a file right
// then.
constexpr int kAttempts = 32;
// More than this over an index is read from a newer one.
constexpr std::size_t kMostOverlay = std::size_t{16} << 20;

// The highest version that a commit of `journal` names.
std::uint64_t HighestVersion(const JournalContent& journal) {
  std::uint64_t highest = journal.version_ceiling;
  for (const auto& [ordinal, record] : journal.records) {
    highest = std::max(highest, record.header.version);
  }
  return highest;
}

std::string HexOf(const std::array<std::uint8_t, 16>& uuid) {
  const std::string_view bytes(reinterpret_cast<const char*>(uuid.data()),
                               uuid.size());
  return absl::BytesToHexString({bytes.data(), bytes.size()});
}

// Of the commit `ordinal`, where `journal` tells it.
std::optional<base::Digest> HashOfCommit(const JournalContent& journal,
                                         std::uint64_t ordinal) {
  if (journal.tip.ordinal == ordinal) return journal.tip.hash;
  if (const auto at = journal.records.find(ordinal);
      at != journal.records.end()) {
    return at->second.hash;
  }
  const auto next = journal.records.find(ordinal + 1);
  if (next == journal.records.end()) return std::nullopt;
  return next->second.header.previous;
}

// Device and inode; nothing where it cannot be asked.
std::optional<std::pair<dev_t, ino_t>> PlaceOf(const std::string& directory) {
  struct stat found;
  if (stat(directory.c_str(), &found) != 0) return std::nullopt;
  return std::pair(found.st_dev, found.st_ino);
}

// `answer`, but where `status` says more: there was no memory to look, or
// another store is in the place of this one.
absl::StatusOr<bool> Answered(const absl::Status& status, bool answer) {
  if (absl::IsResourceExhausted(status) || absl::IsFailedPrecondition(status)) {
    return status;
  }
  return answer;
}

}  // namespace

absl::StatusOr<std::optional<LockHolder>> Database::Impl::ProbeWriter() const {
  // The holder would be the caller.
  if (mode == Mode::kReadLocked) return std::nullopt;
  return StoreLock::Probe(directory);
}

// Somebody may have put another store in the place of this one, or a copy of it
// that is older: a link that was made anew, a rename. Steps of it would come
// under the name of this one. Which directory it is does not matter, nor the
// incarnation, which a copy has that was opened to write: one that has all
// commits seen here goes on from them. The last of these may never have been
// durable: a crash takes it away, and another has its number then.
absl::Status Database::Impl::CheckSameStore(const Standing& standing) const {
  if (!seen_uuid.has_value()) return absl::OkStatus();
  const JournalContent& journal = standing.journal;
  if (journal.newest.uuid != *seen_uuid) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "%s is another store by now, with uuid %s; the one that was opened "
        "has %s: open it anew",
        directory, HexOf(journal.newest.uuid), HexOf(*seen_uuid)));
  }
  // Damage is told as such.
  if (!standing.lost.ok()) return absl::OkStatus();
  const std::uint64_t durable = durable_ordinal.load();
  if (journal.tip.ordinal < std::min(durable, seen.ordinal)) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "%s is an older copy of the store by now, up to commit %d, and %d was "
        "seen: open it anew",
        directory, journal.tip.ordinal, seen.ordinal));
  }
  std::optional<base::Digest> now = HashOfCommit(journal, seen.ordinal);
  if (!now.has_value()) {
    // The index has what is behind it, too. What is in no record any more is
    // taken on trust.
    const absl::StatusOr<JournalContent> all = ReadJournal(
        reader_options, directory, seen.ordinal, /*beside_writer=*/true);
    if (all.ok()) now = HashOfCommit(*all, seen.ordinal);
  }
  if (durable >= seen.ordinal && now.has_value() && *now != seen.hash) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "%s is another copy of the store by now, whose commit %d is not the "
        "one that was seen: open it anew",
        directory, seen.ordinal));
  }
  return absl::OkStatus();
}

absl::Status Database::Impl::OpenForReading(OpenReport* found) {
  absl::Status last = absl::UnavailableError(
      absl::StrFormat("%s keeps changing hands", directory));
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    *found = OpenReport();
    rows_in_memory = false;
    if (mode == Mode::kReadSalvaged) {
      CKPTREE_ASSIGN_OR_RETURN(
          std::shared_ptr<Instance> salvaged,
          Instance::Open(Role::kForensic, IndexDirectory(directory),
                         reader_options, nullptr, nullptr));
      Replace(std::move(salvaged), /*is_following=*/false);
      return absl::OkStatus();
    }
    CKPTREE_ASSIGN_OR_RETURN(const StoreDirectory looked, LookAtStore());
    const auto place_now = PlaceOf(directory);
    found->notes = looked.warnings;
    found->highest_version = looked.highest_staged_version;
    CKPTREE_ASSIGN_OR_RETURN(const std::optional<LockHolder> before,
                             ProbeWriter());
    const bool beside = before.has_value();
    absl::StatusOr<Standing> standing =
        LookAtStanding(reader_options, directory,
                       beside ? Role::kFollower : Role::kReadOnly, beside);
    if (beside && absl::IsDataLoss(standing.status()) &&
        attempt > kAttempts / 2) {
      // The same again and again: the index is damaged, and the writer has not
      // met it.
      Standing rows;
      if (ReadAllRows(reader_options, directory,
                      std::string(standing.status().message()), beside, &rows)
              .ok()) {
        standing = std::move(rows);
      }
    }
    CKPTREE_ASSIGN_OR_RETURN(const std::optional<LockHolder> after,
                             ProbeWriter());
    const bool same = after.has_value() == beside;
    absl::Status status = standing.status();
    // Files of the journal went between two looks at it.
    if (status.ok() && beside) status = standing->lost;
    if (!status.ok() || !same) {
      // Without a writer at either look, nothing but the store can be wrong.
      if (!status.ok() && same && !beside) return status;
      if (!status.ok()) last = std::move(status);
      continue;
    }
    CKPTREE_RETURN_IF_ERROR(CheckSameStore(*standing));
    if (standing->index == nullptr) {
      CKPTREE_RETURN_IF_ERROR(MakeIndexInMemory(&*standing));
    }
    const JournalContent& journal = standing->journal;
    found->uuid = journal.newest.uuid;
    found->incarnation = journal.newest.incarnation;
    found->ordinal = journal.tip.ordinal;
    found->lost = standing->lost;
    found->warnings = standing->damage;
    if (!found->lost.ok()) {
      found->warnings.emplace_back(found->lost.message());
    }
    found->highest_version =
        std::max({found->highest_version, journal.version_ceiling,
                  HighestVersionInFiles(*standing->index)});
    newest_ordinal = journal.tip.ordinal;
    durable_ordinal = journal.durable;
    session = journal.highest_session;
    seen = journal.tip;
    seen_uuid = journal.newest.uuid;
    seen_place = place_now;
    seen_pid = beside ? before->pid : 0;
    tail.Start(journal);
    // Beside a writer segments may have come after the index was opened, and
    // before the commit that was read.
    newest_version = HighestVersion(journal);
    instance_version = beside ? HighestVersionInFiles(*standing->index)
                              : newest_version.load();
    Replace(standing->index, beside, standing->overlay);
    return absl::OkStatus();
  }
  return last;
}

absl::Status Database::Impl::MendForReading(const Database& database) {
  if (mode == Mode::kReadSalvaged || options.index_is_whole == nullptr ||
      database.following()) {
    return absl::OkStatus();
  }
  {
    const absl::MutexLock hold(&refresh_mutex);
    if (IsInMemory(reader_options)) return absl::OkStatus();
    CKPTREE_ASSIGN_OR_RETURN(const std::shared_ptr<Instance> index, Reading());
    const absl::StatusOr<bool> differ = TablesDiffer(reader_options, *index);
    if (!differ.ok() || !*differ) return absl::OkStatus();
  }
  const absl::StatusOr<bool> whole = options.index_is_whole(database);
  if (whole.ok() && *whole) return absl::OkStatus();
  const absl::MutexLock hold(&refresh_mutex);
  Standing standing;
  const absl::Status read =
      ReadAllRows(reader_options, directory,
                  "it does not know all tables, or some are missing",
                  /*beside_writer=*/false, &standing);
  // Then the index is the best that there is.
  if (!read.ok() || !standing.lost.ok()) return absl::OkStatus();
  CKPTREE_RETURN_IF_ERROR(MakeIndexInMemory(&standing));
  report.warnings = standing.damage;
  report.highest_version =
      std::max(report.highest_version, HighestVersionInFiles(*standing.index));
  Replace(standing.index, /*is_following=*/false, standing.overlay);
  return absl::OkStatus();
}

absl::Status Database::Impl::MakeIndexInMemory(Standing* standing) {
  const std::string db = IndexDirectory(directory);
  const Options in_memory = WithDirectoryInMemory(reader_options, db);
  CKPTREE_ASSIGN_OR_RETURN(
      const RebuildReport made,
      MakeIndex(in_memory, directory, OnDisk(db), *standing, db, in_memory));
  CKPTREE_ASSIGN_OR_RETURN(
      standing->index,
      Instance::Open(Role::kReadOnly, db, in_memory, nullptr, nullptr));
  for (const auto* lines : {&made.unread, &made.losses}) {
    for (const std::string& line : *lines) {
      // By the name that the user knows.
      standing->damage.push_back(absl::StrReplaceAll(line, {{OnDisk(db), db}}));
    }
  }
  reader_options = in_memory;
  return absl::OkStatus();
}

absl::Status Database::Impl::SeeNewCommits() {
  std::optional<JournalContent> added = tail.ReadOn(seen);
  const bool is_all = !added.has_value();
  if (is_all) {
    CKPTREE_ASSIGN_OR_RETURN(
        added, ReadJournal(reader_options, directory, seen.ordinal,
                           /*beside_writer=*/true));
  }
  const JournalContent& journal = *added;
  const auto known = journal.records.find(seen.ordinal);
  const auto next = journal.records.find(seen.ordinal + 1);
  if (journal.tip.ordinal > seen.ordinal) {
    // Files went: what is between is in the index by now.
    if (next == journal.records.end() ||
        next->second.header.previous != seen.hash) {
      return absl::AbortedError("the journal was cut");
    }
    CKPTREE_ASSIGN_OR_RETURN(
        Overlay::Changes changes,
        ChangesOverIndex(journal, seen.ordinal, seen.ordinal));
    std::shared_ptr<const Overlay> over;
    bool holds_files = false;
    {
      const absl::MutexLock hold(&instance_mutex);
      over = overlay;
      holds_files = instance->role() == Role::kFollower;
    }
    // Files of segments went, and not all of them are open here.
    if (!holds_files &&
        std::any_of(next, journal.records.end(), [](const auto& record) {
          return record.second.header.kind == CommitKind::kCollect;
        })) {
      return absl::AbortedError("files were removed");
    }
    std::vector<std::string> changed;
    for (const auto& [key, value] : changes) {
      if (key.space == Space::kRecords) changed.push_back(key.key);
    }
    over = over == nullptr ? Overlay::Make(std::move(changes), {})
                           : over->With(std::move(changes));
    if (over->bytes() > kMostOverlay) {
      return absl::AbortedError("the index is far behind");
    }
    newest_version = std::max(newest_version.load(), HighestVersion(journal));
    seen = journal.tip;
    newest_ordinal = journal.tip.ordinal;
    session = journal.highest_session;
    ReplaceOverlay(std::move(over), std::move(changed));
  } else if (known == journal.records.end() ||
             known->second.hash != seen.hash) {
    return absl::AbortedError("the journal is another one");
  }
  durable_ordinal = journal.durable;
  if (is_all) tail.Start(journal);
  return absl::OkStatus();
}

absl::Status Database::Refresh() {
  Impl& impl = *impl_;
  CKPTREE_RETURN_IF_ERROR(impl.mark.Check());
  if (impl.mode == Mode::kReadWrite || impl.mode == Mode::kReadSalvaged) {
    return impl.Reading().status();
  }
  // Held over I/O: reading from two threads at once gains nothing.
  const absl::MutexLock lock(&impl.refresh_mutex);
  CKPTREE_RETURN_IF_ERROR(impl.Reading().status());
  CKPTREE_ASSIGN_OR_RETURN(const std::optional<LockHolder> holder,
                           impl.ProbeWriter());
  // Another process numbers its files anew.
  const std::int64_t pid = holder.has_value() ? holder->pid : 0;
  // A journal of the same length may be of another store.
  const bool same = std::exchange(impl.seen_pid, pid) == pid &&
                    PlaceOf(impl.directory) == impl.seen_place;
  if (holder.has_value() == following() && same &&
      (impl.tail.Unchanged() || impl.SeeNewCommits().ok())) {
    return absl::OkStatus();
  }
  OpenReport ignored;
  return impl.OpenForReading(&ignored);
}

absl::Status Database::Impl::CatchUp(std::uint64_t version) {
  if (mode == Mode::kReadWrite || mode == Mode::kReadSalvaged || AllFar() ||
      version <= instance_version.load() || version > newest_version.load()) {
    return absl::OkStatus();
  }
  // Held over I/O: see Refresh().
  const absl::MutexLock hold(&refresh_mutex);
  if (version <= instance_version.load()) return absl::OkStatus();
  const std::uint64_t newest = newest_version.load();
  OpenReport ignored;
  absl::Status opened = OpenForReading(&ignored);
  if (opened.ok()) {
    instance_version = std::max(instance_version.load(), newest);
  }
  return opened;
}

absl::Status Database::SeeFiles() const {
  Impl& impl = *impl_;
  if (impl.mode != Mode::kRead || impl.AllFar()) return absl::OkStatus();
  const std::uint64_t newest = impl.newest_version.load();
  if (const absl::Status behind = impl.CatchUp(newest);
      absl::IsResourceExhausted(behind)) {
    return behind;
  }
  // Held over I/O: see Refresh().
  const absl::MutexLock hold(&impl.refresh_mutex);
  // Of an index that was made here the files are those of the rows.
  if (IsInMemory(impl.reader_options)) return absl::OkStatus();
  CKPTREE_ASSIGN_OR_RETURN(const std::shared_ptr<Instance> open,
                           impl.Reading());
  std::vector<rocksdb::LiveFileMetaData> files;
  open->db()->GetLiveFilesMetaData(&files);
  CKPTREE_ASSIGN_OR_RETURN(
      const std::vector<std::string> names,
      ListDirectory(impl.reader_options, IndexDirectory(impl.directory)));
  const std::set<std::string_view> there(names.begin(), names.end());
  const bool all_there =
      std::all_of(files.begin(), files.end(), [&there](const auto& file) {
        return there.contains(file.relative_filename);
      });
  if (all_there) return absl::OkStatus();
  OpenReport ignored;
  return impl.OpenForReading(&ignored);
}

// A writer lets files go to an object store, and takes them back: the row that
// says so, or the file, may be newer than what is seen here. Once for each
// commit: damage is met by each block.
absl::StatusOr<bool> Database::Impl::LooksAgain() {
  if (mode != Mode::kRead || far_tables == nullptr || AllFar()) return false;
  // Held over I/O: see Refresh().
  const absl::MutexLock hold(&refresh_mutex);
  if (looked_again == newest_ordinal.load() && tail.Unchanged()) return false;
  OpenReport ignored;
  if (const absl::Status opened = OpenForReading(&ignored); !opened.ok()) {
    return Answered(opened, false);
  }
  const std::uint64_t now = newest_ordinal.load();
  return std::exchange(looked_again, now) != now;
}

// A reader that came while nobody wrote keeps few tables open. A writer that
// came later may have put others in the place of the rest. Beside that one the
// reader holds all of them. Once for each change of the folder: where nothing
// has changed a table is lost.
absl::StatusOr<bool> Database::Impl::LooksForTables(const Instance* met) {
  if (mode != Mode::kRead || AllFar()) return false;
  // Held over I/O: see Refresh().
  const absl::MutexLock hold(&refresh_mutex);
  const absl::StatusOr<std::shared_ptr<Instance>> now = Reading();
  if (!now.ok()) return Answered(now.status(), false);
  if (now->get() != met) return true;
  struct stat found;
  if (stat(DbDirectory().c_str(), &found) != 0) return false;
  const std::int64_t changed =
      absl::ToUnixNanos(absl::TimeFromTimespec(found.st_mtim));
  if (looked_for_tables == changed) return false;
  OpenReport ignored;
  const absl::Status opened = OpenForReading(&ignored);
  CKPTREE_ASSIGN_OR_RETURN(const bool other, Answered(opened, opened.ok()));
  looked_for_tables = changed;
  return other;
}

std::optional<std::string> Database::Impl::BlockInJournal(
    std::string_view key) {
  if (mode == Mode::kReadSalvaged) return std::nullopt;
  const absl::StatusOr<JournalContent> journal =
      ReadJournal(reader_options, directory, 1, /*beside_writer=*/true);
  if (!journal.ok() || journal->newest.uuid != report.uuid) return std::nullopt;
  const JournalBlocks blocks = BlocksIn(*journal);
  const auto found = blocks.whole.find(key);
  if (found == blocks.whole.end()) return std::nullopt;
  return std::string(found->second);
}

bool Database::Impl::ReadRowsFromJournal(const absl::Status& met) {
  if (!absl::IsDataLoss(met) || mode == Mode::kReadSalvaged ||
      rows_in_memory.load()) {
    return false;
  }
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    Standing standing;
    if (!ReadAllRows(reader_options, directory, std::string(met.message()),
                     /*beside_writer=*/true, &standing)
             .ok() ||
        standing.journal.newest.uuid != report.uuid) {
      return false;
    }
    Overlay::Changes rows;
    const absl::Status read =
        AllRows(reader_options, standing.rows, standing.journal,
                [&rows](const RowKey& key, const RowValue& value) {
                  // Blocks of array bytes stay in the index.
                  if (const auto* bytes = std::get_if<std::string>(&value)) {
                    rows[key] = *bytes;
                  }
                  return absl::OkStatus();
                });
    if (!read.ok()) return false;
    if (keeper == nullptr) {
      // Held over I/O: see Refresh().
      const absl::MutexLock hold(&refresh_mutex);
      if (standing.journal.tip.ordinal < newest_ordinal.load() ||
          !CheckSameStore(standing).ok()) {
        return false;
      }
    }
    const auto over =
        Overlay::Make(std::move(rows), {.records = true, .small = false});
    const absl::MutexLock hold(&instance_mutex);
    // A commit that came since is not in it.
    if (keeper != nullptr && keeper->tip() != standing.journal.tip) continue;
    overlay = over;
    CountView();
    rows_in_memory = true;
    break;
  }
  if (!rows_in_memory.load()) return false;
  NoteIndexDamage({met.message().data(), met.message().size()});
  return true;
}

void Database::Impl::NoteIndexDamage(std::string_view what) {
  {
    const absl::MutexLock hold(&instance_mutex);
    if (!index_damage.empty()) return;
    index_damage = absl::StrFormat("the index is damaged: %s", what);
  }
  watcher->Log(
      Severity::kWarning,
      absl::StrFormat("%s: the index is damaged (%s): the journal has what is "
                      "read; `ckptree repair` makes it anew, and so does an "
                      "open for writing that meets it",
                      directory, what));
  if (mode != Mode::kReadWrite) return;
  const absl::Status noted = WriteFile(
      writer_options, Join(Join(directory, kJournalName), kRebuildName), "");
  if (!noted.ok()) {
    watcher->Log(Severity::kWarning, std::string(noted.message()));
  }
}

absl::StatusOr<std::vector<std::string>> Database::CheckJournal(
    std::vector<std::string>* ragged) const {
  const Impl& impl = *impl_;
  std::vector<std::string> damage;
  if (!impl.mark.Check().ok() || impl.mode == Mode::kReadSalvaged)
    return damage;
  // A writer mends what a crash left in second copies, and is about to write.
  if (impl.mode != Mode::kReadWrite && !following()) {
    const absl::StatusOr<JournalContent> journal =
        ReadJournal(impl.reader_options, impl.directory, 1,
                    /*beside_writer=*/false);
    if (journal.ok()) {
      damage = journal->damage;
      *ragged = journal->ragged;
    } else if (absl::IsPermissionDenied(journal.status())) {
      return journal.status();
    } else {
      damage.emplace_back(journal.status().message());
    }
  }
  const auto read = [&]() -> absl::Status {
    CKPTREE_ASSIGN_OR_RETURN(const RowsFile file,
                             FindRowsFile(impl.reader_options, impl.directory));
    if (file.ordinal == 0) return absl::OkStatus();
    return CheckRowsFile(impl.reader_options, file.path);
  };
  const absl::Status rows = read();
  if (absl::IsPermissionDenied(rows)) return rows;
  if (!rows.ok() && !absl::IsNotFound(rows)) {
    damage.push_back(IndexHasRows(std::string(rows.message())));
  }
  return damage;
}

std::string Database::IndexDamage() const {
  const absl::MutexLock hold(&impl_->instance_mutex);
  return impl_->index_damage;
}

}  // namespace ckptree::kv
