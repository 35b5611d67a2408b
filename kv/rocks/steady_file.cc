// SPDX-License-Identifier: Apache-2.0

#include "kv/rocks/steady_file.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/str_format.h"
#include "rocksdb/file_system.h"

namespace ckptree::kv {
namespace {

constexpr char kUnsteady[] = "ckptree/unsteady";

// Thread-safe.
class SteadyFile : public rocksdb::FSRandomAccessFileOwnerWrapper {
 public:
  SteadyFile(std::unique_ptr<rocksdb::FSRandomAccessFile> file,
             std::string path, Unsteady unsteady)
      : FSRandomAccessFileOwnerWrapper(std::move(file)),
        path_(std::move(path)),
        unsteady_(std::move(unsteady)) {}

  rocksdb::IOStatus Read(std::uint64_t offset, std::size_t n,
                         const rocksdb::IOOptions& options,
                         rocksdb::Slice* result, char* scratch,
                         rocksdb::IODebugContext* debug) const override {
    struct Attempt {
      rocksdb::IOStatus status;
      std::string bytes;
    };
    std::array<Attempt, 3> attempts;
    const auto alike = [](const Attempt& a, const Attempt& b) {
      return a.status.ok() ? b.status.ok() && a.bytes == b.bytes
                           : !b.status.ok();
    };
    for (std::size_t i = 0; i < attempts.size(); ++i) {
      Attempt& attempt = attempts[i];
      if (i > 0) {
        // Advice: a file system that has no such thing reads again.
        target()->InvalidateCache(offset, n).PermitUncheckedError();
      }
      rocksdb::Slice read;
      attempt.status =
          target()->Read(offset, n, options, &read, scratch, debug);
      if (attempt.status.ok()) attempt.bytes.assign(read.data(), read.size());
      for (std::size_t before = 0; before < i; ++before) {
        if (!alike(attempts[before], attempt)) continue;
        if (attempt.status.ok()) {
          attempt.bytes.copy(scratch, attempt.bytes.size());
          *result = rocksdb::Slice(scratch, attempt.bytes.size());
        }
        return attempt.status;
      }
    }
    unsteady_->store(true);
    return rocksdb::IOStatus::IOError(path_, "each read of it is another one");
  }

 private:
  const std::string path_;
  const Unsteady unsteady_;
};

}  // namespace

std::unique_ptr<rocksdb::FSRandomAccessFile> ReadSteadily(
    std::unique_ptr<rocksdb::FSRandomAccessFile> file, std::string path,
    Unsteady unsteady) {
  return std::make_unique<SteadyFile>(std::move(file), std::move(path),
                                      std::move(unsteady));
}

absl::Status UnsteadyError(std::string_view path) {
  absl::Status status = absl::UnknownError(absl::StrFormat(
      "%s gave other bytes each time that it was read, so nothing was made of "
      "it, and nothing was changed: the disk, its cable or the memory of this "
      "machine fails; try again, or on another machine",
      path));
  status.SetPayload(kUnsteady, absl::Cord());
  return status;
}

bool IsUnsteady(const absl::Status& status) {
  return status.GetPayload(kUnsteady).has_value();
}

}  // namespace ckptree::kv
