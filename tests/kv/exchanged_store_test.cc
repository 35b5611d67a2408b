// SPDX-License-Identifier: Apache-2.0

// A reader at whose path another store, or another copy of its own, stands by
// now: it says so, and shows nothing of that one.

#include <filesystem>
#include <memory>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kv/database.h"
#include "schema/spaces.h"
#include "tests/fault/late_fs.h"
#include "tests/kv/fixture.h"
#include "tests/testutil/status_matchers.h"

namespace ckptree::kv {
namespace {

namespace fs = std::filesystem;
using ::ckptree::testing::IsOk;
using ::ckptree::testing::IsOkAndHolds;
using ::ckptree::testing::StatusIs;
using schema::Space;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Optional;

constexpr std::string_view kOtherUuid = "fedcba9876543210";

class ExchangedStoreTest : public KvTest {
 protected:
  std::string Path(const std::string& name) const { return dir_ / name; }

  // With one commit for each letter.
  void Make(const std::string& name, std::string_view uuid,
            std::string_view letters) {
    ASSERT_OK_AND_ASSIGN(
        const auto database,
        Database::Create(Path(name), options_, uuid, kTestStoreKey, "", {}));
    Add(*database, letters);
    ASSERT_OK(database->Close());
  }
  static void Add(Database& database, std::string_view letters) {
    for (const char letter : letters) {
      ASSERT_OK(Put(database, std::string(1, letter), "here").status);
    }
  }
  void AddTo(const std::string& name, std::string_view letters) {
    ASSERT_OK_AND_ASSIGN(
        const auto database,
        Database::Open(Path(name), options_, Mode::kReadWrite, NoCheck));
    Add(*database, letters);
    ASSERT_OK(database->Close());
  }
  void Copy(const std::string& from, const std::string& to) {
    fs::copy(Path(from), Path(to), fs::copy_options::recursive);
  }
  // What readers open stands behind a link.
  void Point(const std::string& name) {
    fs::remove(Store());
    fs::create_directory_symlink(Path(name), Store());
  }
  std::unique_ptr<Database> Read() {
    auto opened = Open(Mode::kRead);
    EXPECT_OK(opened);
    return opened.ok() ? *std::move(opened) : nullptr;
  }
  static bool Has(const Database& database, std::string_view letter) {
    const auto row = database.Get(Space::kRecords, RecordKey(letter));
    EXPECT_OK(row);
    return row.ok() && row->has_value();
  }
};

TEST_F(ExchangedStoreTest, AnotherStoreIsNoNewerOne) {
  ASSERT_NO_FATAL_FAILURE(Make("one", kTestUuid, "ab"));
  ASSERT_NO_FATAL_FAILURE(Make("other", kOtherUuid, "xyz"));
  Point("one");
  const auto reader = Read();
  Point("other");
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(reader->Refresh(),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         AllOf(HasSubstr(Store()), HasSubstr("another store"),
                               HasSubstr("66656463626139383736353433323130"))));
    EXPECT_TRUE(Has(*reader, "b"));
    EXPECT_FALSE(Has(*reader, "x"));
  }
  // The one that was opened, whatever came to it.
  ASSERT_NO_FATAL_FAILURE(AddTo("one", "c"));
  Point("one");
  EXPECT_OK(reader->Refresh());
  EXPECT_TRUE(Has(*reader, "c"));
}

TEST_F(ExchangedStoreTest, AnOlderCopyIsNoNews) {
  ASSERT_NO_FATAL_FAILURE(Make("one", kTestUuid, "ab"));
  Copy("one", "copy");
  ASSERT_NO_FATAL_FAILURE(AddTo("one", "c"));
  Point("one");
  const auto reader = Read();
  Point("copy");
  EXPECT_THAT(reader->Refresh(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr(Store()), HasSubstr("older copy"))));
  EXPECT_TRUE(Has(*reader, "c"));
}

// Nor has it what damage hides: its journal is one of before.
TEST_F(ExchangedStoreTest, AnOlderCopyMendsNoDamage) {
  const auto disk = std::make_shared<ckptree::testing::LateFs>();
  options_.file_system = disk;
  ASSERT_NO_FATAL_FAILURE(Make("one", kTestUuid, "ab"));
  Copy("one", "copy");
  {
    ASSERT_OK_AND_ASSIGN(
        const auto database,
        Database::Open(Path("one"), options_, Mode::kReadWrite, NoCheck));
    // Each in a block of its own, which no open reads.
    for (const char* letter : {"c", "d", "e"}) {
      ASSERT_OK(Put(*database, letter, std::string(50'000, 'x')).status);
    }
    ASSERT_OK(database->WriteRows());  // And the index to its files.
    ASSERT_OK(database->Close());
  }
  Point("one");
  const auto reader = Read();
  Point("copy");
  disk->FlipSome("/db/", 100, 1);
  const auto row = reader->Get(Space::kRecords, RecordKey("d"));
  disk->FlipSome("", 0, 0);
  EXPECT_THAT(row, StatusIs(absl::StatusCode::kDataLoss));
  ASSERT_GT(disk->hidden(), 0U);
  Point("one");
  EXPECT_TRUE(Has(*reader, "d"));
}

TEST_F(ExchangedStoreTest, ACopyThatWentAnotherWayIsAnotherOne) {
  ASSERT_NO_FATAL_FAILURE(Make("one", kTestUuid, "ab"));
  Copy("one", "copy");
  ASSERT_NO_FATAL_FAILURE(AddTo("one", "c"));
  for (const std::string_view more : {"x", "y"}) {
    ASSERT_NO_FATAL_FAILURE(AddTo("copy", more));
    Point("one");
    const auto reader = Read();
    Point("copy");
    EXPECT_THAT(reader->Refresh(),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         AllOf(HasSubstr(Store()), HasSubstr("another copy"))));
    EXPECT_TRUE(Has(*reader, "c"));
    EXPECT_FALSE(Has(*reader, "x"));
  }
}

// As a store that was moved to another disk, or put back out of a backup.
TEST_F(ExchangedStoreTest, ACopyThatHasAllGoesOn) {
  ASSERT_NO_FATAL_FAILURE(Make("one", kTestUuid, "ab"));
  Copy("one", "copy");
  Point("one");
  const auto reader = Read();
  Point("copy");
  EXPECT_OK(reader->Refresh());
  EXPECT_TRUE(Has(*reader, "b"));
  ASSERT_NO_FATAL_FAILURE(AddTo("copy", "c"));  // Of a new incarnation.
  EXPECT_OK(reader->Refresh());
  EXPECT_TRUE(Has(*reader, "c"));
}

// Beside its writer, too, who has moved on with the store.
TEST_F(ExchangedStoreTest, AWriterOfAnotherStoreIsNotFollowed) {
  ASSERT_NO_FATAL_FAILURE(Make("one", kTestUuid, "ab"));
  ASSERT_NO_FATAL_FAILURE(Make("other", kOtherUuid, "x"));
  ASSERT_OK_AND_ASSIGN(
      const auto writer,
      Database::Open(Path("other"), options_, Mode::kReadWrite, NoCheck));
  Point("one");
  const auto reader = Read();
  Point("other");
  ASSERT_OK(Put(*writer, "y", "here").status);
  EXPECT_THAT(reader->Refresh(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                          HasSubstr("another store")));
  EXPECT_FALSE(Has(*reader, "y"));
  ASSERT_OK(writer->Close());
}

}  // namespace
}  // namespace ckptree::kv
