// SPDX-License-Identifier: Apache-2.0

// A commit that arrives though an error had said that it never would: the
// writer meets its own, and goes on behind it.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "ckptree/ckptree.h"
#include "gtest/gtest.h"
#include "tests/core/fixture.h"
#include "tests/objects/counting_store.h"
#include "tests/remote/fixture.h"
#include "tests/testutil/temp_dir.h"

namespace ckptree::testing {
namespace {

TEST(LateCommitTest, TheWriterGoesOnBehindIt) {
  TempDir dir;
  RequestCount count;
  setenv("XDG_CACHE_HOME", std::string(dir / "cache").c_str(), 1);
  // Rows, segments, and rows that stand in objects of their own.
  for (const std::size_t size :
       {std::size_t{4} << 10, std::size_t{2} << 20, std::size_t{250} << 10}) {
    SCOPED_TRACE(size);
    const std::string name = std::to_string(size);
    const std::string address = "file://" + (dir / ("remote" + name));
    const std::string directory = dir / ("run" + name);
    constexpr std::int64_t kLast = 48;
    std::atomic<int> left = 0;
    std::atomic<int> lies = 0;
    count.SetCreatedHook([&](const std::string& what) {
      if (left == 0 || !absl::StrContains(what, "/commit/")) {
        return absl::OkStatus();
      }
      --left;
      ++lies;
      return absl::PermissionDeniedError("it was not created");
    });
    {
      Store store = Store::Open(directory, RemoteOptions(address)).value();
      SaveStep(store, 1, size);
      ASSERT_OK(store.WaitReplicated(kLong));
      // The first is met by one of the same commits, the others of more.
      left = 2;
      SaveStep(store, 2, size);
      ASSERT_OK(store.WaitReplicated(kLong));
      left = 2;
      for (std::int64_t step = 3; step < kLast; ++step) {
        SaveStep(store, step, size);
      }
      ASSERT_OK(store.Delete({AtStep(2)}));
      ASSERT_OK(store.WaitReplicated(kLong));
      SaveStep(store, kLast, size);
      ASSERT_OK(store.WaitReplicated(kLong));
      ASSERT_OK(store.Close());
    }
    EXPECT_EQ(lies, 4);
    count.SetCreatedHook(nullptr);
    // The directory knows what it shipped.
    absl::StatusOr<Store> again =
        Store::Open(directory, RemoteOptions(address));
    ASSERT_TRUE(again.ok()) << again.status();
    ASSERT_OK(again->Close());
    Store there =
        Store::Open(dir / ("other" + name), RemoteOptions(address)).value();
    EXPECT_EQ(StepsOf(there).size(), std::size_t{kLast - 1});
    for (const std::int64_t step : StepsOf(there)) {
      ExpectStep(there, step, size);
    }
    ExpectWhole(there);
  }
}

}  // namespace
}  // namespace ckptree::testing
