// SPDX-License-Identifier: Apache-2.0

#include "kv/rocks/leaf_copies.h"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "kv/file_system.h"
#include "kv/files/file_system_of.h"
#include "kv/files/status.h"
#include "kv/journal/cursor.h"
#include "kv/options.h"
#include "kv/rewrite_filter.h"
#include "kv/rocks/instance.h"
#include "kv/rocks/rocksdb_options.h"
#include "kv/segment_writer.h"
#include "rocksdb/db.h"
#include "rocksdb/file_system.h"
#include "rocksdb/iterator.h"
#include "rocksdb/metadata.h"
#include "rocksdb/options.h"
#include "rocksdb/slice.h"
#include "schema/spaces.h"

namespace ckptree::kv {
namespace {

using schema::Space;

constexpr std::size_t kLeafCopyBytes = std::size_t{256} << 10;

std::string_view KeyOf(const rocksdb::Iterator& at) {
  return at.key().ToStringView();
}

}  // namespace

rocksdb::Status GetLeafRecord(const Instance& instance, std::string_view key,
                              rocksdb::PinnableSlice* value) {
  const rocksdb::Status first = instance.db()->Get(
      rocksdb::ReadOptions(), instance.family(Space::kLeaves), key, value);
  if (first.ok() || instance.leaf_copies() == nullptr) return first;
  value->Reset();
  // Also where the key is not there: records are asked for because they are.
  const rocksdb::Status second = instance.db()->Get(
      rocksdb::ReadOptions(), instance.leaf_copies(), key, value);
  if (!second.ok()) return first;
  instance.TellOfSecondCopy(ToStatus(first, "reading"));
  return second;
}

EitherCursor::EitherCursor(MakeFn make,
                           std::function<void(const absl::Status&)> tell)
    : make_(std::move(make)), tell_(std::move(tell)), cursor_(make_(second_)) {}

void EitherCursor::Seek(std::string_view key) {
  if (!status_.ok()) cursor_ = make_(second_);
  status_ = absl::OkStatus();
  cursor_->Seek(key);
  Settle(key);
}

void EitherCursor::Next() {
  passed_.assign(cursor_->key());
  passed_.push_back('\0');
  cursor_->Next();
  Settle(passed_);
}

void EitherCursor::Settle(std::string_view from) {
  if (cursor_->Valid()) return;
  status_ = cursor_->status();
  if (status_.ok()) return;
  std::unique_ptr<Cursor> other = make_(!second_);
  if (other == nullptr) return;
  other->Seek(from);
  if (!other->Valid() && !other->status().ok()) return;
  tell_(status_);
  status_ = absl::OkStatus();
  second_ = !second_;
  cursor_ = std::move(other);
}

absl::StatusOr<std::string> CopyStaged(const Options& options,
                                       const std::string& path) {
  std::string copy = path + ".copy";
  const auto fs = FileSystemOf(options);
  // Never into a file that has another name.
  CKPTREE_RETURN_IF_ERROR(RemoveFile(options, copy));
  std::unique_ptr<rocksdb::FSSequentialFile> in;
  std::unique_ptr<rocksdb::FSWritableFile> out;
  rocksdb::IOStatus status =
      fs->NewSequentialFile(path, rocksdb::FileOptions(), &in, nullptr);
  if (status.ok()) {
    status = fs->NewWritableFile(copy, rocksdb::FileOptions(), &out, nullptr);
  }
  std::string buffer(kLeafCopyBytes, '\0');
  while (status.ok()) {
    rocksdb::Slice piece;
    status = in->Read(buffer.size(), rocksdb::IOOptions(), &piece,
                      buffer.data(), nullptr);
    if (!status.ok() || piece.empty()) break;
    status = out->Append(piece, rocksdb::IOOptions(), nullptr);
  }
  if (status.ok()) status = out->Sync(rocksdb::IOOptions(), nullptr);
  if (out != nullptr) {
    const rocksdb::IOStatus closed = out->Close(rocksdb::IOOptions(), nullptr);
    if (status.ok()) status = closed;
  }
  if (!status.ok()) {
    RemoveFile(options, copy).IgnoreError();
    return ToStatus(status, absl::StrFormat("copying %s", path));
  }
  return copy;
}

absl::Status RewriteLeafCopies(const Instance& instance,
                               std::string_view first_key,
                               std::string_view last_key) {
  rocksdb::ColumnFamilyHandle* const family = instance.leaf_copies();
  if (family == nullptr) return absl::OkStatus();
  std::vector<rocksdb::LiveFileMetaData> files;
  instance.db()->GetLiveFilesMetaData(&files);
  std::vector<std::string> names;
  for (const rocksdb::LiveFileMetaData& file : files) {
    if (file.column_family_name != kLeafCopiesName ||
        file.largestkey < first_key || file.smallestkey > last_key) {
      continue;
    }
    // As for every rewrite: see Database::Rewrite.
    rocksdb::PinnableSlice ignored;
    const rocksdb::Status readable = instance.db()->Get(
        rocksdb::ReadOptions(), family, file.smallestkey, &ignored);
    if (!readable.ok()) {
      instance.TellOfSecondCopy(ToStatus(readable, file.relative_filename));
      return absl::OkStatus();
    }
    names.push_back(file.directory + "/" + file.relative_filename);
  }
  if (names.empty()) return absl::OkStatus();
  rocksdb::ReadOptions reading;
  reading.fill_cache = false;
  const std::unique_ptr<rocksdb::Iterator> kept(
      instance.db()->NewIterator(reading, instance.family(Space::kLeaves)));
  const auto keep = [&](std::string_view key, std::string_view, std::string*) {
    while (kept->Valid() && KeyOf(*kept) < key) kept->Next();
    // Also at an end: see IndexCursor::Next.
    if (!kept->Valid()) kept->Seek(key);
    // What cannot be read may be there.
    const bool there =
        kept->Valid() ? KeyOf(*kept) == key : !kept->status().ok();
    return there ? Rewritten::kAsItIs : Rewritten::kDropped;
  };
  rocksdb::CompactionOptions options;
  options.compression = rocksdb::kNoCompression;
  options.output_file_size_limit = std::numeric_limits<std::uint64_t>::max();
  options.max_subcompactions = 1;
  rocksdb::Status status;
  {
    const RewriteScope scope(keep);
    status = instance.db()->CompactFiles(options, family, names, kBottomLevel);
  }
  if (status.IsCorruption()) {
    instance.TellOfSecondCopy(ToStatus(status, names.front()));
    return absl::OkStatus();
  }
  return ToStatus(status, absl::StrFormat("rewriting %s", names.front()));
}

absl::Status WriteLeafCopy(const Instance& instance, const Options& options,
                           const std::string& path, std::string_view first_key,
                           std::string_view last_key) {
  CKPTREE_RETURN_IF_ERROR(RemoveFile(options, path));
  CKPTREE_ASSIGN_OR_RETURN(const std::unique_ptr<SegmentWriter> writer,
                           SegmentWriter::Create(options, Space::kLeaves, path,
                                                 /*expected_bytes=*/0));
  rocksdb::ReadOptions reading;
  reading.fill_cache = false;
  const std::unique_ptr<rocksdb::Iterator> scan(
      instance.db()->NewIterator(reading, instance.family(Space::kLeaves)));
  for (scan->Seek(first_key); scan->Valid() && KeyOf(*scan) <= last_key;
       scan->Next()) {
    CKPTREE_RETURN_IF_ERROR(
        writer->Add(KeyOf(*scan), scan->value().ToStringView()));
  }
  CKPTREE_RETURN_IF_ERROR(ToStatus(scan->status(), "reading leaf records"));
  return writer->Finish().status();
}

absl::Status CompareLeafCopies(rocksdb::Iterator& first,
                               rocksdb::Iterator& second,
                               std::string_view first_key,
                               std::string_view last_key) {
  std::uint64_t missing = 0;
  second.Seek(first_key);
  for (first.Seek(first_key); first.Valid() && KeyOf(first) <= last_key;
       first.Next()) {
    while (second.Valid() && KeyOf(second) < KeyOf(first)) second.Next();
    if (!second.Valid() && !second.status().ok()) break;
    if (!second.Valid() || second.key() != first.key() ||
        second.value() != first.value()) {
      ++missing;
    }
  }
  CKPTREE_RETURN_IF_ERROR(ToStatus(first.status(), "leaves"));
  CKPTREE_RETURN_IF_ERROR(
      ToStatus(second.status(), "the second copy of leaf records"));
  if (missing == 0) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrFormat("%d leaf records are not in their second copy", missing));
}

}  // namespace ckptree::kv
