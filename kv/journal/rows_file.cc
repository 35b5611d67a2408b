// SPDX-License-Identifier: Apache-2.0

#include "kv/journal/rows_file.h"

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "base/digest.h"
#include "base/status_macros.h"
#include "kv/file_system.h"
#include "kv/files/file_system_of.h"
#include "kv/files/status.h"
#include "kv/journal/row.h"
#include "kv/journal/rows_layout.h"
#include "kv/options.h"
#include "kv/store_directory.h"
#include "rocksdb/file_system.h"

namespace ckptree::kv {
namespace {

constexpr std::string_view kNamePrefix = "rows-";
constexpr std::size_t kOrdinalDigits = 20;

}  // namespace

std::string RowsFileName(std::uint64_t ordinal) {
  return absl::StrFormat("%s%020d", kNamePrefix, ordinal);
}

std::optional<std::uint64_t> OrdinalOfRowsFile(std::string_view name) {
  std::uint64_t ordinal = 0;
  if (!name.starts_with(kNamePrefix) ||
      name.size() != kNamePrefix.size() + kOrdinalDigits) {
    return std::nullopt;
  }
  const char* const end = name.data() + name.size();
  const auto [stop, error] =
      std::from_chars(name.data() + kNamePrefix.size(), end, ordinal);
  if (error != std::errc() || stop != end) return std::nullopt;
  return ordinal;
}

struct RowsWriter::Impl {
  Options options;
  std::string directory;
  std::string path;  // Of rows.tmp.
  RowsHead head;
  std::size_t block_bytes = 0;
  std::unique_ptr<rocksdb::FSWritableFile> file;
  absl::Status status;  // The first error.

  std::uint64_t preface_checksum = 0;
  std::uint64_t offset = 0;
  std::uint64_t digest = 0;
  std::uint64_t blocks = 0;
  std::uint64_t rows = 0;
  std::optional<RowKey> last;
  // The block that is being filled.
  std::string entries;
  std::uint32_t count = 0;

  absl::Status Append(std::string_view bytes) {
    const rocksdb::IOStatus appended =
        file->Append(bytes, rocksdb::IOOptions(), nullptr);
    if (!appended.ok()) return Failed(appended);
    offset += bytes.size();
    return absl::OkStatus();
  }
  absl::Status Failed(const rocksdb::IOStatus& why) const {
    return ToStatus(why, absl::StrFormat("writing %s", path));
  }
  // Nothing of a file that was not finished stays.
  absl::Status Settle(absl::Status result) {
    if (status.ok() && !result.ok()) {
      status = result;
      if (file != nullptr) {
        file->Close(rocksdb::IOOptions(), nullptr).PermitUncheckedError();
        file.reset();
      }
      RemoveFile(options, path).IgnoreError();
    }
    return result;
  }
};

absl::StatusOr<std::unique_ptr<RowsWriter>> RowsWriter::Create(
    const Options& options, const std::string& directory, const RowsHead& head,
    std::size_t block_bytes) {
  auto impl = std::make_unique<Impl>();
  impl->options = options;
  impl->directory = directory;
  impl->path = Join(directory, kRowsTemporaryName);
  impl->head = head;
  impl->block_bytes = block_bytes;
  impl->preface_checksum = RowsPrefaceChecksum(head);
  impl->digest = impl->preface_checksum;
  const rocksdb::IOStatus opened = FileSystemOf(options)->NewWritableFile(
      impl->path, rocksdb::FileOptions(), &impl->file, nullptr);
  if (!opened.ok()) return impl->Settle(impl->Failed(opened));
  CKPTREE_RETURN_IF_ERROR(impl->Settle(impl->Append(EncodeRowsPreface(head))));
  return std::unique_ptr<RowsWriter>(new RowsWriter(std::move(impl)));
}

RowsWriter::RowsWriter(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

RowsWriter::~RowsWriter() {
  if (impl_->file != nullptr) {
    impl_->file->Close(rocksdb::IOOptions(), nullptr).PermitUncheckedError();
  }
}

std::uint64_t RowsWriter::rows() const { return impl_->rows; }
std::uint64_t RowsWriter::bytes() const { return impl_->offset; }

absl::Status RowsWriter::Add(const RowKey& key, const RowValue& value) {
  Impl& impl = *impl_;
  CKPTREE_RETURN_IF_ERROR(impl.status);
  if (impl.last.has_value() && key <= *impl.last) {
    return impl.Settle(absl::InvalidArgumentError(
        absl::StrFormat("%s: rows out of order", impl.path)));
  }
  const std::uint64_t bytes = RowsEntryBytes(key, value);
  if (bytes > std::numeric_limits<std::uint32_t>::max()) {
    return impl.Settle(absl::InvalidArgumentError(
        absl::StrFormat("%s: a row of %d bytes", impl.path, bytes)));
  }
  if (impl.count > 0 && impl.entries.size() + bytes > impl.block_bytes) {
    CKPTREE_RETURN_IF_ERROR(impl.Settle(WriteBlock()));
  }
  AppendRowsEntry(key, value, &impl.entries);
  ++impl.count;
  impl.last = key;
  return absl::OkStatus();
}

absl::Status RowsWriter::WriteBlock() {
  Impl& impl = *impl_;
  RowsBlockHeader header;
  header.length = static_cast<std::uint32_t>(impl.entries.size());
  header.count = impl.count;
  header.rows_before = impl.rows;
  header.checksum = base::ChecksumOf(impl.entries);
  const std::string bytes =
      EncodeRowsBlockHeader(header, impl.offset, impl.preface_checksum);
  CKPTREE_RETURN_IF_ERROR(impl.Append(bytes));
  CKPTREE_RETURN_IF_ERROR(impl.Append(impl.entries));
  impl.digest = ExtendRowsDigest(impl.digest, bytes);
  ++impl.blocks;
  impl.rows += impl.count;
  impl.entries.clear();
  // What one large value took is not held for the rest of the file.
  if (impl.entries.capacity() > 2 * impl.block_bytes) {
    std::string().swap(impl.entries);
  }
  impl.count = 0;
  return absl::OkStatus();
}

absl::Status RowsWriter::WriteFooter() {
  Impl& impl = *impl_;
  if (impl.count > 0) CKPTREE_RETURN_IF_ERROR(WriteBlock());
  RowsFooter footer;
  footer.head = impl.head;
  footer.rows = impl.rows;
  footer.blocks = impl.blocks;
  footer.digest = impl.digest;
  CKPTREE_RETURN_IF_ERROR(impl.Append(EncodeRowsFooter(footer, impl.offset)));
  rocksdb::IOStatus done = impl.file->Sync(rocksdb::IOOptions(), nullptr);
  const rocksdb::IOStatus closed =
      impl.file->Close(rocksdb::IOOptions(), nullptr);
  impl.file.reset();
  if (done.ok()) done = closed;
  if (!done.ok()) return impl.Failed(done);
  return absl::OkStatus();
}

absl::Status RowsWriter::CheckWritten() const {
  const Impl& impl = *impl_;
  {
    // What the page cache has says nothing about the disk.
    std::unique_ptr<rocksdb::FSRandomAccessFile> pages;
    if (FileSystemOf(impl.options)
            ->NewRandomAccessFile(impl.path, rocksdb::FileOptions(), &pages,
                                  nullptr)
            .ok()) {
      pages->InvalidateCache(0, 0).PermitUncheckedError();
    }
  }
  CKPTREE_ASSIGN_OR_RETURN(const std::unique_ptr<RowsReader> reader,
                           RowsReader::Open(impl.options, impl.path));
  std::uint64_t rows = 0;
  while (true) {
    CKPTREE_ASSIGN_OR_RETURN(const RowsEntry* const entry, reader->Next());
    if (entry == nullptr) break;
    ++rows;
  }
  if (reader->head() != impl.head || rows != impl.rows) {
    return absl::DataLossError(
        absl::StrFormat("%s does not read back as it was written", impl.path));
  }
  return absl::OkStatus();
}

absl::Status RowsWriter::Finish() {
  Impl& impl = *impl_;
  CKPTREE_RETURN_IF_ERROR(impl.status);
  CKPTREE_RETURN_IF_ERROR(impl.Settle(WriteFooter()));
  CKPTREE_RETURN_IF_ERROR(impl.Settle(CheckWritten()));
  CKPTREE_RETURN_IF_ERROR(impl.Settle(
      RenameFile(impl.options, impl.path,
                 Join(impl.directory, RowsFileName(impl.head.ordinal)))));
  impl.status = absl::FailedPreconditionError(
      absl::StrFormat("%s is finished", impl.path));
  return SyncDirectory(impl.options, impl.directory);
}

absl::Status MergeRows(RowsReader* base, const RowChanges& changes,
                       RowsWriter* writer) {
  auto change = changes.begin();
  // Adds the changes below `key`, or all that are left.
  const auto add_changes = [&](const RowKey* key) -> absl::Status {
    for (; change != changes.end() && (key == nullptr || change->first < *key);
         ++change) {
      if (!change->second.has_value()) continue;
      CKPTREE_RETURN_IF_ERROR(writer->Add(change->first, *change->second));
    }
    return absl::OkStatus();
  };
  while (base != nullptr) {
    CKPTREE_ASSIGN_OR_RETURN(const RowsEntry* const entry, base->Next());
    if (entry == nullptr) {
      // Of a reader that goes on.
      if (!base->damage().empty()) {
        return absl::DataLossError(base->damage().front().what);
      }
      break;
    }
    CKPTREE_RETURN_IF_ERROR(add_changes(&entry->key));
    if (change != changes.end() && change->first == entry->key) continue;
    CKPTREE_RETURN_IF_ERROR(writer->Add(entry->key, entry->value));
  }
  return add_changes(nullptr);
}

}  // namespace ckptree::kv
