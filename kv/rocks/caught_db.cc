// SPDX-License-Identifier: Apache-2.0

#include "kv/rocks/caught_db.h"

#include <sys/mman.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "rocksdb/convenience.h"
#include "rocksdb/db.h"
#include "rocksdb/iterator.h"
#include "rocksdb/options.h"
#include "rocksdb/slice.h"
#include "rocksdb/status.h"
#include "rocksdb/utilities/stackable_db.h"
#include "rocksdb/write_batch.h"

namespace ckptree::kv {
namespace {

using rocksdb::Slice;
using rocksdb::Status;

// What new options of a family take, several times.
constexpr std::size_t kMendBytes = std::size_t{256} << 10;

}  // namespace

bool IsMemoryToWrite() {
  // More than a write takes beside what it is given: the memory of an empty
  // table of rows, of a table that is built, and of the list of all tables.
  constexpr std::size_t kBytes = std::size_t{8} << 20;
  constexpr std::size_t kFewBytes = 1 << 10;
  void* const memory = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return false;
  ::munmap(memory, kBytes);
  // From what the allocator has at hand, too.
  void* const few = ::operator new(kFewBytes, std::nothrow);
  ::operator delete(few);
  return few != nullptr;
}

class CaughtDb::Catching : public rocksdb::StackableDB {
 public:
  Catching(bool writes, std::function<void()> on_harm)
      : StackableDB(static_cast<rocksdb::DB*>(nullptr)),
        writes_(writes),
        on_harm_(std::move(on_harm)),
        reserve_(writes ? ::operator new(kMendBytes) : nullptr) {}
  ~Catching() override { ::operator delete(reserve_.load()); }

  Status Open(absl::FunctionRef<Status(rocksdb::DB** opened)> open);
  Harm harm() const { return harm_.load(); }
  void Note(Harm harm);
  Status Told() const;

  using StackableDB::CompactFiles;
  using StackableDB::CompactRange;
  using StackableDB::CreateColumnFamily;
  using StackableDB::CreateColumnFamilyWithImport;
  using StackableDB::Flush;
  using StackableDB::Get;
  using StackableDB::GetColumnFamilyMetaData;
  using StackableDB::GetIntProperty;
  using StackableDB::GetPropertiesOfAllTables;
  using StackableDB::GetPropertiesOfTablesInRange;
  using StackableDB::GetProperty;
  using StackableDB::IngestExternalFile;
  using StackableDB::NewIterator;

  rocksdb::Status Get(const rocksdb::ReadOptions& options,
                      rocksdb::ColumnFamilyHandle* family,
                      const rocksdb::Slice& key,
                      rocksdb::PinnableSlice* value) override;
  rocksdb::Iterator* NewIterator(const rocksdb::ReadOptions& options,
                                 rocksdb::ColumnFamilyHandle* family) override;
  bool GetProperty(rocksdb::ColumnFamilyHandle* family,
                   const rocksdb::Slice& property, std::string* value) override;
  bool GetIntProperty(rocksdb::ColumnFamilyHandle* family,
                      const rocksdb::Slice& property,
                      std::uint64_t* value) override;
  rocksdb::Status GetPropertiesOfTablesInRange(
      rocksdb::ColumnFamilyHandle* family, const rocksdb::Range* range,
      std::size_t count, rocksdb::TablePropertiesCollection* found) override;
  rocksdb::Status GetPropertiesOfAllTables(
      rocksdb::ColumnFamilyHandle* family,
      rocksdb::TablePropertiesCollection* found) override;
  void GetColumnFamilyMetaData(rocksdb::ColumnFamilyHandle* family,
                               rocksdb::ColumnFamilyMetaData* found) override;
  rocksdb::Status CreateColumnFamilyWithImport(
      const rocksdb::ColumnFamilyOptions& options, const std::string& name,
      const rocksdb::ImportColumnFamilyOptions& import,
      const rocksdb::ExportImportFilesMetaData& tables,
      rocksdb::ColumnFamilyHandle** made) override;
  rocksdb::Status DeleteFilesInRanges(rocksdb::ColumnFamilyHandle* family,
                                      const rocksdb::RangePtr* ranges,
                                      std::size_t count);
  // It holds nothing when it throws.
  void GetLiveFilesMetaData(
      std::vector<rocksdb::LiveFileMetaData>* files) override;

  rocksdb::Status CreateColumnFamily(
      const rocksdb::ColumnFamilyOptions& options, const std::string& name,
      rocksdb::ColumnFamilyHandle** made) override;
  rocksdb::Status Write(const rocksdb::WriteOptions& options,
                        rocksdb::WriteBatch* batch) override;
  rocksdb::Status Flush(const rocksdb::FlushOptions& options,
                        rocksdb::ColumnFamilyHandle* family) override;
  rocksdb::Status CompactRange(const rocksdb::CompactRangeOptions& options,
                               rocksdb::ColumnFamilyHandle* family,
                               const rocksdb::Slice* begin,
                               const rocksdb::Slice* end) override;
  rocksdb::Status CompactFiles(const rocksdb::CompactionOptions& options,
                               rocksdb::ColumnFamilyHandle* family,
                               const std::vector<std::string>& names, int level,
                               int path_id, std::vector<std::string>* made,
                               rocksdb::CompactionJobInfo* info) override;
  rocksdb::Status IngestExternalFile(
      rocksdb::ColumnFamilyHandle* family,
      const std::vector<std::string>& files,
      const rocksdb::IngestExternalFileOptions& options) override;
  rocksdb::Status IngestExternalFiles(
      const std::vector<rocksdb::IngestExternalFileArg>& arguments) override;

 private:
  // `call`, or why not; where it is thrown out of, it did `harm`.
  template <typename Call>
  Status Caught(Harm harm, Call call);
  // An error where there is no memory to begin with.
  template <typename Call>
  Status CaughtWrite(Call call);
  // A look-up in `family`.
  template <typename Call>
  Status CaughtLookUp(rocksdb::ColumnFamilyHandle* family, Call call);
  void Mend(rocksdb::ColumnFamilyHandle* family);
  // What `ask`, a look-up that knows an answer or not, says.
  template <typename Ask>
  bool Knows(rocksdb::ColumnFamilyHandle* family, Ask ask);

  const bool writes_;
  const std::function<void()> on_harm_;
  // Given up for what mends the harm of a look-up; null in one that only reads.
  std::atomic<void*> reserve_;
  std::atomic<bool> noted_ = false;
  std::atomic<Harm> harm_ = Harm::kNone;
};

// Leaves its iterator behind where that, or the database, is harmed.
class CaughtDb::CatchingIterator : public rocksdb::Iterator {
 public:
  CatchingIterator(std::unique_ptr<rocksdb::Iterator> iterator, Catching* db)
      : iterator_(std::move(iterator)), db_(*db) {}
  ~CatchingIterator() override {
    if (thrown_ || db_.harm() == Harm::kStuck) {
      static_cast<void>(iterator_.release());
    }
  }

  bool Valid() const override { return !thrown_ && iterator_->Valid(); }
  void SeekToFirst() override {
    Move([&] { iterator_->SeekToFirst(); });
  }
  void SeekToLast() override {
    Move([&] { iterator_->SeekToLast(); });
  }
  void Seek(const Slice& key) override {
    Move([&] { iterator_->Seek(key); });
  }
  void SeekForPrev(const Slice& key) override {
    Move([&] { iterator_->SeekForPrev(key); });
  }
  void Next() override {
    Move([&] { iterator_->Next(); });
  }
  void Prev() override {
    Move([&] { iterator_->Prev(); });
  }
  Slice key() const override { return iterator_->key(); }
  Slice value() const override { return iterator_->value(); }
  Status status() const override {
    return thrown_ ? db_.Told() : iterator_->status();
  }

 private:
  template <typename Call>
  void Move(Call call) {
    if (thrown_) return;
    try {
      call();
    } catch (...) {
      thrown_ = true;
      db_.Note(Harm::kHeld);
    }
  }

  std::unique_ptr<rocksdb::Iterator> iterator_;
  Catching& db_;
  bool thrown_ = false;
};

Status CaughtDb::Catching::Open(
    absl::FunctionRef<Status(rocksdb::DB** opened)> open) {
  rocksdb::DB* opened = nullptr;
  const Status status = Caught(writes_ ? Harm::kStuck : Harm::kHeld,
                               [&] { return open(&opened); });
  db_ = opened;
  return status;
}

void CaughtDb::Catching::Note(Harm harm) {
  // First: who is told of it finds the handle dead.
  if (!noted_.exchange(true)) on_harm_();
  Harm before = harm_.load();
  while (before < harm && !harm_.compare_exchange_weak(before, harm)) {
  }
}

Status CaughtDb::Catching::Told() const {
  return Status::MemoryLimit(
      harm() == Harm::kStuck
          ? "memory ran out in a write to the index, which cannot be used any "
            "more: end this process, and open the store in a new one"
          : "memory ran out in a read of the index, which cannot be used any "
            "more: close the store and open it again");
}

template <typename Call>
Status CaughtDb::Catching::Caught(Harm harm, Call call) {
  if (this->harm() != Harm::kNone) return Told();
  try {
    return call();
  } catch (...) {
    Note(harm);
  }
  return Told();
}

template <typename Call>
Status CaughtDb::Catching::CaughtLookUp(rocksdb::ColumnFamilyHandle* family,
                                        Call call) {
  return Caught(Harm::kHeld, [&] {
    try {
      return call();
    } catch (...) {
      Note(Harm::kHeld);
      Mend(family);
      throw;
    }
  });
}

// Of a database that may be written to, a look-up marks the place where its
// thread keeps its reference as in use, and the end of a thread asserts that
// none is. New options, even if they are the old ones, give each thread a new
// place.
void CaughtDb::Catching::Mend(rocksdb::ColumnFamilyHandle* family) {
  ::operator delete(reserve_.exchange(nullptr));
  try {
    if (writes_ && harm() == Harm::kHeld) {
      db_->SetOptions(family, {{"report_bg_io_stats", "false"}})
          .PermitUncheckedError();
    }
  } catch (...) {
    Note(Harm::kStuck);
  }
}

template <typename Ask>
bool CaughtDb::Catching::Knows(rocksdb::ColumnFamilyHandle* family, Ask ask) {
  bool known = false;
  const Status status = CaughtLookUp(family, [&] {
    known = ask();
    return Status::OK();
  });
  return status.ok() && known;
}

template <typename Call>
Status CaughtDb::Catching::CaughtWrite(Call call) {
  if (harm() == Harm::kNone && !IsMemoryToWrite()) {
    return Status::MemoryLimit("there is no memory to write the index");
  }
  return Caught(Harm::kStuck, std::move(call));
}

Status CaughtDb::Catching::Get(const rocksdb::ReadOptions& options,
                               rocksdb::ColumnFamilyHandle* family,
                               const Slice& key,
                               rocksdb::PinnableSlice* value) {
  return CaughtLookUp(family,
                      [&] { return db_->Get(options, family, key, value); });
}

rocksdb::Iterator* CaughtDb::Catching::NewIterator(
    const rocksdb::ReadOptions& options, rocksdb::ColumnFamilyHandle* family) {
  std::unique_ptr<rocksdb::Iterator> made;
  const Status status = Caught(Harm::kHeld, [&] {
    made.reset(db_->NewIterator(options, family));
    return Status::OK();
  });
  if (!status.ok()) return rocksdb::NewErrorIterator(status);
  return new CatchingIterator(std::move(made), this);
}

bool CaughtDb::Catching::GetProperty(rocksdb::ColumnFamilyHandle* family,
                                     const Slice& property,
                                     std::string* value) {
  return Knows(family,
               [&] { return db_->GetProperty(family, property, value); });
}

bool CaughtDb::Catching::GetIntProperty(rocksdb::ColumnFamilyHandle* family,
                                        const Slice& property,
                                        std::uint64_t* value) {
  return Knows(family,
               [&] { return db_->GetIntProperty(family, property, value); });
}

Status CaughtDb::Catching::GetPropertiesOfTablesInRange(
    rocksdb::ColumnFamilyHandle* family, const rocksdb::Range* range,
    std::size_t count, rocksdb::TablePropertiesCollection* found) {
  return Caught(Harm::kHeld, [&] {
    return db_->GetPropertiesOfTablesInRange(family, range, count, found);
  });
}

void CaughtDb::Catching::GetLiveFilesMetaData(
    std::vector<rocksdb::LiveFileMetaData>* files) {
  if (harm() != Harm::kNone) throw std::bad_alloc();
  db_->GetLiveFilesMetaData(files);
}

Status CaughtDb::Catching::GetPropertiesOfAllTables(
    rocksdb::ColumnFamilyHandle* family,
    rocksdb::TablePropertiesCollection* found) {
  return Caught(Harm::kHeld,
                [&] { return db_->GetPropertiesOfAllTables(family, found); });
}

void CaughtDb::Catching::GetColumnFamilyMetaData(
    rocksdb::ColumnFamilyHandle* family, rocksdb::ColumnFamilyMetaData* found) {
  const Status status = CaughtLookUp(family, [&] {
    db_->GetColumnFamilyMetaData(family, found);
    return Status::OK();
  });
  if (!status.ok()) throw std::bad_alloc();
}

Status CaughtDb::Catching::CreateColumnFamilyWithImport(
    const rocksdb::ColumnFamilyOptions& options, const std::string& name,
    const rocksdb::ImportColumnFamilyOptions& import,
    const rocksdb::ExportImportFilesMetaData& tables,
    rocksdb::ColumnFamilyHandle** made) {
  return CaughtWrite([&] {
    return db_->CreateColumnFamilyWithImport(options, name, import, tables,
                                             made);
  });
}

Status CaughtDb::Catching::DeleteFilesInRanges(
    rocksdb::ColumnFamilyHandle* family, const rocksdb::RangePtr* ranges,
    std::size_t count) {
  return CaughtWrite([&] {
    return rocksdb::DeleteFilesInRanges(db_, family, ranges, count,
                                        /*include_end=*/false);
  });
}

Status CaughtDb::Catching::CreateColumnFamily(
    const rocksdb::ColumnFamilyOptions& options, const std::string& name,
    rocksdb::ColumnFamilyHandle** made) {
  return CaughtWrite(
      [&] { return db_->CreateColumnFamily(options, name, made); });
}

Status CaughtDb::Catching::Write(const rocksdb::WriteOptions& options,
                                 rocksdb::WriteBatch* batch) {
  return Caught(Harm::kStuck, [&] { return db_->Write(options, batch); });
}

Status CaughtDb::Catching::Flush(const rocksdb::FlushOptions& options,
                                 rocksdb::ColumnFamilyHandle* family) {
  return CaughtWrite([&] { return db_->Flush(options, family); });
}

Status CaughtDb::Catching::CompactRange(
    const rocksdb::CompactRangeOptions& options,
    rocksdb::ColumnFamilyHandle* family, const Slice* begin, const Slice* end) {
  return CaughtWrite(
      [&] { return db_->CompactRange(options, family, begin, end); });
}

Status CaughtDb::Catching::CompactFiles(
    const rocksdb::CompactionOptions& options,
    rocksdb::ColumnFamilyHandle* family, const std::vector<std::string>& names,
    int level, int path_id, std::vector<std::string>* made,
    rocksdb::CompactionJobInfo* info) {
  return CaughtWrite([&] {
    return db_->CompactFiles(options, family, names, level, path_id, made,
                             info);
  });
}

Status CaughtDb::Catching::IngestExternalFile(
    rocksdb::ColumnFamilyHandle* family, const std::vector<std::string>& files,
    const rocksdb::IngestExternalFileOptions& options) {
  return CaughtWrite(
      [&] { return db_->IngestExternalFile(family, files, options); });
}

Status CaughtDb::Catching::IngestExternalFiles(
    const std::vector<rocksdb::IngestExternalFileArg>& arguments) {
  return CaughtWrite([&] { return db_->IngestExternalFiles(arguments); });
}

CaughtDb::CaughtDb(bool writes, std::function<void()> on_harm)
    : catching_(std::make_unique<Catching>(writes, std::move(on_harm))) {}
CaughtDb::~CaughtDb() = default;

Status CaughtDb::Open(absl::FunctionRef<Status(rocksdb::DB** opened)> open) {
  return catching_->Open(open);
}
rocksdb::DB* CaughtDb::db() const { return catching_.get(); }
Status CaughtDb::DeleteFilesInRanges(rocksdb::ColumnFamilyHandle* family,
                                     const rocksdb::RangePtr* ranges,
                                     std::size_t count) {
  return catching_->DeleteFilesInRanges(family, ranges, count);
}
CaughtDb::Harm CaughtDb::harm() const { return catching_->harm(); }
void CaughtDb::Note(Harm harm) { catching_->Note(harm); }
Status CaughtDb::Told() const { return catching_->Told(); }

}  // namespace ckptree::kv
