// SPDX-License-Identifier: Apache-2.0

// A directory in which segments are lost or damaged that its remote has.

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "ckptree/ckptree.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/fixture.h"
#include "tests/objects/counting_store.h"
#include "tests/remote/fixture.h"
#include "tests/testutil/temp_dir.h"

namespace ckptree::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr std::size_t kLargeSave = 3 << 20;

class FetchBackTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::create_directory(Bucket());
    Store store = Store::Open(Directory(), Remote()).value();
    for (std::int64_t step = 1; step <= 3; ++step) {
      SaveStep(store, step, kLargeSave);
    }
    ASSERT_TRUE(store.Close().ok());
  }

  std::string Directory() const { return folder_ / "run"; }
  std::string Bucket() const { return folder_ / "bucket"; }
  StoreOptions Remote() {
    StoreOptions options = RemoteOptions("file://" + Bucket());
    options.log = [this](LogSeverity, std::string_view,
                         std::string_view message) {
      const absl::MutexLock lock(&mu_);
      said_.emplace_back(message);
    };
    return options;
  }
  // Since the last call.
  std::vector<std::string> TakeSaid() {
    const absl::MutexLock lock(&mu_);
    return std::exchange(said_, {});
  }

  // Files of array bytes, oldest first.
  std::vector<fs::path> Segments() const {
    std::vector<fs::path> found;
    for (const auto& entry : fs::directory_iterator(Directory() + "/db")) {
      if (entry.path().extension() == ".sst" &&
          entry.file_size() > kLargeSave / 2) {
        found.push_back(entry.path());
      }
    }
    std::sort(found.begin(), found.end());
    return found;
  }
  // The object with the bytes of that file.
  fs::path ObjectOf(const fs::path& file) const {
    for (const fs::path& object : ObjectsOf(Bucket(), "segment")) {
      if (fs::file_size(object) == fs::file_size(file) &&
          BytesOf(object) == BytesOf(file)) {
        return object;
      }
    }
    return {};
  }
  static std::string BytesOf(const fs::path& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  // In the file that is there, which may be open.
  static void Flip(const fs::path& path) {
    fs::permissions(path, fs::perms::owner_all);
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    const auto middle = static_cast<std::streamoff>(fs::file_size(path) / 2);
    file.seekg(middle);
    const int byte = file.get();
    file.seekp(middle);
    file.put(static_cast<char>(byte ^ 1));
    ASSERT_TRUE(file.flush().good());
  }

  void ExpectAll(Store& store) {
    for (std::int64_t step = 1; step <= 3; ++step) {
      ExpectStep(store, step, kLargeSave);
    }
  }

 private:
  TempDir folder_;
  absl::Mutex mu_;
  std::vector<std::string> said_ ABSL_GUARDED_BY(mu_);
};

TEST_F(FetchBackTest, WhatIsGoneOrCutHereComesFromThere) {
  const std::vector<fs::path> segments = Segments();
  ASSERT_GE(segments.size(), 3);
  fs::remove(segments[0]);
  fs::resize_file(segments[1], fs::file_size(segments[1]) / 2);
  TakeSaid();
  {
    Store store = Store::Open(Directory(), Remote()).value();
    EXPECT_THAT(TakeSaid(),
                Contains(HasSubstr("2 segments that were missing")));
    EXPECT_THAT(store.Info().warnings, Each(Not(HasSubstr("segment"))));
    ExpectAll(store);
    SaveStep(store, 4, kLargeSave);
    ASSERT_TRUE(store.Close().ok());
  }
  // By itself.
  StoreOptions alone = QuietOptions();
  Store store = Store::Open(Directory(), alone).value();
  ExpectAll(store);
  ExpectWhole(store);
}

// Rows are in the journal, leaf records have segments, too.
TEST_F(FetchBackTest, AllTablesOfADirectoryMayBeGone) {
  std::vector<fs::path> tables;
  for (const auto& entry : fs::directory_iterator(Directory() + "/db")) {
    if (entry.path().extension() == ".sst") tables.push_back(entry.path());
  }
  ASSERT_GT(tables.size(), Segments().size());
  for (const fs::path& table : tables) fs::remove(table);
  {
    Store store = Store::Open(Directory(), Remote()).value();
    EXPECT_THAT(store.Info().warnings, Each(Not(HasSubstr("segment"))));
    ExpectAll(store);
    ASSERT_TRUE(store.Close().ok());
  }
  Store store = Store::Open(Directory(), QuietOptions()).value();
  ExpectAll(store);
  ExpectWhole(store);
}

TEST_F(FetchBackTest, NothingIsFetchedWhereAllIsHere) {
  TakeSaid();
  Store store = Store::Open(Directory(), Remote()).value();
  EXPECT_THAT(TakeSaid(), IsEmpty());
}

TEST_F(FetchBackTest, WithoutTheRemoteItIsDamage) {
  fs::remove(Segments()[0]);
  Store store = Store::Open(Directory(), QuietOptions()).value();
  EXPECT_THAT(store.Info().warnings, Contains(HasSubstr("no file holds it")));
  Bytes bytes(kLargeSave);
  EXPECT_TRUE(absl::IsDataLoss(
      store.OpenStep(1).value().Read("params/w", std::span(bytes))));
}

TEST_F(FetchBackTest, OtherBytesThanWerePutDoNotCome) {
  const std::vector<fs::path> segments = Segments();
  const fs::path flipped = ObjectOf(segments[0]);
  const fs::path gone = ObjectOf(segments[1]);
  ASSERT_FALSE(flipped.empty());
  ASSERT_FALSE(gone.empty());
  Flip(flipped);
  fs::remove(gone);
  for (const fs::path& segment : segments) fs::remove(segment);
  TakeSaid();
  Store store = Store::Open(Directory(), Remote()).value();
  const std::vector<std::string> said = TakeSaid();
  EXPECT_THAT(
      said, Contains(HasSubstr(absl::StrFormat("%d segments that were missing",
                                               segments.size() - 2))));
  EXPECT_THAT(said, Contains(HasSubstr("is not what was put there")));
  EXPECT_THAT(said, Contains(HasSubstr("is missing in file://")));
  ExpectStep(store, 3, kLargeSave);
  EXPECT_THAT(store.Info().warnings, Contains(HasSubstr("no file holds it")));
}

TEST_F(FetchBackTest, WhatIsDamagedHereIsReadThere) {
  Flip(Segments()[0]);
  TakeSaid();
  Store store = Store::Open(Directory(), Remote()).value();
  EXPECT_THAT(TakeSaid(), IsEmpty());
  ExpectAll(store);
  EXPECT_THAT(TakeSaid(), ElementsAre(HasSubstr("cannot be read in")));
  ExpectAll(store);
  EXPECT_THAT(TakeSaid(), IsEmpty());
  EXPECT_TRUE(fs::is_empty(Directory() + "/staging/spare"));
  // It is this disk that a verify looks at.
  EXPECT_FALSE(store.Verify({}).value().findings.empty());
}

TEST_F(FetchBackTest, WhatIsSavedAndDamagedInOneRunIsReadThere) {
  const std::vector<fs::path> before = Segments();
  Store store = Store::Open(Directory(), Remote()).value();
  SaveStep(store, 4, kLargeSave);
  ASSERT_TRUE(store.WaitReplicated(kLong).ok());
  const std::vector<fs::path> after = Segments();
  ASSERT_GT(after.size(), before.size());
  Flip(after.back());
  TakeSaid();
  ExpectStep(store, 4, kLargeSave);
  EXPECT_THAT(TakeSaid(), ElementsAre(HasSubstr("cannot be read in")));
  // Its segments go with it.
  ASSERT_TRUE(store.Delete(4).ok());
  ASSERT_TRUE(store.Collect().ok());
  ASSERT_TRUE(store.WaitReplicated(kLong).ok());
  ExpectAll(store);
}

// Each block of an array asks by itself.
TEST_F(FetchBackTest, WhereNobodyAnswersNotEachBlockWaits) {
  Flip(Segments()[0]);
  RequestCount requests;
  Store store = Store::Open(Directory(), Remote()).value();
  std::atomic<int> asked = 0;
  requests.SetHook([&asked](const std::string& what) {
    if (!what.starts_with("get ") || !absl::StrContains(what, "/segment/")) {
      return absl::OkStatus();
    }
    ++asked;
    return absl::UnavailableError("nobody answers");
  });
  Bytes bytes(kLargeSave);
  const Step step = store.OpenStep(1).value();
  EXPECT_TRUE(absl::IsDataLoss(step.Read("params/w", std::span(bytes))));
  const int once = asked;
  EXPECT_GT(once, 0);
  EXPECT_TRUE(absl::IsDataLoss(step.Read("params/w", std::span(bytes))));
  EXPECT_EQ(asked, once);
  requests.SetHook(nullptr);
}

TEST_F(FetchBackTest, WhatIsDamagedInBothIsDamage) {
  const fs::path here = Segments()[0];
  Flip(ObjectOf(here));
  Flip(here);
  TakeSaid();
  Store store = Store::Open(Directory(), Remote()).value();
  Bytes bytes(kLargeSave);
  const Step step = store.OpenStep(1).value();
  EXPECT_TRUE(absl::IsDataLoss(step.Read("params/w", std::span(bytes))));
  EXPECT_TRUE(absl::IsDataLoss(step.Read("params/w", std::span(bytes))));
  EXPECT_THAT(TakeSaid(),
              ElementsAre(AllOf(HasSubstr("nor is it in file://"),
                                HasSubstr("is not what was put there"))));
  EXPECT_TRUE(fs::is_empty(Directory() + "/staging/spare"));
  ExpectStep(store, 3, kLargeSave);
}

}  // namespace
}  // namespace ckptree::testing
