// SPDX-License-Identifier: Apache-2.0

// A program run with call_shim.cc in front of the C library.

#ifndef CKPTREE_TESTS_FAULT_SHIMMED_PROGRAM_H_
#define CKPTREE_TESTS_FAULT_SHIMMED_PROGRAM_H_

#include <cstdint>
#include <string>
#include <vector>

namespace ckptree::testing {

// What happens to it; the names are those of call_shim.h.
struct ShimPlan {
  std::string under;
  std::string does = "count";
  std::uint64_t at = 0;
  int value = 0;
  bool reads = false;
  std::string only = "";  // A name of calls; no other counts.

  std::string Text() const;  // "fail (errno 5) at call 17"
};

struct ShimResult {
  int code = -1;   // Where it ended by itself; 128 + signal otherwise.
  int signal = 0;  // What ended it.
  std::string out;
  std::string err;
  std::uint64_t calls = 0;
  std::uint64_t fired = 0;
  std::string fired_at;

  std::string Text() const;
};

// Runs `words` to its end. `scratch` is a folder for what it prints and the
// counts, not below `plan.under`. Without standard input.
ShimResult RunShimmed(std::vector<std::string> words, const ShimPlan& plan,
                      const std::string& scratch);

}  // namespace ckptree::testing

#endif  // CKPTREE_TESTS_FAULT_SHIMMED_PROGRAM_H_
