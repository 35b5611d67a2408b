// SPDX-License-Identifier: Apache-2.0

#include "bench/raw_io.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <system_error>
#include <thread>
#include <vector>

#include "base/digest.h"
#include "bench/measure.h"

namespace ckptree::bench {
namespace {

constexpr std::size_t kPiece = 4 << 20;
constexpr std::size_t kPage = 4096;
constexpr std::size_t kThreads = 2;

// Runs fn(thread, begin, end) over halves of `size`, cut at pieces.
void InHalves(
    std::size_t size,
    const std::function<void(std::size_t, std::size_t, std::size_t)>& fn) {
  const std::size_t pieces = (size + kPiece - 1) / kPiece;
  const std::size_t half = (pieces + kThreads - 1) / kThreads * kPiece;
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < kThreads; ++t) {
    const std::size_t begin = std::min(size, t * half);
    const std::size_t end = std::min(size, begin + half);
    threads.emplace_back([&fn, t, begin, end] { fn(t, begin, end); });
  }
  for (std::thread& thread : threads) thread.join();
}

struct AlignedFree {
  void operator()(std::byte* p) const { std::free(p); }
};

void WriteHalf(const std::string& path, std::span<const std::byte> bytes) {
  const int fd =
      open(path.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_DIRECT, 0600);
  if (fd < 0) Fail("cannot open " + path + " with O_DIRECT");
  const std::unique_ptr<std::byte, AlignedFree> buffer(
      static_cast<std::byte*>(std::aligned_alloc(4096, kPiece)));
  if (posix_fallocate(
          fd, 0, static_cast<off_t>(std::max<std::size_t>(bytes.size(), 1))) !=
      0) {
    Fail("the disk is full");
  }
  for (std::size_t at = 0; at < bytes.size(); at += kPiece) {
    const std::size_t size = std::min(kPiece, bytes.size() - at);
    const std::byte* from = bytes.data() + at;
    // The ceiling pays for no copy where the source is aligned.
    if (reinterpret_cast<std::uintptr_t>(from) % 4096 != 0 ||
        size % 4096 != 0) {
      std::memcpy(buffer.get(), from, size);
      from = buffer.get();
    }
    const std::size_t rounded = (size + 4095) / 4096 * 4096;
    if (pwrite(fd, from, rounded, static_cast<off_t>(at)) !=
        static_cast<ssize_t>(rounded)) {
      Fail("cannot write " + path);
    }
  }
  if (fdatasync(fd) != 0) Fail("cannot sync " + path);
  close(fd);
}

// `memory` is aligned, and so is its size.
void ReadHalf(const std::string& path, std::span<std::byte> memory) {
  const int fd = open(path.c_str(), O_RDONLY | O_DIRECT);
  if (fd < 0) Fail("cannot open " + path + " with O_DIRECT");
  for (std::size_t at = 0; at < memory.size(); at += kPiece) {
    const std::size_t size = std::min(kPiece, memory.size() - at);
    if (pread(fd, memory.data() + at, size, static_cast<off_t>(at)) !=
        static_cast<ssize_t>(size)) {
      Fail("cannot read " + path);
    }
  }
  close(fd);
}

std::string RawFile(const std::string& directory, std::size_t thread) {
  return directory + "/raw" + std::to_string(thread);
}

void WriteFiles(const std::string& directory,
                std::span<const std::byte> bytes) {
  InHalves(
      bytes.size(), [&](std::size_t t, std::size_t begin, std::size_t end) {
        WriteHalf(RawFile(directory, t), bytes.subspan(begin, end - begin));
      });
}

void RemoveFiles(const std::string& directory) {
  for (std::size_t t = 0; t < kThreads; ++t) {
    unlink(RawFile(directory, t).c_str());
  }
}

}  // namespace

double RawWrite(const std::string& directory,
                std::span<const std::byte> bytes) {
  const Stopwatch watch;
  WriteFiles(directory, bytes);
  const int fd = open(directory.c_str(), O_RDONLY | O_DIRECTORY);
  if (fd < 0 || fsync(fd) != 0) Fail("cannot sync " + directory);
  close(fd);
  const double seconds = watch.Seconds();
  RemoveFiles(directory);
  return seconds;
}

double RawRead(const std::string& directory, std::span<std::byte> memory) {
  return RawReadOf(directory, memory, memory);
}

double RawReadOf(const std::string& directory, std::span<const std::byte> bytes,
                 std::span<std::byte> memory) {
  WriteFiles(directory, bytes);
  const Stopwatch watch;
  InHalves(
      memory.size(), [&](std::size_t t, std::size_t begin, std::size_t end) {
        ReadHalf(RawFile(directory, t), memory.subspan(begin, end - begin));
      });
  const double seconds = watch.Seconds();
  RemoveFiles(directory);
  return seconds;
}

RawPages::RawPages(const std::string& directory, std::size_t bytes)
    : path_(directory + "/raw_pages"), pages_(bytes / kPage) {
  const std::unique_ptr<std::byte, AlignedFree> memory(
      static_cast<std::byte*>(std::aligned_alloc(kPage, bytes)));
  std::memset(memory.get(), 7, bytes);
  WriteHalf(path_, {memory.get(), bytes});
  fd_ = open(path_.c_str(), O_RDONLY | O_DIRECT);
  if (fd_ < 0) Fail("cannot open " + path_ + " with O_DIRECT");
}

RawPages::~RawPages() {
  close(fd_);
  unlink(path_.c_str());
}

double RawPages::Read() {
  alignas(kPage) std::byte page[kPage];
  // Odd, so that it meets each page of a power of two once.
  constexpr std::size_t kStride = 40503;
  next_ = (next_ + kStride) % pages_;
  const Stopwatch watch;
  if (pread(fd_, page, kPage, static_cast<off_t>(next_ * kPage)) !=
      static_cast<ssize_t>(kPage)) {
    Fail("cannot read " + path_);
  }
  return watch.Seconds();
}

RawSyncs::RawSyncs(const std::string& directory, std::size_t bytes)
    : path_(directory + "/raw_syncs"), bytes_(bytes, 'x') {
  fd_ = open(path_.c_str(), O_RDWR | O_CREAT | O_TRUNC, 0600);
  if (fd_ < 0) Fail("cannot open " + path_);
  Write();
}

RawSyncs::~RawSyncs() {
  close(fd_);
  unlink(path_.c_str());
}

double RawSyncs::Write() {
  const Stopwatch watch;
  if (pwrite(fd_, bytes_.data(), bytes_.size(), 0) !=
          static_cast<ssize_t>(bytes_.size()) ||
      fdatasync(fd_) != 0) {
    Fail("cannot write " + path_);
  }
  return watch.Seconds();
}

double HashPass(std::span<const std::byte> bytes) {
  const Stopwatch watch;
  InHalves(bytes.size(), [&](std::size_t, std::size_t begin, std::size_t end) {
    for (std::size_t at = begin; at < end; at += kPiece) {
      const base::Digest digest =
          base::DigestOf(bytes.subspan(at, std::min(kPiece, end - at)));
      // Something must depend on it, or the compiler leaves it out.
      if (digest == base::Digest()) Fail("a digest of zero");
    }
  });
  return watch.Seconds();
}

double CopyPass(std::span<const std::byte> bytes,
                std::span<std::byte> destination) {
  const Stopwatch watch;
  InHalves(bytes.size(), [&](std::size_t, std::size_t begin, std::size_t end) {
    std::memcpy(destination.data() + begin, bytes.data() + begin, end - begin);
  });
  return watch.Seconds();
}

bool DropCaches() {
  sync();
  std::ofstream file("/proc/sys/vm/drop_caches");
  file << "1" << std::flush;
  return file.good();
}

void RememberFiles(const std::string& directory) {
  std::vector<char> buffer(std::size_t{1} << 20);
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(directory)) {
    if (!entry.is_regular_file()) continue;
    std::ifstream file(entry.path(), std::ios::binary);
    while (
        file.read(buffer.data(), static_cast<std::streamsize>(buffer.size()))) {
    }
  }
}

void ForgetFiles(const std::string& directory) {
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(directory)) {
    std::error_code gone;
    if (!entry.is_regular_file(gone)) continue;
    const int fd = open(entry.path().c_str(), O_RDONLY);
    // Of an open store the background removes files.
    if (fd < 0 && errno == ENOENT) continue;
    if (fd < 0) Fail("cannot open " + entry.path().string());
    // Only what was written can be dropped.
    if (fsync(fd) != 0 || posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) != 0) {
      Fail("cannot drop " + entry.path().string() + " from the page cache");
    }
    close(fd);
  }
}

}  // namespace ckptree::bench
