// SPDX-License-Identifier: Apache-2.0

// Fuzzes paths as people write them, in our form and in JAX's.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "ckptree/path.h"
#include "tests/fuzz/require.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data,
                                      std::size_t size) {
  using ckptree::Path;
  using ckptree::fuzz::Require;
  const absl::StatusOr<Path> path =
      Path::Parse(ckptree::fuzz::TextOf(data, size));
  if (!path.ok()) {
    ckptree::fuzz::RequireInvalid(path.status());
    return 0;
  }
  const absl::StatusOr<Path> decoded = Path::Decode(path->Encode());
  Require(decoded.ok() && *decoded == *path, "what is parsed can be stored");
  const std::string text = path->Text();
  const absl::StatusOr<Path> again = Path::Parse(text);
  Require(again.ok() && *again == *path, "the canonical text names it");
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    Require(byte >= 0x20 && byte != 0x7f, "a text has no control characters");
  }
  Require(path->empty() || ckptree::MatchesGlob(text, text),
          "a text as a pattern matches itself");
  return 0;
}
