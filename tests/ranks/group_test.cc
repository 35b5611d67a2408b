// SPDX-License-Identifier: Apache-2.0

// Ranks that meet in the store's folder.

#include <unistd.h>

#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/waiting_tensor.h"
#include "tests/ranks/fixture.h"

namespace ckptree::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class RankGroupTest : public RanksTest,
                      public ::testing::WithParamInterface<int> {};

TEST_P(RankGroupTest, AllPartsAreOneStep) {
  const int world = GetParam();
  InGroup(world, [&](RankGroup& group) {
    for (std::int64_t step = 1; step <= 5; ++step) {
      ASSERT_OK(SaveAll(group, step));
      // Who is told so sees it.
      ExpectStep(group.store(), step, world);
    }
  });
  ExpectStore({1, 2, 3, 4, 5}, world);
}

TEST_P(RankGroupTest, SavesOverlapWithTraining) {
  const int world = GetParam();
  InGroup(world, [&](RankGroup& group) {
    std::vector<SaveHandle> handles;
    std::vector<Bytes> rows;
    for (std::int64_t step = 1; step <= 6; ++step) {
      rows.push_back(RowsOf(group.rank(), step));
      StepBuilder builder = group.Begin(step);
      PutAll(&builder, group.rank(), world, step, rows.back());
      handles.push_back(std::move(builder).Commit());
      std::fill(rows.back().begin(), rows.back().end(), std::byte{0});
    }
    for (SaveHandle& handle : handles) EXPECT_OK(handle.WaitCommitted(kLong));
  });
  ExpectStore({1, 2, 3, 4, 5, 6}, world);
}

INSTANTIATE_TEST_SUITE_P(Worlds, RankGroupTest, ::testing::Values(1, 2, 5));

class RanksGroupTest : public RanksTest {};

TEST_F(RanksGroupTest, WhatOneGivesUpAllHearOf) {
  constexpr int kWorld = 3;
  for (const int who : {0, 2}) {
    InGroup(kWorld, [&](RankGroup& group) {
      const Bytes rows = RowsOf(group.rank(), 1);
      StepBuilder builder = group.Begin(1);
      PutAll(&builder, group.rank(), kWorld, 1, rows);
      if (group.rank() == who) {
        builder.Fail(absl::OutOfRangeError("no such layer"));
      }
      EXPECT_THAT(
          std::move(builder).Commit().WaitCommitted(kLong),
          StatusIs(absl::StatusCode::kOutOfRange, HasSubstr("no such layer")));
      ASSERT_OK(SaveAll(group, 2 + who));
    });
  }
  ExpectStore({2, 4}, kWorld);
}

// Closing waits for the thread that calls back.
TEST_F(RanksGroupTest, OneThatGoesInACallbackIsClosedElsewhere) {
  RankOptions options = Options(0, 1);
  options.store.threads = 4;
  std::optional<RankGroup> group(RankGroup::Open(path(), options).value());
  absl::Notification set;
  absl::Notification called;
  const Bytes rows = RowsOf(0, 1);
  StepBuilder builder = group->Begin(1);
  PutAll(&builder, 0, 1, 1, rows);
  builder.Put("late", WaitingFor(set));
  SaveHandle save = std::move(builder).Submit();
  save.OnCommitted([&](const absl::Status& status) {
    EXPECT_OK(status);
    EXPECT_THAT(group->Close(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                         HasSubstr("callback")));
    group.reset();
    called.Notify();
  });
  set.Notify();
  called.WaitForNotification();
  ASSERT_OK(save.WaitCommitted(kLong));
  // It lets go of the folder.
  options.store.lock_wait = kLong;
  ASSERT_OK_AND_ASSIGN(RankGroup again, RankGroup::Open(path(), options));
  EXPECT_EQ(again.store().OpenStep(1)->Value("w")->bytes, rows);
  ASSERT_OK(again.Close());
}

TEST_F(RanksGroupTest, OnlyWhatChangedIsWritten) {
  constexpr int kWorld = 3;
  const Bytes same = RandomBytes(std::size_t{4} << 20, 1);
  const auto put = [&](RankGroup& group, std::int64_t step) {
    Bytes mine = same;
    // Rank 1 changes one byte in the second step.
    if (group.rank() == 1 && step == 2) mine[100] ^= std::byte{1};
    StepBuilder builder = group.Begin(step);
    Tensor tensor = Array(DType::kUint8, {4 << 20}, mine);
    tensor.start = {group.rank() * (4 << 20)};
    tensor.global_shape = {kWorld * (4 << 20)};
    builder.Put("w", tensor);
    return std::move(builder).Commit().WaitCommitted(kLong);
  };
  InGroup(kWorld, [&](RankGroup& group) {
    for (const std::int64_t step : {1, 2, 3}) ASSERT_OK(put(group, step));
    const auto bytes = [&](std::int64_t step) {
      return group.store().Resolve(AtStep(step))->new_bytes;
    };
    EXPECT_EQ(bytes(1), std::uint64_t{kWorld} * (4 << 20));
    EXPECT_EQ(bytes(2), kChunk);
    EXPECT_EQ(bytes(3), kChunk);
  });
  // Of processes that remember nothing.
  InGroup(kWorld, [&](RankGroup& group) {
    ASSERT_OK(put(group, 4));
    EXPECT_EQ(group.store().Resolve(AtStep(4))->new_bytes, 0u);
  });
}

// The world changes: nothing is lost, nothing is there twice.
TEST_F(RanksGroupTest, AnotherNumberOfRanks) {
  std::int64_t step = 1;
  for (const int world : {4, 2, 6, 1, 3}) {
    InGroup(world, [&](RankGroup& group) {
      const std::int64_t mine = step;
      ASSERT_OK(SaveAll(group, mine));
      ASSERT_OK(SaveAll(group, mine + 1));
    });
    absl::StatusOr<Store> store = Store::Open(path(), ToRead(QuietOptions()));
    ASSERT_OK(store);
    ExpectStep(*store, step, world);
    ExpectStep(*store, step + 1, world);
    const auto report = store->Verify({.level = VerifyOptions::Level::kDeep});
    ASSERT_OK(report);
    for (const Finding& finding : report->findings) {
      ADD_FAILURE() << world << " ranks: " << finding.what;
    }
    step += 2;
  }
  // The blocks of parts that nobody has any more are freed.
  absl::StatusOr<Store> store = Store::Open(path(), QuietOptions());
  ASSERT_OK(store);
  std::vector<StepSelector> old;
  for (std::int64_t i = 1; i < step - 1; ++i) old.push_back(AtStep(i));
  ASSERT_OK(store->Delete(old));
  const auto collected = store->Collect({.min_dead_fraction = 0});
  ASSERT_OK(collected);
  ExpectStep(*store, step - 1, 3);
  const auto report = store->Verify({.level = VerifyOptions::Level::kDeep});
  ASSERT_OK(report);
  EXPECT_TRUE(report->findings.empty());
}

TEST_F(RanksGroupTest, APlainSaveBetween) {
  constexpr int kWorld = 3;
  const auto at = [](int rank, std::int64_t step) {
    return RowsOf(rank, step);
  };
  InGroup(kWorld, [&](RankGroup& group) {
    ASSERT_OK(SaveAll(group, 1));
    if (group.rank() == 0) {
      // All that the step has, by one process.
      const Bytes all = AllRows(kWorld, 2);
      StepBuilder builder = group.store().Begin(2);
      builder.Put("w", Array(DType::kFloat32, {kRows * kWorld, kColumns}, all));
      builder.PutInt("epoch", 2).PutString("name", "run");
      for (int rank = 0; rank < kWorld; ++rank) {
        builder.PutInt("rng/" + std::to_string(rank), 200 + rank);
      }
      ASSERT_OK(std::move(builder).Commit().WaitCommitted(kLong));
    }
    ASSERT_OK(SaveAll(group, 3));
    EXPECT_EQ(at(0, 3).size(), at(1, 3).size());
  });
  ExpectStore({1, 2, 3}, kWorld);
}

TEST_F(RanksGroupTest, ABranchAndItsOptions) {
  constexpr int kWorld = 2;
  InGroup(kWorld, [&](RankGroup& group) {
    ASSERT_OK(SaveAll(group, 1));
    if (group.rank() == 0) {
      ASSERT_OK(group.store().Fork(1, "sweep"));
    }
    const auto save = [&](std::int64_t step, const SaveOptions& options) {
      const Bytes rows = RowsOf(group.rank(), step);
      StepBuilder builder = group.Begin(step, options);
      PutAll(&builder, group.rank(), kWorld, step, rows);
      return std::move(builder).Commit().WaitCommitted(kLong);
    };
    ASSERT_OK(save(2, {.branch = "sweep"}));
    EXPECT_EQ(group.store().Steps("sweep")->size(), 1u);
    EXPECT_EQ(group.store().Steps()->size(), 1u);
    // A step that is there: refused on all ranks, and overwritten on all.
    EXPECT_THAT(save(1, {}), StatusIs(absl::StatusCode::kAlreadyExists,
                                      HasSubstr("step 1 exists already")));
    EXPECT_OK(save(1, {.overwrite = true}));
  });
  ExpectStore({1}, kWorld);
}

TEST_F(RanksGroupTest, TheStepSaysWhoSavedIt) {
  constexpr int kWorld = 3;
  InGroup(kWorld, [&](RankGroup& group) {
    ASSERT_OK(SaveAll(group, 1));
    const auto metadata = group.store().OpenStep(1)->Metadata();
    ASSERT_OK(metadata);
    ASSERT_EQ(metadata->parts.size(), std::size_t{kWorld});
    std::uint64_t bytes = 0;
    for (int rank = 0; rank < kWorld; ++rank) {
      const PartInfo& part = metadata->parts[static_cast<std::size_t>(rank)];
      EXPECT_EQ(part.rank, rank);
      EXPECT_EQ(part.pid, getpid());
      EXPECT_FALSE(part.host.empty());
      EXPECT_GT(part.duration, absl::ZeroDuration());
      EXPECT_GT(part.bytes, 0u);
      bytes += part.bytes;
    }
    EXPECT_EQ(bytes, group.store().Resolve(AtStep(1))->logical_bytes);
  });
}

// ---- what does not fit ----

TEST_F(RanksGroupTest, WhatRanksHaveAlikeMustBeAlike) {
  constexpr int kWorld = 3;
  InGroup(kWorld, [&](RankGroup& group) {
    const auto save = [&](std::int64_t step, auto put) {
      StepBuilder builder = group.Begin(step);
      put(&builder);
      return std::move(builder).Commit().WaitCommitted(kLong);
    };
    const auto refused = [&](const absl::Status& status, const char* name,
                             const char* why) {
      EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument,
                                   AllOf(HasSubstr(name), HasSubstr(why))))
          << group.rank();
    };
    refused(save(1,
                 [&](StepBuilder* step) {
                   step->PutInt("a", 1).PutInt("seed", group.rank() == 2);
                 }),
            "seed", "not the same on ranks 0 and 2");
    refused(save(1,
                 [&](StepBuilder* step) {
                   step->PutInt("a", 1);
                   if (group.rank() == 1) step->PutInt("only", 1);
                 }),
            "only", "put by rank 1 and not by rank 0");
    refused(save(1,
                 [&](StepBuilder* step) {
                   step->PutInt("a", 1);
                   if (group.rank() != 1) step->PutInt("others", 1);
                 }),
            "others", "put by rank 0 and not by rank 1");
    refused(save(1,
                 [&](StepBuilder* step) {
                   if (group.rank() == 1) {
                     step->PutInt("kind", 1);
                   } else {
                     step->PutBool("kind", true);
                   }
                 }),
            "kind", "another kind");
    // Its own, and the same path on two ranks.
    refused(save(1,
                 [&](StepBuilder* step) {
                   step->SetPerRank("own").PutInt("own/x", group.rank());
                 }),
            "own/x", "put by ranks 0 and 1");
    EXPECT_OK(SaveAll(group, 1));
  });
  ExpectStore({1}, kWorld);
}

TEST_F(RanksGroupTest, BoxesMakeUpTheArray) {
  constexpr int kWorld = 3;
  InGroup(kWorld, [&](RankGroup& group) {
    const auto save = [&](std::int64_t start, std::int64_t rows,
                          DType dtype = DType::kFloat32,
                          std::int64_t columns = 4) {
      const Bytes bytes(static_cast<std::size_t>(rows * columns * 4));
      Tensor tensor = Array(dtype, {rows, columns}, bytes);
      tensor.start = {start, 0};
      tensor.global_shape = {9, columns};
      StepBuilder builder = group.Begin(1);
      builder.Put("w", tensor);
      return std::move(builder).Commit().WaitCommitted(kLong);
    };
    const auto refused = [](const absl::Status& status, const char* why) {
      EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument,
                                   AllOf(HasSubstr("w"), HasSubstr(why))));
    };
    const int rank = group.rank();
    refused(save(3 * rank, rank == 1 ? 2 : 3), "[5, 0] of shape [1, 4]");
    refused(save(rank == 2 ? 5 : 3 * rank, 3),
            "of rank 1 overlaps the one at [5, 0]");
    refused(save(3 * rank, 3, rank == 1 ? DType::kInt32 : DType::kFloat32),
            "float32 of shape [9, 4] on rank 0 and int32");
    refused(save(3 * rank, 3, DType::kFloat32, rank == 2 ? 5 : 4),
            "on rank 0 and float32 of shape [9, 5] on rank 2");
    EXPECT_OK(SaveAll(group, 1));
  });
  ExpectStore({1}, kWorld);
}

TEST_F(RanksGroupTest, TreesThatContradictEachOther) {
  constexpr int kWorld = 2;
  InGroup(kWorld, [&](RankGroup& group) {
    const int rank = group.rank();
    const auto save = [&](auto put) {
      StepBuilder builder = group.Begin(1);
      builder.SetPerRank(Path());
      put(&builder);
      return std::move(builder).Commit().WaitCommitted(kLong);
    };
    EXPECT_THAT(
        save([&](StepBuilder* step) {
          step->PutInt(rank == 0 ? "a" : "a/b", 1);
        }),
        StatusIs(absl::StatusCode::kInvalidArgument,
                 HasSubstr("a/b of rank 1 lies below the leaf a of rank 0")));
    EXPECT_THAT(save([&](StepBuilder* step) {
                  step->PutInt(rank == 0 ? "x" : "y", 1).Tie("t", "nowhere");
                }),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("t is tied to nowhere")));
    // A tie to what another rank has.
    EXPECT_OK(save([&](StepBuilder* step) {
      step->PutInt(rank == 0 ? "x" : "y", 7 + rank).Tie("t", "y");
    }));
    EXPECT_EQ(*group.store().OpenStep(1)->Value("t")->Int(), 8);
  });
}

// ---- ranks that fail ----

TEST_F(RanksGroupTest, OneRankFailsTheStepOnAll) {
  constexpr int kWorld = 3;
  InGroup(kWorld, [&](RankGroup& group) {
    const int rank = group.rank();
    for (const int bad : {0, 1, 2}) {
      const Bytes rows = RowsOf(rank, 1);
      StepBuilder builder = group.Begin(1);
      PutAll(&builder, rank, kWorld, 1, rows);
      if (rank == bad) {
        Tensor tensor = Array(DType::kUint8, {100'000}, {});
        tensor.copy = [](std::uint64_t, std::span<std::byte>) {
          return absl::InternalError("the device is lost");
        };
        tensor.start = {0};
        tensor.global_shape = {100'000};
        builder.Put("x", tensor);
      }
      EXPECT_THAT(std::move(builder).Commit().WaitCommitted(kLong),
                  StatusIs(absl::StatusCode::kInternal,
                           HasSubstr("the device is lost")));
      // A mistake that the builder finds.
      StepBuilder mistaken = group.Begin(1);
      PutAll(&mistaken, rank, kWorld, 1, rows);
      if (rank == bad) mistaken.PutString("bad", "\xff");
      EXPECT_THAT(std::move(mistaken).Commit().WaitCommitted(kLong),
                  StatusIs(absl::StatusCode::kInvalidArgument,
                           AllOf(HasSubstr("UTF-8"),
                                 HasSubstr("rank " + std::to_string(bad)))))
          << rank;
      // A step that one rank drops.
      StepBuilder dropped = group.Begin(1);
      PutAll(&dropped, rank, kWorld, 1, rows);
      if (rank == bad) {
        const StepBuilder gone = std::move(dropped);
      } else {
        EXPECT_THAT(std::move(dropped).Commit().WaitCommitted(kLong),
                    StatusIs(absl::StatusCode::kCancelled,
                             HasSubstr("rank " + std::to_string(bad))));
      }
    }
    ASSERT_OK(SaveAll(group, 1));
  });
  ExpectStore({1}, kWorld);
  // No part is left behind, only the mailboxes.
  std::vector<std::string> left;
  for (const auto& entry :
       std::filesystem::directory_iterator(path() + "/staging")) {
    left.push_back(entry.path().filename());
  }
  EXPECT_THAT(left, ::testing::ElementsAre("job-test"));
}

TEST_F(RanksGroupTest, OptionsThatDiffer) {
  InGroup(2, [&](RankGroup& group) {
    StepBuilder builder = group.Begin(1, {.overwrite = group.rank() == 1});
    builder.PutInt("x", 1);
    EXPECT_THAT(std::move(builder).Commit().WaitCommitted(kLong),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("rank 1"), HasSubstr("overwrite=1"),
                               HasSubstr("overwrite=0"))));
  });
}

TEST_F(RanksGroupTest, ARankThatDoesNotComeIsNamed) {
  absl::Notification failed;
  OnAll(3, [&](int rank) {
    RankOptions options = Options(rank, 3);
    options.deadline = absl::Milliseconds(1500);
    absl::StatusOr<RankGroup> group = RankGroup::Open(path(), options);
    ASSERT_OK(group);
    if (rank == 2) {
      failed.WaitForNotification();
    } else {
      EXPECT_THAT(SaveAll(*group, 1),
                  StatusIs(absl::StatusCode::kDeadlineExceeded,
                           AllOf(HasSubstr("rank 2 of 3"),
                                 HasSubstr("not begun to save it"))))
          << rank;
      if (rank == 0) failed.Notify();
    }
    // They meet again.
    EXPECT_OK(SaveAll(*group, 2)) << rank;
    EXPECT_OK(group->Close());
  });
  ExpectStore({2}, 3);
}

// Nor is it waited for where it has come to a later step: there they meet.
TEST_F(RanksGroupTest, ARankThatLeavesOneOutIsNamedAtOnce) {
  InGroup(3, [&](RankGroup& group) {
    for (const std::int64_t step : {1, 2, 3, 4}) {
      if (group.rank() == 2 && step % 2 == 1) continue;
      const absl::Status saved = SaveAll(group, step);
      if (step % 2 == 0) {
        EXPECT_OK(saved) << group.rank();
        continue;
      }
      EXPECT_THAT(saved, StatusIs(absl::StatusCode::kFailedPrecondition,
                                  AllOf(HasSubstr("rank 2 of 3"),
                                        HasSubstr("and rank 0 step"))))
          << group.rank();
    }
  });
  ExpectStore({2, 4}, 3);
}

TEST_F(RanksGroupTest, OpenFailsOnAllRanks) {
  // One does not come at all.
  OnAll(2, [&](int rank) {
    RankOptions options = Options(rank, 3);
    options.open_deadline = absl::Milliseconds(300);
    const absl::Status status = RankGroup::Open(path(), options).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
    if (rank == 0) {
      EXPECT_THAT(status.message(), HasSubstr("did not come within"));
    }
  });
  // Another number of ranks.
  OnAll(2, [&](int rank) {
    RankOptions options = Options(rank, rank == 0 ? 2 : 3);
    options.open_deadline = absl::Milliseconds(500);
    const absl::Status status = RankGroup::Open(path(), options).status();
    if (rank == 1) {
      EXPECT_THAT(status,
                  StatusIs(absl::StatusCode::kFailedPrecondition,
                           AllOf(HasSubstr("3 ranks"), HasSubstr("says 2"))));
    } else {
      EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
    }
  });
  // Another job.
  OnAll(2, [&](int rank) {
    RankOptions options = Options(rank, 2);
    options.open_deadline = absl::Milliseconds(300);
    if (rank == 1) options.job = "another";
    EXPECT_THAT(
        RankGroup::Open(path(), options).status(),
        StatusIs(absl::StatusCode::kDeadlineExceeded,
                 HasSubstr(rank == 1 ? "no coordinator of job another" : "1")));
  });
  // A rank twice.
  std::mutex mu;
  int refused = 0;
  int opened = 0;
  OnAll(3, [&](int rank) {
    RankOptions options = Options(rank == 0 ? 0 : 1, 3);
    options.open_deadline = absl::Milliseconds(1000);
    const absl::Status status = RankGroup::Open(path(), options).status();
    const std::lock_guard<std::mutex> lock(mu);
    if (absl::IsFailedPrecondition(status) &&
        status.message().find("rank 1 is there already") !=
            status.message().npos) {
      ++refused;
    } else if (status.ok()) {
      ++opened;
    }
  });
  EXPECT_EQ(refused, 1);
  EXPECT_EQ(opened, 0);
}

TEST_F(RanksGroupTest, OptionsThatAreNone) {
  const auto code = [&](auto change) {
    RankOptions options = Options(0, 1);
    change(&options);
    return RankGroup::Open(path(), options).status();
  };
  const auto invalid = [](const char* what) {
    return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(what));
  };
  EXPECT_THAT(code([](RankOptions* o) { o->world = 0; }), invalid("0 ranks"));
  EXPECT_THAT(code([](RankOptions* o) { o->world = 5000; }), invalid("4096"));
  EXPECT_THAT(code([](RankOptions* o) { o->rank = 1; }),
              invalid("rank 1 of 1"));
  EXPECT_THAT(code([](RankOptions* o) { o->rank = -1; }), invalid("rank -1"));
  EXPECT_THAT(code([](RankOptions* o) { o->job = "a/b"; }), invalid("a/b"));
  EXPECT_THAT(code([](RankOptions* o) { o->job = ""; }), invalid("job ''"));
  EXPECT_THAT(code([](RankOptions* o) { o->deadline = absl::ZeroDuration(); }),
              invalid("deadline"));
  EXPECT_THAT(code([](RankOptions* o) { o->store.read_only = true; }),
              invalid("read_only"));
  EXPECT_FALSE(std::filesystem::exists(path()));
}

// The coordinator's process is gone, and another one has its place.
TEST_F(RanksGroupTest, ACoordinatorThatComesBack) {
  absl::StatusOr<RankGroup> old_member = absl::UnknownError("");
  {
    std::thread member([&] { old_member = Open(1, 2); });
    absl::StatusOr<RankGroup> coordinator = Open(0, 2);
    member.join();
    ASSERT_OK(coordinator);
    ASSERT_OK(old_member);
    std::thread saving([&] { EXPECT_OK(SaveAll(*old_member, 1)); });
    EXPECT_OK(SaveAll(*coordinator, 1));
    saving.join();
  }
  EXPECT_THAT(SaveAll(*old_member, 2),
              StatusIs(absl::StatusCode::kUnavailable,
                       HasSubstr("open the group again")));
  InGroup(2, [&](RankGroup& group) { EXPECT_OK(SaveAll(group, 2)); });
  EXPECT_THAT(SaveAll(*old_member, 3),
              StatusIs(absl::StatusCode::kUnavailable,
                       HasSubstr("open the group again")));
  // It was told of both.
  EXPECT_OK(old_member->Close());
  ExpectStore({1, 2}, 2);
}

// A rank is started again alone, and meets the others at their next step.
TEST_F(RanksGroupTest, ARankThatIsStartedAgain) {
  absl::Notification closed;
  OnAll(2, [&](int rank) {
    absl::StatusOr<RankGroup> group = Open(rank, 2);
    ASSERT_OK(group);
    EXPECT_OK(SaveAll(*group, 1));
    if (rank == 1) {
      ASSERT_OK(group->Close());
      closed.Notify();
      group = Open(1, 2);
      ASSERT_OK(group);
    } else {
      closed.WaitForNotification();
    }
    // Until it is there again; it may come into a call that just ends for want
    // of it.
    absl::Status saved;
    do {
      saved = SaveAll(*group, 2);
    } while (absl::IsUnavailable(saved));
    EXPECT_OK(saved);
  });
  ExpectStore({1, 2}, 2);
}

}  // namespace
}  // namespace ckptree::testing
