// SPDX-License-Identifier: Apache-2.0

#include "core/collect/rewrite_coder.h"

#include <algorithm>
#include <new>
#include <span>

#include "base/digest.h"
#include "core/coding/coded_block.h"

namespace ckptree::internal {
bool RewriteCoder::Code(std::string_view value, std::string* coded) {
  // Nothing may be thrown through RocksDB, which asks.
  try {
    return CodeChecked(value, coded);
  } catch (const std::bad_alloc&) {
    return false;
  }
}

bool RewriteCoder::CodeChecked(std::string_view value, std::string* coded) {
  if (IsCodedBlock(value)) return false;
  const auto payload = std::as_bytes(std::span(value));
  const std::string_view encoded =
      coder_.Encode(payload, base::DigestOf(value));
  if (encoded.empty()) return false;
  if (decoded_.size() < value.size()) decoded_.resize(value.size());
  const std::span<std::byte> back = std::span(decoded_).first(value.size());
  if (!decoder_.Decode(encoded, back).ok() ||
      !std::equal(back.begin(), back.end(), payload.begin())) {
    return false;
  }
  coded->assign(encoded);
  return true;
}

}  // namespace ckptree::internal
