// SPDX-License-Identifier: Apache-2.0

// Reads past the page cache: which they are, and that nothing of them stays in
// it.

#include "kv/rocks/direct_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kv/database.h"
#include "kv/files/descriptor.h"
#include "kv/segment_writer.h"
#include "schema/spaces.h"
#include "tests/kv/fixture.h"
#include "tests/testutil/status_matchers.h"

namespace ckptree::kv {
namespace {

using schema::Space;

constexpr std::size_t kPage = 4096;
constexpr std::size_t kLarge = SegmentWriter::kLargeValue;

class DirectFileTest : public KvTest {
 protected:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  // At a page, and one more.
  static std::unique_ptr<std::byte, Free> Memory(std::size_t bytes) {
    return std::unique_ptr<std::byte, Free>(static_cast<std::byte*>(
        std::aligned_alloc(kPage, (bytes / kPage + 2) * kPage)));
  }

  void SetUp() override {
    const Descriptor made(OpenAt(AT_FDCWD, Path(), O_CREAT | O_RDWR, 0600));
    ASSERT_GE(made.get(), 0);
    Write(4 * kLarge);
    // A file system of memory is all page cache.
    const Descriptor direct(OpenAt(AT_FDCWD, Path(), O_RDONLY | O_DIRECT));
    if (direct.get() < 0 || PagesInCache(Path()) != 0) {
      GTEST_SKIP() << dir_.path() << " is not on a disk that O_DIRECT reads";
    }
  }

  std::string Path() const { return dir_ / "file"; }

  // Writes `bytes` to the file; none of them stays in the page cache.
  std::string Write(std::size_t bytes) const {
    std::string text(bytes, '\0');
    for (std::size_t i = 0; i < bytes; ++i) {
      text[i] = static_cast<char>(i * 31 + i / 251);
    }
    const Descriptor file(OpenAt(AT_FDCWD, Path(), O_RDWR | O_TRUNC));
    EXPECT_EQ(write(file.get(), text.data(), bytes),
              static_cast<ssize_t>(bytes));
    Forget(Path());
    return text;
  }

  static void Forget(const std::string& path) {
    const Descriptor file(OpenAt(AT_FDCWD, path, O_RDONLY));
    ASSERT_EQ(fsync(file.get()), 0);
    ASSERT_EQ(posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED), 0);
  }

  // How many pages of a file are in the page cache.
  static std::size_t PagesInCache(const std::string& path) {
    const Descriptor file(OpenAt(AT_FDCWD, path, O_RDONLY));
    const auto bytes = static_cast<std::size_t>(lseek(file.get(), 0, SEEK_END));
    void* const mapped =
        mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file.get(), 0);
    EXPECT_NE(mapped, MAP_FAILED);
    std::vector<unsigned char> pages((bytes + kPage - 1) / kPage);
    EXPECT_EQ(mincore(mapped, bytes, pages.data()), 0);
    munmap(mapped, bytes);
    return static_cast<std::size_t>(std::count_if(
        pages.begin(), pages.end(), [](auto state) { return state & 1; }));
  }

  static std::string Text(std::span<const std::byte> bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
};

TEST_F(DirectFileTest, LargeReadsLeaveNothingInThePageCache) {
  const std::string text = Write(4 * kLarge + 100);
  ASSERT_EQ(PagesInCache(Path()), 0);
  const auto memory = Memory(text.size());
  DirectFile file(Path());
  // Whole pages; also at the end of the file.
  for (const std::size_t bytes : {kLarge, 2 * kLarge + 17, 3 * kLarge + 100}) {
    const std::span to(memory.get(), bytes);
    std::ranges::fill(to, std::byte{0});
    EXPECT_TRUE(file.Wants(kLarge, to));
    const std::size_t whole = bytes / kPage * kPage;
    ASSERT_EQ(file.Read(kLarge, to), whole);
    EXPECT_EQ(Text(to.first(whole)), text.substr(kLarge, whole));
  }
  EXPECT_EQ(PagesInCache(Path()), 0);
}

TEST_F(DirectFileTest, WhatItCannotReadItLeavesToOthers) {
  const std::string text = Write(4 * kLarge);
  const auto memory = Memory(2 * kLarge);
  DirectFile file(Path());
  const auto reads = [&](std::uint64_t offset, std::size_t shift,
                         std::size_t bytes) {
    return file.Read(offset, std::span(memory.get() + shift, bytes));
  };
  EXPECT_EQ(reads(64, 0, kLarge), 0);
  EXPECT_EQ(reads(0, 64, kLarge), 0);
  EXPECT_EQ(reads(0, 0, kLarge - 1), 0);
  EXPECT_EQ(reads(kPage, kPage, kLarge), kLarge);
  // As much as there is.
  EXPECT_EQ(reads(3 * kLarge, 0, 2 * kLarge), kLarge);
  EXPECT_EQ(reads(4 * kLarge, 0, kLarge), 0);
  EXPECT_EQ(DirectFile(Path() + "x").Read(0, std::span(memory.get(), kLarge)),
            0);
}

TEST_F(DirectFileTest, WhatIsInThePageCacheIsReadThere) {
  const std::string text = Write(2 * kLarge);
  const auto memory = Memory(kLarge);
  const std::span to(memory.get(), kLarge);
  DirectFile file(Path());
  EXPECT_EQ(file.Read(kLarge, to), kLarge);
  const Descriptor other(OpenAt(AT_FDCWD, Path(), O_RDONLY));
  ASSERT_EQ(pread(other.get(), memory.get(), kLarge, kLarge),
            static_cast<ssize_t>(kLarge));
  EXPECT_FALSE(file.Wants(kLarge, to));
  EXPECT_EQ(file.Read(kLarge, to), 0);
  Forget(Path());
  EXPECT_EQ(file.Read(kLarge, to), kLarge);
}

// As it is used: a chunk from its segment.
TEST_F(DirectFileTest, AChunkComesStraightFromTheDisk) {
  ASSERT_OK_AND_ASSIGN(const auto database, Create());
  ASSERT_OK_AND_ASSIGN(const StagedSegment segment,
                       Stage(*database, 3, Space::kChunks, 4, 2 * kLarge));
  ASSERT_OK(database->Adopt({segment}));
  ASSERT_OK_AND_ASSIGN(const std::vector<LiveFile> files,
                       database->LiveFiles());
  ASSERT_EQ(files.size(), 1);
  const auto memory = Memory(3 * kLarge);
  const auto read = [&](int n, std::size_t shift) {
    const std::string value = Payload(3, n, 2 * kLarge);
    const std::span to(memory.get() + shift, value.size());
    std::ranges::fill(to, std::byte{0});
    EXPECT_TRUE(database->ReadUnchecked(Space::kChunks, ChunkKey(3, n),
                                        value.size(), 0, to));
    EXPECT_EQ(Text(to), value) << n;
  };
  read(1, 0);  // Opens the file, and reads its index.
  Forget(files[0].path);
  for (const int n : {1, 2, 3}) {
    database->Prefetch(Space::kChunks, ChunkKey(3, n),
                       Payload(3, n, 2 * kLarge).size(), 0, 2 * kLarge,
                       std::span(memory.get(), 2 * kLarge));
    read(n, 0);
  }
  // The end of each value is less than a page, and read ahead of it.
  const std::size_t few = PagesInCache(files[0].path);
  EXPECT_LT(few, 3 * kLarge / kPage);
  // To memory between two pages the same bytes come by the page cache.
  for (const int n : {1, 2, 3}) read(n, 8);
  EXPECT_GE(PagesInCache(files[0].path), 5 * kLarge / kPage);
  for (const int n : {1, 2, 3}) read(n, 0);
}

}  // namespace
}  // namespace ckptree::kv
