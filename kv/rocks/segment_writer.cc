// SPDX-License-Identifier: Apache-2.0

// Hot path: per record written.

#include "kv/segment_writer.h"

#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "kv/file_system.h"
#include "kv/files/file_system_of.h"
#include "kv/files/permissions.h"
#include "kv/files/status.h"
#include "kv/options.h"
#include "kv/process_mark.h"
#include "kv/rocks/rocksdb_options.h"
#include "kv/rocks/segment_layout.h"
#include "rocksdb/env.h"
#include "rocksdb/file_system.h"
#include "rocksdb/options.h"
#include "rocksdb/sst_file_writer.h"
#include "schema/spaces.h"

namespace ckptree::kv {
namespace {

// RocksDB 7.8 cuts the length of a value of 4 GiB without a word.
constexpr std::size_t kMaxSegmentValueBytes = std::size_t{64} << 20;
constexpr std::size_t kMaxKeyBytes = std::size_t{1} << 16;

// Reserves the space of the file while it is being created.
class ReservingFileSystem : public rocksdb::FileSystemWrapper {
 public:
  ReservingFileSystem(const std::shared_ptr<rocksdb::FileSystem>& base,
                      int permissions, std::uint64_t expected_bytes)
      : FileSystemWrapper(base),
        mode_(WithoutUmask(FileMode(permissions))),
        expected_bytes_(expected_bytes) {}

  const char* Name() const override { return "ckptree.ReservingFileSystem"; }

  rocksdb::IOStatus NewWritableFile(
      const std::string& path, const rocksdb::FileOptions& options,
      std::unique_ptr<rocksdb::FSWritableFile>* file,
      rocksdb::IODebugContext* dbg) override {
    rocksdb::IOStatus status =
        FileSystemWrapper::NewWritableFile(path, options, file, dbg);
    if (!status.ok()) return status;
    static_cast<void>(::chmod(path.c_str(), mode_));
    if (expected_bytes_ == 0) return status;
    status = (*file)->Allocate(0, expected_bytes_, rocksdb::IOOptions(), dbg);
    if (status.IsNoSpace()) {
      (*file)->Close(rocksdb::IOOptions(), dbg).PermitUncheckedError();
      file->reset();
      FileSystemWrapper::DeleteFile(path, rocksdb::IOOptions(), dbg)
          .PermitUncheckedError();
      return status;
    }
    // Any other refusal is a file system that cannot reserve: go on without.
    // Noting the reservation makes Close() give back what was not used.
    (*file)->SetPreallocationBlockSize(expected_bytes_);
    (*file)->PrepareWrite(0, 1, rocksdb::IOOptions(), dbg);
    return rocksdb::IOStatus::OK();
  }

 private:
  const mode_t mode_;
  const std::uint64_t expected_bytes_;
};

}  // namespace

// Members are destroyed from the last to the first: the writer before what it
// writes through.
struct SegmentWriter::Impl {
  Impl(const Options& options_in, schema::Space space_in, std::string path_in,
       std::uint64_t expected_bytes)
      : options(options_in),
        space(space_in),
        path(std::move(path_in)),
        env(rocksdb::NewCompositeEnv(std::make_shared<ReservingFileSystem>(
            FileSystemOf(options_in), options_in.permissions, expected_bytes))),
        writer(rocksdb::EnvOptions(),
               FileOptionsOf(space_in, env.get(), /*map=*/false)) {}

  absl::Status CheckKey(std::string_view key, std::uint64_t value_bytes) const;
  absl::Status Put(std::string_view key, std::string_view value);

  const ProcessMark mark;
  const Options options;
  const schema::Space space;
  const std::string path;
  const std::unique_ptr<rocksdb::Env> env;
  rocksdb::SstFileWriter writer;
  // Where the next block starts, for kChunks exactly.
  std::uint64_t offset = 0;
  std::uint64_t entries = 0;
  std::string first_key;
  std::string last_key;
  absl::Status failure;
  bool finished = false;
};

absl::Status SegmentWriter::Impl::CheckKey(std::string_view key,
                                           std::uint64_t value_bytes) const {
  CKPTREE_RETURN_IF_ERROR(mark.Check());
  CKPTREE_RETURN_IF_ERROR(failure);
  if (finished) return absl::FailedPreconditionError("the segment is finished");
  if (key.size() > kMaxKeyBytes || value_bytes > kMaxSegmentValueBytes) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "a record has a key of %d and a value of %d bytes; at "
        "most %d and %d are possible",
        key.size(), value_bytes, kMaxKeyBytes, kMaxSegmentValueBytes));
  }
  if (entries > 0 && key <= last_key) {
    return absl::InvalidArgumentError("keys of a segment must ascend");
  }
  return absl::OkStatus();
}

absl::Status SegmentWriter::Impl::Put(std::string_view key,
                                      std::string_view value) {
  const rocksdb::Status status = writer.Put(key, value);
  if (!status.ok()) {
    failure = ToStatus(status, absl::StrFormat("writing %s", path));
    return failure;
  }
  offset +=
      BytesBefore(key.size(), value.size()) + value.size() + kBlockTailBytes;
  if (entries++ == 0) first_key = key;
  last_key = key;
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<SegmentWriter>> SegmentWriter::Create(
    const Options& options, schema::Space space, std::string path,
    std::uint64_t expected_bytes) {
  if (space != schema::Space::kLeaves && space != schema::Space::kChunks) {
    return absl::InvalidArgumentError("segments hold leaves or chunks");
  }
  const rocksdb::IOStatus there =
      FileSystemOf(options)->FileExists(path, rocksdb::IOOptions(), nullptr);
  if (there.ok()) {
    return absl::AlreadyExistsError(absl::StrFormat("%s is there", path));
  }
  auto impl =
      std::make_unique<Impl>(options, space, std::move(path), expected_bytes);
  const rocksdb::Status status = impl->writer.Open(impl->path);
  if (!status.ok()) {
    impl->finished = true;  // Nothing of ours to remove.
    return ToStatus(status, absl::StrFormat("creating %s", impl->path));
  }
  return std::unique_ptr<SegmentWriter>(new SegmentWriter(std::move(impl)));
}

SegmentWriter::SegmentWriter(std::unique_ptr<Impl> impl)
    : impl_(std::move(impl)) {}

SegmentWriter::~SegmentWriter() {
  if (!impl_->mark.Holds()) {
    static_cast<void>(impl_.release());
    return;
  }
  if (!impl_->finished) RemoveFile(impl_->options, impl_->path).IgnoreError();
}

absl::Status SegmentWriter::Add(std::string_view key, std::string_view value) {
  CKPTREE_RETURN_IF_ERROR(impl_->CheckKey(key, value.size()));
  return impl_->Put(key, value);
}

absl::Status SegmentWriter::AddAligned(std::string_view key,
                                       std::string_view value) {
  if (impl_->space != schema::Space::kChunks) {
    return absl::InvalidArgumentError("only chunks are aligned");
  }
  CKPTREE_RETURN_IF_ERROR(impl_->CheckKey(key, value.size()));
  const std::uint64_t before = BytesBefore(key.size(), value.size());
  const std::uint64_t alignment =
      value.size() < kLargeValue ? kAlignment : kLargeAlignment;
  if ((impl_->offset + before) % alignment != 0) {
    const std::string gap = impl_->last_key + '\0';
    if (impl_->entries == 0 || gap >= key) {
      return absl::InvalidArgumentError(
          "there is no key for a gap before an aligned record");
    }
    static constexpr char kZeros[kMostGapBytes] = {};
    const std::uint64_t zeros =
        GapBytes(alignment, impl_->offset, gap.size(), before);
    CKPTREE_RETURN_IF_ERROR(impl_->Put(gap, {kZeros, zeros}));
  }
  return impl_->Put(key, value);
}

std::uint64_t SegmentWriter::bytes() const { return impl_->offset; }

absl::StatusOr<StagedSegment> SegmentWriter::Finish() {
  CKPTREE_RETURN_IF_ERROR(impl_->mark.Check());
  CKPTREE_RETURN_IF_ERROR(impl_->failure);
  if (impl_->finished) {
    return absl::FailedPreconditionError("the segment is finished");
  }
  if (impl_->entries == 0) {
    return absl::InvalidArgumentError("a segment needs a record");
  }
  rocksdb::ExternalSstFileInfo info;
  const rocksdb::Status status = impl_->writer.Finish(&info);
  if (!status.ok()) {
    impl_->failure =
        ToStatus(status, absl::StrFormat("finishing %s", impl_->path));
    return impl_->failure;
  }
  impl_->finished = true;
  return StagedSegment{.space = impl_->space,
                       .path = impl_->path,
                       .first_key = impl_->first_key,
                       .last_key = impl_->last_key,
                       .file_bytes = info.file_size};
}

}  // namespace ckptree::kv
