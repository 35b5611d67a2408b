// SPDX-License-Identifier: Apache-2.0

// A rank that never comes is the one that all others name, however little apart
// they began, and whoever of them gave up first.

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "ckptree/ranks.h"
#include "core/ranks/coordinator_mail.h"
#include "core/ranks/mailbox.h"
#include "core/ranks/meeting.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kv/file_system.h"
#include "kv/options.h"
#include "schema/rank_message.h"
#include "tests/ranks/fixture.h"

namespace ckptree::testing {
namespace {

using ::testing::HasSubstr;

class RanksMissingRankTest : public RanksTest {
 protected:
  // The mailbox of rank 0, once that waits for the others.
  internal::CoordinatorMail SeeCoordinator(internal::MailPlace* place) {
    internal::CoordinatorMail mail(place);
    while (!mail.open().has_value()) {
      EXPECT_OK(mail.Poll());
      std::this_thread::yield();
    }
    return mail;
  }
  // Of four ranks the first `come` do, and rank 1 does not wait for rank 0's
  // word. `told` looks at what the others are told.
  void Rank1GivesUp(int come,
                    const std::function<void(const std::string&)>& told) {
    OnAll(come, [&](int rank) {
      if (rank != 1) {
        RankOptions options = Options(rank, 4);
        options.open_deadline = absl::Seconds(2);
        if (rank > 0) SeeCoordinator(Place().get());
        const absl::Status status = RankGroup::Open(path(), options).status();
        EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
        told(std::string(status.message()));
        return;
      }
      const std::unique_ptr<internal::MailFolder> place = Place();
      const internal::CoordinatorMail mail = SeeCoordinator(place.get());
      schema::RankMail hello = *mail.open();
      hello.kind = schema::MailKind::kHello;
      hello.rank = 1;
      hello.nonce = 77;
      internal::MailWriter own(place->Write(internal::RankBox(1, hello.nonce)),
                               absl::Seconds(1));
      EXPECT_OK(own.Post(hello));
      own.Close();
    });
  }
  std::unique_ptr<internal::MailFolder> Place() {
    return internal::FolderOf(kv::Options(), path(), "test");
  }
};

// Ranks whose own time is over before rank 0 judges.
TEST_F(RanksMissingRankTest, IsNamedByAll) {
  constexpr int kWorld = 5;
  OnAll(kWorld - 1, [&](int rank) {
    RankOptions options = Options(rank, kWorld);
    options.open_deadline = absl::Milliseconds(rank == 0 ? 2000 : 200);
    if (rank > 0) SeeCoordinator(Place().get());
    EXPECT_THAT(RankGroup::Open(path(), options).status(),
                StatusIs(absl::StatusCode::kDeadlineExceeded,
                         HasSubstr("of 5 ranks 1 did not come within 2 s: "
                                   "4")))
        << rank;
  });
}

TEST_F(RanksMissingRankTest, WhoGaveUpHasCome) {
  Rank1GivesUp(/*come=*/3, [](const std::string& told) {
    EXPECT_THAT(told, HasSubstr("of 4 ranks 1 did not come within 2 s: "
                                "3; 1 came and gave up before all were "
                                "there: 1"));
  });
}

TEST_F(RanksMissingRankTest, WhoGaveUpIsNamedWhereAllHaveCome) {
  Rank1GivesUp(/*come=*/4, [](const std::string& told) {
    EXPECT_THAT(told, HasSubstr("of 4 ranks 1 came and gave up before all were "
                                "there: 1"));
  });
}

}  // namespace
}  // namespace ckptree::testing
