// SPDX-License-Identifier: Apache-2.0

// Rank 0 that is refused the store: the others hear why, and do not wait for
// it.

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "ckptree/ckptree.h"
#include "ckptree/ranks.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "schema/rank_message.h"
#include "tests/ranks/fixture.h"

namespace ckptree::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

class RanksRefusalTest : public RanksTest {
 protected:
  std::string file() const { return path() + ".refused"; }
  StoreOptions Local() const {
    StoreOptions options = QuietOptions();
    options.create_if_missing = true;
    return options;
  }
  // What all ranks are told, none of which waits for open_deadline.
  void ExpectAllRefused(const RankOptions& options, absl::StatusCode code,
                        const std::string& why) const {
    OnAll(3, [&](int rank) {
      RankOptions own = options;
      own.rank = rank;
      const absl::Status told = RankGroup::Open(path(), own).status();
      EXPECT_THAT(told, StatusIs(code, HasSubstr(why)));
      if (rank > 0) EXPECT_THAT(told.message(), HasSubstr("rank 0 (pid "));
    });
  }
};

TEST_F(RanksRefusalTest, TheOthersHearWhoWrites) {
  std::optional<Store> writer = Store::Open(path(), Local()).value();
  // Again and again: what was heard of the time before is not heard twice.
  for (int i = 0; i < 2; ++i) {
    ExpectAllRefused(Options(0, 3), absl::StatusCode::kUnavailable,
                     "is held by another writer");
  }
  writer.reset();
  EXPECT_TRUE(fs::exists(file()));
  InGroup(3, [](RankGroup& group) { ASSERT_OK(SaveAll(group, 1)); });
  EXPECT_FALSE(fs::exists(file()));
}

TEST_F(RanksRefusalTest, TheOthersHearWhyOfTheRemote) {
  const std::string far = "file://" + std::string(dir_ / "far");
  {
    StoreOptions other = Local();
    other.remote = far;
    ASSERT_OK(Store::Open(dir_ / "other", other));
  }
  {
    ASSERT_OK(Store::Open(path(), Local())->Begin(1).Commit().WaitCommitted());
  }
  RankOptions options = Options(0, 3);
  options.store.remote = far;
  ExpectAllRefused(options, absl::StatusCode::kFailedPrecondition,
                   "give it an address of its own");
  // Nobody is there whom it could connect to: no store either.
  options.store.remote = far + "%20";
  ExpectAllRefused(options, absl::StatusCode::kInvalidArgument, "an escape");
}

TEST_F(RanksRefusalTest, AFileOfOthersIsLeft) {
  std::optional<Store> writer = Store::Open(path(), Local()).value();
  std::ofstream(file()) << "mine";
  const auto is_left = [this] {
    std::ifstream read(file());
    return std::string(std::istreambuf_iterator<char>(read), {}) == "mine";
  };
  EXPECT_THAT(RankGroup::Open(path(), Options(0, 3)).status(),
              StatusIs(absl::StatusCode::kUnavailable,
                       HasSubstr("is held by another writer")));
  EXPECT_TRUE(is_left());
  writer.reset();
  InGroup(3, [](RankGroup& group) { ASSERT_OK(SaveAll(group, 1)); });
  EXPECT_TRUE(is_left());
}

// That of another job, or of a run before, is nobody's.
TEST_F(RanksRefusalTest, WhatIsOfAnotherStartDoesNotCount) {
  const auto left = [this](const std::string& job, absl::Time when) {
    schema::RankMail mail;
    mail.kind = schema::MailKind::kRefused;
    mail.job = job;
    mail.host = "h0";
    mail.pid = 7;
    mail.code = static_cast<std::uint32_t>(absl::StatusCode::kUnavailable);
    mail.text = "it was another's";
    mail.ordinal = static_cast<std::uint64_t>(absl::ToUnixNanos(when));
    std::ofstream(file(), std::ios::binary) << schema::EncodeRankMail(mail);
  };
  RankOptions options = Options(1, 2);
  options.open_deadline = absl::Milliseconds(100);
  left("another", absl::Now());
  EXPECT_THAT(RankGroup::Open(path(), options).status(),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       ::testing::Not(HasSubstr("another's"))));
  left("test", absl::Now() - absl::Hours(24));
  EXPECT_THAT(RankGroup::Open(path(), options).status(),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       AllOf(HasSubstr("no coordinator of job test"),
                             HasSubstr("(pid 7 on h0) was refused it before"),
                             HasSubstr("it was another's"))));
  // What is no message at all.
  std::ofstream(file(), std::ios::binary) << "refused";
  EXPECT_THAT(RankGroup::Open(path(), options).status(),
              StatusIs(absl::StatusCode::kDeadlineExceeded));
  left("test", absl::Now());
  options.open_deadline = kLong;
  EXPECT_THAT(RankGroup::Open(path(), options).status(),
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr("rank 1 of 2: rank 0 (pid 7 on h0) was "
                                       "refused the store: "),
                             HasSubstr("it was another's"))));
}

}  // namespace
}  // namespace ckptree::testing
