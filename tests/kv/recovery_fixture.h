// SPDX-License-Identifier: Apache-2.0

// Stores to be damaged, and what must be in them.

#ifndef CKPTREE_TESTS_KV_RECOVERY_FIXTURE_H_
#define CKPTREE_TESTS_KV_RECOVERY_FIXTURE_H_

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kv/database.h"
#include "schema/spaces.h"
#include "tests/kv/fixture.h"
#include "tests/testutil/status_matchers.h"

namespace ckptree::kv {

class RecoveryTest : public KvTest {
 protected:
  RecoveryTest() {
    options_.segment_space =
        [](std::string_view value) -> std::optional<schema::Space> {
      if (!value.starts_with("9/")) return std::nullopt;
      return schema::Space::kChunks;
    };
  }

  // The model: what was acknowledged.
  std::map<std::string, std::string> rows_;
  std::map<std::uint64_t, std::string> blocks_;
  std::uint64_t commits_ = 0;

  void PutOne(Database& database, const std::string& name,
              const std::string& value) {
    ASSERT_EQ(Put(database, name, value).outcome, Outcome::kCommitted);
    rows_[name] = value;
    ++commits_;
  }
  void SaveOne(Database& database, std::uint64_t version) {
    ASSERT_EQ(SmallSave(database, version).outcome, Outcome::kCommitted);
    rows_["step" + std::to_string(version)] = "row";
    blocks_[version] = std::string(100, 's');
    ++commits_;
  }

  // Rows, blocks and a segment; written in two sessions, closed or left as a
  // killed process leaves it.
  void MakeStore(bool closed) {
    rows_.clear();
    blocks_.clear();
    std::filesystem::remove_all(Store());
    std::filesystem::remove_all(dir_ / "live");
    {
      ASSERT_OK_AND_ASSIGN(const auto database, Create());
      commits_ = 1;
      for (int i = 0; i < 6; ++i) {
        PutOne(*database, "k" + std::to_string(i), std::string(300, 'v'));
      }
      SaveOne(*database, 1);
      ASSERT_OK_AND_ASSIGN(
          const StagedSegment segment,
          Stage(*database, 9, schema::Space::kChunks, 4, 1000));
      ASSERT_OK(database->Adopt({segment}));
      ASSERT_OK(database->Close());
    }
    ASSERT_OK_AND_ASSIGN(const auto database, Open());
    SaveOne(*database, 2);
    PutOne(*database, "k1", "changed");
    PutOne(*database, "late", "x");
    if (!closed) {
      // As it lies there while it is written.
      std::filesystem::copy(Store(), dir_ / "live",
                            std::filesystem::copy_options::recursive);
    }
    ASSERT_OK(database->Close());
    if (!closed) {
      std::filesystem::remove_all(Store());
      std::filesystem::rename(dir_ / "live", Store());
    }
  }

  void ExpectAll(const Database& database, std::uint64_t more = 0) {
    EXPECT_EQ(database.report().ordinal, commits_ + more);
    EXPECT_OK(database.report().lost);
    for (const auto& [name, value] : rows_) {
      EXPECT_THAT(database.Get(schema::Space::kRecords, RecordKey(name)),
                  testing::IsOkAndHolds(std::optional<std::string>(value)))
          << name;
    }
    for (const auto& [version, bytes] : blocks_) {
      EXPECT_THAT(
          database.Get(schema::Space::kSmall, VersionKey(version, "block")),
          testing::IsOkAndHolds(std::optional<std::string>(bytes)));
    }
    for (int i = 0; i < 4; ++i) {
      EXPECT_THAT(database.Get(schema::Space::kChunks, ChunkKey(9, i)),
                  testing::IsOkAndHolds(
                      std::optional<std::string>(Payload(9, i, 1000))));
    }
    // By a scan, too: no row more.
    const absl::StatusOr<Iterator> opened = database.Scan(
        schema::Space::kRecords, RecordKey(""), RecordKey("\xff"));
    ASSERT_THAT(opened, testing::IsOk());
    auto scan = database.Scan(schema::Space::kRecords, RecordKey(""),
                              RecordKey("\xff"));
    std::size_t count = 0;
    for (; scan->Valid(); scan->Next()) ++count;
    EXPECT_OK(scan->status());
    EXPECT_EQ(count, rows_.size());
  }

  // Reads all, writes one more, reads all again; the damage mended.
  void ExpectReadsAndWrites() {
    {
      const auto reader = Open(Mode::kRead);
      ASSERT_TRUE(reader.ok()) << reader.status();
      ExpectAll(**reader);
    }
    {
      const auto writer = Open();
      ASSERT_TRUE(writer.ok()) << writer.status();
      ExpectAll(**writer);
      ASSERT_EQ(Put(**writer, "more", "m").outcome, Outcome::kCommitted);
      ASSERT_OK((*writer)->Close());
    }
    const auto again = Open(Mode::kRead);
    ASSERT_TRUE(again.ok()) << again.status();
    rows_["more"] = "m";
    ExpectAll(**again, 1);
    rows_.erase("more");
  }

  // Every file of the store but the lock, relative.
  std::vector<std::string> Files() const {
    std::vector<std::string> files;
    for (const auto& entry :
         std::filesystem::recursive_directory_iterator(Store())) {
      const std::string path = std::filesystem::relative(entry.path(), Store());
      if (entry.is_regular_file() && path != "LOCK") files.push_back(path);
    }
    std::sort(files.begin(), files.end());
    return files;
  }

  // `damage` is done to a copy of each file in turn.
  template <typename Damage>
  void ForEachFile(const Damage& damage) {
    for (const bool closed : {true, false}) {
      ASSERT_NO_FATAL_FAILURE(MakeStore(closed));
      std::filesystem::remove_all(dir_ / "whole");
      std::filesystem::rename(Store(), dir_ / "whole");
      std::filesystem::copy(dir_ / "whole", Store(),
                            std::filesystem::copy_options::recursive);
      for (const std::string& file : Files()) {
        std::filesystem::remove_all(Store());
        std::filesystem::copy(dir_ / "whole", Store(),
                              std::filesystem::copy_options::recursive);
        SCOPED_TRACE(file + (closed ? " closed" : " killed"));
        damage(file);
        if (HasFailure()) return;
      }
    }
  }

  bool HoldsPayload(const std::string& file) const {
    std::ifstream in(Store() + "/" + file, std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(in)), {});
    return bytes.find("9/1bbbb") != std::string::npos ||
           bytes.find(std::string(100, 's')) != std::string::npos;
  }
};

}  // namespace ckptree::kv

#endif  // CKPTREE_TESTS_KV_RECOVERY_FIXTURE_H_
