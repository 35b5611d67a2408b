// SPDX-License-Identifier: Apache-2.0

#include "kv/rocks/kept_reads.h"

#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "kv/files/status.h"
#include "kv/rocks/rocksdb_options.h"
#include "rocksdb/file_system.h"
#include "rocksdb/iterator.h"
#include "rocksdb/options.h"
#include "rocksdb/sst_file_reader.h"
#include "rocksdb/table_properties.h"
#include "schema/spaces.h"

namespace ckptree::kv {
namespace {

thread_local KeptReads* current = nullptr;

}  // namespace

absl::StatusOr<TableEnds> ReadTableEnds(rocksdb::Env* env,
                                        const std::string& path) {
  rocksdb::SstFileReader reader(
      FileOptionsOf(schema::Space::kLeaves, env, /*map=*/false));
  CKPTREE_RETURN_IF_ERROR(ToStatus(reader.Open(path), path));
  const auto properties = reader.GetTableProperties();
  if (properties == nullptr) {
    return absl::DataLossError(
        absl::StrFormat("the properties of %s cannot be read", path));
  }
  rocksdb::ReadOptions read;
  read.fill_cache = false;
  const std::unique_ptr<rocksdb::Iterator> at(reader.NewIterator(read));
  const auto key = [&]() -> absl::StatusOr<std::string> {
    CKPTREE_RETURN_IF_ERROR(ToStatus(at->status(), path));
    if (at->Valid()) return at->key().ToString();
    return absl::DataLossError(absl::StrFormat("%s has no record", path));
  };
  TableEnds ends;
  ends.family = properties->column_family_name;
  at->SeekToFirst();
  CKPTREE_ASSIGN_OR_RETURN(ends.first_key, key());
  ends.first_value = at->value().ToString();
  at->SeekToLast();
  CKPTREE_ASSIGN_OR_RETURN(ends.last_key, key());
  return ends;
}

// Also used by RocksDB on other threads, and when the reads are kept no more.
class KeptReads::File : public rocksdb::FSRandomAccessFileOwnerWrapper {
 public:
  File(std::unique_ptr<rocksdb::FSRandomAccessFile> file, std::string path)
      : FSRandomAccessFileOwnerWrapper(std::move(file)),
        path_(std::move(path)) {}

  rocksdb::IOStatus Read(std::uint64_t offset, std::size_t n,
                         const rocksdb::IOOptions& options,
                         rocksdb::Slice* result, char* scratch,
                         rocksdb::IODebugContext* dbg) const override {
    KeptReads* const kept = Current();
    if (kept != nullptr && kept->Find(path_, offset, n, scratch)) {
      *result = rocksdb::Slice(scratch, n);
      return rocksdb::IOStatus::OK();
    }
    rocksdb::IOStatus status = FSRandomAccessFileOwnerWrapper::Read(
        offset, n, options, result, scratch, dbg);
    if (kept != nullptr && status.ok()) {
      kept->pieces_[path_].Keep(offset, result->ToStringView());
    }
    return status;
  }

  rocksdb::IOStatus MultiRead(rocksdb::FSReadRequest* requests,
                              std::size_t count,
                              const rocksdb::IOOptions& options,
                              rocksdb::IODebugContext* dbg) override {
    for (std::size_t i = 0; i < count; ++i) {
      rocksdb::FSReadRequest& one = requests[i];
      one.status =
          Read(one.offset, one.len, options, &one.result, one.scratch, dbg);
    }
    return rocksdb::IOStatus::OK();
  }

 private:
  const std::string path_;
};

KeptReads::KeptReads() { current = this; }

KeptReads::~KeptReads() { current = nullptr; }

KeptReads* KeptReads::Current() { return current; }

std::unique_ptr<rocksdb::FSRandomAccessFile> KeptReads::Keeping(
    std::unique_ptr<rocksdb::FSRandomAccessFile> file,
    const std::string& path) {
  return std::make_unique<File>(std::move(file), path);
}

bool KeptReads::Find(const std::string& path, std::uint64_t offset,
                     std::size_t bytes, char* to) const {
  const auto pieces = pieces_.find(path);
  return pieces != pieces_.end() && pieces->second.Find(offset, bytes, to);
}

}  // namespace ckptree::kv
