// SPDX-License-Identifier: Apache-2.0

// A damaged directory whose object store has all: a repair of the directory
// alone would lose what that has.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "absl/status/status.h"
#include "ckptree/ckptree.h"
#include "ckptree/repair.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/fixture.h"
#include "tests/remote/fixture.h"
#include "tests/testutil/flip_byte.h"
#include "tests/testutil/status_matchers.h"
#include "tests/testutil/temp_dir.h"

namespace ckptree::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::size_t kSave = 3 << 20;

class RepairShippedTest : public ::testing::Test {
 protected:
  void SetUp() override {
    setenv("XDG_CACHE_HOME", (dir_ / "cache").c_str(), 1);
    fs::create_directory(dir_ / "share");
    Store store = OpenIt().value();
    for (std::int64_t step = 1; step <= 3; ++step) {
      SaveStep(store, step, kSave);
    }
    ASSERT_OK(store.WaitReplicated(kLong));
    ASSERT_OK(store.Close());
    // The largest file of array bytes has a flipped bit.
    for (const auto& entry : fs::directory_iterator(Run() + "/db")) {
      if (entry.path().extension() == ".sst" &&
          (hurt_.empty() || fs::file_size(entry) > fs::file_size(hurt_))) {
        hurt_ = entry.path();
      }
    }
    FlipByte(hurt_, fs::file_size(hurt_) / 2);
  }

  std::string Run() { return dir_ / "run"; }
  absl::StatusOr<Store> OpenIt() {
    return Store::Open(Run(), RemoteOptions("file://" + (dir_ / "share/it")));
  }

  TempDir dir_;
  fs::path hurt_;
};

TEST_F(RepairShippedTest, IsRefusedWhereItWouldLoseWhatTheRemoteHas) {
  const auto plan = Repair(Run());
  ASSERT_OK(plan);
  EXPECT_FALSE(plan->complete());
  EXPECT_THAT(plan->hindrance,
              AllOf(HasSubstr("share/it"), HasSubstr(Run() + "/remote")));
  RepairOptions execute;
  execute.execute = true;
  EXPECT_THAT(
      Repair(Run(), execute).status(),
      StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("share/it")));
  // As it says: nothing is lost.
  fs::remove(hurt_);
  {
    ASSERT_OK_AND_ASSIGN(Store store, OpenIt());
    for (std::int64_t step = 1; step <= 3; ++step) {
      ExpectStep(store, step, kSave);
    }
    ASSERT_OK(store.Close());
  }
  ASSERT_OK_AND_ASSIGN(Store store, OpenIt());
  ExpectWhole(store);
  ASSERT_OK(store.Close());
}

TEST_F(RepairShippedTest, IsMadeWhereNothingIsThereAnyMore) {
  fs::remove_all(dir_ / "share/it");
  fs::remove(Run() + "/remote");
  RepairOptions execute;
  execute.execute = true;
  const auto report = Repair(Run(), execute);
  ASSERT_OK(report);
  EXPECT_TRUE(report->done);
  EXPECT_FALSE(report->complete());
  StoreOptions options = QuietOptions();
  options.create_if_missing = false;
  ASSERT_OK_AND_ASSIGN(Store store, Store::Open(Run(), options));
  EXPECT_THAT(StepsOf(store), ElementsAre(1, 2, 3));
}

}  // namespace
}  // namespace ckptree::testing
