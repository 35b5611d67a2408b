// SPDX-License-Identifier: Apache-2.0

// Hot path: per chunk.

#include "kv/rocks/direct_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/base/call_once.h"
#include "kv/files/descriptor.h"
#include "kv/segment_writer.h"

namespace ckptree::kv {
namespace {

// What O_DIRECT asks of offsets, lengths and addresses: the block of the disk,
// 512 or 4096 bytes.
constexpr std::size_t kPage = SegmentWriter::kLargeAlignment;
// Below it the page cache reads ahead better than we do.
constexpr std::size_t kWorthIt = SegmentWriter::kLargeValue;

bool IsAtPage(const void* memory) {
  return reinterpret_cast<std::uintptr_t>(memory) % kPage == 0;
}

// How much of these whole pages of a file is in the page cache; all of it where
// that cannot be told. Linux tells it of files that this process may write to.
double ShareInCache(int fd, std::uint64_t offset, std::size_t bytes) {
  const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  const std::uint64_t first = offset / page * page;
  const std::size_t length = bytes + (offset - first);
  void* const mapped = mmap(nullptr, length, PROT_READ, MAP_SHARED, fd,
                            static_cast<off_t>(first));
  if (mapped == MAP_FAILED) return 1;
  std::vector<unsigned char> pages((length + page - 1) / page);
  const bool known = mincore(mapped, length, pages.data()) == 0;
  munmap(mapped, length);
  if (!known) return 1;
  const auto there =
      std::count_if(pages.begin(), pages.end(),
                    [](unsigned char state) { return (state & 1) != 0; });
  return static_cast<double>(there) / static_cast<double>(pages.size());
}

}  // namespace

int DirectFile::Direct() {
  absl::call_once(once_, [this] {
    opened_.store(true);
    direct_.Reset(OpenAt(AT_FDCWD, path_, O_RDONLY | O_DIRECT));
    if (direct_.get() >= 0) {
      cached_.Reset(OpenAt(AT_FDCWD, path_, O_RDONLY));
    }
  });
  return cached_.get() < 0 ? -1 : direct_.get();
}

bool DirectFile::Wants(std::uint64_t offset,
                       std::span<const std::byte> destination) {
  return destination.size() >= kWorthIt && offset % kPage == 0 &&
         IsAtPage(destination.data()) && Direct() >= 0 &&
         ShareInCache(cached_.get(), offset, destination.size()) < 0.5;
}

std::size_t DirectFile::Read(std::uint64_t offset,
                             std::span<std::byte> destination) {
  if (!Wants(offset, destination)) return 0;
  const std::size_t whole = destination.size() / kPage * kPage;
  std::size_t done = 0;
  while (done < whole) {
    const ssize_t read = pread(Direct(), destination.data() + done,
                               whole - done, static_cast<off_t>(offset + done));
    if (read < 0 && errno == EINTR) continue;
    if (read <= 0) break;
    done += static_cast<std::size_t>(read) / kPage * kPage;
    if (static_cast<std::size_t>(read) % kPage != 0) break;  // The file's end.
  }
  return done;
}

}  // namespace ckptree::kv
