// SPDX-License-Identifier: Apache-2.0

// Fuzzes reading the head of a .safetensors file.

#include <cstddef>
#include <cstdint>

#include "tests/fuzz/file_head.h"
#include "tools/files/head.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data,
                                      std::size_t size) {
  ckptree::fuzz::FuzzHead(ckptree::tools::ParseSafetensors,
                          ckptree::fuzz::TextOf(data, size));
  return 0;
}
