// SPDX-License-Identifier: Apache-2.0

// Columns of numbers in few bytes, for the page of a report.

#ifndef CKPTREE_TOOLS_REPORT_NUMBER_PACK_H_
#define CKPTREE_TOOLS_REPORT_NUMBER_PACK_H_

#include <cstdint>
#include <span>
#include <string>

#include "nlohmann/json.hpp"

namespace ckptree::tools {

// How exactly a column of floats is kept.
enum class Digits {
  kFloat,  // As float32: seven digits.
  kDrawn,  // Of float32 the upper 24 bits: nearly five digits.
};

// Every number is written as its distance from the one before, zigzag and seven
// bits to a byte: numbers that go on slowly take a byte each, those that stay
// take less once the whole is deflated. Value type, confined to one thread.
class NumberPack {
 public:
  // What the page needs to read the column: where it begins, how many numbers
  // there are, and for floats the bits that were cut off.
  nlohmann::ordered_json AddIntegers(std::span<const std::int64_t> values);
  // NaN and infinities stay what they are.
  nlohmann::ordered_json AddFloats(std::span<const double> values,
                                   Digits digits);

  const std::string& bytes() const { return bytes_; }

 private:
  void Append(std::int64_t difference);

  std::string bytes_;
};

}  // namespace ckptree::tools

#endif  // CKPTREE_TOOLS_REPORT_NUMBER_PACK_H_
