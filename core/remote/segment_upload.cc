// SPDX-License-Identifier: Apache-2.0

#include "core/remote/segment_upload.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/digest.h"
#include "base/status_macros.h"
#include "core/process/guarded_call.h"
#include "core/remote/remote_objects.h"
#include "core/version/open_check.h"
#include "kv/database.h"
#include "kv/far_segments.h"
#include "kv/object_store.h"
#include "kv/segment_writer.h"
#include "kv/store_directory.h"
#include "schema/keys.h"
#include "schema/remote_record.h"

namespace ckptree::internal {
namespace {

constexpr std::size_t kPieceBytes = std::size_t{4} << 20;
// Of one request: its answer takes longer than what is before it.
constexpr std::uint64_t kReadBytes = std::uint64_t{12} << 20;
constexpr std::size_t kReadsAtOnce = 4;

// A file that stays readable when its name goes.
class OpenFile {
 public:
  static absl::StatusOr<std::unique_ptr<OpenFile>> Open(
      const std::string& path) {
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT) {
      return absl::AbortedError(absl::StrFormat("%s is gone", path));
    }
    if (fd < 0) return absl::ErrnoToStatus(errno, "opening " + path);
    auto file = std::unique_ptr<OpenFile>(new OpenFile(fd, path));
    struct stat found;
    if (fstat(fd, &found) != 0) {
      return absl::ErrnoToStatus(errno, "asking of " + path);
    }
    file->size_ = static_cast<std::uint64_t>(found.st_size);
    return file;
  }
  ~OpenFile() { close(fd_); }

  std::uint64_t size() const { return size_; }
  absl::Status Read(std::uint64_t offset, std::span<std::byte> into) const {
    while (!into.empty()) {
      const ssize_t got =
          pread(fd_, into.data(), into.size(), static_cast<off_t>(offset));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return absl::ErrnoToStatus(errno, "reading " + path_);
      if (got == 0) {
        return absl::DataLossError(absl::StrFormat("%s became short", path_));
      }
      into = into.subspan(static_cast<std::size_t>(got));
      offset += static_cast<std::uint64_t>(got);
    }
    return absl::OkStatus();
  }

 private:
  OpenFile(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}
  const int fd_;
  const std::string path_;
  std::uint64_t size_ = 0;
};

// Digests the bytes of a file as they are read to be sent. What a store reads
// in another order than from the beginning to the end is read once more.
class DigestedFile : public kv::ObjectSource {
 public:
  explicit DigestedFile(const OpenFile& file) : file_(file) {}

  std::uint64_t size() const override { return file_.size(); }
  absl::Status Read(std::uint64_t offset,
                    std::span<std::byte> into) const override {
    CKPTREE_RETURN_IF_ERROR(file_.Read(offset, into));
    const absl::MutexLock lock(&mu_);
    if (offset == digested_) Add(into);
    return absl::OkStatus();
  }

  // Once.
  absl::StatusOr<base::Digest> Finish() {
    const absl::MutexLock lock(&mu_);
    std::vector<std::byte> piece;
    while (digested_ < file_.size()) {
      piece.resize(static_cast<std::size_t>(
          std::min<std::uint64_t>(kPieceBytes, file_.size() - digested_)));
      CKPTREE_RETURN_IF_ERROR(file_.Read(digested_, piece));
      Add(piece);
    }
    return digest_.Finish();
  }

 private:
  void Add(std::span<const std::byte> bytes) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    digest_.Update(bytes);
    digested_ += bytes.size();
  }

  const OpenFile& file_;
  mutable absl::Mutex mu_;
  mutable base::DigestStream digest_ ABSL_GUARDED_BY(mu_);
  mutable std::uint64_t digested_ ABSL_GUARDED_BY(mu_) = 0;
};

// Where the blocks of a segment stand in its file.
absl::StatusOr<std::vector<schema::RemoteBlock>> BlocksOf(
    const kv::Options& options, const std::string& path) {
  CKPTREE_ASSIGN_OR_RETURN(const std::vector<kv::BlockInFile> found,
                           kv::BlocksInFile(options, path));
  std::vector<schema::RemoteBlock> blocks;
  for (const kv::BlockInFile& block : found) {
    const std::uint32_t sequence = schema::SequenceOf(block.n);
    if (sequence == schema::kHeaderSequence ||
        sequence == schema::kTableSequence) {
      continue;
    }
    blocks.push_back({sequence, block.offset, block.bytes});
  }
  return blocks;
}

// Of `uploaded`, with its segment, attempt and blocks: the rest of it.
absl::Status UploadFile(const OpenFile& file, std::uint64_t era,
                        const std::string& uuid, kv::ObjectStore& store,
                        std::stop_token cancelled,
                        schema::RemoteSegment* uploaded) {
  DigestedFile source(file);
  uploaded->bytes = source.size();
  CKPTREE_RETURN_IF_ERROR(
      store.Put(RemoteSegmentName(uuid, era, *uploaded), source,
                CallFor(uploaded->bytes, std::move(cancelled))));
  CKPTREE_ASSIGN_OR_RETURN(uploaded->digest, source.Finish());
  return absl::OkStatus();
}

// Its records as they are now, in a file that another database may adopt.
absl::Status BuildAgain(const kv::Database& database,
                        const kv::Options& options,
                        const schema::SegmentKeyFields& segment,
                        const std::string& path) {
  CKPTREE_ASSIGN_OR_RETURN(
      const std::unique_ptr<kv::SegmentWriter> writer,
      kv::SegmentWriter::Create(options, segment.space, path, 0));
  const schema::KeyRange range =
      schema::BlocksOfSegment(segment.version, segment.part, segment.builder);
  CKPTREE_ASSIGN_OR_RETURN(
      kv::Iterator record,
      database.Scan(segment.space, range.begin, range.end));
  for (; record.Valid(); record.Next()) {
    const auto fields = schema::DecodeBlockKey(record.key());
    if (!fields.has_value()) continue;  // A gap.
    const std::uint32_t sequence = schema::SequenceOf(fields->n);
    const bool aligned = segment.space == schema::Space::kChunks &&
                         sequence != schema::kHeaderSequence &&
                         sequence != schema::kTableSequence;
    CKPTREE_RETURN_IF_ERROR(
        aligned ? writer->AddAligned(record.key(), record.value())
                : writer->Add(record.key(), record.value()));
  }
  CKPTREE_RETURN_IF_ERROR(record.status());
  return writer->Finish().status();
}

}  // namespace

kv::Call CallFor(std::uint64_t bytes, std::stop_token cancelled) {
  // What stands still ends before: this is of one that is slow, and has the
  // line for itself and three others.
  return kv::Call::Within(absl::Minutes(1 + static_cast<double>(bytes >> 22)),
                          std::move(cancelled));
}

absl::StatusOr<schema::RemoteSegment> UploadSegment(
    kv::Database& database, const kv::Options& options,
    const std::vector<kv::LiveFile>& files,
    const schema::SegmentKeyFields& segment, std::uint64_t era,
    const std::string& uuid, kv::ObjectStore& store,
    std::stop_token cancelled) {
  const auto gone = [&] {
    return absl::AbortedError(
        absl::StrFormat("%s is gone, or was written again",
                        schema::DescribeKey(schema::Space::kRecords,
                                            schema::SegmentKey(segment))));
  };
  const kv::LiveFile* const file = FileOfSegment(files, segment);
  if (file == nullptr) return gone();
  if (file->far) {
    return absl::DataLossError(absl::StrFormat(
        "%s had left this directory, and nobody has it any more",
        schema::DescribeKey(schema::Space::kRecords,
                            schema::SegmentKey(segment))));
  }
  schema::RemoteSegment uploaded;
  uploaded.segment = segment;
  uploaded.attempt = NewRemoteId();
  const absl::StatusOr<bool> as_built = database.IsAsBuilt(*file);
  if (absl::IsNotFound(as_built.status())) return gone();
  CKPTREE_RETURN_IF_ERROR(as_built.status());
  const std::string staging = "remote-" + HexOf(uploaded.attempt);
  const absl::Cleanup clean = [&] {
    if (!*as_built) database.RemoveStaging(staging).IgnoreError();
  };
  std::string path = file->path;
  if (!*as_built) {
    path = kv::Join(kv::Join(database.staging_directory(), staging),
                    "segment.sst");
    const std::string row_key = schema::SegmentKey(segment);
    CKPTREE_ASSIGN_OR_RETURN(const std::optional<std::string> before,
                             database.Get(schema::Space::kRecords, row_key));
    if (!before.has_value()) return gone();
    CKPTREE_RETURN_IF_ERROR(database.MakeStaging(staging));
    CKPTREE_RETURN_IF_ERROR(BuildAgain(database, options, segment, path));
    CKPTREE_ASSIGN_OR_RETURN(const std::optional<std::string> after,
                             database.Get(schema::Space::kRecords, row_key));
    // Blocks may be missing that the commit in hand still needs.
    if (after != before) return gone();
  }
  CKPTREE_ASSIGN_OR_RETURN(const std::unique_ptr<OpenFile> opened,
                           OpenFile::Open(path));
  if (segment.space == schema::Space::kChunks) {
    // Without them who reads a block reads the segment.
    uploaded.blocks = BlocksOf(options, path).value_or(uploaded.blocks);
  }
  CKPTREE_RETURN_IF_ERROR(
      UploadFile(*opened, era, uuid, store, std::move(cancelled), &uploaded));
  return uploaded;
}

absl::StatusOr<schema::RemoteSegment> UploadStaged(
    const kv::Options& options, const std::string& path,
    const schema::SegmentKeyFields& segment, std::uint64_t era,
    const std::string& uuid, kv::ObjectStore& store,
    std::stop_token cancelled) {
  schema::RemoteSegment uploaded;
  uploaded.segment = segment;
  uploaded.attempt = NewRemoteId();
  // Open, it stays readable when it is renamed.
  CKPTREE_ASSIGN_OR_RETURN(const std::unique_ptr<OpenFile> opened,
                           OpenFile::Open(path));
  if (segment.space == schema::Space::kChunks) {
    CKPTREE_ASSIGN_OR_RETURN(uploaded.blocks, BlocksOf(options, path));
  }
  CKPTREE_RETURN_IF_ERROR(
      UploadFile(*opened, era, uuid, store, std::move(cancelled), &uploaded));
  return uploaded;
}

absl::Status ReadSegment(
    const schema::RemoteSegment& segment, std::uint64_t era,
    const std::string& uuid, kv::ObjectStore& store, std::stop_token cancelled,
    absl::FunctionRef<absl::Status(std::span<const std::byte> bytes)> take) {
  const std::string name = RemoteSegmentName(uuid, era, segment);
  const kv::Call call = CallFor(segment.bytes, std::move(cancelled));
  const auto pieces = static_cast<std::size_t>(std::min<std::uint64_t>(
      kReadsAtOnce, (segment.bytes + kReadBytes - 1) / kReadBytes));
  std::vector<std::vector<std::byte>> memory(pieces);
  base::DigestStream digest;
  for (std::uint64_t at = 0; at < segment.bytes;) {
    std::vector<std::span<std::byte>> wanted;
    std::vector<std::uint64_t> places;
    for (std::size_t i = 0; i < pieces && at < segment.bytes; ++i) {
      memory[i].resize(static_cast<std::size_t>(
          std::min<std::uint64_t>(kReadBytes, segment.bytes - at)));
      wanted.emplace_back(memory[i]);
      places.push_back(at);
      at += memory[i].size();
    }
    std::vector<absl::StatusOr<std::size_t>> read(wanted.size(),
                                                  std::size_t{0});
    {
      std::vector<std::jthread> others;
      for (std::size_t i = 1; i < wanted.size(); ++i) {
        others.emplace_back([&, i] {
          read[i] = GuardedResult("reading a segment", [&] {
            return store.GetRange(name, places[i], wanted[i], call);
          });
        });
      }
      read[0] = store.GetRange(name, places[0], wanted[0], call);
    }
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      if (absl::IsNotFound(read[i].status())) {
        return absl::DataLossError(
            absl::StrFormat("%s is missing in %s, and a commit needs it", name,
                            store.address()));
      }
      CKPTREE_RETURN_IF_ERROR(read[i].status());
      if (*read[i] < wanted[i].size()) {
        return absl::DataLossError(absl::StrFormat(
            "%s in %s has %d bytes instead of %d", name, store.address(),
            places[i] + *read[i], segment.bytes));
      }
      digest.Update(wanted[i]);
      CKPTREE_RETURN_IF_ERROR(take(wanted[i]));
    }
  }
  if (digest.Finish() == segment.digest) return absl::OkStatus();
  return absl::DataLossError(absl::StrFormat(
      "%s in %s is not what was put there", name, store.address()));
}

absl::Status CompareSegment(const schema::RemoteLiving& living,
                            const std::string& uuid, kv::ObjectStore& store,
                            std::stop_token cancelled) {
  return ReadSegment(
      living.segment, living.era, uuid, store, std::move(cancelled),
      [](std::span<const std::byte>) { return absl::OkStatus(); });
}

absl::Status DownloadSegment(const schema::RemoteSegment& segment,
                             std::uint64_t era, const std::string& uuid,
                             const std::string& path, kv::ObjectStore& store,
                             std::stop_token cancelled, absl::Status* disk) {
  const auto failed = [&](const char* what) {
    absl::Status status =
        absl::ErrnoToStatus(errno, absl::StrCat(what, " ", path));
    if (disk != nullptr) *disk = status;
    return status;
  };
  const int fd =
      open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd < 0) return failed("making");
  const absl::Cleanup close_it = [fd] { close(fd); };
  const auto append = [&](std::span<const std::byte> rest) -> absl::Status {
    while (!rest.empty()) {
      const ssize_t done = write(fd, rest.data(), rest.size());
      if (done < 0 && errno == EINTR) continue;
      if (done < 0) return failed("writing");
      rest = rest.subspan(static_cast<std::size_t>(done));
    }
    return absl::OkStatus();
  };
  absl::Status read = ReadSegment(segment, era, uuid, store, cancelled, append);
  // An answer may be damaged on its way: then the second one is whole.
  if (absl::IsDataLoss(read)) {
    if (ftruncate(fd, 0) != 0 || lseek(fd, 0, SEEK_SET) != 0) {
      return failed("emptying");
    }
    read = ReadSegment(segment, era, uuid, store, std::move(cancelled), append);
  }
  CKPTREE_RETURN_IF_ERROR(read);
  if (fsync(fd) != 0) return failed("syncing");
  return absl::OkStatus();
}

}  // namespace ckptree::internal
