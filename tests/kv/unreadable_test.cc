// SPDX-License-Identifier: Apache-2.0

// Files of the journal that a disk cannot give (EIO): of one of them nothing
// is lost, as of one that is damaged.

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kv/database.h"
#include "tests/fault/late_fs.h"
#include "tests/kv/recovery_fixture.h"
#include "tests/testutil/status_matchers.h"

namespace ckptree::kv {
namespace {

namespace fs = std::filesystem;
using ::ckptree::testing::StatusIs;
using ::testing::HasSubstr;

class UnreadableTest : public RecoveryTest {
 protected:
  UnreadableTest() { options_.file_system = disk_; }

  void Fail(const std::string& file) {
    disk_->Hide("/" + file, std::generic_category().message(EIO));
  }
  void Heal() { disk_->Hide(""); }

  // The newest file of the first copy.
  std::string Newest() const {
    std::string newest;
    for (const std::string& file : Files()) {
      if (file.starts_with("journal/a-")) newest = std::max(newest, file);
    }
    return newest;
  }

  const std::shared_ptr<testing::LateFs> disk_ =
      std::make_shared<testing::LateFs>();
};

TEST_F(UnreadableTest, OneFileOfTheJournalCostsNothing) {
  int tried = 0;
  ForEachFile([&](const std::string& file) {
    if (!file.starts_with("journal/") || file == Newest()) return;
    const std::uint64_t before = disk_->hidden();
    Fail(file);
    ExpectReadsAndWrites();
    Heal();
    if (disk_->hidden() > before) ++tried;
  });
  EXPECT_GE(tried, 6);
}

// Records of the last second may be there alone, and be there again tomorrow.
TEST_F(UnreadableTest, TheNewestFirstCopyIsWaitedFor) {
  for (const bool closed : {true, false}) {
    SCOPED_TRACE(closed);
    ASSERT_NO_FATAL_FAILURE(MakeStore(closed));
    const std::string file = Newest();
    const auto before = fs::last_write_time(Store() + "/" + file);
    Fail(file);
    for (const Mode mode : {Mode::kReadWrite, Mode::kRead}) {
      EXPECT_THAT(Open(mode),
                  StatusIs(absl::StatusCode::kUnknown, HasSubstr(file)));
    }
    EXPECT_EQ(fs::last_write_time(Store() + "/" + file), before);
    Heal();
    ExpectReadsAndWrites();
  }
}

}  // namespace
}  // namespace ckptree::kv
