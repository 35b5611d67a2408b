// SPDX-License-Identifier: Apache-2.0

// Fuzzes coded blocks. The first byte of an input says what it is: 0 a block as
// it is stored; 1 width, map, raw length (two bytes) and the bytes of one cell,
// which get the head and the checksums that no fuzzer would come upon; 2 bytes
// to be coded; 3 as 1, of words with their rounded copy; 4 words to be coded
// with it.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "base/digest.h"
#include "core/coding/block_coder.h"
#include "core/coding/block_decoder.h"
#include "core/coding/coded_block.h"
#include "core/coding/rounded_copy.h"
#include "tests/fuzz/require.h"

namespace ckptree::fuzz {
namespace {

constexpr std::size_t kMostRaw = 1 << 20;

// REQUIRES: `stored` claims to be of `raw_length`.
void FuzzStored(std::string_view stored, std::size_t raw_length) {
  std::vector<std::byte> raw(raw_length);
  internal::BlockDecoder decoder;
  const absl::Status status = decoder.Decode(stored, raw);
  if (status.ok()) {
    Require(internal::IsCodedBlock(stored), "what decodes is a coded block");
  } else {
    Require(absl::IsDataLoss(status) && !status.message().empty(),
            "a bad block is damage, and says what is wrong");
  }
}

void FuzzCell(internal::BlockCoding coding, std::string_view input) {
  if (input.size() < 4) return;
  const auto byte = [&](std::size_t at) {
    return static_cast<std::uint8_t>(input[at]);
  };
  internal::CodedHead head;
  head.coding = coding;
  head.width = byte(0);
  head.map = static_cast<internal::WordMap>(byte(1));
  head.raw_length = std::uint32_t{byte(2)} << 8 | byte(3);
  const std::string_view cell = input.substr(4);
  head.cells.push_back(
      {static_cast<std::uint32_t>(cell.size()), base::ChecksumOf(cell)});
  if (head.raw_length == 0) return;
  FuzzStored(internal::EncodeCodedHead(head) + std::string(cell),
             head.raw_length);
}

void FuzzRoundTrip(std::string_view input) {
  internal::BlockCoder coder;
  const std::string_view stored =
      coder.Encode(std::as_bytes(std::span(input)), base::DigestOf(input));
  if (stored.empty()) return;
  std::string raw(input.size(), '\0');
  internal::BlockDecoder decoder;
  Require(decoder.Decode(stored, std::as_writable_bytes(std::span(raw))).ok() &&
              raw == input && stored.size() < input.size(),
          "what was coded decodes, and is shorter");
}

// The words of `input` and their rounded copy.
std::string WithCopy(std::string_view input) {
  std::string words(input.substr(0, input.size() / 4 * 4));
  std::string copy(words.size() / 2, '\0');
  internal::RoundWords(std::as_bytes(std::span(words)),
                       std::as_writable_bytes(std::span(copy)).data());
  return words + copy;
}

void FuzzCoded(std::string_view input) {
  if (input.empty()) return;
  const char what = input.front();
  input.remove_prefix(1);
  switch (what) {
    case 0: {
      std::size_t raw_length = 0;
      for (std::size_t i = 4; i < 8 && i < input.size(); ++i) {
        raw_length = raw_length << 8 | static_cast<std::uint8_t>(input[i]);
      }
      if (raw_length <= kMostRaw) FuzzStored(input, raw_length);
      return;
    }
    case 1:
      return FuzzCell(internal::BlockCoding::kPlanes, input);
    case 3:
      return FuzzCell(internal::BlockCoding::kRoundedCopy, input);
    case 4:
      return FuzzRoundTrip(WithCopy(input));
    default:
      return FuzzRoundTrip(input);
  }
}

}  // namespace
}  // namespace ckptree::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data,
                                      std::size_t size) {
  ckptree::fuzz::FuzzCoded(ckptree::fuzz::TextOf(data, size));
  return 0;
}
