// Fuzzes HEAD's slots and commit records. The first byte says which, and
// whether the checksum is put in that no fuzzer would come upon.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kv/commit_log.h"
#include "kv/hash.h"
#include "kv/head.h"
#include "tests/fuzz/require.h"

namespace ckptree::fuzz {
namespace {

// Bytes of a slot before its checksum.
constexpr std::size_t kSlotFieldBytes = 92;

void FuzzSlot(std::string_view input, bool checksum) {
  std::string bytes(input.substr(0, kv::kHeadSlotBytes));
  if (checksum) {
    bytes.resize(kSlotFieldBytes, '\0');
    kv::AppendBigEndian(kv::Checksum(bytes), &bytes);
  }
  bytes.resize(kv::kHeadSlotBytes, '\0');
  const std::optional<kv::HeadSlot> slot = kv::DecodeHeadSlot(bytes);
  if (slot.has_value()) {
    Require(kv::EncodeHeadSlot(*slot) == bytes, "a slot has one coding");
  }
  // A file in which one slot is this one, another is cut off.
  std::string file(kv::kHeadSlotBytes, '\0');
  file.append(bytes);
  file.append(bytes, 0, input.size() % kv::kHeadSlotBytes);
  Require(kv::NewestSlot(file) == slot, "the only whole slot is the newest");
}

void FuzzCommit(std::string_view input, bool checksum) {
  std::string bytes(input);
  if (checksum) kv::AppendBigEndian(kv::Checksum(bytes), &bytes);
  const absl::StatusOr<kv::CommitRecord> record = kv::DecodeCommitRecord(bytes);
  if (!record.ok()) {
    Require(absl::IsDataLoss(record.status()) ||
                absl::IsFailedPrecondition(record.status()),
            "a bad commit record is damage, or of a newer layout");
    return;
  }
  Require(kv::EncodeCommitRecord(*record) == bytes,
          "a commit record has one coding");
}

}  // namespace
}  // namespace ckptree::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data,
                                      std::size_t size) {
  if (size == 0) return 0;
  const std::string_view input = ckptree::fuzz::TextOf(data + 1, size - 1);
  const bool checksum = (data[0] & 2) == 0;
  if ((data[0] & 1) == 0) {
    ckptree::fuzz::FuzzSlot(input, checksum);
  } else {
    ckptree::fuzz::FuzzCommit(input, checksum);
  }
  return 0;
}
