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
#include <set>
#include <span>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kv/database.h"
#include "kv/files/descriptor.h"
#include "kv/rocks/direct_buffers.h"
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

// By DirectFile::Read(); also that it tells each byte, once and in order.
std::size_t ReadBy(DirectFile* file, std::uint64_t offset,
                   std::span<std::byte> to) {
  // They keep their memory for good.
  static constinit DirectBuffers buffers;
  std::size_t told = 0;
  const std::size_t done =
      file->Read(offset, to, &buffers, [&](std::span<const std::byte> piece) {
        EXPECT_EQ(piece.data(), to.data() + told);
        told += piece.size();
      });
  EXPECT_EQ(told, done);
  return done;
}

TEST_F(DirectFileTest, LargeReadsLeaveNothingInThePageCache) {
  const std::string text = Write(4 * kLarge + 100);
  ASSERT_EQ(PagesInCache(Path()), 0);
  const auto memory = Memory(text.size());
  DirectFile file(Path());
  // Of any place in the file into any place in memory; also its end.
  for (const std::size_t from : {std::size_t{0}, kPage, kLarge + 64}) {
    for (const std::size_t shift : {std::size_t{0}, std::size_t{9}}) {
      for (const std::size_t bytes :
           {kLarge, 2 * kLarge + 17, text.size() - from}) {
        const std::span to(memory.get() + shift, bytes);
        std::ranges::fill(to, std::byte{0});
        memory.get()[shift + bytes] = std::byte{0x5a};
        EXPECT_EQ(file.WayOf(from, bytes), DirectFile::Way::kDirect);
        ASSERT_EQ(ReadBy(&file, from, to), bytes);
        EXPECT_TRUE(Text(to) == text.substr(from, bytes))
            << from << " " << shift << " " << bytes;
        EXPECT_EQ(memory.get()[shift + bytes], std::byte{0x5a});
      }
    }
  }
  EXPECT_EQ(PagesInCache(Path()), 0);
}

TEST_F(DirectFileTest, WhatItCannotReadItLeavesToOthers) {
  const std::string text = Write(4 * kLarge);
  const auto memory = Memory(2 * kLarge);
  DirectFile file(Path());
  const std::span to(memory.get(), 2 * kLarge);
  EXPECT_EQ(ReadBy(&file, 0, to.first(kLarge - 1)), 0);
  // As much as there is.
  EXPECT_EQ(ReadBy(&file, 3 * kLarge, to), kLarge);
  EXPECT_EQ(ReadBy(&file, 3 * kLarge + 5, to), kLarge - 5);
  EXPECT_EQ(ReadBy(&file, 4 * kLarge, to), 0);
  EXPECT_EQ(ReadBy(&file, 4 * kLarge + 5, to), 0);
  DirectFile none(Path() + "x");
  EXPECT_EQ(ReadBy(&none, 0, to), 0);
}

TEST_F(DirectFileTest, WhatIsInThePageCacheIsReadThere) {
  const std::string text = Write(2 * kLarge);
  const auto memory = Memory(kLarge);
  const std::span to(memory.get(), kLarge);
  DirectFile file(Path());
  EXPECT_EQ(ReadBy(&file, kLarge, to), kLarge);
  const Descriptor other(OpenAt(AT_FDCWD, Path(), O_RDONLY));
  ASSERT_EQ(pread(other.get(), memory.get(), kLarge, kLarge),
            static_cast<ssize_t>(kLarge));
  EXPECT_EQ(file.WayOf(kLarge, kLarge), DirectFile::Way::kInCache);
  EXPECT_EQ(ReadBy(&file, kLarge, to), 0);
  Forget(Path());
  EXPECT_EQ(ReadBy(&file, kLarge, to), kLarge);
}

TEST(DirectBuffersTest, OnesThatCameBackAreUsedAgain) {
  const auto buffers = std::make_unique<DirectBuffers>();
  std::set<std::byte*> first, second;
  for (std::set<std::byte*>* const seen : {&first, &second}) {
    std::vector<DirectBuffers::Lease> leases;
    for (std::size_t i = 0; i < DirectBuffers::kMost; ++i) {
      leases.push_back(buffers->Take());
      const std::span<std::byte> bytes = leases.back().bytes();
      ASSERT_EQ(bytes.size(), DirectBuffers::kBytes);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(bytes.data()) % kPage, 0);
      std::ranges::fill(bytes, std::byte{1});
      seen->insert(bytes.data());
    }
    EXPECT_TRUE(buffers->Take().bytes().empty());
  }
  EXPECT_EQ(first.size(), DirectBuffers::kMost);
  EXPECT_EQ(first, second);
  for (std::byte* const memory : first) {
    // Two in one piece.
    if (reinterpret_cast<std::uintptr_t>(memory) % (2 << 20) == 0) {
      std::free(memory);
    }
  }
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
                       Payload(3, n, 2 * kLarge).size(), 0, 2 * kLarge);
    read(n, 0);
    read(n, 8);  // Between two pages.
  }
  EXPECT_EQ(PagesInCache(files[0].path), 0);
  // Once somebody else had them read, they are read where they are.
  const Descriptor other(OpenAt(AT_FDCWD, files[0].path, O_RDONLY));
  std::vector<char> all(files[0].bytes);
  ASSERT_EQ(pread(other.get(), all.data(), all.size(), 0),
            static_cast<ssize_t>(all.size()));
  for (const int n : {1, 2, 3}) read(n, 0);
}

}  // namespace
}  // namespace ckptree::kv
