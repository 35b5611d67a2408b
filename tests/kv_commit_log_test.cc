// Commit records: golden bytes and everything malformed.

#include "kv/commit_log.h"

#include <cstddef>
#include <string>

#include "absl/strings/escaping.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kv/hash.h"
#include "kv/write_batch.h"
#include "schema/spaces.h"
#include "tests/testutil/status_matchers.h"

namespace ckptree::kv {
namespace {

using ::ckptree::testing::IsOkAndHolds;
using ::ckptree::testing::StatusIs;
using schema::Space;

CommitRecord Record() {
  CommitRecord record;
  record.ordinal = 0x0102030405060708;
  record.kind = CommitKind::kSave;
  record.version = 17;
  record.small = true;
  record.small_safe = 5;
  record.previous.fill(0xaa);
  record.batch.fill(0xbb);
  record.engine = "1.2.3";
  return record;
}

// The checksum is that of the bytes before it.
std::string WithChecksum(std::string bytes) {
  AppendBigEndian(Checksum(bytes), &bytes);
  return bytes;
}

std::string Hex(const Hash& hash) {
  return absl::BytesToHexString(
      std::string(hash.begin(), hash.end()));
}

TEST(CommitRecordTest, HasGoldenBytes) {
  const std::string golden = absl::HexStringToBytes(
      "434b4352"  // CKCR
      "01"        // layout
      "02"        // kind: save
      "01"        // small
      "05"        // length of the engine version
      "0102030405060708"
      "0000000000000011"
      "0000000000000005"
      "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
      "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
      "312e322e33"
      "d47a31c5675d4179");
  EXPECT_EQ(absl::BytesToHexString(EncodeCommitRecord(Record())),
            absl::BytesToHexString(golden));
  EXPECT_THAT(DecodeCommitRecord(golden), IsOkAndHolds(Record()));
}

TEST(CommitRecordTest, RoundTripsExtremes) {
  CommitRecord record;
  record.ordinal = 1;
  record.kind = CommitKind::kCreate;
  EXPECT_THAT(DecodeCommitRecord(EncodeCommitRecord(record)),
              IsOkAndHolds(record));
  record.kind = CommitKind::kOpen;
  record.engine = std::string(255, 'e');
  EXPECT_THAT(DecodeCommitRecord(EncodeCommitRecord(record)),
              IsOkAndHolds(record));
  record.engine += "cut off";
  ASSERT_OK_AND_ASSIGN(const CommitRecord cut,
                       DecodeCommitRecord(EncodeCommitRecord(record)));
  EXPECT_EQ(cut.engine, std::string(255, 'e'));
}

TEST(CommitRecordTest, EveryFlippedByteIsRejected) {
  const std::string whole = EncodeCommitRecord(Record());
  for (std::size_t i = 0; i < whole.size(); ++i) {
    std::string damaged = whole;
    damaged[i] = static_cast<char>(damaged[i] ^ 1);
    EXPECT_THAT(DecodeCommitRecord(damaged),
                StatusIs(absl::StatusCode::kDataLoss))
        << i;
  }
}

TEST(CommitRecordTest, EveryOtherLengthIsRejected) {
  const std::string whole = EncodeCommitRecord(Record());
  for (std::size_t size = 0; size < whole.size(); ++size) {
    EXPECT_THAT(DecodeCommitRecord(whole.substr(0, size)),
                StatusIs(absl::StatusCode::kDataLoss))
        << size;
  }
  EXPECT_THAT(DecodeCommitRecord(whole + "x"),
              StatusIs(absl::StatusCode::kDataLoss));
}

TEST(CommitRecordTest, MalformedFieldsAreRejected) {
  const std::string whole = EncodeCommitRecord(Record());
  const std::string covered = whole.substr(0, whole.size() - 8);
  for (const char kind : {'\0', '\x0a', '\x7f'}) {
    std::string bytes = covered;
    bytes[5] = kind;
    EXPECT_THAT(DecodeCommitRecord(WithChecksum(bytes)),
                StatusIs(absl::StatusCode::kDataLoss));
  }
  std::string bytes = covered;
  bytes[6] = 2;
  EXPECT_THAT(DecodeCommitRecord(WithChecksum(bytes)),
              StatusIs(absl::StatusCode::kDataLoss));
  bytes = covered;
  bytes[7] = 4;
  EXPECT_THAT(DecodeCommitRecord(WithChecksum(bytes)),
              StatusIs(absl::StatusCode::kDataLoss));
  bytes = covered;
  bytes[4] = 2;
  EXPECT_THAT(DecodeCommitRecord(WithChecksum(bytes)),
              StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST(CommitRecordTest, KeysSortByOrdinal) {
  EXPECT_EQ(CommitRecordKey(0x0102),
            std::string("\x07\0\0\0\0\0\0\x01\x02", 9));
  EXPECT_LT(CommitRecordKey(255), CommitRecordKey(256));
}

TEST(BatchHashTest, IsGoldenAndSeesEverything) {
  WriteBatch batch;
  batch.Put(Space::kRecords, "key", "value");
  batch.Delete(Space::kSmall, "gone");
  // XXH3-128 of 00 01 00000003 "key" 00000005 "value" 01 00 00000004 "gone".
  const std::string framed = absl::HexStringToBytes(
      "000100000003" "6b6579" "00000005" "76616c7565" "010000000004"
      "676f6e65");
  EXPECT_EQ(Hex(HashOfBatch(batch)), Hex(HashOf(framed)));

  WriteBatch empty_value;
  empty_value.Put(Space::kRecords, "key", "");
  WriteBatch deleted;
  deleted.Delete(Space::kRecords, "key");
  EXPECT_NE(HashOfBatch(empty_value), HashOfBatch(deleted));
  WriteBatch other_space;
  other_space.Put(Space::kSmall, "key", "");
  EXPECT_NE(HashOfBatch(empty_value), HashOfBatch(other_space));
  EXPECT_EQ(Hex(HashOf("")), "99aa06d3014798d86001c324468d497f");
}

}  // namespace
}  // namespace ckptree::kv
