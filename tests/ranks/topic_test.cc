// SPDX-License-Identifier: Apache-2.0

// What the coordinator says and the other ranks hear.

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/ranks/rank_topic.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/ranks/fixture.h"

namespace ckptree::testing {
namespace {

using internal::RankGroupPeer;
using internal::RankTopic;
using ::testing::AllOf;
using ::testing::HasSubstr;

class RanksTopicTest : public RanksTest {
 protected:
  static std::unique_ptr<RankTopic> Topic(const RankGroup& group,
                                          const std::string& name = "t") {
    return std::make_unique<RankTopic>(RankGroupPeer::Shared(group), name);
  }
  static void Tell(RankTopic& topic, std::int64_t step,
                   const std::string& body) {
    EXPECT_OK(topic.Tell({"call", step, absl::OkStatus(), body}));
  }
  // What was told, or the error, or "-": it was not waited for.
  static std::string Hear(RankTopic& topic, std::int64_t step,
                          std::vector<std::string>* passed = nullptr,
                          bool wait = true, const std::string& call = "call") {
    const auto word =
        topic.Hear(call, step, nullptr, [&](const RankTopic::Word& other) {
          if (passed != nullptr) passed->push_back(other.body);
          return wait;
        });
    if (!word.ok()) return std::string(word.status().message());
    if (!word->has_value()) return "-";
    return (*word)->status.ok() ? (*word)->body
                                : std::string((*word)->status.message());
  }
};

TEST_F(RanksTopicTest, EachRankHearsEachWordOnce) {
  InGroup(3, [&](RankGroup& group) {
    const auto topic = Topic(group);
    const auto other = Topic(group, "other");
    for (std::int64_t step = 1; step <= 20; ++step) {
      const std::string body = "word " + std::to_string(step);
      if (topic->tells()) {
        EXPECT_EQ(group.rank(), 0);
        Tell(*topic, step, body);
        Tell(*other, step, "other " + body);
        Tell(*topic, step, body + " again");
      } else {
        EXPECT_EQ(Hear(*topic, step), body);
        EXPECT_EQ(Hear(*topic, step), body + " again");
        EXPECT_EQ(Hear(*other, step), "other " + body);
      }
    }
  });
}

TEST_F(RanksTopicTest, AnErrorIsTold) {
  InGroup(2, [&](RankGroup& group) {
    const auto topic = Topic(group);
    if (topic->tells()) {
      EXPECT_OK(topic->Tell({"call", 7, absl::DataLossError("lost"), ""}));
    } else {
      const auto word = topic->Hear(
          "call", 7, nullptr, [](const RankTopic::Word&) { return true; });
      ASSERT_OK(word);
      EXPECT_THAT((*word)->status,
                  StatusIs(absl::StatusCode::kDataLoss, HasSubstr("lost")));
    }
  });
}

// Who left questions out meets the others at the next that it asks.
TEST_F(RanksTopicTest, WhatARankLeavesOut) {
  InGroup(2, [&](RankGroup& group) {
    const auto topic = Topic(group);
    if (topic->tells()) {
      for (const std::int64_t step : {1, 2, 3, 5, 5, 4}) {
        Tell(*topic, step, std::to_string(step));
      }
      return;
    }
    EXPECT_EQ(Hear(*topic, 3), "3");
    // Nobody was asked about 4 before 5; by now it was told.
    EXPECT_EQ(Hear(*topic, 4), "4");
  });
}

// It sees what was told of what it did not ask, and may wait no longer.
TEST_F(RanksTopicTest, WhatWasToldBeforeIsSeen) {
  InGroup(2, [&](RankGroup& group) {
    const auto topic = Topic(group);
    if (topic->tells()) {
      for (const std::int64_t step : {1, 2, 9}) {
        Tell(*topic, step, std::to_string(step));
      }
      return;
    }
    std::vector<std::string> passed;
    EXPECT_EQ(Hear(*topic, 2, &passed, false, "another call"), "-");
    EXPECT_THAT(passed, ::testing::ElementsAre("1"));
    EXPECT_EQ(Hear(*topic, 9), "9");
  });
}

TEST_F(RanksTopicTest, AWordThatDoesNotCome) {
  OnAll(2, [&](int rank) {
    RankOptions options = Options(rank, 2);
    options.deadline = absl::Milliseconds(300);
    absl::StatusOr<RankGroup> group = RankGroup::Open(path(), options);
    ASSERT_OK(group);
    const auto topic = Topic(*group);
    if (rank == 0) {
      // Held open until the other has waited.
      while (!*topic->Noticed()) {
      }
      Tell(*topic, 6, "6");
      return;
    }
    const absl::Status status =
        topic
            ->Hear("call", 5, nullptr,
                   [](const RankTopic::Word&) { return true; })
            .status();
    EXPECT_THAT(status,
                StatusIs(absl::StatusCode::kDeadlineExceeded,
                         AllOf(HasSubstr("rank 1 of 2"),
                               HasSubstr("rank 0 did not come to call(5)"),
                               HasSubstr("within 0.3 s"), HasSubstr("pid"))));
    int asked = 0;
    EXPECT_THAT(topic
                    ->Hear(
                        "call", 5, [&] { return ++asked == 2; },
                        [](const RankTopic::Word&) { return true; })
                    .status(),
                StatusIs(absl::StatusCode::kCancelled, HasSubstr("call(5)")));
    EXPECT_EQ(asked, 2);
    EXPECT_OK(topic->Notice(absl::OkStatus()));
    EXPECT_EQ(Hear(*topic, 6), "6");
  });
}

TEST_F(RanksTopicTest, NoticesReachTheCoordinator) {
  InGroup(3, [&](RankGroup& group) {
    const auto topic = Topic(group);
    const auto other = Topic(group, "other");
    if (!topic->tells()) {
      if (group.rank() == 2) {
        EXPECT_OK(topic->Notice(absl::OkStatus()));
        EXPECT_OK(topic->Notice(absl::NotFoundError("no such thing")));
      }
      EXPECT_EQ(Hear(*topic, 1), "seen");
      return;
    }
    absl::StatusOr<bool> noticed = false;
    while (noticed.ok()) noticed = topic->Noticed();
    EXPECT_THAT(noticed.status(), StatusIs(absl::StatusCode::kNotFound,
                                           HasSubstr("rank 2: no such thing")));
    EXPECT_EQ(*other->Noticed(), false);
    Tell(*topic, 1, "seen");
  });
}

// What it said before it ended holds; after that nobody waits.
TEST_F(RanksTopicTest, ACoordinatorThatEnds) {
  InGroup(2, [&](RankGroup& group) {
    const auto topic = Topic(group);
    if (topic->tells()) {
      Tell(*topic, 1, "1");
      return;
    }
    const auto gone = [&](std::int64_t step) {
      const auto word = topic->Hear(
          "call", step, nullptr, [](const RankTopic::Word&) { return true; });
      EXPECT_THAT(word.status(), StatusIs(absl::StatusCode::kUnavailable,
                                          HasSubstr("open the group again")));
    };
    EXPECT_EQ(Hear(*topic, 1), "1");
    gone(2);
    gone(3);
  });
}

}  // namespace
}  // namespace ckptree::testing
