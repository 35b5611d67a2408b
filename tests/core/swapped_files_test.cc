// SPDX-License-Identifier: Apache-2.0

// A file that changed places with another one: all bytes are there, under the
// wrong name.

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "ckptree/recover.h"
#include "tests/core/fixture.h"

namespace ckptree::testing {
namespace {

namespace fs = std::filesystem;

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class SwappedFilesTest : public CoreTest {
 protected:
  // Steps 1, 3 and 4, whose rows stand in a file of all rows and in the index:
  // the records of their commits are gone.
  void SetUp() override {
    CoreTest::SetUp();
    for (const std::int64_t step : {1, 2, 3, 4}) {
      saved_[step] = RandomBytes(4 * kChunk, step);
      ASSERT_OK(Save(step, saved_[step]));
    }
    ASSERT_OK(store_->Delete(AtStep(2)));
    saved_.erase(2);
    ASSERT_OK(store_->Collect());
    ASSERT_OK(store_->Close());
    store_.reset();
    fs::rename(path(), whole_);
    for (const auto& entry : fs::directory_iterator(whole_ / "journal")) {
      const std::string name = entry.path().filename().string();
      if (name.starts_with("rows-")) rows_ = "journal/" + name;
    }
    ASSERT_NE(rows_, "");
  }

  std::vector<std::string> FilesOfTheIndex() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(whole_ / "db")) {
      names.push_back("db/" + entry.path().filename().string());
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  // path() is the whole store but for these two.
  void Swap(const std::string& one, const std::string& two) {
    store_.reset();
    fs::remove_all(path());
    fs::copy(whole_, path(), fs::copy_options::recursive);
    fs::copy_file(whole_ / one, fs::path(path()) / two,
                  fs::copy_options::overwrite_existing);
    fs::copy_file(whole_ / two, fs::path(path()) / one,
                  fs::copy_options::overwrite_existing);
  }

  void ExpectAllSteps() {
    EXPECT_EQ(StepNumbers().size(), saved_.size());
    for (const auto& [step, bytes] : saved_) {
      EXPECT_EQ(Read(AtStep(step)), bytes) << step;
    }
  }

  const fs::path whole_ = dir_ / "whole";
  std::string rows_;
  std::map<std::int64_t, Bytes> saved_;
};

TEST_F(SwappedFilesTest, TheRowsOfTheJournalWithEachFileOfTheIndex) {
  const std::vector<std::string> files = FilesOfTheIndex();
  int tables = 0;
  for (const std::string& file : files) {
    SCOPED_TRACE(file);
    tables += file.ends_with(".sst") ? 1 : 0;
    Swap(rows_, file);
    Open(ReadOnly());
    ExpectAllSteps();
    store_.reset();
    const std::string made = dir_ / "recovered";
    ASSERT_OK(Recover(path(), made));
    ASSERT_OK_AND_ASSIGN(Store recovered, Store::Open(made, ReadOnly()));
    for (const auto& [step, bytes] : saved_) {
      ASSERT_OK_AND_ASSIGN(const Step opened, recovered.OpenStep(AtStep(step)));
      ASSERT_OK_AND_ASSIGN(const LeafValue value, opened.Value("w"));
      EXPECT_EQ(value.bytes, bytes) << step;
    }
    ASSERT_OK(recovered.Close());
    fs::remove_all(made);
    Open();
    ExpectAllSteps();
    const Bytes next = RandomBytes(4 * kChunk, 9);
    ASSERT_OK(Save(9, next));
    ASSERT_OK(store_->Close());
    // What it mended stays so.
    Open();
    EXPECT_THAT(store_->Info().warnings, IsEmpty());
    EXPECT_EQ(Read(AtStep(9)), next);
    ASSERT_OK(store_->Delete(AtStep(9)));
    ExpectAllSteps();
    ExpectClean();
  }
  EXPECT_GE(tables, 4);
}

// These are written anew by each open for writing.
TEST_F(SwappedFilesTest, TablesUnderNamesThatTheJournalWrites) {
  for (const std::string& file : FilesOfTheIndex()) {
    if (!file.ends_with(".sst")) continue;
    for (const std::string other : {"journal/tip", "journal/reserve"}) {
      SCOPED_TRACE(file + " " + other);
      Swap(file, other);
      Open();
      ExpectAllSteps();
      ASSERT_OK(store_->Close());
      EXPECT_FALSE(fs::exists(path() + "/" + other + ".sst"));
      Open();
      ExpectAllSteps();
      ExpectClean();
    }
  }
}

// The index alone has them then: one more damage would cost steps.
TEST_F(SwappedFilesTest, RowsThatCannotBeReadAreWrittenAnew) {
  Swap(rows_, "LOCK");
  Open(ReadOnly());
  EXPECT_THAT(store_->Info().warnings,
              ElementsAre(HasSubstr("the index has these rows")));
  const auto report = store_->Verify({});
  ASSERT_OK(report);
  EXPECT_THAT(report->findings, SizeIs(1));
  Open();
  EXPECT_THAT(store_->Info().warnings, SizeIs(1));
  ASSERT_OK(store_->Close());
  Open();
  EXPECT_THAT(store_->Info().warnings, IsEmpty());
  ExpectAllSteps();
  ExpectClean();
}

}  // namespace
}  // namespace ckptree::testing
