// SPDX-License-Identifier: Apache-2.0

// Rows files: what is written is read and merged.

#include "kv/journal/rows_file.h"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kv/journal/row.h"
#include "kv/options.h"
#include "kv/testing/failing_disk.h"
#include "schema/spaces.h"
#include "tests/kv/rows_fixture.h"
#include "tests/testutil/status_matchers.h"
#include "tests/testutil/temp_dir.h"

namespace ckptree::kv {
namespace {

using ::ckptree::testing::StatusIs;
using ::ckptree::testing::TempDir;
using ::testing::HasSubstr;

TEST(RowsFileTest, Names) {
  EXPECT_EQ(RowsFileName(42), "rows-00000000000000000042");
  EXPECT_EQ(OrdinalOfRowsFile("rows-00000000000000000042"), 42u);
  EXPECT_EQ(OrdinalOfRowsFile("rows-18446744073709551615"),
            18446744073709551615u);
  for (const char* name :
       {"rows-42", "rows.tmp", "rows-18446744073709551616", "",
        "rows-+0000000000000000042", "rows-000000000000000000042",
        "rows- 0000000000000000042", "b-00000000000000000042"}) {
    EXPECT_EQ(OrdinalOfRowsFile(name), std::nullopt) << name;
  }
}

TEST(RowsFileTest, RoundTrips) {
  for (const int count : {0, 1, 2, 3000}) {
    const TempDir dir;
    const Rows rows = SomeRows(count);
    const std::string path = Write(dir, rows);
    const Found found = ReadAll(path, RowsReader::OnDamage::kStop);
    EXPECT_OK(found.status);
    EXPECT_EQ(found.rows, rows);
    const Found went_on = ReadAll(path, RowsReader::OnDamage::kGoOn);
    EXPECT_EQ(went_on.rows, rows);
    EXPECT_TRUE(went_on.damage.empty());
    ASSERT_OK_AND_ASSIGN(const auto reader, RowsReader::Open({}, path));
    EXPECT_EQ(reader->head(), Head(5));
    EXPECT_EQ(reader->rows(), rows.size());
    EXPECT_FALSE(std::filesystem::exists(dir / "rows.tmp"));
  }
}

TEST(RowsFileTest, LargeAndStrangeRows) {
  const TempDir dir;
  Rows rows = SomeRows(50);
  rows[Key(schema::Space::kRecords, "")] = std::string();
  rows[Key(schema::Space::kRecords, "\xff\xfe")] = std::string(1, '\0');
  rows[Key(schema::Space::kRecords, "key 0010x")] =
      std::string(std::size_t{64} << 20, 'v');
  rows[Key(schema::Space::kSmall, std::string(70000, 'k'))] =
      std::string(kRowsBlockBytes, 'w');
  const Found found = ReadAll(Write(dir, rows), RowsReader::OnDamage::kStop);
  EXPECT_OK(found.status);
  EXPECT_EQ(found.rows, rows);
}

// Any change of these bytes needs another layout number.
TEST(RowsFileTest, LayoutIsFixed) {
  const TempDir dir;
  Rows rows;
  rows[Key(schema::Space::kRecords, std::string("\x01k", 2))] =
      std::string("value");
  rows[Key(schema::Space::kSmall, "a")] = std::string();
  rows[Key(schema::Space::kSmall, "b")] = Name(0x0102, 0xee);
  const std::string bytes = Contents(Write(dir, rows, 5, 20));
  EXPECT_EQ(absl::BytesToHexString(bytes),
            "434b5054524f575300000001cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd00000000"
            "00000005abababababababababababababababab000000000000000301020304"
            "050607083ab1144b94aef2b7524f574200000011000000010000000000000000"
            "000000000000004c0e5e60b422c2503f7644a7ae6c8060dd000000000002016b"
            "0000000576616c7565524f57420000000b000000010000000000000001000000"
            "0000000089df799906b92aac7674591daf64e6faa80100000000016100000000"
            "524f57420000001f00000001000000000000000200000000000000c0840a5acd"
            "91212e0c60a3eb51399e2a83010100000001620000000000000102eeeeeeeeee"
            "eeeeeeeeeeeeeeeeeeeeee434b5054524f574500000001cdcdcdcdcdcdcdcdcd"
            "cdcdcdcdcdcdcd0000000000000005abababababababababababababababab00"
            "0000000000000301020304050607080000000000000003000000000000000355"
            "e1a08cc6b29e74000000000000010b1531d7ebd2522785");
}

TEST(RowsFileTest, RowsMustAscend) {
  const TempDir dir;
  ASSERT_OK_AND_ASSIGN(const auto writer,
                       RowsWriter::Create({}, dir.path(), Head(1)));
  ASSERT_OK(writer->Add(RecordRow(1), std::string("1")));
  EXPECT_THAT(writer->Add(RecordRow(1), std::string("2")),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(writer->Finish(), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
}

TEST(RowsFileTest, MissingFileIsNotFound) {
  const TempDir dir;
  EXPECT_THAT(RowsReader::Open({}, dir / RowsFileName(1)),
              StatusIs(absl::StatusCode::kNotFound));
}

TEST(RowsFileTest, Merges) {
  const TempDir dir;
  Rows rows = SomeRows(3000);
  std::string base = Write(dir, rows, 1);
  std::mt19937 random(3);
  for (std::uint64_t ordinal = 2; ordinal < 8; ++ordinal) {
    RowChanges changes;
    for (int i = 0; i < 400; ++i) {
      const int row = static_cast<int>(random() % 4000);
      const RowKey key = random() % 2 == 0 ? RecordRow(row)
                                           : Key(schema::Space::kSmall,
                                                 absl::StrFormat("%08d", row));
      if (random() % 3 == 0) {
        changes[key] = std::nullopt;
      } else {
        changes[key] = absl::StrFormat("at %d", ordinal);
      }
    }
    for (const auto& [key, value] : changes) {
      if (value.has_value()) {
        rows[key] = *value;
      } else {
        rows.erase(key);
      }
    }
    ASSERT_OK_AND_ASSIGN(const auto reader, RowsReader::Open({}, base));
    ASSERT_OK_AND_ASSIGN(const auto writer,
                         RowsWriter::Create({}, dir.path(), Head(ordinal)));
    ASSERT_OK(MergeRows(reader.get(), changes, writer.get()));
    ASSERT_OK(writer->Finish());
    base = dir / RowsFileName(ordinal);
    const Found found = ReadAll(base, RowsReader::OnDamage::kStop);
    ASSERT_OK(found.status);
    ASSERT_EQ(found.rows, rows);
  }
}

TEST(RowsFileTest, MergesOverNothingAndNotOverDamage) {
  const TempDir dir;
  RowChanges changes;
  changes[RecordRow(1)] = std::string("one");
  changes[RecordRow(2)] = std::nullopt;
  {
    ASSERT_OK_AND_ASSIGN(const auto writer,
                         RowsWriter::Create({}, dir.path(), Head(1)));
    ASSERT_OK(MergeRows(nullptr, changes, writer.get()));
    ASSERT_OK(writer->Finish());
  }
  const std::string path = dir / RowsFileName(1);
  EXPECT_EQ(ReadAll(path, RowsReader::OnDamage::kStop).rows,
            (Rows{{RecordRow(1), RowValue(std::string("one"))}}));
  std::string bytes = Contents(path);
  bytes[130] = static_cast<char>(bytes[130] ^ 1);
  Overwrite(path, bytes);
  for (const auto on_damage :
       {RowsReader::OnDamage::kStop, RowsReader::OnDamage::kGoOn}) {
    ASSERT_OK_AND_ASSIGN(const auto reader,
                         RowsReader::Open({}, path, on_damage));
    ASSERT_OK_AND_ASSIGN(const auto writer,
                         RowsWriter::Create({}, dir.path(), Head(2)));
    EXPECT_THAT(MergeRows(reader.get(), changes, writer.get()),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr(path)));
  }
}

// Each operation that changes something fails once: no name without a whole
// file, the file before stays, and nothing is left over.
TEST(RowsFileTest, FailedDiskLeavesNoHalfFile) {
  const Rows rows = SomeRows(200);
  FailurePlan plan;
  Options options;
  options.file_system = MakeFailingDisk(&plan);
  std::int64_t failures = 0;
  for (std::int64_t at = 0;; ++at) {
    SCOPED_TRACE(at);
    const TempDir dir;
    const std::string before = Write(dir, SomeRows(3), 4);
    plan.Arm(at, /*from_then_on=*/false);
    absl::Status status;
    {
      auto writer = RowsWriter::Create(options, dir.path(), Head(5), 1000);
      status = writer.status();
      for (const auto& [key, value] : rows) {
        if (status.ok()) status = (*writer)->Add(key, value);
      }
      if (status.ok()) status = (*writer)->Finish();
    }
    const std::int64_t failed = plan.failed();
    plan.Arm(-1, false);
    if (failed == 0) {
      EXPECT_OK(status);
      break;
    }
    ++failures;
    EXPECT_FALSE(status.ok());
    EXPECT_EQ(ReadAll(before, RowsReader::OnDamage::kStop).rows, SomeRows(3));
    EXPECT_FALSE(std::filesystem::exists(dir / "rows.tmp"));
    const std::string path = dir / RowsFileName(5);
    if (std::filesystem::exists(path)) {
      EXPECT_EQ(ReadAll(path, RowsReader::OnDamage::kStop).rows, rows);
    }
  }
  EXPECT_GT(failures, 10);
}

}  // namespace
}  // namespace ckptree::kv
