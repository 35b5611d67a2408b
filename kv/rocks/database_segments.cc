// SPDX-License-Identifier: Apache-2.0

// Database: taking segments in, flushing, dropping, rewriting.

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "base/status_macros.h"
#include "kv/database.h"
#include "kv/file_system.h"
#include "kv/files/status.h"
#include "kv/journal/reserve.h"
#include "kv/rocks/database_impl.h"
#include "kv/rocks/instance.h"
#include "kv/rocks/kept_reads.h"
#include "kv/rocks/leaf_copies.h"
#include "kv/rocks/rocksdb_options.h"
#include "kv/rocks/small_tables.h"
#include "kv/segment_writer.h"
#include "rocksdb/convenience.h"
#include "rocksdb/db.h"
#include "rocksdb/options.h"
#include "rocksdb/slice.h"
#include "schema/spaces.h"

namespace ckptree::kv {
namespace {

bool HoldsSegments(schema::Space space) {
  return space == schema::Space::kLeaves || space == schema::Space::kChunks;
}

// Adoption and rewriting put every file of a segment there.
std::uint64_t CountFiles(const Instance& instance, schema::Space space) {
  std::string count;
  const std::string property = rocksdb::DB::Properties::kNumFilesAtLevelPrefix +
                               std::to_string(kBottomLevel);
  std::uint64_t files = 0;
  if (instance.db()->GetProperty(instance.family(space), property, &count)) {
    std::from_chars(count.data(), count.data() + count.size(), files);
  }
  return files;
}

// All or none.
absl::StatusOr<std::vector<std::string>> CopyAllStaged(
    const Options& options, const std::vector<std::string>& paths) {
  std::vector<std::string> copies;
  for (const std::string& path : paths) {
    absl::StatusOr<std::string> copy = CopyStaged(options, path);
    if (!copy.ok()) {
      for (const std::string& made : copies) {
        RemoveFile(options, made).IgnoreError();
      }
      return std::move(copy).status();
    }
    copies.push_back(*std::move(copy));
  }
  return copies;
}

// Whether the disk gives of each file to be adopted what was written; `copies`
// are those of leaf records, in their order.
absl::Status CheckEnds(const Instance& instance,
                       const std::vector<StagedSegment>& segments,
                       const std::vector<std::string>& copies) {
  auto copy = copies.begin();
  for (const StagedSegment& segment : segments) {
    std::vector<std::string> paths = {segment.path};
    if (segment.space == schema::Space::kLeaves) paths.push_back(*copy++);
    for (const std::string& path : paths) {
      const absl::StatusOr<TableEnds> ends =
          ReadTableEnds(instance.env(), path);
      if (ends.ok() && ends->first_key == segment.first_key &&
          ends->last_key == segment.last_key) {
        continue;
      }
      // Not kDataLoss: nothing that was committed is damaged.
      return absl::UnknownError(absl::StrFormat(
          "%s cannot be read back as it was written%s", path,
          ends.ok() ? "" : ": " + std::string(ends.status().message())));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckName(std::string_view name) {
  if (name.empty() || name == "." || name == ".." ||
      name.find('/') != std::string_view::npos) {
    return absl::InvalidArgumentError(
        absl::StrFormat("'%s' is no name for a staging folder", name));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Database::MakeStaging(std::string_view name) {
  CKPTREE_RETURN_IF_ERROR(CheckName(name));
  CKPTREE_RETURN_IF_ERROR(impl_->Writing().status());
  CKPTREE_RETURN_IF_ERROR(
      MakeDirectory(impl_->writer_options, Join(staging_directory(), name)));
  // Durable, so that the version in the name is seen after a power cut.
  return SyncDirectory(impl_->writer_options, staging_directory());
}

absl::StatusOr<std::vector<std::string>> Database::ListStaging() const {
  CKPTREE_RETURN_IF_ERROR(impl_->Reading().status());
  CKPTREE_ASSIGN_OR_RETURN(
      std::vector<std::string> names,
      ListDirectory(impl_->reader_options, staging_directory()));
  std::erase_if(names, [this](const std::string& name) {
    return Join(staging_directory(), name) == impl_->flush_room->path();
  });
  return names;
}

absl::Status Database::RemoveStaging(std::string_view name) {
  CKPTREE_RETURN_IF_ERROR(CheckName(name));
  // Also by a dead handle: no folder in staging belongs to the database.
  CKPTREE_RETURN_IF_ERROR(impl_->Reading().status());
  if (!impl_->writable) {
    return absl::FailedPreconditionError("the database is open for reading");
  }
  CKPTREE_RETURN_IF_ERROR(impl_->lock->Check());
  const std::string path = Join(staging_directory(), name);
  const absl::Status removed = RemoveTree(impl_->options, path);
  // A file that somebody left there.
  if (!removed.ok() && RemoveFile(impl_->options, path).ok()) {
    return absl::OkStatus();
  }
  return removed;
}

absl::Status Database::Adopt(const std::vector<StagedSegment>& segments) {
  Impl& impl = *impl_;
  CKPTREE_RETURN_IF_ERROR(impl.mark.Check());
  // Held over I/O: the set of files changes in one place at a time.
  const absl::MutexLock lock(&impl.files_mutex);
  CKPTREE_ASSIGN_OR_RETURN(const std::shared_ptr<Instance> instance,
                           impl.Writing());
  CKPTREE_RETURN_IF_ERROR(impl.lock->Check());
  if (segments.empty()) return absl::OkStatus();

  std::vector<rocksdb::IngestExternalFileArg> arguments;
  rocksdb::IngestExternalFileArg copies;
  copies.column_family = instance->leaf_copies();
  copies.options = AdoptOptions();
  std::set<std::string> folders;
  for (const schema::Space space :
       {schema::Space::kLeaves, schema::Space::kChunks}) {
    rocksdb::IngestExternalFileArg argument;
    argument.column_family = instance->family(space);
    argument.options = AdoptOptions();
    for (const StagedSegment& segment : segments) {
      if (!HoldsSegments(segment.space)) {
        return absl::InvalidArgumentError("segments hold leaves or chunks");
      }
      if (segment.space != space) continue;
      argument.external_files.push_back(segment.path);
      folders.insert(
          std::filesystem::path(segment.path).parent_path().string());
    }
    if (argument.external_files.empty()) continue;
    if (space == schema::Space::kLeaves) {
      CKPTREE_ASSIGN_OR_RETURN(
          copies.external_files,
          CopyAllStaged(impl.writer_options, argument.external_files));
      arguments.push_back(copies);
    }
    arguments.push_back(std::move(argument));
  }
  // Before the files get their second name: on some file systems a link to a
  // file whose first name is not durable is lost with it.
  absl::Status status;
  for (const std::string& folder : folders) {
    if (status.ok()) status = SyncDirectory(impl.writer_options, folder);
  }
  if (status.ok()) {
    const KeptReads reads;
    status = CheckEnds(*instance, segments, copies.external_files);
    if (status.ok()) {
      status =
          ToStatus(instance->db()->IngestExternalFiles(arguments),
                   absl::StrFormat("adopting %d segments", segments.size()));
      impl.NoteFilesChanged();
    }
  }
  if (!status.ok()) {
    for (const std::string& copy : copies.external_files) {
      RemoveFile(impl.options, copy).IgnoreError();
    }
  }
  return status;
}

absl::Status Database::CompactSmall() {
  Impl& impl = *impl_;
  CKPTREE_RETURN_IF_ERROR(impl.mark.Check());
  CKPTREE_ASSIGN_OR_RETURN(const std::shared_ptr<Instance> instance,
                           impl.Writing());
  CKPTREE_RETURN_IF_ERROR(impl.lock->Check());
  rocksdb::DB& db = *instance->db();
  rocksdb::ColumnFamilyHandle* const small =
      instance->family(schema::Space::kSmall);
  if (HasDeletionsInMemory(&db, small)) {
    CKPTREE_RETURN_IF_ERROR(impl.FlushIndex());
  }
  const std::optional<DeletedRows> deleted = FindDeletedRows(&db, small);
  if (!deleted.has_value()) return absl::OkStatus();
  std::vector<rocksdb::LiveFileMetaData> files;
  db.GetLiveFilesMetaData(&files);
  std::uint64_t wanted = kReserveBytes;
  for (const rocksdb::LiveFileMetaData& file : files) {
    if (file.column_family_name == schema::NameOf(schema::Space::kSmall) &&
        file.smallestkey <= deleted->last &&
        file.largestkey >= deleted->first) {
      wanted += file.size;
    }
  }
  CKPTREE_RETURN_IF_ERROR(impl.CheckRoom(wanted, "writing small rows again"));
  rocksdb::CompactRangeOptions options;
  options.exclusive_manual_compaction = false;
  options.bottommost_level_compaction =
      rocksdb::BottommostLevelCompaction::kForceOptimized;
  const rocksdb::Slice first(deleted->first), last(deleted->last);
  const absl::Status status =
      ToStatus(db.CompactRange(options, small, &first, &last),
               "writing the rows of small saves again");
  // The journal has them, too: the next open for writing makes them anew.
  if (absl::IsDataLoss(status)) {
    impl.NoteIndexDamage({status.message().data(), status.message().size()});
  }
  return status;
}

absl::Status Database::Drop(schema::Space space,
                            const std::vector<Range>& ranges,
                            std::uint64_t* dropped) {
  Impl& impl = *impl_;
  CKPTREE_RETURN_IF_ERROR(impl.mark.Check());
  if (!HoldsSegments(space)) {
    return absl::InvalidArgumentError("only segments are dropped");
  }
  if (ranges.empty()) return absl::OkStatus();
  // Held over I/O: see Adopt.
  const absl::MutexLock lock(&impl.files_mutex);
  CKPTREE_ASSIGN_OR_RETURN(const std::shared_ptr<Instance> instance,
                           impl.Writing());
  CKPTREE_RETURN_IF_ERROR(impl.lock->Check());
  std::vector<std::pair<rocksdb::Slice, rocksdb::Slice>> bounds;
  for (const Range& range : ranges) bounds.emplace_back(range.begin, range.end);
  std::vector<rocksdb::RangePtr> pointers;
  for (const auto& [begin, end] : bounds) {
    pointers.emplace_back(&begin, end.empty() ? nullptr : &end);
  }
  if (space == schema::Space::kLeaves) {
    // First: what is dropped in part is dropped again, found by its first copy.
    CKPTREE_RETURN_IF_ERROR(
        ToStatus(instance->DeleteFilesInRanges(
                     instance->leaf_copies(), pointers.data(), pointers.size()),
                 "dropping copies of leaf records"));
  }
  const std::uint64_t before = CountFiles(*instance, space);
  const rocksdb::Status status = instance->DeleteFilesInRanges(
      instance->family(space), pointers.data(), pointers.size());
  if (dropped != nullptr) *dropped += before - CountFiles(*instance, space);
  impl.NoteFilesChanged();
  return ToStatus(status, "dropping files");
}

absl::StatusOr<std::uint64_t> Database::Rewrite(
    schema::Space space, const std::vector<LiveFile>& files,
    RewriteFn rewrite) {
  Impl& impl = *impl_;
  CKPTREE_RETURN_IF_ERROR(impl.mark.Check());
  if (!HoldsSegments(space)) {
    return absl::InvalidArgumentError("only segments are written again");
  }
  if (files.empty()) return 0;
  CKPTREE_ASSIGN_OR_RETURN(const std::shared_ptr<Instance> instance,
                           impl.Writing());
  CKPTREE_RETURN_IF_ERROR(impl.lock->Check());
  std::vector<std::string> names;
  std::string first_key = files.front().first_key;
  std::string last_key = files.front().last_key;
  for (const LiveFile& file : files) {
    first_key = std::min(first_key, file.first_key);
    last_key = std::max(last_key, file.last_key);
    if (file.space != space || file.copy) {
      return absl::InvalidArgumentError("a file of another space");
    }
    // 7.8.3 may lose data where the first block of a file cannot be read (its
    // release notes, 8.7): read it now.
    rocksdb::PinnableSlice ignored;
    CKPTREE_RETURN_IF_ERROR(ToStatus(
        instance->db()->Get(rocksdb::ReadOptions(), instance->family(space),
                            file.first_key, &ignored),
        file.path));
    names.push_back(file.path);
  }
  rocksdb::CompactionOptions options;
  options.compression = rocksdb::kNoCompression;
  // One file, however large: no segment is ever cut in two.
  options.output_file_size_limit = std::numeric_limits<std::uint64_t>::max();
  options.max_subcompactions = 1;
  std::vector<std::string> made;
  rocksdb::Status status;
  {
    const RewriteScope scope(rewrite);
    status = instance->db()->CompactFiles(options, instance->family(space),
                                          names, kBottomLevel,
                                          /*output_path_id=*/-1, &made);
  }
  impl.NoteFilesChanged();
  CKPTREE_RETURN_IF_ERROR(
      ToStatus(status, absl::StrFormat("rewriting %d files from %s",
                                       files.size(), files.front().path)));
  if (space == schema::Space::kLeaves) {
    CKPTREE_RETURN_IF_ERROR(RewriteLeafCopies(*instance, first_key, last_key));
  }
  std::uint64_t bytes = 0;
  for (const std::string& path : made) {
    CKPTREE_ASSIGN_OR_RETURN(const std::uint64_t size,
                             FileSize(impl.writer_options, path));
    bytes += size;
  }
  return bytes;
}

absl::Status Database::MendLeafCopies() {
  Impl& impl = *impl_;
  CKPTREE_RETURN_IF_ERROR(impl.mark.Check());
  // Held over I/O: see Adopt.
  const absl::MutexLock lock(&impl.files_mutex);
  CKPTREE_ASSIGN_OR_RETURN(const std::shared_ptr<Instance> instance,
                           impl.Writing());
  CKPTREE_ASSIGN_OR_RETURN(const std::vector<LiveFile> files,
                           impl.ListFiles(/*copies=*/false));
  CKPTREE_ASSIGN_OR_RETURN(const std::vector<LiveFile> copies,
                           impl.ListFiles(/*copies=*/true));
  const auto meets_one_of = [](const std::vector<LiveFile>& others,
                               const LiveFile& file) {
    return std::any_of(others.begin(), others.end(), [&](const LiveFile& it) {
      return it.space == schema::Space::kLeaves &&
             it.first_key <= file.last_key && it.last_key >= file.first_key;
    });
  };
  for (const LiveFile& copy : copies) {
    if (meets_one_of(files, copy)) continue;
    CKPTREE_RETURN_IF_ERROR(impl.lock->Check());
    const std::string past = copy.last_key + '\0';
    const rocksdb::Slice begin(copy.first_key);
    const rocksdb::Slice end(past);
    const rocksdb::RangePtr range(&begin, &end);
    CKPTREE_RETURN_IF_ERROR(ToStatus(
        instance->DeleteFilesInRanges(instance->leaf_copies(), &range, 1),
        "dropping copies of leaf records"));
  }
  const std::string folder = Join(staging_directory(), kLeafCopiesName);
  const std::string path = Join(folder, "copy.sst");
  for (const LiveFile& file : files) {
    if (file.space != schema::Space::kLeaves || meets_one_of(copies, file)) {
      continue;
    }
    CKPTREE_RETURN_IF_ERROR(impl.lock->Check());
    CKPTREE_RETURN_IF_ERROR(MakeDirectory(impl.writer_options, folder));
    const absl::Status written = WriteLeafCopy(
        *instance, impl.writer_options, path, file.first_key, file.last_key);
    if (absl::IsDataLoss(written)) continue;
    CKPTREE_RETURN_IF_ERROR(written);
    CKPTREE_RETURN_IF_ERROR(SyncDirectory(impl.writer_options, folder));
    const KeptReads reads;
    CKPTREE_RETURN_IF_ERROR(ReadTableEnds(instance->env(), path).status());
    CKPTREE_RETURN_IF_ERROR(
        ToStatus(instance->db()->IngestExternalFile(instance->leaf_copies(),
                                                    {path}, AdoptOptions()),
                 "adopting a copy of leaf records"));
  }
  return RemoveTree(impl.writer_options, folder);
}

}  // namespace ckptree::kv
