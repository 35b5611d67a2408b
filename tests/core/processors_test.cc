// SPDX-License-Identifier: Apache-2.0

#include "core/process/processors.h"

#include <sched.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "gtest/gtest.h"

namespace ckptree::internal {
namespace {

class ProcessorsTest : public testing::Test {
 protected:
  ProcessorsTest() { std::filesystem::remove_all(mount_); }
  ~ProcessorsTest() override { std::filesystem::remove_all(mount_); }

  void Write(const std::string& file, const std::string& text) const {
    const std::filesystem::path path = mount_ + "/" + file;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }

  const std::string mount_ = testing::TempDir() + "processors_test_cgroups";
};

TEST_F(ProcessorsTest, WithoutAQuotaAllOfThem) {
  EXPECT_EQ(ProcessorsOfQuota("", mount_, 16), 16);
  Write("a/cpu.max", "max 100000\n");
  EXPECT_EQ(ProcessorsOfQuota("0::/a\n", mount_, 16), 16);
  Write("cpu/b/cpu.cfs_quota_us", "-1\n");
  Write("cpu/b/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(ProcessorsOfQuota("3:cpu:/b\n", mount_, 16), 16);
}

TEST_F(ProcessorsTest, AQuotaIsRoundedUp) {
  Write("a/cpu.max", "250000 100000\n");
  EXPECT_EQ(ProcessorsOfQuota("0::/a\n", mount_, 16), 3);
  EXPECT_EQ(ProcessorsOfQuota("0::/a\n", mount_, 2), 2);
  Write("a/cpu.max", "1000 100000\n");
  EXPECT_EQ(ProcessorsOfQuota("0::/a\n", mount_, 16), 1);
}

TEST_F(ProcessorsTest, OneOfACgroupAboveCounts) {
  Write("a/cpu.max", "400000 100000\n");
  Write("a/b/cpu.max", "max 100000\n");
  Write("a/b/c/cpu.max", "600000 100000\n");
  EXPECT_EQ(ProcessorsOfQuota("0::/a/b/c\n", mount_, 16), 4);
  // As a container sees it: its folder is one of the host's.
  Write("cpu.max", "200000 100000\n");
  EXPECT_EQ(ProcessorsOfQuota("0::/of/the/host\n", mount_, 16), 2);
}

TEST_F(ProcessorsTest, VersionOneCounts) {
  Write("cpu,cpuacct/a/cpu.cfs_quota_us", "150000\n");
  Write("cpu,cpuacct/a/cpu.cfs_period_us", "50000\n");
  EXPECT_EQ(ProcessorsOfQuota("5:memory:/x\n4:cpu,cpuacct:/a\n", mount_, 16),
            3);
  EXPECT_EQ(ProcessorsOfQuota("4:cpuset:/a\n", mount_, 16), 16);
}

TEST_F(ProcessorsTest, AMaskCounts) {
  // Of a thread of its own: the mask of the others stays.
  std::thread([] {
    cpu_set_t mask;
    ASSERT_EQ(sched_getaffinity(0, sizeof(mask), &mask), 0);
    EXPECT_LE(Processors(), CPU_COUNT(&mask));
    int first = 0;
    while (!CPU_ISSET(first, &mask)) ++first;
    CPU_ZERO(&mask);
    CPU_SET(first, &mask);
    ASSERT_EQ(sched_setaffinity(0, sizeof(mask), &mask), 0);
    EXPECT_EQ(Processors(), 1);
  }).join();
}

}  // namespace
}  // namespace ckptree::internal
