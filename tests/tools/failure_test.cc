// SPDX-License-Identifier: Apache-2.0

#include "tools/output/failure.h"

#include <cerrno>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ckptree::tools {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(FailureTest, OnlyOfATrainerItIsUnknown) {
  const absl::Status late = absl::DeadlineExceededError("nobody answers");
  EXPECT_EQ(ExitCodeOf(late), kExitFailure);
  EXPECT_EQ(ExitCodeOf(WithExitCode(late, kExitUnknown)), kExitUnknown);
  EXPECT_TRUE(WithExitCode(absl::OkStatus(), kExitUnknown).ok());
}

TEST(FailureTest, NobodyHasAnAddress) {
  for (const absl::Status& status :
       {absl::DeadlineExceededError("GET x/store at 127.0.0.1:9/b: refused"),
        absl::UnavailableError("GET x/store at 127.0.0.1:9/b: 503")}) {
    const absl::Status there = AtAddress(status);
    EXPECT_EQ(there.code(), status.code());
    EXPECT_EQ(ExitCodeOf(there), kExitFailure);
    EXPECT_THAT(HintOf(there), HasSubstr("endpoint"));
  }
  const absl::Status busy = absl::UnavailableError("pid 7 has it");
  EXPECT_EQ(ExitCodeOf(busy), kExitBusy);
  EXPECT_EQ(ExitCodeOf(AtAddress(WithExitCode(busy, kExitBusy))), kExitBusy);
  EXPECT_EQ(ExitCodeOf(AtAddress(absl::NotFoundError("no store"))),
            kExitNotFound);
  EXPECT_EQ(ExitCodeOf(AtAddress(absl::DataLossError("cut"))), kExitDamaged);
  EXPECT_TRUE(AtAddress(absl::OkStatus()).ok());
}

TEST(FailureTest, ALimitOfTheShellIsNamed) {
  const auto hint = [](int error) {
    return HintOf(
        absl::UnknownError(absl::StrCat("writing a: ", std::strerror(error))));
  };
  EXPECT_THAT(hint(EFBIG), HasSubstr("`ulimit -f`"));
  EXPECT_THAT(hint(EMFILE), HasSubstr("`ulimit -n`"));
  EXPECT_THAT(hint(EIO), Not(HasSubstr("ulimit")));
}

TEST(FailureTest, WhatWasDoneIsSaidWhereClosingFails) {
  const absl::Status failed = WithHint(absl::UnknownError("EIO"), "a disk");
  const absl::Status told = NotClosed(failed, "step 7 is saved");
  EXPECT_EQ(told.message(), "step 7 is saved; closing the store failed: EIO");
  EXPECT_EQ(HintOf(told), "a disk");
  EXPECT_EQ(ExitCodeOf(told), kExitFailure);
  EXPECT_EQ(NotClosed(failed, "").message(), "closing the store failed: EIO");
  EXPECT_TRUE(NotClosed(absl::OkStatus(), "step 7 is saved").ok());
}

}  // namespace
}  // namespace ckptree::tools
