// SPDX-License-Identifier: Apache-2.0

// What a look at the remote of a directory reads here.

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "ckptree/ckptree.h"
#include "core/engine/remote_look.h"
#include "gtest/gtest.h"
#include "tests/core/fixture.h"
#include "tests/fault/fs_interrupt.h"
#include "tests/remote/fixture.h"
#include "tests/testutil/store_on.h"
#include "tests/testutil/temp_dir.h"

namespace ckptree::testing {
namespace {

// The address and what was shipped there are of one note.
TEST(RemoteLookTest, ReadsTheNoteOnce) {
  TempDir dir;
  const std::string run = dir / "run";
  const std::string address = absl::StrCat("file://", dir / "bucket");
  {
    Store store = Store::Open(run, RemoteOptions(address)).value();
    SaveStep(store, 1, 100);
    ASSERT_TRUE(store.Close().ok());
  }
  const auto disk = std::make_shared<kv::InterruptedFs>();
  StoreOptions reading = QuietOptions();
  reading.create_if_missing = false;
  reading.read_only = true;
  Store reader = OpenStoreOn(disk, run, reading).value();
  for (const int reads : {2, 1}) {
    disk->BeforeReading(
        "/remote", [] {}, reads);
    const internal::RemoteLook look =
        internal::LookAtRemote(reader, absl::Minutes(1));
    EXPECT_EQ(look.address, address);
    EXPECT_TRUE(look.reads.ok()) << look.reads;
    EXPECT_TRUE(look.writes.ok()) << look.writes;
    EXPECT_EQ(look.behind, 0);
    EXPECT_EQ(disk->fired(), reads == 1);
  }
}

}  // namespace
}  // namespace ckptree::testing
