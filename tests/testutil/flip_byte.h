// SPDX-License-Identifier: Apache-2.0

// One damaged byte of a file.

#ifndef CKPTREE_TESTS_TESTUTIL_FLIP_BYTE_H_
#define CKPTREE_TESTS_TESTUTIL_FLIP_BYTE_H_

#include <cstdint>
#include <fstream>
#include <string>

#include "gtest/gtest.h"

namespace ckptree::testing {

// Flips the bits of `mask` in the byte at `at`; the same again undoes it.
inline void FlipByte(const std::string& path, std::uint64_t at,
                     std::uint8_t mask = 4) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(static_cast<std::streamoff>(at));
  const int byte = file.get();
  file.seekp(static_cast<std::streamoff>(at));
  file.put(static_cast<char>(byte ^ mask));
  file.close();
  EXPECT_TRUE(file.good()) << path << " at " << at;
}

}  // namespace ckptree::testing

#endif  // CKPTREE_TESTS_TESTUTIL_FLIP_BYTE_H_
