// SPDX-License-Identifier: Apache-2.0

// The manager over several ranks: rank 0 decides, all of them save.

#include "ckptree/manager.h"

#include <atomic>
#include <barrier>
#include <cmath>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/manage/manager_ranks.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/ranks/fixture.h"

namespace ckptree::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class RanksManagerTest : public RanksTest {
 protected:
  using Steps = std::vector<std::int64_t>;

  // Saves what ExpectStep() knows.
  static absl::StatusOr<bool> Save(CheckpointManager& manager,
                                   const RankGroup& group, std::int64_t step,
                                   const SaveArguments& arguments = {}) {
    const Bytes rows = RowsOf(group.rank(), step);
    return manager.Save(
        step,
        [&](StepBuilder& builder) {
          PutAll(&builder, group.rank(), group.world(), step, rows);
          return absl::OkStatus();
        },
        arguments);
  }
  static CheckpointManager Over(const RankGroup& group,
                                ManagerOptions options = {}) {
    return CheckpointManager::Over(group, std::move(options)).value();
  }
  static Steps StepsOf(const std::vector<StepInfo>& infos) {
    Steps steps;
    for (const StepInfo& info : infos) steps.push_back(info.step);
    return steps;
  }
  // What each rank did, and that it was the same.
  struct Record {
    void Add(int rank, std::int64_t step) {
      const std::lock_guard<std::mutex> lock(mu);
      all[rank].push_back(step);
    }
    Steps Same(int world) {
      EXPECT_EQ(all.size(), static_cast<std::size_t>(world));
      for (const auto& [rank, steps] : all) EXPECT_EQ(steps, all[0]) << rank;
      return all[0];
    }
    std::mutex mu;
    std::map<int, Steps> all;
  };
};

TEST_F(RanksManagerTest, StepsByTheirNumber) {
  constexpr int kWorld = 3;
  Record saved;
  InGroup(kWorld, [&](RankGroup& group) {
    CheckpointManager manager =
        Over(group, {.save_interval_steps = 3, .save_on_steps = {5}});
    for (std::int64_t step = 1; step <= 10; ++step) {
      const auto should = manager.ShouldSave(step);
      const auto is = Save(manager, group, step);
      ASSERT_OK(should);
      ASSERT_OK(is);
      EXPECT_EQ(*is, *should);
      if (*is) saved.Add(group.rank(), step);
    }
    EXPECT_OK(manager.WaitUntilFinished(kLong));
    // What the outcome was told of, is seen.
    EXPECT_EQ(*manager.AllSteps(), (Steps{1, 3, 5, 6, 9}));
    EXPECT_EQ(*manager.LatestStep(), 9);
    const absl::StatusOr<Step> step = manager.OpenStep();
    ASSERT_OK(step);
    EXPECT_EQ(step->step(), 9);
    ExpectStep(group.store(), 3, kWorld);
  });
  // The first is saved because it is the first.
  EXPECT_EQ(saved.Same(kWorld), (Steps{1, 3, 5, 6, 9}));
  ExpectStore({1, 3, 5, 6, 9}, kWorld);
}

// Where the options say no, rank 0 does not have to be there.
TEST_F(RanksManagerTest, NobodyWaitsWhereTheNumberSaysNo) {
  InGroup(2, [&](RankGroup& group) {
    CheckpointManager manager = Over(group, {.save_interval_steps = 4});
    for (std::int64_t step = 0; step <= 9; ++step) {
      if (group.rank() == 0 && step % 4 != 0) continue;
      const auto saved = Save(manager, group, step);
      ASSERT_OK(saved);
      EXPECT_EQ(*saved, step % 4 == 0);
    }
  });
  ExpectStore({0, 4, 8}, 2);
}

// A clock that is ahead, a function that says no, another interval: of rank 0
// alone they count.
TEST_F(RanksManagerTest, RanksThatWouldDecideOtherwise) {
  constexpr int kWorld = 3;
  Record saved;
  const absl::Time start = absl::FromUnixSeconds(1'700'000'000);
  InGroup(kWorld, [&](RankGroup& group) {
    std::int64_t now = 0;
    ManagerOptions options;
    options.clock = [&now, start, ahead = group.rank() == 1] {
      return start + absl::Minutes(10 * now) +
             (ahead ? absl::Hours(1) : absl::ZeroDuration());
    };
    options.save_decision =
        AnySave{{ContinuousCheckpointing{absl::Minutes(group.rank() + 25)},
                 SaveIf{[&](std::int64_t step, std::optional<std::int64_t>) {
                   return group.rank() == 0 ? step == 4 : step % 2 == 0;
                 }}}};
    CheckpointManager manager = Over(group, options);
    for (std::int64_t step = 1; step <= 10; ++step) {
      now = step;
      const auto is = Save(manager, group, step);
      ASSERT_OK(is);
      if (*is) saved.Add(group.rank(), step);
      ASSERT_OK(manager.WaitUntilFinished(kLong));
    }
    // Its time, too, is rank 0's.
    EXPECT_EQ(group.store().Resolve(AtStep(4))->begun,
              start + absl::Minutes(40));
  });
  EXPECT_EQ(saved.Same(kWorld), (Steps{1, 4, 7, 10}));
  ExpectStore({1, 4, 7, 10}, kWorld);
}

TEST_F(RanksManagerTest, AnotherIntervalOnARank) {
  InGroup(2, [&](RankGroup& group) {
    CheckpointManager manager =
        Over(group, {.save_interval_steps = group.rank() == 0 ? 2 : 3});
    for (std::int64_t step = 1; step <= 6; ++step) {
      const auto is = Save(manager, group, step);
      ASSERT_OK(is);
      EXPECT_EQ(*is, step == 1 || step % 2 == 0);
    }
  });
  ExpectStore({1, 2, 4, 6}, 2);
}

TEST_F(RanksManagerTest, WhichStepsLive) {
  constexpr int kWorld = 3;
  InGroup(kWorld, [&](RankGroup& group) {
    ManagerOptions options;
    options.max_to_keep = 2;
    options.best_metric = "loss";
    options.best_mode = BestMode::kMin;
    CheckpointManager manager = Over(group, options);
    for (std::int64_t step = 1; step <= 6; ++step) {
      const double loss =
          group.rank() == 0 ? static_cast<double>(step % 4) : std::nan("");
      ASSERT_OK(Save(manager, group, step, {.metrics = {{"loss", loss}}}));
    }
    ASSERT_OK(manager.WaitUntilFinished(kLong));
    // 4 and 5; the newest stays until a later one is there.
    EXPECT_EQ(*manager.AllSteps(), (Steps{4, 5, 6}));
    EXPECT_EQ(*manager.BestStep(), 4);
    EXPECT_EQ(manager.Metrics(5)->front().second, 1);
    EXPECT_EQ(manager.OpenStep(BestByPolicy())->step(), 4);
  });
  ExpectStore({4, 5, 6}, kWorld);
}

TEST_F(RanksManagerTest, ForceAndOverwrite) {
  constexpr int kWorld = 2;
  InGroup(kWorld, [&](RankGroup& group) {
    CheckpointManager manager = Over(group, {.save_interval_steps = 10});
    const auto save = [&](std::int64_t step, const SaveArguments& arguments) {
      return Save(manager, group, step, arguments);
    };
    EXPECT_EQ(*save(5, {}), true);
    EXPECT_EQ(*save(3, {}), false);
    EXPECT_EQ(*save(3, {.force = true}), true);
    EXPECT_EQ(*save(3, {.overwrite = true}), true);
    ASSERT_OK(manager.WaitUntilFinished(kLong));
    // On all of them, and they meet again.
    EXPECT_THAT(save(5, {.force = true}).status(),
                StatusIs(absl::StatusCode::kAlreadyExists,
                         HasSubstr("step 5 exists already")));
    EXPECT_OK(manager.WaitUntilFinished(kLong));
    EXPECT_EQ(*save(20, {}), true);
  });
  ExpectStore({3, 5, 20}, kWorld);
}

TEST_F(RanksManagerTest, ARankThatLeavesASaveOut) {
  constexpr int kWorld = 3;
  OnAll(kWorld, [&](int rank) {
    RankOptions options = Options(rank, kWorld);
    options.deadline = absl::Milliseconds(1500);
    absl::StatusOr<RankGroup> group = RankGroup::Open(path(), options);
    ASSERT_OK(group);
    CheckpointManager manager = Over(*group, {.save_interval_steps = 2});
    ASSERT_OK(Save(manager, *group, 2));
    ASSERT_OK(manager.WaitUntilFinished(kLong));
    if (rank != 1) {
      ASSERT_OK(Save(manager, *group, 4));
      EXPECT_THAT(manager.WaitUntilFinished(kLong),
                  StatusIs(absl::StatusCode::kUnavailable,
                           AllOf(HasSubstr("rank 1 of 3"),
                                 HasSubstr("not begun to save it"))));
    }
    const auto saved = Save(manager, *group, 6);
    ASSERT_OK(saved) << rank;
    EXPECT_TRUE(*saved);
    EXPECT_OK(manager.Close());
    EXPECT_OK(group->Close());
  });
  ExpectStore({2, 6}, kWorld);
}

TEST_F(RanksManagerTest, Rank0DoesNotCome) {
  std::barrier together(2);
  OnAll(2, [&](int rank) {
    RankOptions options = Options(rank, 2);
    options.deadline = absl::Milliseconds(300);
    absl::StatusOr<RankGroup> group = RankGroup::Open(path(), options);
    ASSERT_OK(group);
    CheckpointManager manager = Over(*group);
    if (rank == 1) {
      EXPECT_THAT(Save(manager, *group, 5).status(),
                  StatusIs(absl::StatusCode::kUnavailable,
                           AllOf(HasSubstr("rank 1 of 2"),
                                 HasSubstr("rank 0 did not come to save(5)"))));
      EXPECT_THAT(manager.ShouldSave(5).status(),
                  StatusIs(absl::StatusCode::kUnavailable,
                           HasSubstr("should_save(5)")));
      EXPECT_THAT(
          Save(manager, *group, 5, {.cancelled = [] { return true; }}).status(),
          StatusIs(absl::StatusCode::kCancelled, HasSubstr("save(5)")));
      const auto stop = [] { return true; };
      const absl::Status stopped[] = {manager.Delete(5, {}, stop),
                                      manager.DeleteAfter(5, {}, stop),
                                      manager.ForkFrom(5, "sweep", stop)};
      for (const absl::Status& status : stopped) {
        EXPECT_THAT(status, StatusIs(absl::StatusCode::kCancelled,
                                     HasSubstr("(5) was stopped")));
      }
      EXPECT_EQ(manager.branch(), "");
    }
    together.arrive_and_wait();
    const auto saved = Save(manager, *group, 6);
    ASSERT_OK(saved);
    EXPECT_TRUE(*saved);
    EXPECT_OK(manager.WaitUntilFinished(kLong));
    together.arrive_and_wait();
  });
  ExpectStore({6}, 2);
}

// One rank's failure is everybody's, once each; the next save works.
TEST_F(RanksManagerTest, AFailureIsToldOnAllRanks) {
  constexpr int kWorld = 3;
  InGroup(kWorld, [&](RankGroup& group) {
    CheckpointManager manager = Over(group);
    std::int64_t step = 0;
    for (const int bad : {0, 1, 2}) {
      const auto fails = [&](const char* what, auto put) {
        const absl::StatusOr<bool> saved =
            manager.Save(++step, [&](StepBuilder& builder) -> absl::Status {
              builder.PutInt("epoch", 1);
              if (group.rank() == bad) return put(builder);
              return absl::OkStatus();
            });
        if (group.rank() == bad && !saved.ok()) {
          EXPECT_THAT(std::string(saved.status().message()), HasSubstr(what));
          EXPECT_OK(manager.WaitUntilFinished(kLong));
          return;
        }
        ASSERT_OK(saved);
        const absl::Status told = manager.WaitUntilFinished(kLong);
        EXPECT_THAT(std::string(told.message()),
                    AllOf(HasSubstr(what), HasSubstr("step"),
                          HasSubstr("rank " + std::to_string(bad))));
        EXPECT_OK(manager.CheckForErrors());
      };
      fails("the device is lost", [](StepBuilder& builder) {
        Tensor tensor = Array(DType::kUint8, {100'000}, {});
        tensor.copy = [](std::uint64_t, std::span<std::byte>) {
          return absl::InternalError("the device is lost");
        };
        tensor.start = {0};
        tensor.global_shape = {100'000};
        builder.Put("x", tensor);
        return absl::OkStatus();
      });
      fails("UTF-8", [](StepBuilder& builder) {
        builder.PutString("bad", "\xff");
        return absl::OkStatus();
      });
      fails("no batch",
            [](StepBuilder&) { return absl::OutOfRangeError("no batch"); });
    }
    ASSERT_OK(Save(manager, group, 20));
  });
  ExpectStore({20}, kWorld);
}

// In place of Save(): for a reason that the manager does not see.
TEST_F(RanksManagerTest, WhatOneGivesUpAllHearOf) {
  constexpr int kWorld = 3;
  InGroup(kWorld, [&](RankGroup& group) {
    CheckpointManager manager = Over(group, {.save_interval_steps = 2});
    ASSERT_OK(Save(manager, group, 2));
    std::int64_t step = 2;
    for (const int bad : {0, 2}) {
      // Of a step that is not due nobody hears.
      if (group.rank() == bad) {
        EXPECT_OK(manager.GiveUpSave(step + 1, absl::OutOfRangeError("odd")));
      }
      step += 2;
      if (group.rank() == bad) {
        EXPECT_OK(manager.GiveUpSave(step, absl::OutOfRangeError("no layer")));
        EXPECT_OK(manager.WaitUntilFinished(kLong));
      } else {
        EXPECT_EQ(*Save(manager, group, step), true);
        EXPECT_THAT(std::string(manager.WaitUntilFinished(kLong).message()),
                    AllOf(HasSubstr("no layer"), HasSubstr("step"),
                          HasSubstr("rank " + std::to_string(bad))));
      }
      // The same step, where it can be saved.
      EXPECT_EQ(*Save(manager, group, step, {.force = true}), true);
      EXPECT_OK(manager.WaitUntilFinished(kLong));
    }
  });
  ExpectStore({2, 4, 6}, kWorld);
}

// What failed before is told by the next call that tells.
TEST_F(RanksManagerTest, GivingUpTellsNoOtherFailure) {
  for (const int bad : {0, 1}) {
    InGroup(2, [&](RankGroup& group) {
      CheckpointManager manager = Over(group);
      ASSERT_OK(manager.Save(10 + 100 * bad, [&](StepBuilder& builder) {
        builder.PutInt("seed", group.rank());
        return absl::OkStatus();
      }));
      const auto failed = StatusIs(absl::StatusCode::kInvalidArgument,
                                   HasSubstr("seed is not the same"));
      const std::int64_t step = 20 + 100 * bad;
      if (group.rank() == bad) {
        manager.GiveUpSave(step, absl::OutOfRangeError("x")).IgnoreError();
        EXPECT_THAT(manager.WaitUntilFinished(kLong), failed);
      } else {
        EXPECT_THAT(Save(manager, group, step).status(), failed);
      }
      EXPECT_OK(manager.WaitUntilFinished(kLong));
      EXPECT_EQ(*Save(manager, group, 30 + 100 * bad), true);
      EXPECT_OK(manager.WaitUntilFinished(kLong));
    });
  }
  ExpectStore({30, 130}, 2);
}

// Without a wait in between: the next save tells it, on all ranks.
TEST_F(RanksManagerTest, TheNextSaveTellsAFailure) {
  constexpr int kWorld = 3;
  InGroup(kWorld, [&](RankGroup& group) {
    CheckpointManager manager = Over(group);
    ASSERT_OK(manager.Save(1, [&](StepBuilder& builder) {
      builder.PutInt("seed", group.rank());
      return absl::OkStatus();
    }));
    EXPECT_THAT(Save(manager, group, 2).status(),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("seed is not the same")));
    ASSERT_OK(Save(manager, group, 3));
  });
  ExpectStore({3}, kWorld);
}

TEST_F(RanksManagerTest, AFunctionThatThrows) {
  InGroup(2, [&](RankGroup& group) {
    CheckpointManager manager = Over(
        group,
        {.should_save_fn = [&](std::int64_t step, std::optional<std::int64_t>) {
          if (step == 2) throw std::runtime_error("no idea");
          return true;
        }});
    ASSERT_OK(Save(manager, group, 1));
    const absl::Status status = Save(manager, group, 2).status();
    EXPECT_THAT(status,
                StatusIs(absl::StatusCode::kInternal, HasSubstr("no idea")));
    if (group.rank() == 1) {
      EXPECT_THAT(std::string(status.message()), HasSubstr("rank 0: "));
    }
    ASSERT_OK(Save(manager, group, 3));
  });
  ExpectStore({1, 3}, 2);
}

class RanksPreemptionTest : public RanksManagerTest,
                            public ::testing::WithParamInterface<int> {};

// It comes to one rank; all save the same step, once, and know it.
TEST_P(RanksPreemptionTest, AllRanksSaveTheSameStep) {
  constexpr int kWorld = 3;
  const int to = GetParam();
  for (const bool asks : {false, true}) {
    Record left;
    std::barrier together(kWorld);  // As training keeps them.
    InGroup(kWorld, [&](RankGroup& group) {
      ManagerOptions options;
      options.save_interval_steps = 1'000'000;
      options.watch_sigterm = true;
      options.max_to_keep = 1;
      CheckpointManager manager = Over(group, options);
      const std::int64_t first = asks ? 2'000'001 : 1;
      for (std::int64_t step = first;; ++step) {
        together.arrive_and_wait();
        if (step == first + 3 && group.rank() == to) {
          manager.RequestPreemption();
        }
        if (asks) {
          const auto reached = manager.ReachedPreemption(step);
          ASSERT_OK(reached);
          EXPECT_EQ(*reached, manager.ReachedPreemption());
          if (!*reached) continue;
        }
        const auto saved = Save(manager, group, step);
        ASSERT_OK(saved);
        if (!manager.SavedForPreemption()) continue;
        EXPECT_TRUE(*saved);
        EXPECT_TRUE(manager.ReachedPreemption());
        EXPECT_FALSE(manager.IsSavingInProgress());
        EXPECT_EQ(*manager.LatestStep(), step);
        left.Add(group.rank(), step);
        // Once.
        EXPECT_EQ(*Save(manager, group, step + 1), false);
        break;
      }
    });
    const Steps steps = left.Same(kWorld);
    ASSERT_EQ(steps.size(), 1u);
    EXPECT_GE(steps[0], asks ? 2'000'004 : 4);
    ExpectStore(steps, kWorld);
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, RanksPreemptionTest,
                         ::testing::Values(0, 1, 2));

TEST_F(RanksManagerTest, ChangesOfTheStore) {
  constexpr int kWorld = 2;
  std::barrier together(kWorld);
  InGroup(kWorld, [&](RankGroup& group) {
    CheckpointManager manager = Over(group);
    const auto sees = [&](const Steps& steps) {
      EXPECT_EQ(*manager.AllSteps(), steps) << group.rank();
      together.arrive_and_wait();
    };
    for (const std::int64_t step : {1, 2, 3, 4}) {
      ASSERT_OK(Save(manager, group, step));
    }
    ASSERT_OK(manager.WaitUntilFinished(kLong));
    EXPECT_OK(manager.Delete(2));
    sees({1, 3, 4});
    EXPECT_THAT(manager.Delete(2),
                StatusIs(absl::StatusCode::kNotFound, HasSubstr("2")));
    EXPECT_OK(manager.DeleteAfter(1));
    sees({1});
    ASSERT_OK(Save(manager, group, 2));
    EXPECT_OK(manager.ForkFrom(1, "sweep"));
    EXPECT_EQ(manager.branch(), "sweep");
    ASSERT_OK(Save(manager, group, 2));
    ASSERT_OK(manager.WaitUntilFinished(kLong));
    sees({2});
    EXPECT_EQ(StepsOf(*group.store().Steps()), (Steps{1, 2}));
  });
}

TEST_F(RanksManagerTest, AnotherNumberOfRanksGoesOn) {
  std::int64_t step = 0;
  for (const int world : {3, 1, 2}) {
    const std::int64_t before = step;
    InGroup(world, [&](RankGroup& group) {
      CheckpointManager manager =
          Over(group, {.save_interval_steps = 2, .max_to_keep = 1});
      if (before > 0) {
        EXPECT_EQ(*manager.LatestStep(), before);
        EXPECT_EQ(*manager.OpenStep()->Value("epoch")->Int(), before);
      }
      // Of a store with steps no odd one is the first.
      EXPECT_EQ(*Save(manager, group, before + 1), before == 0);
      EXPECT_EQ(*Save(manager, group, before + 2), true);
    });
    step = before + 2;
    ExpectStore({step}, world);
  }
}

TEST_F(RanksManagerTest, TwoManagersOfAGroup) {
  InGroup(2, [&](RankGroup& group) {
    CheckpointManager even = Over(group, {.save_interval_steps = 2});
    CheckpointManager all = Over(group, {.save_interval_steps = 5});
    for (std::int64_t step = 1; step <= 10; ++step) {
      ASSERT_OK(Save(even, group, step));
      ASSERT_OK(Save(all, group, step));
    }
  });
  ExpectStore({1, 2, 4, 5, 6, 8, 10}, 2);
}

TEST_F(RanksManagerTest, OptionsThatAreWrong) {
  for (const int bad : {0, 1}) {
    OnAll(2, [&](int rank) {
      absl::StatusOr<RankGroup> group = Open(rank, 2);
      ASSERT_OK(group);
      ManagerOptions options;
      if (rank == bad) options.max_to_keep = -1;
      const auto manager = CheckpointManager::Over(*group, options);
      if (rank == bad || bad == 0) {
        EXPECT_THAT(manager.status(),
                    StatusIs(absl::StatusCode::kInvalidArgument,
                             HasSubstr("max_to_keep")));
        return;
      }
      // Rank 0 waits for nobody, and learns it.
      ASSERT_OK(manager);
      absl::StatusOr<bool> saved = false;
      for (std::int64_t step = 1; saved.ok(); ++step) {
        saved = manager->ShouldSave(step);
      }
      EXPECT_THAT(saved.status(),
                  StatusIs(absl::StatusCode::kInvalidArgument,
                           AllOf(HasSubstr("rank 1: max_to_keep"))));
    });
  }
}

TEST_F(RanksManagerTest, AManagerThatOnlyReads) {
  InGroup(2, [&](RankGroup& group) {
    CheckpointManager manager = Over(group);
    ASSERT_OK(Save(manager, group, 1));
    ASSERT_OK(manager.Close());
    EXPECT_THAT(Save(manager, group, 2).status(),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         HasSubstr("was closed")));
    ManagerOptions options;
    options.store.read_only = true;
    CheckpointManager reader = Over(group, options);
    EXPECT_EQ(*reader.LatestStep(), 1);
    EXPECT_EQ(*Save(reader, group, 2), false);
  });
}

TEST_F(RanksManagerTest, WhatRank0IsAskedAbout) {
  using internal::AskedSteps;
  using internal::AskedStepsOf;
  const SaveDecision decision =
      AnySave{{FixedInterval{7}, SpecificSteps{{1, -5}},
               AnySave{{FixedInterval{-1}, OnPreemption{}, InitialSave{}}}}};
  const AskedSteps asked = AskedStepsOf(decision, /*watches=*/true);
  EXPECT_THAT(asked.intervals, ElementsAre(7, -1));
  EXPECT_THAT(asked.steps, ElementsAre(1, -5));
  EXPECT_TRUE(asked.preemption && asked.first && !asked.all);
  EXPECT_FALSE(AskedStepsOf(decision, false).preemption);
  const std::string bytes = asked.Encode();
  EXPECT_EQ(*AskedSteps::Decode(bytes), asked);
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_EQ(AskedSteps::Decode(bytes.substr(0, size)).status().code(),
              absl::StatusCode::kDataLoss)
        << size;
  }
  EXPECT_FALSE(AskedSteps::Decode(bytes + "x").ok());
  EXPECT_FALSE(AskedSteps::Decode(std::string(9, '\xff')).ok());
  AskedSteps zero;
  zero.intervals = {0};
  EXPECT_FALSE(AskedSteps::Decode(zero.Encode()).ok());
  EXPECT_TRUE(AskedStepsOf(AnySave{{ContinuousCheckpointing{}}}, false).all);
  const SaveDecision long_list =
      SpecificSteps{std::vector<std::int64_t>(1 << 20, 3)};
  EXPECT_TRUE(AskedStepsOf(long_list, false).all);
}

}  // namespace
}  // namespace ckptree::testing
