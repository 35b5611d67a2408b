// SPDX-License-Identifier: Apache-2.0

// What older engines wrote is read by this one, and by a reader that knows
// nothing but schema/FORMAT.md.

#include "tests/format/golden/golden_store.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "ckptree/ckptree.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/testutil/status_matchers.h"
#include "tests/testutil/temp_dir.h"

namespace ckptree::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::string Contents(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The digest of a step is over records, which name the format they are of.
std::string WithoutStepDigests(const std::string& listing) {
  std::vector<std::string> lines = absl::StrSplit(listing, '\n');
  for (std::string& line : lines) {
    if (!line.starts_with("step\t")) continue;
    std::vector<std::string> fields = absl::StrSplit(line, '\t');
    fields.at(7).clear();
    line = absl::StrJoin(fields, "\t");
  }
  return absl::StrJoin(lines, "\n");
}

// By the name of a folder below tests/format/golden.
class GoldenStoreTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    expected_ = Contents(Folder() + "/expected.tsv");
    ASSERT_GT(expected_.size(), 1000u);
    const std::string unpack = absl::StrCat("tar -C ", dir_.path(), " -xzf ",
                                            Folder(), "/store.tar.gz");
    ASSERT_EQ(std::system(unpack.c_str()), 0) << unpack;
  }

  static std::string Folder() {
    return absl::StrCat(CKPTREE_GOLDEN, "/", GetParam());
  }
  std::string path() const { return dir_ / "store"; }
  static int Format() { return GetParam().back() - '0'; }

  static std::vector<std::int64_t> StepNumbers(const Store& store) {
    std::vector<std::int64_t> numbers;
    const auto steps = store.Steps();
    EXPECT_OK(steps);
    if (!steps.ok()) return numbers;
    for (const StepInfo& info : *steps) numbers.push_back(info.step);
    return numbers;
  }

  TempDir dir_;
  std::string expected_;
};

TEST_P(GoldenStoreTest, IsReadAsItWasWritten) {
  ASSERT_OK_AND_ASSIGN(const Store store,
                       Store::Open(path(), {.read_only = true}));
  EXPECT_THAT(store.Info().warnings, IsEmpty());
  EXPECT_THAT(StepNumbers(store), ElementsAre(1, 10, 20, 30, 50, 60));
  ASSERT_OK_AND_ASSIGN(const std::string listing, ListingOf(store));
  EXPECT_EQ(listing, expected_);
  ASSERT_OK_AND_ASSIGN(const VerifyReport report,
                       store.Verify({.level = VerifyOptions::Level::kDeep}));
  for (const Finding& finding : report.findings) ADD_FAILURE() << finding.what;
}

TEST_P(GoldenStoreTest, IsWrittenToAndStaysWhatItWas) {
  {
    ASSERT_OK_AND_ASSIGN(Store store, Store::Open(path()));
    StepBuilder builder = store.Begin(70);
    builder.PutInt("n", 70);
    ASSERT_OK(std::move(builder).Commit().WaitCommitted(absl::Minutes(1)));
    EXPECT_FALSE(store.Delete(30).ok());  // It is pinned.
    ASSERT_OK(store.Delete(70));
    ASSERT_OK(store.Close());
  }
  ASSERT_OK_AND_ASSIGN(const Store store, Store::Open(path()));
  ASSERT_OK_AND_ASSIGN(const std::string listing, ListingOf(store));
  EXPECT_EQ(listing, expected_);
  ASSERT_OK_AND_ASSIGN(const VerifyReport report,
                       store.Verify({.level = VerifyOptions::Level::kDeep}));
  for (const Finding& finding : report.findings) ADD_FAILURE() << finding.what;
}

// The same values have the same digests and statistics, whoever saves them.
TEST_P(GoldenStoreTest, TheSameStoreMadeTodaySaysTheSame) {
  const std::string made = dir_ / "made";
  const bool of_today = Format() == FormatNumber();
  ASSERT_OK(MakeGoldenStore(made, Format()));
  ASSERT_OK_AND_ASSIGN(const Store store,
                       Store::Open(made, {.read_only = true}));
  ASSERT_OK_AND_ASSIGN(const std::string listing, ListingOf(store));
  EXPECT_EQ(of_today ? listing : WithoutStepDigests(listing),
            of_today ? expected_ : WithoutStepDigests(expected_));
}

TEST_P(GoldenStoreTest, IsReadFromTheDescriptionOfTheFormatAlone) {
  int values = 0;
  for (const std::int64_t step : {1, 10, 20, 30, 50, 60}) {
    const std::string out = dir_ / absl::StrCat("read-", step);
    std::filesystem::create_directory(out);
    // Debian's own Python, which sees Debian's xxhash.
    const std::string command = absl::StrCat(
        "/usr/bin/python3 " CKPTREE_READER " ", path(), " ", step, " ", out);
    ASSERT_EQ(std::system(command.c_str()), 0) << command;
    const auto index = nlohmann::json::parse(Contents(out + "/index.json"));
    std::vector<std::string> lines;
    for (std::size_t i = 0; i < index.size(); ++i) {
      lines.push_back(LeafLine(step, index[i],
                               Contents(absl::StrCat(out, "/", i, ".bin"))));
      values += index[i]["leaf"].get<bool>() ? 1 : 0;
    }
    EXPECT_EQ(lines, LeafLines(expected_, step));
  }
  std::cout << "reader.py reads " << values << " values of the golden store\n";
  EXPECT_GT(values, 200);
}

INSTANTIATE_TEST_SUITE_P(Formats, GoldenStoreTest,
                         ::testing::Values("format_0", "format_1", "proofs_1"),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace ckptree::testing
