// SPDX-License-Identifier: Apache-2.0

// Fuzzes what stands in files of the journal. The first byte says what, and
// whether the checksum is put in that no fuzzer would come upon.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/big_endian.h"
#include "base/digest.h"
#include "kv/journal/preface.h"
#include "kv/journal/record.h"
#include "tests/fuzz/require.h"

namespace ckptree::fuzz {
namespace {

// Bytes before the checksum of each.
constexpr std::size_t kPrefaceFields = 144;
constexpr std::size_t kTipFields = 68;
constexpr std::size_t kHeaderFields = kv::kRecordHeaderBytes - 8;

std::string Sector(std::string_view input, std::size_t fields, bool checksum) {
  std::string bytes(input.substr(0, kv::kPrefaceBytes));
  if (checksum) {
    bytes.resize(fields, '\0');
    base::AppendBig(base::ChecksumOf(bytes), &bytes);
  }
  bytes.resize(kv::kPrefaceBytes, '\0');
  return bytes;
}

void FuzzPreface(std::string_view input, bool checksum) {
  const std::string bytes = Sector(input, kPrefaceFields, checksum);
  const std::optional<kv::Preface> preface = kv::DecodePreface(bytes);
  if (!preface.has_value()) return;
  Require(kv::DecodePreface(kv::EncodePreface(*preface)) == preface,
          "a preface survives being written again");
}

void FuzzTip(std::string_view input, bool checksum) {
  const std::string bytes = Sector(input, kTipFields, checksum);
  const std::optional<kv::TipNote> tip = kv::DecodeTip(bytes);
  if (!tip.has_value()) return;
  Require(kv::EncodeTip(*tip) == bytes, "a note of the tip has one coding");
}

void FuzzRecord(std::string_view input, bool checksum) {
  std::string bytes(input);
  if (checksum && bytes.size() >= kHeaderFields) {
    const std::string_view header =
        std::string_view(bytes).substr(0, kHeaderFields);
    const std::string_view rows = std::string_view(bytes).substr(kHeaderFields);
    std::string sum;
    base::AppendBig(base::ChecksumOf(header, rows), &sum);
    bytes.insert(kHeaderFields, sum);
  }
  const std::optional<kv::ParsedRecord> record = kv::ParseRecord(bytes, 0);
  if (!record.has_value()) return;
  Require(kv::EncodeRecord(record->header, record->rows) ==
              bytes.substr(0, kv::kRecordHeaderBytes + record->rows.size()),
          "a record has one coding");
  const auto rows = kv::DecodeRows(record->rows);
  Require(rows.ok() || absl::IsDataLoss(rows.status()), "bad rows are damage");
}

void FuzzRows(std::string_view input) {
  const auto rows = kv::DecodeRows(input);
  if (!rows.ok()) return;
  for (const kv::RowChange& row : *rows) {
    Require(row.key.size() + row.value.size() <= input.size(),
            "rows lie in the bytes that they were read from");
  }
}

}  // namespace
}  // namespace ckptree::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data,
                                      std::size_t size) {
  using namespace ckptree::fuzz;
  if (size == 0) return 0;
  const std::string_view input(reinterpret_cast<const char*>(data) + 1,
                               size - 1);
  const bool checksum = (data[0] & 4) == 0;
  switch (data[0] & 3) {
    case 0:
      FuzzPreface(input, checksum);
      break;
    case 1:
      FuzzTip(input, checksum);
      break;
    case 2:
      FuzzRecord(input, checksum);
      break;
    default:
      FuzzRows(input);
      break;
  }
  return 0;
}
