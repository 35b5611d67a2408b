// SPDX-License-Identifier: Apache-2.0

#include "kv/rocks/scan_around.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/numeric/int128.h"
#include "absl/status/status.h"
#include "base/status_macros.h"
#include "kv/files/status.h"
#include "rocksdb/iterator.h"

namespace ckptree::kv {
namespace {

using Number = absl::uint128;

constexpr std::size_t kNumberBytes = 16;

Number NumberOf(std::string_view key) {
  Number number = 0;
  for (std::size_t i = 0; i < kNumberBytes; ++i) {
    number <<= 8;
    if (i < key.size()) number |= static_cast<std::uint8_t>(key[i]);
  }
  return number;
}

// The least key of that number.
std::string KeyOf(Number number) {
  std::string key(kNumberBytes, '\0');
  for (std::size_t i = kNumberBytes; i-- > 0; number >>= 8) {
    key[i] = static_cast<char>(absl::Uint128Low64(number) & 0xff);
  }
  while (!key.empty() && key.back() == '\0') key.pop_back();
  return key;
}

// True where what follows `number` can be read, or nothing follows.
bool CanRead(MakeIteratorFn make, Number number) {
  const std::unique_ptr<rocksdb::Iterator> iterator = make();
  iterator->Seek(KeyOf(number));
  return iterator->status().ok();
}

// The least number above `bad` whose keys can be read, as far as doubling
// steps and then halving them finds it.
std::optional<Number> NextReadable(MakeIteratorFn make, Number bad) {
  constexpr Number kMost = absl::Uint128Max();
  Number good = 0;
  for (Number step = 1;; step <<= 1) {
    if (bad == kMost) return std::nullopt;
    good = step == 0 || kMost - bad < step ? kMost : bad + step;
    if (CanRead(make, good)) break;
    bad = good;
  }
  while (good - bad > 1) {
    const Number middle = bad + ((good - bad) >> 1);
    (CanRead(make, middle) ? good : bad) = middle;
  }
  return good;
}

}  // namespace

absl::StatusOr<ScanGaps> ScanAround(
    MakeIteratorFn make, absl::FunctionRef<absl::Status(std::string_view key,
                                                        std::string_view value)>
                             entry) {
  ScanGaps gaps;
  Number last = 0;
  std::unique_ptr<rocksdb::Iterator> iterator = make();
  iterator->SeekToFirst();
  for (;;) {
    for (; iterator->Valid(); iterator->Next()) {
      const std::string_view key = iterator->key().ToStringView();
      CKPTREE_RETURN_IF_ERROR(entry(key, iterator->value().ToStringView()));
      last = NumberOf(key);
    }
    if (iterator->status().ok()) return gaps;
    // Nothing is known to be lost.
    if (iterator->status().IsMemoryLimit()) {
      return ToReadStatus(iterator->status(), "reading");
    }
    if (gaps.count++ == 0) {
      gaps.first = ToReadStatus(iterator->status(), "reading");
    }
    const std::optional<Number> next = NextReadable(make, last);
    if (!next.has_value()) return gaps;
    last = *next;
    iterator = make();
    iterator->Seek(KeyOf(*next));
  }
}

}  // namespace ckptree::kv
