// SPDX-License-Identifier: Apache-2.0

// What every decoder of records is given, and what must hold of it.

#ifndef CKPTREE_TESTS_FUZZ_STORED_RECORD_H_
#define CKPTREE_TESTS_FUZZ_STORED_RECORD_H_

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "schema/envelope.h"
#include "tests/fuzz/require.h"

namespace ckptree::fuzz {

// The first byte of an input says what the rest is: with the highest bit, a
// record as it is stored; without, a body, which gets the envelope that no
// fuzzer would come upon.
struct StoredRecord {
  int kind = 0;  // A schema::RecordKind, or a target's own number.
  std::string bytes;
};

inline constexpr std::uint8_t kAsStored = 0x80;

inline StoredRecord RecordOf(std::string_view input) {
  StoredRecord record;
  if (input.empty()) return record;
  const auto first = static_cast<std::uint8_t>(input.front());
  input.remove_prefix(1);
  record.kind = first & ~kAsStored;
  if ((first & kAsStored) != 0) {
    record.bytes = std::string(input);
  } else {
    record.bytes =
        schema::Envelope(static_cast<schema::RecordKind>(record.kind), input);
  }
  return record;
}

// Decodes `bytes`. What is refused is refused as damage or as newer; what is
// not can be written and read again, and is then the same.
template <typename Encode, typename Decode>
void RequireRoundTrip(std::string_view bytes, Encode encode, Decode decode) {
  const auto value = decode(bytes);
  if (!value.ok()) {
    Require(absl::IsDataLoss(value.status()) ||
                absl::IsFailedPrecondition(value.status()),
            "a bad record is damage, or of a newer format");
    Require(!value.status().message().empty(), "an error says what is wrong");
    return;
  }
  const std::string stored = encode(*value);
  const auto again = decode(stored);
  Require(again.ok(), "what was decoded can be written and read again");
  Require(encode(*again) == stored, "writing it twice gives the same bytes");
  if constexpr (std::equality_comparable<decltype(*value)>) {
    Require(*again == *value, "writing it keeps every field");
  }
}

}  // namespace ckptree::fuzz

#endif  // CKPTREE_TESTS_FUZZ_STORED_RECORD_H_
