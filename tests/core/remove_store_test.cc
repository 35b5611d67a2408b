// SPDX-License-Identifier: Apache-2.0

// A store goes as a whole, where it holds no more than was believed.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "ckptree/ckptree.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/fixture.h"
#include "tests/testutil/status_matchers.h"
#include "tests/testutil/temp_dir.h"

namespace ckptree {
namespace {

namespace fs = std::filesystem;

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::kLong;
using ::testing::UnorderedElementsAre;

class RemoveStoreTest : public ::testing::Test {
 protected:
  std::string Path() const { return dir_ / "store"; }
  Store Open() { return Store::Open(Path(), testing::QuietOptions()).value(); }
  static void Save(Store& store, std::int64_t step,
                   const std::string& branch = "") {
    StepBuilder builder = store.Begin(step, {.branch = branch});
    builder.PutInt("i", step);
    ASSERT_OK(std::move(builder).Commit().WaitCommitted(kLong));
  }
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(dir_.path())) {
      names.push_back(entry.path().filename());
    }
    return names;
  }
  static std::vector<std::string> NamesIn(const std::string& folder) {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder)) {
      names.push_back(entry.path().filename());
    }
    return names;
  }
  // It is refused for that, and all steps are there.
  void ExpectRefused(std::size_t most, const std::string& why,
                     std::size_t steps) {
    const absl::Status refused = RemoveStore(Path(), most);
    EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
    EXPECT_THAT(std::string(refused.message()), HasSubstr(why));
    EXPECT_THAT(Names(), ElementsAre("store"));
    Store store = Open();
    std::size_t found = 0;
    ASSERT_OK_AND_ASSIGN(const std::vector<BranchInfo> branches,
                         store.Branches());
    for (const BranchInfo& branch : branches) found += branch.steps;
    EXPECT_EQ(found, steps);
  }

  testing::TempDir dir_;
};

TEST_F(RemoveStoreTest, AnEmptyOneGoes) {
  ASSERT_OK(Open().Close());
  ASSERT_OK(RemoveStore(Path()));
  EXPECT_THAT(Names(), ElementsAre());
  EXPECT_TRUE(absl::IsNotFound(RemoveStore(Path())));
}

TEST_F(RemoveStoreTest, NotMoreStepsThanWereNamed) {
  {
    Store store = Open();
    Save(store, 1);
    ASSERT_OK(store.Fork(1, "trial"));
    Save(store, 2, "trial");
    ASSERT_OK(store.Delete(1));
    ASSERT_OK(store.Close());
  }
  ExpectRefused(0, "has 1 step, one of them trial/2", 1);
  ASSERT_OK(RemoveStore(Path() + "/", 1));
  EXPECT_THAT(Names(), ElementsAre());
}

TEST_F(RemoveStoreTest, WhatIsPinnedOrTaggedStays) {
  {
    Store store = Open();
    Save(store, 1);
    ASSERT_OK(store.Pin(1));
    ASSERT_OK(store.Close());
  }
  ExpectRefused(1, "step 1 of ", 1);
  {
    Store store = Open();
    ASSERT_OK(store.Unpin(1));
    ASSERT_OK(store.Tag("best", 1));
    ASSERT_OK(store.Close());
  }
  ExpectRefused(1, "is pinned or tagged", 1);
}

TEST_F(RemoveStoreTest, NotWhileSomebodyWrites) {
  {
    Store store = Open();
    const absl::Status refused = RemoveStore(Path());
    EXPECT_TRUE(absl::IsUnavailable(refused)) << refused;
    Save(store, 1);
    ASSERT_OK(store.Close());
  }
  ExpectRefused(0, "has 1 step,", 1);
}

TEST_F(RemoveStoreTest, NotWhatNobodyCanTell) {
  {
    Store store = Open();
    Save(store, 1);
    ASSERT_OK(store.Close());
  }
  for (const auto& entry : fs::directory_iterator(Path() + "/journal")) {
    std::ofstream(entry.path(), std::ios::trunc) << "damaged";
  }
  EXPECT_FALSE(RemoveStore(Path()).ok());
  EXPECT_THAT(Names(), ElementsAre("store"));
}

TEST_F(RemoveStoreTest, NotWhatIsOfOthers) {
  ASSERT_OK(Open().Close());
  std::ofstream(Path() + "/notes") << "mine";
  fs::create_symlink("/nowhere", Path() + "/latest");
  ASSERT_OK(RemoveStore(Path()));
  EXPECT_THAT(NamesIn(Path()), UnorderedElementsAre("notes", "latest"));
  EXPECT_EQ(fs::file_size(Path() + "/notes"), 4u);
  EXPECT_TRUE(absl::IsNotFound(RemoveStore(Path())));
  // One may be made there again.
  ASSERT_OK(Open().Close());
  ASSERT_OK(RemoveStore(Path()));
  EXPECT_THAT(NamesIn(Path()), UnorderedElementsAre("notes", "latest"));
  fs::remove(Path() + "/notes");
  fs::remove(Path() + "/latest");
  ASSERT_OK(Open().Close());
  fs::create_directory_symlink(Path(), dir_ / "link");
  const absl::Status refused = RemoveStore(dir_ / "link");
  EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
  EXPECT_TRUE(fs::exists(Path()));
  fs::create_directory(dir_ / "other");
  EXPECT_TRUE(absl::IsNotFound(RemoveStore(dir_ / "other")));
}

// What a process leaves that was killed while it made one.
TEST_F(RemoveStoreTest, NotWhatOthersPutIntoIt) {
  ASSERT_OK(Open().Close());
  for (const std::string folder : {"/db", "/journal"}) {
    const std::string file = Path() + folder + "/mine.txt";
    std::ofstream(file) << "mine";
    ExpectRefused(0, file, 0);
    EXPECT_EQ(fs::file_size(file), 4u);
    fs::remove(file);
  }
  ASSERT_OK(RemoveStore(Path()));
  EXPECT_THAT(Names(), ::testing::IsEmpty());
}

TEST_F(RemoveStoreTest, OneThatWasNeverMadeGoes) {
  fs::create_directory(Path());
  std::ofstream(Path() + "/CREATING") << "";
  ASSERT_OK(RemoveStore(Path()));
  EXPECT_THAT(Names(), ElementsAre());
}

// The mark beside commits does not make a store unfinished.
TEST_F(RemoveStoreTest, NotWhatIsPinnedBesideTheMarkOfACreation) {
  {
    Store store = Open();
    Save(store, 1);
    ASSERT_OK(store.Pin(1));
    ASSERT_OK(store.Close());
  }
  std::ofstream(Path() + "/CREATING") << "not finished\n";
  ExpectRefused(5, "pinned", 1);
}

}  // namespace
}  // namespace ckptree
