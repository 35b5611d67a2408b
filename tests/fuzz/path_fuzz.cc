// SPDX-License-Identifier: Apache-2.0

// Fuzzes the encoding of paths: only what Encode() makes is read.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"
#include "ckptree/path.h"
#include "schema/path_encoding.h"
#include "tests/fuzz/require.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data,
                                      std::size_t size) {
  using ckptree::Path;
  using ckptree::fuzz::Require;
  const std::string_view bytes = ckptree::fuzz::TextOf(data, size);
  const absl::StatusOr<Path> path = Path::Decode(bytes);
  Require(
      (ckptree::schema::ReadPathBytes(bytes, nullptr) == nullptr) == path.ok(),
      "reading without making parts judges alike");
  if (!path.ok()) {
    ckptree::fuzz::RequireInvalid(path.status());
    return 0;
  }
  Require(path->Encode() == bytes, "a path has one encoding");
  Require(path->Validate().ok(), "what is read is valid");
  const absl::StatusOr<Path> parsed = Path::Parse(path->Text());
  Require(parsed.ok(), "the text of a path parses");
  Require(*parsed == *path, "the text of a path names it");
  return 0;
}
