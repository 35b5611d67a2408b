// SPDX-License-Identifier: Apache-2.0

// The ceiling: what the disk and the processor do with the same bytes and no
// engine.

#ifndef CKPTREE_BENCH_RAW_IO_H_
#define CKPTREE_BENCH_RAW_IO_H_

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace ckptree::bench {

// Seconds to write `bytes` with O_DIRECT in pieces of 4 MiB by two threads into
// two new files, fdatasync them and fsync the directory. Removes them.
double RawWrite(const std::string& directory, std::span<const std::byte> bytes);

// Seconds to read as many bytes as `memory` has, by the same two threads with
// O_DIRECT, out of two files that it writes before and removes.
double RawRead(const std::string& directory, std::span<std::byte> memory);

// The same for bytes that are written before, into other memory as large.
double RawReadOf(const std::string& directory, std::span<const std::byte> bytes,
                 std::span<std::byte> memory);

// A file of random places: what one small read costs.
class RawPages {
 public:
  // Writes it; `bytes` is a multiple of 4096.
  RawPages(const std::string& directory, std::size_t bytes);
  RawPages(const RawPages&) = delete;
  RawPages& operator=(const RawPages&) = delete;
  ~RawPages();

  // Seconds to read 4 KiB at a place that was not read before, with O_DIRECT.
  double Read();

 private:
  const std::string path_;
  const std::size_t pages_;
  std::size_t next_ = 0;
  int fd_ = -1;
};

// A file of which the same bytes are written again and again, each time until
// they are on the disk: what one small commit costs at least.
class RawSyncs {
 public:
  // Writes it, so that no block of it is new later.
  RawSyncs(const std::string& directory, std::size_t bytes);
  RawSyncs(const RawSyncs&) = delete;
  RawSyncs& operator=(const RawSyncs&) = delete;
  ~RawSyncs();

  // Seconds of one write of all of it and one fdatasync.
  double Write();

 private:
  const std::string path_;
  const std::vector<char> bytes_;
  int fd_ = -1;
};

// Seconds for one XXH3-128 pass over `bytes`, in pieces of 4 MiB by two
// threads.
double HashPass(std::span<const std::byte> bytes);

// Seconds to copy `bytes` into `destination` (touched before) by two threads.
double CopyPass(std::span<const std::byte> bytes,
                std::span<std::byte> destination);

// Drops the page cache; false where that is not allowed.
bool DropCaches();

// Has all files below `directory` in the page cache.
void RememberFiles(const std::string& directory);

// Syncs the files of a directory and drops them from the page cache.
void ForgetFiles(const std::string& directory);

}  // namespace ckptree::bench

#endif  // CKPTREE_BENCH_RAW_IO_H_
