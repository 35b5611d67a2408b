// SPDX-License-Identifier: Apache-2.0

// Database: its life, and reads that need no protocol.

#include "kv/database.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "base/status_macros.h"
#include "kv/file_system.h"
#include "kv/files/file_system_of.h"
#include "kv/files/status.h"
#include "kv/journal/overlay.h"
#include "kv/journal/preface.h"
#include "kv/journal/reserve.h"
#include "kv/options.h"
#include "kv/rocks/database_impl.h"
#include "kv/rocks/guard.h"
#include "kv/rocks/instance.h"
#include "kv/rocks/leaf_copies.h"
#include "kv/rocks/rocksdb_options.h"
#include "kv/rocks/watcher.h"
#include "kv/store_directory.h"
#include "rocksdb/db.h"
#include "rocksdb/file_system.h"
#include "rocksdb/iterator.h"
#include "rocksdb/metadata.h"
#include "rocksdb/options.h"
#include "rocksdb/sst_file_reader.h"
#include "rocksdb/table_properties.h"
#include "schema/spaces.h"

namespace ckptree::kv {
namespace {

// More rows than these are read from the beginning as fast as one by one.
constexpr std::size_t kMostChanged = std::size_t{1} << 16;
// In the staging folder, which each open for writing empties.
constexpr std::string_view kHeldRoomName = "flush-room.tmp";
constexpr std::size_t kVerifyReadahead = std::size_t{2} << 20;

}  // namespace

Database::Impl::Impl(std::string directory_in, const Options& options_in,
                     Mode mode_in)
    : directory(std::move(directory_in)),
      options(options_in),
      mode(mode_in),
      watcher(std::make_shared<Watcher>(options_in.log)),
      flush_room(std::make_shared<HeldRoom>(
          Join(Join(directory, kStagingName), kHeldRoomName))),
      reader_options(Guarded(options_in, Guard::kReader, nullptr)),
      writer_options(GuardedForWriting()),
      table_files(std::make_shared<TableFiles>(options_in)),
      table_search(options_in),
      far_tables(options_in.far == nullptr
                     ? nullptr
                     : std::make_unique<FarTables>(options_in)),
      spare_tables(options_in.spare == nullptr
                       ? nullptr
                       : std::make_unique<SpareTables>(options_in)),
      tail(reader_options, directory) {
  watcher->Follow(
      {.changed =
           [weak = std::weak_ptr(table_files)] {
             if (const auto files = weak.lock()) files->NoteChange();
           },
       .removed =
           [weak = std::weak_ptr(table_files),
            also = std::weak_ptr(mapped)](std::string_view path) {
             if (const auto files = weak.lock()) files->NoteRemoved(path);
             if (const auto files = also.lock()) files->NoteRemoved(path);
           },
       .flushing =
           [room = flush_room](std::string_view path) { room->IsFor(path); }});
}

Options Database::Impl::GuardedForWriting() {
  return Guarded(
      InPlace(options, place), Guard::kWriter,
      [to = watcher](std::string_view text) {
        to->Fail(absl::UnknownError(absl::StrFormat(
            "a write that opening depends on failed: %s", text)));
      },
      flush_room);
}

absl::StatusOr<std::shared_ptr<Instance>> Database::Impl::Reading() const {
  CKPTREE_ASSIGN_OR_RETURN(RowView view, ReadingRows());
  return std::move(view.instance);
}

absl::StatusOr<Database::Impl::RowView> Database::Impl::ReadingRows() const {
  CKPTREE_RETURN_IF_ERROR(mark.Check());
  const absl::MutexLock hold(&instance_mutex);
  if (instance == nullptr) {
    return absl::FailedPreconditionError("the database is closed");
  }
  return RowView{instance, overlay};
}

absl::StatusOr<std::shared_ptr<Instance>> Database::Impl::Writing() const {
  CKPTREE_ASSIGN_OR_RETURN(std::shared_ptr<Instance> open, Reading());
  if (!writable) {
    return absl::FailedPreconditionError("the database is open for reading");
  }
  CKPTREE_RETURN_IF_ERROR(watcher->health());
  return open;
}

void Database::Impl::Replace(std::shared_ptr<Instance> with, bool is_following,
                             std::shared_ptr<const Overlay> over) {
  {
    const absl::MutexLock hold(&instance_mutex);
    instance.swap(with);
    overlay.swap(over);
    following = is_following;
    CountView();
  }
  // Not before: a reader might list the files of the old one again.
  ForgetFiles();
}

void Database::Impl::ReplaceOverlay(std::shared_ptr<const Overlay> over,
                                    std::vector<std::string> changed) {
  const absl::MutexLock hold(&instance_mutex);
  overlay.swap(over);
  changed_keys += changed.size();
  if (changed_keys > kMostChanged) {
    CountView();
  } else {
    view_changes.push_back({++views, std::move(changed)});
  }
}

void Database::Impl::CountView() {
  view_changes.clear();
  changed_keys = 0;
  changes_from = ++views;
}

std::optional<Database::Changes> Database::ChangesSince(std::uint64_t view) {
  const absl::MutexLock hold(&impl_->instance_mutex);
  if (view < impl_->changes_from) return std::nullopt;
  while (!impl_->view_changes.empty() &&
         impl_->view_changes.front().view <= view) {
    impl_->changed_keys -= impl_->view_changes.front().keys.size();
    impl_->view_changes.pop_front();
  }
  impl_->changes_from = view;
  Changes changes;
  changes.view = impl_->views.load();
  for (const Impl::ViewChanges& one : impl_->view_changes) {
    changes.keys.insert(changes.keys.end(), one.keys.begin(), one.keys.end());
  }
  return changes;
}

std::uint64_t Database::view() const { return impl_->views.load(); }

std::uint64_t Database::newest_ordinal() const {
  return impl_->newest_ordinal.load();
}

bool Database::newest_is_durable() const {
  return impl_->mode == Mode::kReadWrite ||
         impl_->durable_ordinal.load() >= impl_->newest_ordinal.load();
}
std::uint64_t Database::session() const { return impl_->session.load(); }

Database::Database(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Database::~Database() {
  if (!impl_->mark.Holds()) {
    static_cast<void>(impl_.release());
    return;
  }
  try {
    Close().IgnoreError();
    // Of an open that failed half-way.
    if (impl_->keeper != nullptr) impl_->keeper->Close(false).IgnoreError();
  } catch (const std::bad_alloc&) {
    // Threads may be at it: all stays as it is, its lock too, until the process
    // ends.
    static_cast<void>(impl_.release());
  }
}

absl::Status Database::Close() {
  Impl& impl = *impl_;
  CKPTREE_ASSIGN_OR_RETURN(const std::shared_ptr<Instance> instance,
                           impl.Reading());
  absl::Status status;
  if (impl.keeper != nullptr) {
    // Not needed for what was committed: it makes the next open quick. RocksDB
    // sleeps for a second where a flush fails, as it would in a dead handle.
    status = impl.watcher->health();
    // Another store may stand at its name.
    status.Update(impl.place->Check());
    const bool flushed =
        status.ok() && impl.writable.load() && impl.FlushIndex().ok();
    status.Update(impl.keeper->Close(flushed));
  }
  impl.writable = false;
  status.Update(instance->Shutdown());
  // Nothing of ours is written any more. Also where nothing was committed: the
  // open itself may have given the reserve up.
  if (impl.keeper != nullptr && impl.place->Check().ok()) {
    MakeReserve(impl.writer_options, impl.directory, /*smaller=*/true)
        .IgnoreError();
  }
  impl.Replace(nullptr, /*is_following=*/false);
  // The instance keeps the lock until it is closed itself.
  impl.lock.reset();
  return status;
}

Mode Database::mode() const { return impl_->mode; }

const OpenReport& Database::report() const { return impl_->report; }

std::string Database::staging_directory() const {
  return Join(impl_->directory, kStagingName);
}

bool Database::reads_far() const { return impl_->AllFar(); }

bool Database::any_far() const {
  return impl_->far_tables != nullptr &&
         (impl_->AllFar() || impl_->options.far->any());
}

absl::Status Database::FarAnswers() const {
  return impl_->far_tables == nullptr ? absl::OkStatus()
                                      : impl_->options.far->Answers();
}

bool Database::IsFar(schema::Space space, std::string_view key) const {
  return impl_->FarOf(space, key) != nullptr;
}

void Database::DoubtFetched(bool doubt) const {
  if (impl_->far_tables != nullptr) impl_->far_tables->DoubtFetched(doubt);
}

bool Database::following() const {
  const absl::MutexLock hold(&impl_->instance_mutex);
  return impl_->following;
}

absl::Status Database::health() const {
  CKPTREE_RETURN_IF_ERROR(impl_->mark.Check());
  return impl_->watcher->health();
}

void Database::Abandon() const { impl_->watcher->Abandon(); }

bool Database::IsHere(std::string_view key) const {
  const absl::StatusOr<std::shared_ptr<Instance>> open = impl_->Reading();
  return open.ok() && impl_->IsIn(**open, key);
}

bool Database::Impl::IsIn(const Instance& open, std::string_view key) const {
  rocksdb::PinnableSlice value;
  return !open.db()
              ->Get(rocksdb::ReadOptions(), open.family(schema::Space::kChunks),
                    key, &value)
              .IsNotFound();
}

absl::StatusOr<std::vector<LiveFile>> Database::LiveFiles() const {
  return impl_->ListFiles(/*copies=*/false);
}

absl::StatusOr<std::vector<LiveFile>> Database::LeafCopies() const {
  return impl_->ListFiles(/*copies=*/true);
}

absl::StatusOr<std::vector<LiveFile>> Database::Impl::ListFiles(
    bool copies) const {
  CKPTREE_ASSIGN_OR_RETURN(const std::shared_ptr<Instance> open, Reading());
  if (AllFar()) {
    return copies ? std::vector<LiveFile>() : far_tables->LiveFiles();
  }
  std::vector<rocksdb::LiveFileMetaData> files;
  open->db()->GetLiveFilesMetaData(&files);
  std::vector<LiveFile> live;
  for (const rocksdb::LiveFileMetaData& file : files) {
    LiveFile entry;
    entry.copy = copies;
    if (file.column_family_name ==
        (copies ? kLeafCopiesName : schema::NameOf(schema::Space::kLeaves))) {
      entry.space = schema::Space::kLeaves;
    } else if (copies || file.column_family_name !=
                             schema::NameOf(schema::Space::kChunks)) {
      continue;
    }
    entry.path = Join(file.directory, file.relative_filename);
    entry.first_key = file.smallestkey;
    entry.last_key = file.largestkey;
    entry.bytes = file.size;
    entry.entries = file.num_entries;
    const absl::StatusOr<std::uint64_t> size =
        FileSize(reader_options, entry.path);
    entry.whole = size.ok() && *size == entry.bytes;
    live.push_back(std::move(entry));
  }
  if (far_tables != nullptr && !copies) AddFarFiles(*open, &live);
  return live;
}

// Those that are not here as well.
void Database::Impl::AddFarFiles(const Instance& open,
                                 std::vector<LiveFile>* live) const {
  std::vector<LiveFile> far = far_tables->LiveFiles();
  if (far.empty()) return;
  std::map<std::string_view, std::string_view> here;
  for (const LiveFile& file : *live) {
    if (file.space == schema::Space::kChunks && file.whole) {
      here[file.first_key] = file.last_key;
    }
  }
  std::erase_if(far, [&](const LiveFile& file) {
    const auto after = here.upper_bound(file.first_key);
    // A file of several segments may lack one between them.
    return after != here.begin() && file.last_key <= std::prev(after)->second &&
           IsIn(open, file.last_key);
  });
  std::move(far.begin(), far.end(), std::back_inserter(*live));
}

absl::StatusOr<std::uint64_t> Database::FileBytes() const {
  return impl_->FileBytes(/*settled=*/false);
}

absl::StatusOr<std::uint64_t> Database::SettledFileBytes() const {
  return impl_->FileBytes(/*settled=*/true);
}

absl::StatusOr<std::uint64_t> Database::Impl::FileBytes(bool settled) const {
  const std::uint64_t writing =
      settled && keeper != nullptr ? keeper->file() : 0;
  const auto skipped = [&](std::string_view name) {
    if (!settled) return false;
    const auto file = ParseJournalFileName(name);
    return name == kReserveName ||
           (writing != 0 && file.has_value() && file->file >= writing);
  };
  std::uint64_t total = 0;
  for (const std::string& folder :
       {IndexDirectory(directory), Join(directory, kJournalName)}) {
    CKPTREE_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                             ListDirectory(reader_options, folder));
    for (const std::string& name : names) {
      if (skipped(name)) continue;
      const absl::StatusOr<std::uint64_t> bytes =
          FileSize(reader_options, Join(folder, name));
      if (bytes.ok()) total += *bytes;  // Others went since.
    }
  }
  return total;
}

namespace {

// What the table says of itself.
absl::StatusOr<std::shared_ptr<const rocksdb::TableProperties>> PropertiesOf(
    const Instance& instance, const LiveFile& file) {
  const std::string end = file.last_key + '\0';
  const rocksdb::Range range(file.first_key, end);
  rocksdb::TablePropertiesCollection tables;
  CKPTREE_RETURN_IF_ERROR(ToStatus(
      instance.db()->GetPropertiesOfTablesInRange(
          file.copy ? instance.leaf_copies() : instance.family(file.space),
          &range, 1, &tables),
      file.path));
  for (const auto& [path, properties] : tables) {
    if (BaseName(path) == BaseName(file.path)) return properties;
  }
  return absl::NotFoundError(absl::StrFormat("%s is gone", file.path));
}

}  // namespace

absl::StatusOr<std::uint64_t> Database::CountEntries(
    const LiveFile& file) const {
  CKPTREE_ASSIGN_OR_RETURN(const std::shared_ptr<Instance> instance,
                           impl_->Reading());
  if (file.far) return impl_->far_tables->CountEntries(file);
  CKPTREE_ASSIGN_OR_RETURN(const auto properties,
                           PropertiesOf(*instance, file));
  return properties->num_entries;
}

absl::StatusOr<bool> Database::IsAsBuilt(const LiveFile& file) const {
  CKPTREE_ASSIGN_OR_RETURN(const std::shared_ptr<Instance> instance,
                           impl_->Reading());
  CKPTREE_ASSIGN_OR_RETURN(const auto properties,
                           PropertiesOf(*instance, file));
  return properties->user_collected_properties.contains(
      "rocksdb.external_sst_file.version");
}

absl::Status Database::CheckFile(const LiveFile& file) const {
  CKPTREE_ASSIGN_OR_RETURN(const std::shared_ptr<Instance> instance,
                           impl_->Reading());
  if (file.far) return impl_->far_tables->Check(file);
  CKPTREE_ASSIGN_OR_RETURN(const std::uint64_t size,
                           FileSize(impl_->reader_options, file.path));
  if (size != file.bytes) {
    return absl::DataLossError(absl::StrFormat("%s has %d bytes instead of %d",
                                               file.path, size, file.bytes));
  }
  {
    // What the page cache still has says nothing about the disk.
    std::unique_ptr<rocksdb::FSRandomAccessFile> pages;
    const auto fs = FileSystemOf(impl_->reader_options);
    if (fs->NewRandomAccessFile(file.path, rocksdb::FileOptions(), &pages,
                                nullptr)
            .ok()) {
      pages->InvalidateCache(0, 0).PermitUncheckedError();
    }
  }
  // Not mapped: see 8.11 on prefetching beside mappings.
  rocksdb::SstFileReader reader(
      FileOptionsOf(file.space, instance->env(), /*map=*/false));
  rocksdb::ReadOptions options;
  options.verify_checksums = true;
  options.fill_cache = false;
  options.readahead_size = kVerifyReadahead;
  rocksdb::Status status = reader.Open(file.path);
  if (status.ok()) status = reader.VerifyChecksum(options);
  return ToStatus(status, file.path);
}

absl::Status Database::CheckLeafCopies(const LiveFile& file) const {
  CKPTREE_ASSIGN_OR_RETURN(const std::shared_ptr<Instance> instance,
                           impl_->Reading());
  if (impl_->AllFar() || instance->leaf_copies() == nullptr) {
    return absl::OkStatus();
  }
  rocksdb::ReadOptions options;
  options.fill_cache = false;
  std::unique_ptr<rocksdb::Iterator> first;
  std::unique_ptr<rocksdb::Iterator> second;
  {
    // Nothing is adopted or dropped between the two.
    const absl::MutexLock lock(&impl_->files_mutex);
    first.reset(instance->db()->NewIterator(
        options, instance->family(schema::Space::kLeaves)));
    second.reset(instance->db()->NewIterator(options, instance->leaf_copies()));
  }
  return CompareLeafCopies(*first, *second, file.first_key, file.last_key);
}

absl::StatusOr<std::uint64_t> Database::FreeBytes() const {
  CKPTREE_RETURN_IF_ERROR(impl_->mark.Check());
  return impl_->FreeBytes();
}

absl::StatusOr<std::uint64_t> Database::Impl::FreeBytes() const {
  std::uint64_t bytes = 0;
  CKPTREE_RETURN_IF_ERROR(ToStatus(
      FileSystemOf(reader_options)
          ->GetFreeSpace(directory, rocksdb::IOOptions(), &bytes, nullptr),
      directory));
  return bytes;
}

}  // namespace ckptree::kv
