// SPDX-License-Identifier: Apache-2.0

#include "core/remote/fetched_copy.h"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "core/remote/segment_upload.h"

namespace ckptree::internal {
namespace {

// A file that is in memory alone, until it goes and nobody has it open.
class MemoryFile {
 public:
  // Null: it is too much beside the others.
  static std::shared_ptr<MemoryFile> Of(std::uint64_t bytes) {
    std::shared_ptr<MemoryFile> file(new MemoryFile);
    std::uint64_t taken = taken_.load();
    do {
      if (bytes > kMostCopiesInMemory - taken) return nullptr;
    } while (!taken_.compare_exchange_weak(taken, taken + bytes));
    file->bytes_ = bytes;
    return file;
  }
  ~MemoryFile() {
    if (fd_ >= 0) close(fd_);
    taken_ -= bytes_;
  }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  std::string path() const { return absl::StrCat("/proc/self/fd/", fd_); }
  absl::Status Append(std::span<const std::byte> rest) const {
    while (!rest.empty()) {
      const ssize_t done = write(fd_, rest.data(), rest.size());
      if (done < 0 && errno == EINTR) continue;
      if (done < 0) return absl::ErrnoToStatus(errno, "writing into memory");
      rest = rest.subspan(static_cast<std::size_t>(done));
    }
    return absl::OkStatus();
  }

 private:
  MemoryFile() : fd_(memfd_create("ckptree-fetched", MFD_CLOEXEC)) {}

  static inline std::atomic<std::uint64_t> taken_ = 0;
  std::uint64_t bytes_ = 0;  // That it has taken.
  const int fd_;
};

}  // namespace

absl::Status NoRoomInCache(const std::string& folder, const absl::Status& why) {
  return absl::Status(
      absl::IsResourceExhausted(why) ? why.code()
                                     : absl::StatusCode::kFailedPrecondition,
      absl::StrFormat(
          "what is fetched cannot be kept in %s (%s): make room there, or set "
          "XDG_CACHE_HOME to a folder of another disk",
          folder, why.message()));
}

absl::StatusOr<kv::FarSegments::Copy> FetchCopy(
    const schema::RemoteLiving& living, const std::string& uuid,
    const std::string& path, kv::ObjectStore& store) {
  absl::Status disk;
  const absl::Status fetched =
      DownloadSegment(living.segment, living.era, uuid, path, store,
                      /*cancelled=*/{}, &disk);
  if (fetched.ok()) return kv::FarSegments::Copy{path, /*goes=*/true};
  std::error_code error;
  std::filesystem::remove(path, error);
  if (disk.ok()) return fetched;
  const auto memory = MemoryFile::Of(living.segment.bytes);
  if (memory == nullptr) {
    return NoRoomInCache(std::filesystem::path(path).parent_path().string(),
                         disk);
  }
  CKPTREE_RETURN_IF_ERROR(ReadSegment(
      living.segment, living.era, uuid, store, /*cancelled=*/{},
      [&](std::span<const std::byte> bytes) { return memory->Append(bytes); }));
  return kv::FarSegments::Copy{memory->path(), /*goes=*/false, memory};
}

}  // namespace ckptree::internal
