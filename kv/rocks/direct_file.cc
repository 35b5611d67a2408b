// SPDX-License-Identifier: Apache-2.0

// Hot path: per chunk.

#include "kv/rocks/direct_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <span>

#include "kv/files/descriptor.h"
#include "kv/rocks/direct_buffers.h"
#include "kv/segment_writer.h"

namespace ckptree::kv {
namespace {

// What O_DIRECT asks of offsets, lengths and addresses: the block of the disk,
// 512 or 4096 bytes.
constexpr std::size_t kPage = SegmentWriter::kLargeAlignment;
// Below it the page cache reads ahead better than we do.
constexpr std::size_t kWorthIt = SegmentWriter::kLargeValue;
// Of a read, that are looked for in the page cache. Looking for all took as
// long as a third of the copy out of it.
constexpr std::uint64_t kSamples = 16;
// The cache of a processor still has these when they are looked at.
constexpr std::size_t kPieceBytes = std::size_t{256} << 10;

std::uint64_t Down(std::uint64_t n) { return n / kPage * kPage; }

}  // namespace

DirectFile::~DirectFile() {
  if (mapping_ != nullptr) munmap(mapping_, mapped_bytes_);
}

void DirectFile::Open() {
  std::call_once(once_, [this] {
    opened_.store(true);
    direct_.Reset(OpenAt(AT_FDCWD, path_, O_RDONLY | O_DIRECT));
    const Descriptor cached(OpenAt(AT_FDCWD, path_, O_RDONLY));
    struct stat about {};
    if (cached.get() < 0 || fstat(cached.get(), &about) != 0 ||
        about.st_size <= 0) {
      return;
    }
    const auto bytes = static_cast<std::uint64_t>(about.st_size);
    void* const mapping =
        mmap(nullptr, bytes, PROT_NONE, MAP_SHARED, cached.get(), 0);
    if (mapping == MAP_FAILED) return;
    mapping_ = mapping;
    mapped_bytes_ = bytes;
  });
}

// Linux tells it of files that this process may write to; of others all seems
// to be there.
double DirectFile::ShareInCache(std::uint64_t offset, std::size_t bytes) const {
  if (bytes == 0 || offset >= mapped_bytes_) return -1;
  const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  const std::uint64_t first = offset / page;
  const std::uint64_t last =
      std::min<std::uint64_t>(offset + bytes - 1, mapped_bytes_ - 1) / page;
  const std::uint64_t steps = std::min(kSamples - 1, last - first);
  std::uint64_t there = 0;
  for (std::uint64_t i = 0; i <= steps; ++i) {
    const std::uint64_t at =
        first + (steps == 0 ? 0 : (last - first) * i / steps);
    unsigned char state = 0;
    if (mincore(static_cast<std::byte*>(mapping_) + at * page, page, &state) !=
        0) {
      return -1;
    }
    there += state & 1U;
  }
  return static_cast<double>(there) / static_cast<double>(steps + 1);
}

DirectFile::Way DirectFile::WayOf(std::uint64_t offset, std::size_t bytes) {
  if (bytes < kWorthIt) return Way::kOther;
  Open();
  const double share = ShareInCache(offset, bytes);
  if (share >= 1) return Way::kInCache;
  return share >= 0 && share < 0.5 && direct_.get() >= 0 ? Way::kDirect
                                                         : Way::kOther;
}

std::size_t DirectFile::Read(std::uint64_t offset,
                             std::span<std::byte> destination,
                             DirectBuffers* buffers, PieceFn on_piece) {
  if (WayOf(offset, destination.size()) != Way::kDirect) return 0;
  const DirectBuffers::Lease lease = buffers->Take();
  const std::span<std::byte> buffer = lease.bytes();
  std::size_t done = 0;
  while (done < destination.size() && !buffer.empty()) {
    const std::uint64_t from = Down(offset + done);
    const auto skip = static_cast<std::size_t>(offset + done - from);
    const std::size_t left = destination.size() - done;
    const std::size_t whole =
        std::min<std::size_t>(buffer.size(), Down(skip + left + kPage - 1));
    const ssize_t got =
        pread(direct_.get(), buffer.data(), whole, static_cast<off_t>(from));
    if (got < 0 && errno == EINTR) continue;
    if (got <= static_cast<ssize_t>(skip)) break;  // An error, or the end.
    const std::size_t taken =
        std::min(static_cast<std::size_t>(got) - skip, left);
    for (std::size_t at = 0; at < taken; at += kPieceBytes) {
      const auto to =
          destination.subspan(done + at, std::min(kPieceBytes, taken - at));
      std::memcpy(to.data(), buffer.data() + skip + at, to.size());
      on_piece(to);
    }
    done += taken;
  }
  return done;
}

}  // namespace ckptree::kv
