// SPDX-License-Identifier: Apache-2.0

// Files of the journal that a disk cannot give (EIO): of one of them nothing
// is lost, as of one that is damaged.

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

  const std::shared_ptr<testing::LateFs> disk_ =
      std::make_shared<testing::LateFs>();
};

TEST_F(UnreadableTest, OneFileOfTheJournalCostsNothing) {
  int tried = 0;
  ForEachFile([&](const std::string& file) {
    if (!file.starts_with("journal/") || file.starts_with("journal/a-")) return;
    const std::uint64_t before = disk_->hidden();
    Fail(file);
    ExpectReadsAndWrites();
    Heal();
    if (disk_->hidden() > before) ++tried;
  });
  EXPECT_GE(tried, 4);
}

// Blocks, and records of the last second, may be there alone, and be there
// again tomorrow.
TEST_F(UnreadableTest, AFirstCopyIsWaitedFor) {
  int tried = 0;
  ForEachFile([&](const std::string& file) {
    if (!file.starts_with("journal/a-")) return;
    const auto before = fs::last_write_time(Store() + "/" + file);
    Fail(file);
    EXPECT_THAT(Open(), StatusIs(absl::StatusCode::kUnknown,
                                 ::testing::AllOf(HasSubstr(file),
                                                  HasSubstr("repair"))));
    EXPECT_EQ(fs::last_write_time(Store() + "/" + file), before);
    Heal();
    ExpectReadsAndWrites();
    ++tried;
  });
  EXPECT_GE(tried, 4);
}

}  // namespace
}  // namespace ckptree::kv
