// SPDX-License-Identifier: Apache-2.0

// Fuzzes the head of an .npy file.

#include <cstddef>
#include <cstdint>

#include "tests/fuzz/file_head.h"
#include "tools/files/head.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data,
                                      std::size_t size) {
  ckptree::fuzz::FuzzHead(ckptree::tools::ParseNpy,
                          ckptree::fuzz::TextOf(data, size));
  return 0;
}
