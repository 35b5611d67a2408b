// SPDX-License-Identifier: Apache-2.0

#include "base/mapped_vector.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <new>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ckptree::base {
namespace {

constexpr std::size_t kLarge = MappedAllocator<char>::kLeastBytes;

// Whether pages of this process are there.
bool IsMapped(const void* at, std::size_t bytes) {
  return msync(const_cast<void*>(at), bytes, MS_ASYNC) == 0;
}

TEST(MappedVectorTest, WhatIsLargeGoesBackWhenItIsGone) {
  const void* at = nullptr;
  {
    const MappedVector<std::uint64_t> large(kLarge / 8, 7);
    EXPECT_THAT(large, ::testing::Each(7));
    at = large.data();
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(at) %
                  static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE)),
              0u);
    ASSERT_TRUE(IsMapped(at, kLarge));
  }
  EXPECT_FALSE(IsMapped(at, kLarge));
  EXPECT_EQ(errno, ENOMEM);
}

TEST(MappedVectorTest, GrowsOverTheBoundWithWhatItHas) {
  MappedVector<std::unique_ptr<std::size_t>> grows;
  constexpr std::size_t kCount = 3 * kLarge / sizeof(void*);
  for (std::size_t i = 0; i < kCount; ++i) {
    grows.push_back(std::make_unique<std::size_t>(i));
  }
  MappedVector<std::unique_ptr<std::size_t>> moved = std::move(grows);
  ASSERT_EQ(moved.size(), kCount);
  for (std::size_t i = 0; i < kCount; ++i) ASSERT_EQ(*moved[i], i);
  moved.resize(3);
  moved.shrink_to_fit();
  EXPECT_EQ(*moved[2], 2u);
}

TEST(MappedVectorTest, WhatIsNotToBeHadIsThrown) {
  MappedAllocator<std::uint64_t> allocator;
  constexpr std::size_t kMost = std::numeric_limits<std::size_t>::max();
  EXPECT_THROW(static_cast<void>(allocator.allocate(kMost)),
               std::bad_array_new_length);
  EXPECT_THROW(static_cast<void>(allocator.allocate(kMost / 16)),
               std::bad_alloc);
}

}  // namespace
}  // namespace ckptree::base
