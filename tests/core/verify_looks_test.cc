// SPDX-License-Identifier: Apache-2.0

// A verification of a store that another process may be writing: damage is
// what two looks in a row find.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/core/fixture.h"
#include "tests/testutil/flip_byte.h"

namespace ckptree::testing {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr int kSteps = 6;
constexpr std::size_t kSave = 3 << 20;

class VerifyLooksTest : public CoreTest {
 protected:
  void SetUp() override {
    CoreTest::SetUp();
    for (int step = 1; step <= kSteps; ++step) {
      ASSERT_OK(Save(step, RandomBytes(kSave, step)));
    }
    store_.reset();
    for (const auto& file :
         std::filesystem::recursive_directory_iterator(path())) {
      if (file.path().extension() == ".sst" && file.file_size() > kSave / 4) {
        files_.push_back(file.path().string());
      }
    }
    ASSERT_GE(files_.size(), std::size_t{kSteps});
    Flip(0);
  }

  void Flip(std::size_t look) {
    const std::string& path = files_[look % files_.size()];
    FlipByte(path, std::filesystem::file_size(path) / 2);
  }

  // Each look finds another file damaged, as where a writer takes them away.
  VerifyReport Verified() {
    const Store reader = Store::Open(path(), ReadOnly()).value();
    VerifyOptions verification;
    verification.level = VerifyOptions::Level::kDeep;
    verification.on_progress = [&](std::uint64_t done, std::uint64_t total) {
      if (done != total) return;
      Flip(ends_);
      Flip(++ends_);
    };
    const absl::StatusOr<VerifyReport> report = reader.Verify(verification);
    EXPECT_OK(report);
    return report.value_or(VerifyReport());
  }

  static std::vector<std::string> Damaged(const VerifyReport& report) {
    std::vector<std::string> damaged;
    for (const Finding& finding : report.findings) {
      if (finding.severity == Finding::Severity::kWarning) continue;
      damaged.push_back(finding.what);
    }
    return damaged;
  }

  std::vector<std::string> files_;
  std::size_t ends_ = 0;
};

TEST_F(VerifyLooksTest, WhatOneLookFindsAloneIsAWarning) {
  const VerifyReport report = Verified();
  EXPECT_GE(ends_, 8U);
  EXPECT_THAT(Damaged(report), IsEmpty());
  bool told = false;
  for (const Finding& finding : report.findings) {
    told = told || finding.what.find("verify once more") != std::string::npos;
  }
  EXPECT_TRUE(told);
}

TEST_F(VerifyLooksTest, WhatEachLookFindsIsDamage) {
  const std::string lasting = files_.back();
  files_.pop_back();
  FlipByte(lasting, std::filesystem::file_size(lasting) / 2);
  const std::vector<std::string> damaged = Damaged(Verified());
  EXPECT_GE(ends_, 8U);
  ASSERT_FALSE(damaged.empty());
  for (const std::string& what : damaged) {
    for (const std::string& path : files_) {
      EXPECT_THAT(what, Not(HasSubstr(path)));
    }
  }
  EXPECT_THAT(damaged, Contains(HasSubstr(lasting)));
}

TEST_F(VerifyLooksTest, DamageIsFoundByTwoLooks) {
  VerifyOptions verification;
  verification.level = VerifyOptions::Level::kDeep;
  int ends = 0;
  verification.on_progress = [&](std::uint64_t done, std::uint64_t total) {
    if (done == total) ++ends;
  };
  const Store reader = Store::Open(path(), ReadOnly()).value();
  const VerifyReport report = reader.Verify(verification).value();
  EXPECT_THAT(Damaged(report), Contains(HasSubstr(files_.front())));
  EXPECT_LE(ends, 4);
}

}  // namespace
}  // namespace ckptree::testing
