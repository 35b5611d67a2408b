// SPDX-License-Identifier: Apache-2.0

#include "kv/journal/reserve.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mapped_vector.h"
#include "kv/file_system.h"
#include "kv/files/file_system_of.h"
#include "kv/journal/row.h"
#include "kv/store_directory.h"
#include "rocksdb/file_system.h"

namespace ckptree::kv {
namespace {

// Less is of no use.
constexpr std::uint64_t kLeastReserveBytes = std::uint64_t{256} << 10;

}  // namespace

bool GiveReserve(const Options& options, const std::string& directory) {
  const std::string path = Join(Join(directory, kJournalName), kReserveName);
  return FileSize(options, path).ok() && RemoveFile(options, path).ok();
}

absl::Status MakeReserve(const Options& options, const std::string& directory,
                         bool smaller) {
  const std::string path = Join(Join(directory, kJournalName), kReserveName);
  const absl::StatusOr<std::uint64_t> size = FileSize(options, path);
  if (size.ok() && *size == kReserveBytes) return absl::OkStatus();
  // Not by trying: what is written beside it would find the disk full until
  // the trial is over.
  std::uint64_t free = 0;
  const rocksdb::IOStatus asked = FileSystemOf(options)->GetFreeSpace(
      directory, rocksdb::IOOptions(), &free, nullptr);
  std::size_t bytes = kReserveBytes;
  if (asked.ok() && free < 2 * kReserveBytes) {
    // What is left of the one that was given up is enough for another time.
    bytes = std::min<std::size_t>(free / kJournalSector * kJournalSector,
                                  kReserveBytes);
    if (!smaller || bytes < kLeastReserveBytes) {
      return absl::ResourceExhaustedError("there is no room for the reserve");
    }
  }
  const base::MappedVector<char> zeros(bytes);
  const absl::Status made =
      WriteFile(options, path, {zeros.data(), zeros.size()});
  if (!made.ok()) RemoveFile(options, path).IgnoreError();
  return made;
}

}  // namespace ckptree::kv
