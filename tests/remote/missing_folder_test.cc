// SPDX-License-Identifier: Apache-2.0

// A remote in a folder that is missing. In place of a share that is not mounted
// nothing is made: it would be hidden by the share later, or fill another disk.

#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "ckptree/ckptree.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/fixture.h"
#include "tests/remote/fixture.h"
#include "tests/testutil/temp_dir.h"

namespace ckptree::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(MissingFolderTest, AFolderThatIsMissingIsMadeByWhatIsShipped) {
  const TempDir disks;
  const std::string share = disks / "share";
  const std::string own = disks / "own";
  StoreOptions options = RemoteOptions("file://" + share + "/run");
  const absl::Status refused = Store::Open(own, options).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("no folder " + share), HasSubstr("mounted")));
  EXPECT_FALSE(std::filesystem::exists(share));
  EXPECT_FALSE(std::filesystem::exists(own));
  // Neither of an open that is refused for another reason, nor of a read.
  std::filesystem::create_directory(share);
  {
    Store store = Store::Open(own, options).value();
    SaveStep(store, 1, 4 << 10);
    ASSERT_TRUE(store.Close().ok());
  }
  std::filesystem::rename(share + "/run", share + "/moved");
  StoreOptions elsewhere = options;
  elsewhere.remote = "file://" + share + "/other";
  EXPECT_TRUE(absl::IsFailedPrecondition(Store::Open(own, elsewhere).status()));
  StoreOptions reading = QuietOptions();
  reading.create_if_missing = false;
  reading.read_only = true;
  EXPECT_FALSE(Store::Open(options.remote, reading).ok());
  EXPECT_FALSE(std::filesystem::exists(share + "/run"));
  EXPECT_FALSE(std::filesystem::exists(share + "/other"));
  // A file in its place.
  std::ofstream(share + "/file") << "x";
  options.remote = "file://" + share + "/file";
  EXPECT_TRUE(absl::IsFailedPrecondition(
      Store::Open(disks / "other", options).status()));
}

// The folder below a mount point may have something in it.
TEST(MissingFolderTest, NothingIsShippedBelowAMountPoint) {
  const TempDir disks;
  const std::string share = disks / "share";
  const std::string away = disks / "away";
  absl::Notification seen;
  StoreOptions options = RemoteOptions("file://" + share);
  options.log = [&](LogSeverity, std::string_view, std::string_view message) {
    if (message.find("mounted?") != message.npos && !seen.HasBeenNotified()) {
      seen.Notify();
    }
  };
  {
    Store store = Store::Open(disks / "own", options).value();
    SaveStep(store, 1, 4 << 10);
    ASSERT_OK(store.WaitReplicated(kLong));
    std::filesystem::rename(share, away);
    std::filesystem::create_directory(share);
    std::ofstream(share + "/NOT_MOUNTED") << "a marker";
    SaveStep(store, 2, 4 << 10);
    ASSERT_TRUE(seen.WaitForNotificationWithTimeout(kLong));
    EXPECT_TRUE(
        absl::IsDeadlineExceeded(store.WaitReplicated(absl::ZeroDuration())));
    std::filesystem::remove(share + "/NOT_MOUNTED");
    // Nothing else is there.
    EXPECT_TRUE(std::filesystem::remove(share));
    std::filesystem::rename(away, share);
    ASSERT_OK(store.WaitReplicated(kLong));
    ASSERT_OK(store.Close());
  }
  Store there =
      Store::Open(disks / "new", RemoteOptions("file://" + share)).value();
  ExpectStep(there, 1, 4 << 10);
  ExpectStep(there, 2, 4 << 10);
}

// What is said to do loses nothing of a share that is mounted elsewhere.
TEST(MissingFolderTest, WhereObjectsAreGoneTheMountIsLookedAtFirst) {
  const TempDir disks;
  const std::string share = disks / "share";
  Store store =
      Store::Open(disks / "own", RemoteOptions("file://" + share)).value();
  SaveStep(store, 1, 4 << 10);
  ASSERT_OK(store.WaitReplicated(kLong));
  for (const auto& commit : ObjectsOf(share, "commit")) {
    std::filesystem::remove(commit);
  }
  const absl::Status gone = store.Close();
  EXPECT_TRUE(absl::IsDataLoss(gone)) << gone;
  EXPECT_THAT(std::string(gone.message()),
              AllOf(HasSubstr("is gone from"), HasSubstr("is mounted"),
                    HasSubstr("delete nothing")));
}

// Where a path was meant to be an address: a store of its own in there would
// begin anew.
TEST(MissingFolderTest, NoStoreIsMadeAmongTheObjectsOfOne) {
  TempDir disks;
  const std::string objects = disks / "objects";
  const std::string address = "file://" + objects;
  {
    Store store = Store::Open(disks / "own", RemoteOptions(address)).value();
    SaveStep(store, 1, 4 << 10);
    ASSERT_TRUE(store.Close().ok());
  }
  const auto held = [&objects] {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(objects)) {
      names.insert(entry.path().filename().string());
    }
    return names;
  };
  const std::set<std::string> before = held();
  const absl::Status made = Store::Open(objects, QuietOptions()).status();
  EXPECT_TRUE(absl::IsInvalidArgument(made)) << made;
  EXPECT_THAT(std::string(made.message()),
              AllOf(HasSubstr(address), HasSubstr("remote")));
  const absl::Status read =
      Store::Open(objects, ToRead(QuietOptions())).status();
  EXPECT_TRUE(absl::IsNotFound(read)) << read;
  EXPECT_THAT(std::string(read.message()), HasSubstr(address));
  // Neither what another one has.
  {
    Store other = Store::Open(disks / "other",
                              RemoteOptions("file://" + (disks / "others")))
                      .value();
    SaveStep(other, 2, 4 << 10);
    ASSERT_TRUE(other.Close().ok());
  }
  const absl::Status fetched =
      Store::Open(objects, RemoteOptions("file://" + (disks / "others")))
          .status();
  EXPECT_TRUE(absl::IsInvalidArgument(fetched)) << fetched;
  EXPECT_EQ(held(), before);
  Store store =
      Store::Open("file://" + objects, ToRead(QuietOptions())).value();
  ExpectStep(store, 1, 4 << 10);
}

}  // namespace
}  // namespace ckptree::testing
