// SPDX-License-Identifier: Apache-2.0

// One read of an open that fails, or gives a flipped bit; all others are well,
// and so is what is on the disk.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kv/database.h"
#include "tests/fault/late_fs.h"
#include "tests/kv/recovery_fixture.h"
#include "tests/testutil/status_matchers.h"

namespace ckptree::kv {
namespace {

namespace fs = std::filesystem;

// True: reads fail.
class BadReadTest : public RecoveryTest,
                    public ::testing::WithParamInterface<bool> {
 protected:
  BadReadTest() {
    options_.file_system = disk_;
    options_.index_is_whole =
        [](const Database& database) -> absl::StatusOr<bool> {
      return database.Get(schema::Space::kChunks, ChunkKey(9, 0))
          .value_or(std::nullopt)
          .has_value();
    };
  }

  // Reads what an open reads of rows.
  static absl::Status Check(const Database& database, const OpenReport&) {
    absl::StatusOr<Iterator> rows =
        database.Scan(schema::Space::kRecords, RecordKey(""), "");
    if (!rows.ok()) return rows.status();
    while (rows->Valid()) rows->Next();
    if (!rows->status().ok()) return rows->status();
    return database.Get(schema::Space::kRecords, RecordKey("k1")).status();
  }

  // The same store for each of them.
  void Keep() {
    fs::remove_all(dir_ / "kept");
    fs::copy(Store(), dir_ / "kept", fs::copy_options::recursive);
  }
  void TakeKept() {
    fs::remove_all(Store());
    fs::copy(dir_ / "kept", Store(), fs::copy_options::recursive);
  }

  const std::shared_ptr<testing::LateFs> disk_ =
      std::make_shared<testing::LateFs>();
};

TEST_P(BadReadTest, OneOfAnOpenForWritingIsNotSeen) {
  for (const bool closed : {true, false}) {
    MakeStore(closed);
    Keep();
    int reads = 0;
    for (bool fired = true; fired;) {
      SCOPED_TRACE(absl::StrCat(closed, " ", ++reads));
      TakeKept();
      const std::uint64_t before = disk_->hidden();
      disk_->FailAnyRead("/store/", reads, /*flips=*/!GetParam());
      {
        const auto opened =
            Database::Open(Store(), options_, Mode::kReadWrite, Check);
        disk_->FailRead("", 0, false);
        fired = disk_->hidden() > before;
        std::string tells;
        if (!opened.ok()) {
          tells = opened.status().ToString();
        } else {
          tells = absl::StrJoin((*opened)->report().warnings, "; ");
          absl::StrAppend(&tells, (*opened)->IndexDamage());
          ExpectAll(**opened);
        }
        for (const auto& entry : fs::recursive_directory_iterator(Store())) {
          const std::string name = entry.path().filename();
          if (name.starts_with("db.") || name == "rebuild") {
            absl::StrAppend(&tells, " leaves ", name);
          }
        }
        EXPECT_EQ(tells, "");
      }
      const auto again = Open();
      ASSERT_OK(again);
      ExpectAll(**again);
    }
    EXPECT_GE(reads, 40);
  }
}

INSTANTIATE_TEST_SUITE_P(Fails, BadReadTest, ::testing::Values(true));
INSTANTIATE_TEST_SUITE_P(Flips, BadReadTest, ::testing::Values(false));

}  // namespace
}  // namespace ckptree::kv
