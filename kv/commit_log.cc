// A commit record, as it stands on disk. All integers are big-endian.
//
//   offset  bytes  field
//        0      4  "CKCR"
//        4      1  layout, 1
//        5      1  kind
//        6      1  small, 0 or 1
//        7      1  n, the length of the engine version
//        8      8  ordinal
//       16      8  version
//       24      8  small_safe
//       32     16  hash of the previous commit record's stored bytes; zeros in
//                  the first one
//       48     16  hash of the batch (HashOfBatch)
//       64      n  engine version
//   64 + n      8  XXH3-64 of the 64 + n bytes before
//
// Its key in `records` is 0x07 and the ordinal in 8 bytes. Hashes are XXH3-128,
// most significant byte first. The batch's hash covers what the caller asked
// for, not the commit record itself nor commit records trimmed along with it.

#include "kv/commit_log.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "kv/hash.h"
#include "schema/spaces.h"

namespace ckptree::kv {
namespace {

constexpr std::string_view kMagic = "CKCR";
constexpr std::uint8_t kLayout = 1;
constexpr std::size_t kFixedBytes = 64;
constexpr std::size_t kMaxEngineBytes = 255;

absl::Status Malformed(std::string_view why) {
  return absl::DataLossError(absl::StrFormat("commit record: %s", why));
}

}  // namespace

std::string EncodeCommitRecord(const CommitRecord& record) {
  const std::string_view engine =
      std::string_view(record.engine).substr(0, kMaxEngineBytes);
  std::string bytes;
  bytes.append(kMagic);
  AppendBigEndian(kLayout, &bytes);
  AppendBigEndian(static_cast<std::uint8_t>(record.kind), &bytes);
  AppendBigEndian(static_cast<std::uint8_t>(record.small), &bytes);
  AppendBigEndian(static_cast<std::uint8_t>(engine.size()), &bytes);
  AppendBigEndian(record.ordinal, &bytes);
  AppendBigEndian(record.version, &bytes);
  AppendBigEndian(record.small_safe, &bytes);
  bytes.append(record.previous.begin(), record.previous.end());
  bytes.append(record.batch.begin(), record.batch.end());
  bytes.append(engine);
  AppendBigEndian(Checksum(bytes), &bytes);
  return bytes;
}

absl::StatusOr<CommitRecord> DecodeCommitRecord(std::string_view bytes) {
  constexpr std::size_t kChecksumBytes = sizeof(std::uint64_t);
  if (bytes.size() < kFixedBytes + kChecksumBytes ||
      !bytes.starts_with(kMagic)) {
    return Malformed("too short or not one");
  }
  const std::string_view covered =
      bytes.substr(0, bytes.size() - kChecksumBytes);
  BigEndianReader trailer(bytes.substr(covered.size()));
  if (trailer.Read<std::uint64_t>() != Checksum(covered)) {
    return Malformed("checksum does not match");
  }
  BigEndianReader reader(bytes);
  reader.Skip(kMagic.size());
  const auto layout = reader.Read<std::uint8_t>();
  if (layout != kLayout) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "commit record has layout %d; this engine reads %d", layout, kLayout));
  }
  CommitRecord record;
  const auto kind = reader.Read<std::uint8_t>();
  const auto small = reader.Read<std::uint8_t>();
  const std::size_t engine_bytes = reader.Read<std::uint8_t>();
  if (kind < static_cast<std::uint8_t>(CommitKind::kCreate) ||
      kind > static_cast<std::uint8_t>(CommitKind::kSettings)) {
    return Malformed(absl::StrFormat("unknown kind %d", kind));
  }
  if (small > 1) return Malformed("flag is neither 0 nor 1");
  if (covered.size() != kFixedBytes + engine_bytes) {
    return Malformed("length does not match");
  }
  record.kind = static_cast<CommitKind>(kind);
  record.small = small == 1;
  record.ordinal = reader.Read<std::uint64_t>();
  record.version = reader.Read<std::uint64_t>();
  record.small_safe = reader.Read<std::uint64_t>();
  reader.ReadBytes(record.previous);
  reader.ReadBytes(record.batch);
  record.engine = covered.substr(kFixedBytes);
  return record;
}

std::string CommitRecordKey(std::uint64_t ordinal) {
  std::string key;
  AppendBigEndian(static_cast<std::uint8_t>(schema::Row::kCommit), &key);
  AppendBigEndian(ordinal, &key);
  return key;
}

}  // namespace ckptree::kv
