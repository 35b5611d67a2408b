// SPDX-License-Identifier: Apache-2.0

// The journal alone: what was written is read, whatever one copy suffers.

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/digest.h"
#include "kv/file_system.h"
#include "kv/journal/preface.h"
#include "kv/journal/reader.h"
#include "kv/journal/record.h"
#include "kv/journal/writer.h"
#include "tests/fault/fs.h"
#include "tests/fault/plan.h"
#include "tests/fault/runner.h"
#include "tests/kv/fixture.h"

namespace ckptree::kv {
namespace {

using schema::Space;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::IsOk;
using ::testing::Not;

std::string Contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void Replace(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

class JournalTest : public ::testing::Test {
 protected:
  JournalTest() {
    std::filesystem::create_directories(dir_ / "store/journal");
    preface_.uuid = {1, 2, 3};
    preface_.session = 1;
    preface_.incarnation = 1;
    preface_.engine = "test";
  }

  std::string Store() const { return dir_ / "store"; }
  std::string PathOf(Copy copy, std::uint64_t file) const {
    return Store() + "/journal/" + JournalFileName(copy, file);
  }

  void Begin(const JournalRecord* last = nullptr) {
    JournalWriter::Start start;
    start.preface = preface_;
    start.file = next_file_;
    start.file_bytes = file_bytes_;
    if (last != nullptr) start.tip = last->point();
    auto writer = JournalWriter::Create(options_, Store(), start, last);
    ASSERT_TRUE(writer.ok()) << writer.status();
    writer_ = *std::move(writer);
  }

  // One commit with a row, and a block of `block_bytes`.
  void Write(std::size_t block_bytes = 0) {
    const std::uint64_t n = hashes_.size() + 1;
    WriteBatch batch;
    batch.Put(Space::kRecords, "key" + std::to_string(n),
              std::string(n % 7 * 100, static_cast<char>('a' + n % 26)));
    if (block_bytes > 0) {
      batch.PutBlock(VersionKey(n, "block"),
                     std::string(block_bytes, static_cast<char>(n)));
    }
    const EncodedBatch encoded = EncodeBatch(batch);
    const auto done = writer_->Append({.version = n, .time_ns = 5}, encoded);
    ASSERT_EQ(done.result, JournalWriter::Result::kDurable) << done.status;
    ASSERT_EQ(done.point.ordinal, n);
    writer_->NoteTip();
    hashes_.push_back(done.point.hash);
    rows_.push_back(encoded.rows);
    blocks_.push_back(encoded.blocks);
  }

  // Everything that was written is there, in its order.
  void ExpectAll(const JournalContent& content, bool blocks = true) {
    ASSERT_EQ(content.tip.ordinal, hashes_.size());
    EXPECT_EQ(content.tip.hash, hashes_.back());
    ASSERT_EQ(content.records.size(), hashes_.size());
    EXPECT_THAT(content.lost, IsEmpty());
    EXPECT_OK(content.doubt);
    for (std::size_t i = 0; i < hashes_.size(); ++i) {
      const JournalRecord& record = content.records.at(i + 1);
      EXPECT_EQ(record.hash, hashes_[i]);
      EXPECT_EQ(record.rows, rows_[i]);
      if (blocks) {
        EXPECT_EQ(record.blocks, blocks_[i]);
      }
    }
  }

  absl::StatusOr<JournalContent> Read(std::uint64_t from = 1) {
    return ReadJournal(options_, Store(), from, /*beside_writer=*/false);
  }

  // Three files of a few records each.
  void WriteThreeFiles() {
    file_bytes_ = kPrefaceBytes + kJournalReserveBytes + 24 * 1024;
    ASSERT_NO_FATAL_FAILURE(Begin());
    for (int i = 0; i < 9; ++i) {
      if (i == 2) {
        ASSERT_OK(writer_->PrepareNext());
      }
      ASSERT_NO_FATAL_FAILURE(Write(i % 3 == 1 ? 5000 : 0));
    }
    ASSERT_GE(writer_->file(), 3);
  }

  testing::TempDir dir_;
  Options options_;
  Preface preface_;
  std::uint64_t file_bytes_ = 0;
  std::uint64_t next_file_ = 1;
  std::unique_ptr<JournalWriter> writer_;
  std::vector<base::Digest> hashes_;
  std::vector<std::string> rows_;
  std::vector<std::string> blocks_;
};

TEST_F(JournalTest, WhatWasWrittenIsRead) {
  ASSERT_NO_FATAL_FAILURE(WriteThreeFiles());
  ASSERT_OK_AND_ASSIGN(const JournalContent killed, Read());
  ExpectAll(killed);
  EXPECT_FALSE(killed.sealed);
  EXPECT_THAT(killed.damage, IsEmpty());
  ASSERT_OK(writer_->Close());
  ASSERT_OK_AND_ASSIGN(const JournalContent closed, Read());
  ExpectAll(closed);
  EXPECT_TRUE(closed.sealed);
  EXPECT_THAT(closed.damage, IsEmpty());
  EXPECT_EQ(closed.version_ceiling, 9);
}

TEST_F(JournalTest, FromAnOrdinalOn) {
  ASSERT_NO_FATAL_FAILURE(WriteThreeFiles());
  ASSERT_OK_AND_ASSIGN(const JournalContent content, Read(8));
  EXPECT_EQ(content.tip.ordinal, 9);
  ASSERT_EQ(content.records.size(), 2);
  EXPECT_EQ(content.records.begin()->first, 8);
  EXPECT_THAT(content.lost, IsEmpty());
}

TEST_F(JournalTest, TheNextSessionBeginsWithACopyOfTheLastRecord) {
  ASSERT_NO_FATAL_FAILURE(WriteThreeFiles());
  ASSERT_OK_AND_ASSIGN(const JournalContent before, Read());
  next_file_ = before.highest_file + 1;
  preface_.session = before.highest_session + 1;
  ASSERT_NO_FATAL_FAILURE(Begin(&before.records.rbegin()->second));
  ASSERT_NO_FATAL_FAILURE(Write());
  // The old file's last record goes: it may only have been in the page cache.
  const std::string old = PathOf(Copy::kA, next_file_ - 1);
  std::filesystem::remove(old);
  std::filesystem::remove(PathOf(Copy::kB, next_file_ - 1));
  ASSERT_OK_AND_ASSIGN(const JournalContent content, Read(9));
  EXPECT_EQ(content.tip.ordinal, 10);
  EXPECT_EQ(content.records.size(), 2);
  EXPECT_THAT(content.lost, IsEmpty());
}

TEST_F(JournalTest, AnyFlippedByteOfOneCopyCostsNothing) {
  for (const bool close : {false, true}) {
    hashes_.clear();
    rows_.clear();
    blocks_.clear();
    std::filesystem::remove_all(dir_ / "store/journal");
    std::filesystem::create_directories(dir_ / "store/journal");
    ASSERT_NO_FATAL_FAILURE(WriteThreeFiles());
    if (close) {
      ASSERT_OK(writer_->Close());
    }
    ASSERT_OK_AND_ASSIGN(const JournalContent undamaged, Read());
    EXPECT_THAT(undamaged.damage, IsEmpty());
    for (std::uint64_t file = 1; file <= 3; ++file) {
      // Behind the last record is what was made ahead, or a seal.
      std::uint64_t used = 0;
      for (const auto& [ordinal, record] : undamaged.records) {
        if (record.file == file) used = std::max(used, record.a_end());
      }
      for (const Copy copy : {Copy::kA, Copy::kB}) {
        const std::string path = PathOf(copy, file);
        const std::string whole = Contents(path);
        const std::size_t end = std::min<std::size_t>(whole.size(), 36 << 10);
        for (std::size_t at = 0; at < end; at += 211) {
          std::string flipped = whole;
          flipped[at] = static_cast<char>(flipped[at] ^ 0x10);
          Replace(path, flipped);
          ASSERT_OK_AND_ASSIGN(const JournalContent content, Read());
          SCOPED_TRACE(path + " byte " + std::to_string(at));
          ExpectAll(content, /*blocks=*/copy == Copy::kB);
          // It is told, also where it costs nothing.
          if (copy == Copy::kA && at < used) {
            EXPECT_THAT(
                content.damage,
                Contains(HasSubstr("journal/" + JournalFileName(copy, file))));
          }
          if (HasFailure()) return;
        }
        // Cut anywhere, emptied, gone.
        for (const std::size_t size : {whole.size() / 2, std::size_t{0}}) {
          Replace(path, whole.substr(0, size));
          ASSERT_OK_AND_ASSIGN(const JournalContent content, Read());
          ExpectAll(content, /*blocks=*/copy == Copy::kB);
        }
        std::filesystem::remove(path);
        ASSERT_OK_AND_ASSIGN(const JournalContent content, Read());
        ExpectAll(content, /*blocks=*/copy == Copy::kB);
        EXPECT_THAT(content.damage, Not(IsEmpty()));
        Replace(path, whole);
        if (HasFailure()) return;
      }
    }
  }
}

TEST_F(JournalTest, FilesUnderEachOthersNames) {
  ASSERT_NO_FATAL_FAILURE(WriteThreeFiles());
  std::vector<std::string> paths;
  for (std::uint64_t file = 1; file <= 3; ++file) {
    paths.push_back(PathOf(Copy::kA, file));
    paths.push_back(PathOf(Copy::kB, file));
  }
  for (std::size_t i = 0; i < paths.size(); ++i) {
    for (std::size_t k = 0; k < i; ++k) {
      const auto swap = [&] {
        std::filesystem::rename(paths[i], dir_ / "aside");
        std::filesystem::rename(paths[k], paths[i]);
        std::filesystem::rename(dir_ / "aside", paths[k]);
      };
      swap();
      ASSERT_OK_AND_ASSIGN(const JournalContent content, Read());
      ExpectAll(content);
      EXPECT_THAT(content.damage, Not(IsEmpty()));
      swap();
    }
  }
}

TEST_F(JournalTest, BothCopiesOfARecordGoneIsALossByName) {
  ASSERT_NO_FATAL_FAILURE(WriteThreeFiles());
  ASSERT_OK_AND_ASSIGN(const JournalContent before, Read());
  const RecordHeader header = before.records.at(2).header;
  ASSERT_EQ(header.file, 1);
  for (const auto& [copy, at] : {std::pair(Copy::kA, header.a_offset),
                                 std::pair(Copy::kB, header.b_offset)}) {
    std::string bytes = Contents(PathOf(copy, 1));
    bytes[at + 60] ^= 1;
    Replace(PathOf(copy, 1), bytes);
  }
  ASSERT_OK_AND_ASSIGN(const JournalContent content, Read());
  EXPECT_EQ(content.tip.ordinal, 9);
  ASSERT_EQ(content.lost.size(), 1);
  EXPECT_EQ(content.lost[0].first, 2);
  EXPECT_EQ(content.lost[0].last, 2);
  EXPECT_EQ(content.records.size(), 8);
}

TEST_F(JournalTest, ALostTipIsALossByName) {
  ASSERT_NO_FATAL_FAILURE(WriteThreeFiles());
  ASSERT_OK_AND_ASSIGN(const JournalContent before, Read());
  const RecordHeader header = before.records.at(9).header;
  for (const auto& [copy, at] : {std::pair(Copy::kA, header.a_offset),
                                 std::pair(Copy::kB, header.b_offset)}) {
    std::string bytes = Contents(PathOf(copy, header.file));
    std::fill(bytes.begin() + static_cast<std::ptrdiff_t>(at), bytes.end(), 0);
    Replace(PathOf(copy, header.file), bytes);
  }
  ASSERT_OK_AND_ASSIGN(const JournalContent content, Read());
  EXPECT_EQ(content.tip.ordinal, 8);
  ASSERT_EQ(content.lost.size(), 1);
  EXPECT_EQ(content.lost[0].first, 9);
  ASSERT_TRUE(content.noted.has_value());
  EXPECT_EQ(content.noted->ordinal, 9);
}

TEST_F(JournalTest, AFirstCopyThatIsGoneWithoutAWordOnTheTipIsDoubt) {
  ASSERT_NO_FATAL_FAILURE(WriteThreeFiles());
  std::filesystem::remove(PathOf(Copy::kA, writer_->file()));
  std::filesystem::remove(Store() + "/journal/tip");
  ASSERT_OK_AND_ASSIGN(const JournalContent content, Read());
  EXPECT_EQ(content.tip.ordinal, 9);
  EXPECT_OK(content.doubt);
  EXPECT_THAT(content.open_end, HasSubstr("gone or cut short"));
  EXPECT_FALSE(content.noted.has_value());
}

// A crash may leave an older note of the tip, or none; the next session has the
// commit in both its copies, and one of them may go.
TEST_F(JournalTest, ASessionNotesTheCommitThatItBeginsWith) {
  const std::string note = Store() + "/journal/tip";
  for (const bool older : {true, false}) {
    SCOPED_TRACE(older);
    ASSERT_NO_FATAL_FAILURE(Begin());
    ASSERT_NO_FATAL_FAILURE(Write());
    const std::string left =
        older ? Contents(note) : std::string(kPrefaceBytes, '\0');
    ASSERT_NO_FATAL_FAILURE(Write());
    Replace(note, left);
    ASSERT_OK_AND_ASSIGN(const JournalContent before, Read());
    ASSERT_EQ(before.tip.ordinal, hashes_.size());
    ASSERT_EQ(before.noted.has_value(), older);
    ASSERT_NE(before.noted, before.tip);
    next_file_ = before.highest_file + 1;
    preface_.session = before.highest_session + 1;
    ASSERT_NO_FATAL_FAILURE(Begin(&before.records.rbegin()->second));
    std::filesystem::remove(PathOf(Copy::kA, writer_->file()));
    ASSERT_OK_AND_ASSIGN(const JournalContent content, Read());
    EXPECT_EQ(content.tip, before.tip);
    EXPECT_EQ(content.noted, content.tip);
    EXPECT_EQ(content.open_end, "");
    // The next round begins anew.
    std::filesystem::remove_all(Store() + "/journal");
    std::filesystem::create_directories(Store() + "/journal");
    next_file_ = 1;
    preface_.session = 1;
    hashes_.clear();
    rows_.clear();
    blocks_.clear();
  }
}

// Behind a sync of the second copy a power cut leaves no older note: the loss
// of both copies has its name.
TEST_F(JournalTest, TheNoteIsSyncedWithTheSecondCopy) {
  const testing::SharedFaultCounts counts;
  const std::string scratch = dir_ / "scratch";
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    SCOPED_TRACE(seed);
    for (const std::string& folder : {scratch, Store() + "/journal"}) {
      std::filesystem::remove_all(folder);
      std::filesystem::create_directories(folder);
    }
    const testing::TrialResult cut =
        testing::RunChild([&](const testing::TrialPipe&) {
          const auto fs =
              std::make_shared<testing::FaultFs>(scratch, counts.get());
          options_.file_system = fs;
          Begin();
          for (int i = 0; i < 3; ++i) Write();
          if (writer_->SyncSecond().ok()) fs->CutPower(seed);
        });
    ASSERT_TRUE(cut.killed) << cut.Text();
    for (const Copy copy : {Copy::kA, Copy::kB}) {
      std::filesystem::remove(PathOf(copy, 1));
    }
    ASSERT_OK_AND_ASSIGN(const JournalContent content, Read());
    ASSERT_TRUE(content.noted.has_value());
    EXPECT_EQ(content.noted->ordinal, 3);
    ASSERT_EQ(content.lost.size(), 1);
    EXPECT_EQ(content.lost[0].last, 3);
  }
}

// Without a, b goes on behind what is damaged in it.
TEST_F(JournalTest, RecordsAreFoundBehindDamageInTheSecondCopyAlone) {
  ASSERT_NO_FATAL_FAILURE(WriteThreeFiles());
  ASSERT_OK_AND_ASSIGN(const JournalContent before, Read());
  const RecordHeader header = before.records.at(2).header;
  std::filesystem::remove(PathOf(Copy::kA, header.file));
  const std::string path = PathOf(Copy::kB, header.file);
  std::string bytes = Contents(path);
  bytes[header.b_offset + kRecordHeaderBytes - 4] ^= 1;
  Replace(path, bytes);
  ASSERT_OK_AND_ASSIGN(const JournalContent content, Read());
  EXPECT_EQ(content.tip.ordinal, 9);
  ASSERT_EQ(content.lost.size(), 1);
  EXPECT_EQ(content.lost[0].first, 2);
  EXPECT_EQ(content.lost[0].last, 2);
  EXPECT_EQ(content.records.size(), 8);
}

// The second copies of a second are not synced: a crash leaves of any file that
// was begun in it what the system had written by then.
TEST_F(JournalTest, HolesInSecondCopiesOfASessionThatCrashedAreNoDamage) {
  for (const bool close : {false, true}) {
    SCOPED_TRACE(close);
    ASSERT_NO_FATAL_FAILURE(WriteThreeFiles());
    ASSERT_OK_AND_ASSIGN(const JournalContent before, Read());
    const std::uint64_t last = writer_->file();
    if (close) {
      ASSERT_OK(writer_->Close());
    }
    const RecordHeader& header = before.records.at(2).header;
    ASSERT_LT(header.file, last);
    ASSERT_EQ(before.records.at(3).header.file, header.file);
    const std::string path = PathOf(Copy::kB, header.file);
    const std::string whole = Contents(path);
    const auto hole = [&whole](std::size_t from, std::size_t to) {
      return whole.substr(0, from) + std::string(to - from, '\0') +
             whole.substr(to);
    };
    const std::size_t at = header.b_offset;
    const std::vector<std::string> left = {
        hole(at, at + kRecordHeaderBytes),  // With the next record behind it.
        hole(0, kPrefaceBytes), std::string(whole.size(), '\0'), ""};
    for (const std::string& bytes : left) {
      SCOPED_TRACE(bytes.size());
      Replace(path, bytes);
      ASSERT_OK_AND_ASSIGN(const JournalContent content, Read());
      ExpectAll(content);
      // Where the session sealed its last file, all of them were synced.
      EXPECT_EQ(content.damage.empty(), !close);
      EXPECT_EQ(content.ragged.empty(), close);
    }
    writer_.reset();
    std::filesystem::remove_all(Store() + "/journal");
    std::filesystem::create_directories(Store() + "/journal");
    hashes_.clear();
    rows_.clear();
    blocks_.clear();
  }
}

// The next session is there already, and has not written all rows anew yet.
TEST_F(JournalTest, HolesAreNoDamageBehindTheNextSessionEither) {
  ASSERT_NO_FATAL_FAILURE(WriteThreeFiles());
  ASSERT_OK_AND_ASSIGN(const JournalContent before, Read());
  next_file_ = before.highest_file + 1;
  preface_.session = before.highest_session + 1;
  ASSERT_NO_FATAL_FAILURE(Begin(&before.records.rbegin()->second));
  ASSERT_NO_FATAL_FAILURE(Write());
  ASSERT_OK(writer_->Close());
  const RecordHeader& header = before.records.at(2).header;
  const std::string path = PathOf(Copy::kB, header.file);
  std::string bytes = Contents(path);
  bytes.replace(header.b_offset, kRecordHeaderBytes,
                std::string(kRecordHeaderBytes, '\0'));
  Replace(path, bytes);
  ASSERT_OK_AND_ASSIGN(const JournalContent content, Read());
  EXPECT_EQ(content.tip.ordinal, 10);
  EXPECT_THAT(content.lost, IsEmpty());
  EXPECT_THAT(content.damage, IsEmpty());
  EXPECT_THAT(content.ragged, Not(IsEmpty()));
}

TEST_F(JournalTest, ATornTailWasNeverThere) {
  ASSERT_NO_FATAL_FAILURE(WriteThreeFiles());
  ASSERT_OK_AND_ASSIGN(const JournalContent before, Read());
  const std::uint64_t file = writer_->file();
  const JournalRecord& last = before.records.at(9);
  const std::string path = PathOf(Copy::kA, file);
  std::string bytes = Contents(path);
  const std::uint64_t end = last.header.a_offset + kJournalSector;
  bytes.replace(end, 4, "CKJR");
  Replace(path, bytes);
  ASSERT_OK_AND_ASSIGN(const JournalContent content, Read());
  ExpectAll(content);
  EXPECT_THAT(content.damage, IsEmpty());
}

// An open writes the copy of the last record, and dies amid it: the original is
// whole. Once b has the copy a was synced, and what is missing is damage.
TEST_F(JournalTest, HalfACopyIsNoDamageUntilTheSecondFileHasIt) {
  ASSERT_NO_FATAL_FAILURE(WriteThreeFiles());
  ASSERT_NO_FATAL_FAILURE(Write(5000));
  ASSERT_OK_AND_ASSIGN(const JournalContent before, Read());
  next_file_ = before.highest_file + 1;
  preface_.session = before.highest_session + 1;
  ASSERT_NO_FATAL_FAILURE(Begin(&before.records.rbegin()->second));
  const std::string a = PathOf(Copy::kA, next_file_);
  const std::string b = PathOf(Copy::kB, next_file_);
  const std::string whole_a = Contents(a);
  const std::string whole_b = Contents(b);
  const std::size_t end = whole_a.find_last_not_of('\0') + 1;
  ASSERT_GT(end, kPrefaceBytes + 5000);
  for (std::size_t cut = 0; cut < end; cut += 97) {
    SCOPED_TRACE(cut);
    std::string torn = whole_a;
    std::fill(torn.begin() + static_cast<std::ptrdiff_t>(cut), torn.end(),
              '\0');
    Replace(a, torn);
    Replace(b, "");
    ASSERT_OK_AND_ASSIGN(const JournalContent content, Read());
    ExpectAll(content);
    EXPECT_THAT(content.damage, IsEmpty());
    Replace(b, whole_b);
    ASSERT_OK_AND_ASSIGN(const JournalContent damaged, Read());
    ExpectAll(damaged);
    EXPECT_THAT(damaged.damage, Contains(HasSubstr("journal/a-")));
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace ckptree::kv
