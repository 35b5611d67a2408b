// SPDX-License-Identifier: Apache-2.0

// How a fuzz target says what must hold of an input.

#ifndef CKPTREE_TESTS_FUZZ_REQUIRE_H_
#define CKPTREE_TESTS_FUZZ_REQUIRE_H_

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "absl/status/status.h"

namespace ckptree::fuzz {

inline std::string_view TextOf(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// Ends the process where `held` is false, which libFuzzer reports as a finding,
// with the stack.
inline void Require(bool held, const char* what) {
  if (held) return;
  std::fprintf(stderr, "does not hold: %s\n", what);
  std::abort();
}

// REQUIRES: an error. What a caller typed is refused with this code alone.
inline void RequireInvalid(const absl::Status& status) {
  if (status.code() != absl::StatusCode::kInvalidArgument) {
    std::fprintf(stderr, "%s\n", status.ToString().c_str());
  }
  Require(status.code() == absl::StatusCode::kInvalidArgument,
          "bad text is an invalid argument");
  Require(!status.message().empty(), "an error says what is wrong");
}

}  // namespace ckptree::fuzz

#endif  // CKPTREE_TESTS_FUZZ_REQUIRE_H_
