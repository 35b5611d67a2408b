// SPDX-License-Identifier: Apache-2.0

// Addresses of which less is there than was shipped: a share that is not
// mounted, objects that were deleted, the name of another run.

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "ckptree/ckptree.h"
#include "core/engine/remote_look.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/fixture.h"
#include "tests/fault/fs.h"
#include "tests/fault/plan.h"
#include "tests/remote/fixture.h"
#include "tests/remote/local_keep_fixture.h"
#include "tests/testutil/flip_byte.h"
#include "tests/testutil/store_on.h"
#include "tests/testutil/temp_dir.h"

namespace ckptree::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr std::size_t kSave = 4 << 10;

class EmptiedTest : public ::testing::Test {
 protected:
  void SetUp() override {
    setenv("XDG_CACHE_HOME", Disk("cache").c_str(), 1);
    fs::create_directory(Disk("share"));
  }

  std::string Disk(const std::string& name) { return dir_ / name; }
  std::string Folder(const std::string& run) {
    return Disk("share") + "/" + run;
  }
  StoreOptions Remote(const std::string& run) {
    return RemoteOptions("file://" + Folder(run));
  }
  static StoreOptions ReadOnly() {
    StoreOptions options = QuietOptions();
    options.create_if_missing = false;
    options.read_only = true;
    return options;
  }
  void Ship(const std::string& directory, const std::string& run,
            std::int64_t first, std::int64_t last) {
    absl::StatusOr<Store> store = Store::Open(Disk(directory), Remote(run));
    ASSERT_TRUE(store.ok()) << store.status();
    for (std::int64_t step = first; step <= last; ++step) {
      SaveStep(*store, step, kSave);
    }
    const absl::Status closed = store->Close();
    ASSERT_TRUE(closed.ok()) << closed;
  }
  absl::Status Open(const std::string& directory, const std::string& run,
                    bool take_over = false) {
    StoreOptions options = Remote(run);
    options.take_over = take_over;
    return Store::Open(Disk(directory), options).status();
  }
  internal::RemoteLook Look(const std::string& directory) {
    Store reader = Store::Open(Disk(directory), ReadOnly()).value();
    return internal::LookAtRemote(reader, absl::Minutes(1));
  }
  // Of the one store whose objects are there.
  std::string UuidIn(const std::string& run) {
    for (const auto& entry : fs::directory_iterator(Folder(run))) {
      if (entry.is_directory()) return entry.path().filename();
    }
    return "";
  }

  TempDir dir_;
};

TEST_F(EmptiedTest, AShareThatIsNotMountedIsNotFilled) {
  Ship("u1", "run", 1, 3);
  const std::string away = Disk("share") + "-away";
  // The folder itself is where it is mounted, or the one above.
  for (const bool above : {false, true}) {
    SCOPED_TRACE(above);
    const std::string mounted = above ? Disk("share") : Folder("run");
    fs::rename(mounted, away);
    fs::create_directory(mounted);
    const absl::Status refused = Open("u1", "run");
    EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
    EXPECT_THAT(std::string(refused.message()),
                AllOf(HasSubstr("up to commit "), HasSubstr("mounted?"),
                      HasSubstr("take_over")));
    EXPECT_TRUE(fs::is_empty(mounted));
    EXPECT_THAT(std::string(Look("u1").reads.message()),
                HasSubstr("nothing of it is there now"));
    fs::remove(mounted);
    fs::rename(away, mounted);
  }
  Ship("u1", "run", 4, 4);
  Store other = Store::Open(Disk("u2"), Remote("run")).value();
  EXPECT_THAT(StepsOf(other), ElementsAre(1, 2, 3, 4));
}

// A directory that was moved is a copy of the one that shipped.
TEST_F(EmptiedTest, NorByACopyOfTheDirectory) {
  Ship("u1", "run", 1, 2);
  fs::copy(Disk("u1"), Disk("u2"), fs::copy_options::recursive);
  fs::remove_all(Folder("run"));
  EXPECT_TRUE(absl::IsFailedPrecondition(Open("u2", "run")));
  EXPECT_FALSE(fs::exists(Folder("run")));
}

TEST_F(EmptiedTest, WhoTakesOverShipsAllAgain) {
  Ship("u1", "run", 1, 3);
  fs::remove_all(Folder("run"));
  ASSERT_TRUE(absl::IsFailedPrecondition(Open("u1", "run")));
  std::vector<std::string> said;
  absl::Mutex mu;
  {
    StoreOptions options = Remote("run");
    options.take_over = true;
    options.log = [&](LogSeverity, std::string_view, std::string_view message) {
      const absl::MutexLock lock(&mu);
      said.emplace_back(message);
    };
    absl::StatusOr<Store> store = Store::Open(Disk("u1"), options);
    ASSERT_TRUE(store.ok()) << store.status();
    ASSERT_TRUE(store->Close().ok());
  }
  EXPECT_THAT(said, ElementsAre(HasSubstr("all is shipped again")));
  // From then on as ever.
  Ship("u1", "run", 4, 4);
  Store other = Store::Open(Disk("u2"), Remote("run")).value();
  EXPECT_THAT(StepsOf(other), ElementsAre(1, 2, 3, 4));
}

// The name alone is left.
TEST_F(EmptiedTest, AStoreWithoutItsObjectsIsNotBegunAgain) {
  Ship("u1", "run", 1, 2);
  fs::remove_all(Folder("run") + "/" + UuidIn("run"));
  EXPECT_THAT(std::string(Look("u1").reads.message()),
              HasSubstr("nothing of it is there now"));
  const absl::Status refused = Open("u1", "run");
  EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("up to commit "));
  const absl::Status taken = Open("u1", "run", /*take_over=*/true);
  EXPECT_TRUE(taken.ok()) << taken;
}

TEST_F(EmptiedTest, WithoutItsNoteADirectoryIsShippedAsANewOne) {
  Ship("u1", "run", 1, 1);
  fs::remove_all(Folder("run"));
  fs::remove(Disk("u1") + "/remote");
  Ship("u1", "run", 2, 2);
}

// An index knows of commits that somebody deleted: no open is older.
TEST_F(EmptiedTest, TheNewestCommitsAreMissed) {
  Ship("u1", "run", 1, 4);
  std::vector<fs::path> commits = ObjectsOf(Folder("run"), "commit");
  std::ranges::sort(commits);
  ASSERT_GE(commits.size(), 3u);
  for (std::size_t gone = 1; gone < commits.size(); ++gone) {
    SCOPED_TRACE(gone);
    fs::remove(commits[commits.size() - gone]);
    const std::string what =
        absl::StrFormat("commit %d in ", commits.size() - gone + 1);
    for (const absl::Status& status :
         {Store::Open("file://" + Folder("run"), ReadOnly()).status(),
          Open("new", "run"), Open("new", "run", /*take_over=*/true)}) {
      EXPECT_TRUE(absl::IsDataLoss(status)) << status;
      EXPECT_THAT(std::string(status.message()),
                  AllOf(HasSubstr(what), HasSubstr("is gone")));
    }
    EXPECT_FALSE(fs::exists(Disk("new")));
  }
}

TEST_F(EmptiedTest, ADamagedCommitSaysHowToShipAllAgain) {
  Ship("u1", "run", 1, 4);
  std::vector<fs::path> commits = ObjectsOf(Folder("run"), "commit");
  const fs::path newest = *std::ranges::max_element(commits);
  FlipByte(newest.string(), fs::file_size(newest) / 2);
  for (const absl::Status& status :
       {Store::Open("file://" + Folder("run"), ReadOnly()).status(),
        Open("u1", "run"), Open("new", "run", /*take_over=*/true)}) {
    EXPECT_TRUE(absl::IsDataLoss(status)) << status;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("checksum"), HasSubstr("file 'remote'"),
                      HasSubstr("another, empty address")));
  }
  EXPECT_FALSE(fs::exists(Disk("new")));
  {
    Store alone = Store::Open(Disk("u1"), QuietOptions()).value();
    EXPECT_THAT(StepsOf(alone), ElementsAre(1, 2, 3, 4));
  }
  // What the error says to do.
  fs::remove(fs::path(Disk("u1")) / "remote");
  fs::create_directory(Folder("again"));
  Ship("u1", "again", 5, 5);
  Store other = Store::Open(Disk("new"), Remote("again")).value();
  EXPECT_THAT(StepsOf(other), ElementsAre(1, 2, 3, 4, 5));
  for (int step = 1; step <= 5; ++step) ExpectStep(other, step, kSave);
}

TEST_F(EmptiedTest, ADamagedNameSaysHowItComesBack) {
  Ship("u1", "run", 1, 4);
  const std::string name = Folder("run") + "/store";
  FlipByte(name, fs::file_size(name) / 2);
  for (const absl::Status& status :
       {Store::Open("file://" + Folder("run"), ReadOnly()).status(),
        Open("u1", "run"), Open("new", "run", /*take_over=*/true)}) {
    EXPECT_TRUE(absl::IsDataLoss(status)) << status;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("'store'"), HasSubstr("delete it")));
  }
  EXPECT_FALSE(fs::exists(Disk("new")));
  // What the error says to do.
  fs::remove(name);
  Ship("u1", "run", 5, 5);
  Store other = Store::Open(Disk("new"), Remote("run")).value();
  EXPECT_THAT(StepsOf(other), ElementsAre(1, 2, 3, 4, 5));
}

TEST_F(EmptiedTest, TheNameOfAnotherRunBeginsNothing) {
  Ship("d1", "a", 1, 3);
  Ship("d2", "b", 1, 1);
  const std::string a = UuidIn("a");
  const std::string b = UuidIn("b");
  fs::copy(Folder("b") + "/store", Folder("a") + "/store",
           fs::copy_options::overwrite_existing);
  const auto is_refused = [&](const absl::Status& status) {
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("names the store " + b), HasSubstr(a)));
  };
  is_refused(Store::Open("file://" + Folder("a"), ReadOnly()).status());
  is_refused(Open("new", "a"));
  is_refused(Open("new", "a", /*take_over=*/true));
  EXPECT_FALSE(fs::exists(Disk("new")));
  is_refused(Open("d2", "a"));
  // What the error says to do.
  fs::remove(Folder("a") + "/store");
  Ship("d1", "a", 4, 4);
  Store other = Store::Open(Disk("new"), Remote("a")).value();
  EXPECT_THAT(StepsOf(other), ElementsAre(1, 2, 3, 4));
}

TEST_F(EmptiedTest, ObjectsOfAnotherRunAreNamed) {
  Ship("d1", "a", 1, 3);
  Ship("d2", "b", 1, 1);
  const std::string b = UuidIn("b");
  {
    Store there = Store::Open("file://" + Folder("a"), ReadOnly()).value();
    EXPECT_THAT(there.Verify({}).value().findings, IsEmpty());
  }
  EXPECT_THAT(Look("d1").strangers, IsEmpty());
  fs::copy(Folder("b") + "/" + b, Folder("a") + "/" + b,
           fs::copy_options::recursive);
  Store there = Store::Open("file://" + Folder("a"), ReadOnly()).value();
  const VerifyReport report =
      there.Verify({.level = VerifyOptions::Level::kDeep}).value();
  ASSERT_EQ(report.findings.size(), 1);
  EXPECT_EQ(report.findings[0].severity, Finding::Severity::kWarning);
  EXPECT_THAT(report.findings[0].what, HasSubstr(b));
  EXPECT_THAT(Look("d1").strangers, ElementsAre(b));
  EXPECT_TRUE(Look("d1").reads.ok());
}

TEST_F(EmptiedTest, AFullDiskIsToldThatAllIsFetched) {
  Ship("u1", "run", 1, 2);
  const SharedFaultCounts counts;
  const auto full = std::make_shared<FaultFs>("", counts.get());
  full->Arm({{.error = ENOSPC, .sticky = true}});
  const absl::Status refused =
      OpenStoreOn(full, Disk("u2"), Remote("run")).status();
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("fetches all"), HasSubstr("by its address")));
}

using EmptiedKeepTest = LocalKeepTest;

TEST_F(EmptiedKeepTest, WhatWasThereAloneCannotBeShippedAgain) {
  Save(1, 3);
  for (const auto& entry : fs::directory_iterator(Bucket())) {
    if (entry.is_directory()) fs::remove_all(entry.path());
  }
  StoreOptions options = Remote();
  options.take_over = true;
  const absl::Status refused = Store::Open(Directory(), options).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("alone"));
}

TEST_F(EmptiedKeepTest, TheNameIsPutBack) {
  Save(1, 3);
  fs::remove(Bucket() + "/store");
  absl::StatusOr<Store> store = Store::Open(Directory(), Remote());
  ASSERT_TRUE(store.ok()) << store.status();
  ExpectSteps(*store, 1, 3);
}

// As after objects were put back to an older state by hand.
TEST_F(EmptiedTest, WhatWasShippedAndIsGoneIsNotCalledNotShipped) {
  Ship("d1", "a", 1, 1);
  fs::copy(Folder("a"), Disk("older"), fs::copy_options::recursive);
  Ship("d1", "a", 2, 4);
  fs::remove_all(Folder("a"));
  fs::copy(Disk("older"), Folder("a"), fs::copy_options::recursive);
  Ship("d2", "a", 5, 5);
  const absl::Status diverged = Open("d1", "a");
  EXPECT_TRUE(absl::IsFailedPrecondition(diverged)) << diverged;
  EXPECT_THAT(
      std::string(diverged.message()),
      AllOf(HasSubstr("diverged"), HasSubstr("which are not there (any more)"),
            Not(HasSubstr("not shipped"))));
}

}  // namespace
}  // namespace ckptree::testing
