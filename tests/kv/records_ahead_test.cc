// SPDX-License-Identifier: Apache-2.0

// Many leaf records out of a cold disk are asked for before they are read.

#include "kv/rocks/records_ahead.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kv/commit_kind.h"
#include "kv/database.h"
#include "kv/testing/cold_disk.h"
#include "schema/spaces.h"
#include "tests/kv/fixture.h"
#include "tests/testutil/status_matchers.h"

namespace ckptree::kv {
namespace {

using schema::Space;

constexpr int kVersions = 300;
constexpr int kRecords = 4;  // Of a version.

class RecordsAheadTest : public KvTest {
 protected:
  RecordsAheadTest() { options_.file_system = MakeColdDisk(&counts_); }

  static std::string SmallKey(std::uint64_t version, char kind, int n) {
    return VersionKey(version, std::string{'\0', '\0', kind, '\0', '\0', '\0',
                                           static_cast<char>(n)});
  }
  static std::string RecordOf(std::uint64_t version, int n) {
    return Payload(version, n, 100);
  }

  // Tables of `small` as the saves of a run make them: records with an array
  // of `between` bytes behind those of each version.
  void SaveAll(std::size_t between) {
    ASSERT_OK_AND_ASSIGN(auto database, Create());
    for (std::uint64_t version = 3; version < 3 + kVersions; ++version) {
      CommitRequest request;
      request.version = version;
      for (int n = 1; n <= kRecords; ++n) {
        request.batch.Put(Space::kSmall, SmallKey(version, 1, n),
                          RecordOf(version, n));
      }
      request.batch.PutBlock(SmallKey(version, 2, 1),
                             Payload(version, 9, between));
      ASSERT_OK(database->Commit(std::move(request)).status);
      if (version % 100 == 99) {  // Several tables.
        database.reset();
        ASSERT_OK_AND_ASSIGN(database, Open());
      }
    }
    database.reset();
    ASSERT_OK_AND_ASSIGN(database, Open());
    database.reset();
    ASSERT_OK_AND_ASSIGN(database_, Open(Mode::kRead));
  }

  // The same record of each version, and one that there is not.
  void ReadOneOfEach() {
    std::vector<std::string> keys;
    std::map<std::size_t, std::string> expected;
    for (std::uint64_t version = 3; version < 3 + kVersions; ++version) {
      expected[keys.size()] = RecordOf(version, 2);
      keys.push_back(SmallKey(version, 1, 2));
      if (version == 150) keys.push_back(SmallKey(version, 1, 99));
    }
    counts_.late = counts_.ready = counts_.asked = 0;
    std::map<std::size_t, std::string> found;
    database_->ReadWritten(Space::kSmall, keys,
                           [&](std::size_t at, std::string_view value) {
                             EXPECT_TRUE(found.emplace(at, value).second);
                           });
    EXPECT_EQ(found, expected);
  }

  ColdDiskCounts counts_;
  std::unique_ptr<Database> database_;
};

TEST_F(RecordsAheadTest, NextToEachOtherOneCallAsksForMany) {
  SaveAll(/*between=*/3000);
  ReadOneOfEach();
  // A few in each table, before it is known that they come from the disk or
  // where the next ones are, and what is read to open it.
  EXPECT_LT(counts_.late, kVersions / 4);
  EXPECT_GT(counts_.ready, kVersions * 3 / 4);
  EXPECT_GT(counts_.asked, 0u);
  EXPECT_LT(counts_.asked, kVersions / 4);
}

TEST_F(RecordsAheadTest, FarFromEachOtherEachIsAskedForByItself) {
  SaveAll(/*between=*/60000);
  ReadOneOfEach();
  EXPECT_LT(counts_.late, kVersions / 4);
  EXPECT_GT(counts_.ready, kVersions * 3 / 4);
  EXPECT_GT(counts_.asked, kVersions * 3 / 4);
}

TEST_F(RecordsAheadTest, FewAreReadAsTheyCome) {
  SaveAll(/*between=*/3000);
  counts_.asked = 0;
  std::vector<std::string> keys;
  for (std::uint64_t version = 3; version < 9; ++version) {
    keys.push_back(SmallKey(version, 1, 1));
  }
  std::size_t found = 0;
  database_->ReadWritten(Space::kSmall, keys,
                         [&](std::size_t, std::string_view) { ++found; });
  EXPECT_EQ(found, keys.size());
  EXPECT_EQ(counts_.asked, 0u);
}

}  // namespace
}  // namespace ckptree::kv
