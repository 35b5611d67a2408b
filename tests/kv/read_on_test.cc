// SPDX-License-Identifier: Apache-2.0

// A reader that follows a writer reads the end of the journal alone, and sees
// what one sees that reads all of it.

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <ios>
#include <iostream>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <string_view>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kv/database.h"
#include "schema/spaces.h"
#include "tests/fault/fs_interrupt.h"
#include "tests/kv/fixture.h"
#include "tests/kv/other_writer.h"
#include "tests/testutil/status_matchers.h"

namespace ckptree::kv {
namespace {

using ::ckptree::testing::IsOkAndHolds;
using schema::Space;
using ::testing::Optional;

constexpr std::string_view kFile = "0000000002";  // That the writer begins.

class ReadOnTest : public KvTest {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(const auto database, Create());
    ASSERT_OK(database->Close());
  }

  std::string PathOf(char copy) const {
    return Store() + "/journal/" + copy + "-" + std::string(kFile);
  }

  // A writer begins its first file at its first commit.
  std::unique_ptr<OtherWriter> Writer() const {
    auto writer = std::make_unique<OtherWriter>(Store());
    writer->Do("first");
    return writer;
  }

  // A reader that tells whether the second copy was opened: where all is read.
  std::unique_ptr<Database> Reader() {
    disk_ = std::make_shared<InterruptedFs>();
    options_.file_system = disk_;
    return Open(Mode::kRead).value();
  }
  // Whether a refresh read the end alone.
  bool RefreshReadsOn(Database& reader) {
    // The newest one, which is read whenever all is.
    std::string newest;
    for (const auto& entry :
         std::filesystem::directory_iterator(Store() + "/journal")) {
      const std::string name = entry.path().filename();
      if (name.starts_with("b-")) newest = std::max(newest, name);
    }
    disk_->BeforeReading(newest, [] {});
    EXPECT_OK(reader.Refresh());
    return !disk_->fired();
  }

  // What it shows: each row, with its bytes, and how far it got.
  static std::string Shown(const Database& reader) {
    std::string text = std::to_string(reader.newest_ordinal()) +
                       (reader.newest_is_durable() ? " durable\n" : "\n");
    for (const Space space : {Space::kRecords, Space::kSmall}) {
      auto rows = reader.Scan(space, "", "");
      EXPECT_OK(rows.status());
      for (rows->Seek(""); rows->Valid(); rows->Next()) {
        text.append(rows->key()).append("=").append(rows->value()).append("\n");
      }
      EXPECT_OK(rows->status());
    }
    return text;
  }
  // The same of a reader that opens now.
  std::string ShownByAnOpen() const {
    return Shown(
        *Database::Open(Store(), Options(), Mode::kRead, NoCheck).value());
  }

  static std::string Bytes(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  // In place: the writer has the file open.
  static void Flip(const std::string& path, std::size_t at) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(static_cast<std::streamoff>(at));
    const int byte = file.get();
    ASSERT_NE(byte, EOF);
    file.seekp(static_cast<std::streamoff>(at));
    file.put(static_cast<char>(byte ^ 1));
  }

  std::shared_ptr<InterruptedFs> disk_;
};

TEST_F(ReadOnTest, TheEndAloneIsRead) {
  const auto writer = Writer();
  const auto reader = Reader();
  for (const char* const line :
       {"1", "block 2", "small", "long 3", "segment", "4"}) {
    writer->Do(line);
    EXPECT_TRUE(RefreshReadsOn(*reader)) << line;
    EXPECT_TRUE(reader->newest_is_durable()) << line;
    EXPECT_EQ(Shown(*reader), ShownByAnOpen()) << line;
  }
  // Several at once.
  for (const char* const line : {"5", "block 6", "small", "7"}) {
    writer->Do(line);
  }
  EXPECT_TRUE(RefreshReadsOn(*reader));
  EXPECT_EQ(Shown(*reader), ShownByAnOpen());
}

TEST_F(ReadOnTest, GoesOnInTheNextFile) {
  const auto writer = Writer();
  const auto reader = Reader();
  writer->Do("1");
  ASSERT_TRUE(RefreshReadsOn(*reader));
  writer->Do("fill records");  // Larger than a file.
  EXPECT_FALSE(RefreshReadsOn(*reader));
  EXPECT_EQ(Shown(*reader), ShownByAnOpen());
  writer->Do("2");
  ASSERT_OK(reader->Refresh());
  EXPECT_EQ(Shown(*reader), ShownByAnOpen());
}

// The same process closes the store and opens it: a session of its own.
TEST_F(ReadOnTest, ASealIsNotReadOver) {
  const auto writer = Writer();
  const auto reader = Reader();
  writer->Do("1");
  ASSERT_TRUE(RefreshReadsOn(*reader));
  writer->Do("again");
  EXPECT_FALSE(RefreshReadsOn(*reader));
  EXPECT_EQ(Shown(*reader), ShownByAnOpen());
  writer->Do("2");
  ASSERT_OK(reader->Refresh());
  EXPECT_EQ(Shown(*reader), ShownByAnOpen());
}

// Files of the journal that come and go between two looks.
TEST_F(ReadOnTest, AWriterThatCameAndWentIsSeen) {
  const auto reader = Reader();
  for (int turn = 0; turn < 5; ++turn) {
    // What the last look saw is fresh.
    ASSERT_OK(reader->Refresh());
    const std::string line = "turn " + std::to_string(turn);
    {
      ASSERT_OK_AND_ASSIGN(const auto writer, Open(Mode::kReadWrite));
      for (const char* const name : {"fill", "line"}) {
        CommitRequest request;
        request.batch.Put(Space::kRecords, RecordKey(name),
                          *name == 'f' ? std::string(9 << 20, 'f') : line);
        ASSERT_OK(writer->Commit(std::move(request)).status);
        ASSERT_OK(writer->WriteRows());
      }
      ASSERT_OK(writer->Close());
    }
    ASSERT_OK(reader->Refresh());
    EXPECT_THAT(reader->Get(Space::kRecords, RecordKey("line")),
                IsOkAndHolds(Optional(line)));
  }
}

// Where the first copy of a record is damaged the second one has it.
TEST_F(ReadOnTest, ADamagedRecordIsReadFromTheOtherCopy) {
  for (const std::size_t at :
       {0U, 3U, 4U, 5U, 8U, 40U, 80U, 87U, 95U, 119U, 130U}) {
    const auto writer = Writer();
    // Each writer begins a file of its own.
    // It makes others ahead, of zeros, in the background.
    std::string path;
    for (const auto& entry :
         std::filesystem::directory_iterator(Store() + "/journal")) {
      const std::string name = entry.path().filename();
      if (name.starts_with("a-") && Bytes(entry.path()).starts_with("CKPT")) {
        path = std::max(path, entry.path().string());
      }
    }
    const auto reader = Reader();
    const std::string was = Bytes(path);
    const std::string line = "line " + std::to_string(at);
    writer->Do(line);
    const std::string is = Bytes(path);
    // The record begins where the files first differ.
    const auto differ = static_cast<std::size_t>(
        std::mismatch(was.begin(), was.end(), is.begin()).first - was.begin());
    ASSERT_EQ(differ % 4096, 0);
    Flip(path, differ + at);
    ASSERT_OK(reader->Refresh());
    EXPECT_THAT(reader->Get(Space::kRecords, RecordKey("line")),
                IsOkAndHolds(Optional(line)));
    // And goes on from there.
    writer->Do("after");
    ASSERT_OK(reader->Refresh());
    EXPECT_THAT(reader->Get(Space::kRecords, RecordKey("line")),
                IsOkAndHolds(Optional(std::string("after"))));
  }
}

// A note of durability that belongs to no commit of this journal says nothing.
TEST_F(ReadOnTest, WithoutTheNoteItIsNotDurable) {
  const auto writer = Writer();
  const auto reader = Reader();
  const std::string tip = Store() + "/journal/tip";
  writer->Do("1");
  ASSERT_OK(reader->Refresh());
  ASSERT_TRUE(reader->newest_is_durable());
  const std::string note = Bytes(tip);
  writer->Do("2");
  // As if the writer had not come to it.
  std::ofstream(tip, std::ios::binary | std::ios::in) << note;
  EXPECT_TRUE(RefreshReadsOn(*reader));
  EXPECT_THAT(reader->Get(Space::kRecords, RecordKey("line")),
              IsOkAndHolds(Optional(std::string("2"))));
  EXPECT_FALSE(reader->newest_is_durable());
}

TEST_F(ReadOnTest, EachRefreshShowsWhatAnOpenShows) {
  constexpr unsigned kSeed = 20261124;
  std::mt19937 random(kSeed);
  auto writer = Writer();
  const auto reader = Reader();
  int read_on = 0, read = 0;
  for (int turn = 0; turn < 150; ++turn) {
    const auto lines = random() % 4;
    for (auto n = lines; n > 0; --n) {
      const auto dice = random() % 40;
      std::string line = "x" + std::to_string(random() % 1000);
      if (dice < 8) line = "block " + std::to_string(random() % 10);
      if (dice == 8 || dice == 9) line = "long " + line;
      if (dice == 10) line = "segment";
      if (dice == 11) line = "flush";
      if (dice == 12) line = "small";
      if (dice == 13) line = "again";
      if (dice == 14) line = "rows";
      if (dice == 15) line = "fill records";
      if (dice == 16) {
        writer.reset();  // Killed.
        writer = Writer();
      }
      ASSERT_NE(writer->Do(line), "0") << line;
    }
    const bool reads_on = RefreshReadsOn(*reader);
    read += lines > 0 ? 1 : 0;
    read_on += lines > 0 && reads_on ? 1 : 0;
    ASSERT_EQ(Shown(*reader), ShownByAnOpen()) << "turn " << turn;
  }
  EXPECT_GE(read, 100);
  EXPECT_GE(read_on, read / 2);  // It is the rule.
  EXPECT_LT(read_on, read);
}

}  // namespace
}  // namespace ckptree::kv
