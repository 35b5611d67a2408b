// SPDX-License-Identifier: Apache-2.0

// A trainer that is killed at its requests, or whose server is, with its disk
// kept or removed: what it was told is there is read by a machine that has
// nothing else.

#include <sched.h>
#include <signal.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "tests/core/fixture.h"
#include "tests/fault/random.h"
#include "tests/fault/scale.h"
#include "tests/objects/fault_proxy.h"
#include "tests/objects/fixture.h"
#include "tests/remote/fixture.h"
#include "tests/remote/trainer.h"
#include "tests/testutil/temp_dir.h"

namespace ckptree::testing {
namespace {

namespace fs = std::filesystem;

// Lives on one address: what is there grows, and each is read.
constexpr int kLivesOfAStore = 10;
// More than an open and a save of a segment have.
constexpr int kRequestsOfALife = 24;

class RemoteKillTest : public ObjectStoreTest {
 protected:
  void SetUp() override { UseServers(); }

  // Another store.
  void Begin() {
    told_ = Told();
    address_ = absl::StrCat(Address(), "/", ++stores_);
    NewDisk();
  }
  void NewDisk() {
    if (!disk_.empty()) fs::remove_all(disk_);
    disk_ = disks_ / absl::StrCat("disk", ++made_);
  }
  std::int64_t Next() const {
    return told_.asked.empty() ? 1 : *told_.asked.rbegin() + 1;
  }
  int Lost(const std::string& what) {
    const std::string cache = disks_ / absl::StrCat("cache", ++made_);
    std::string wrong = RemoteFault(address_, told_, cache);
    if (wrong.empty()) wrong = DirectoryFault(disk_, cache);
    EXPECT_EQ(wrong, "") << what;
    fs::remove_all(cache);
    return wrong.empty() ? 0 : 1;
  }
  static void Tell(const std::string& name, int trials, int fired, int lost) {
    absl::PrintF("trial remote, %s, %s: %d trials, %d fired, %d lost\n",
                 StoreKind(), name, trials, fired, lost);
  }

  TempDir disks_;
  Told told_;
  std::string address_;
  std::string disk_;
  int stores_ = 0;
  int made_ = 0;
};

// At each of its requests: before it arrives, after it did, and such that it
// arrives when the next trainer has saved.
TEST_F(RemoteKillTest, ATrainerKilledAtItsRequests) {
  if (StoreKind() != "s3") GTEST_SKIP() << "of S3 alone: through a proxy";
  const std::string url = Environment("CKPTREE_TEST_S3");
  FaultProxy proxy(std::atoi(url.substr(url.rfind(':') + 1).c_str()));
  struct Kind {
    Fault fault;
    const char* name;
  };
  const int lives = ScaledWithServers(60);
  for (const Kind kind :
       {Kind{Fault::kLoseRequest, "killed before a request arrives"},
        Kind{Fault::kLoseAnswer, "killed after a request arrived"},
        Kind{Fault::kLateRequest, "killed, and its request arrives later"}}) {
    int fired = 0, lost = 0, removed = 0;
    for (int life = 0; life < lives; ++life) {
      if (life % kLivesOfAStore == 0) Begin();
      pid_t victim = 0;
      {
        // What was late may arrive when this one has saved once.
        Trainer trainer(disk_, address_, proxy.url(), Next());
        const std::size_t before = told_.acknowledged.size();
        if (kind.fault == Fault::kLateRequest) {
          while (told_.acknowledged.size() == before) {
            ASSERT_TRUE(trainer.Hear(kLong, &told_)) << trainer.failed();
          }
          proxy.Release();
        }
        victim = trainer.pid();
        proxy.ArmAt(kind.fault, (life * 7) % kRequestsOfALife,
                    [victim] { kill(victim, SIGKILL); });
        while (trainer.Hear(kLong, &told_)) {
        }
        EXPECT_EQ(trainer.failed(), "");
        fired += proxy.fired();
        trainer.End(&told_);
      }
      lost += Lost(kind.name);
      if (life % 2 == 1) {
        NewDisk();
        ++removed;
      }
    }
    proxy.Release();
    lost += Lost(kind.name);
    EXPECT_EQ(fired, lives);
    Tell(absl::StrCat(kind.name, " (", removed, " disks removed)"), lives,
         fired, lost);
  }
}

// The same where no proxy can stand between, of all requests of its life:
// before it sends one, while it does, and when it was answered.
TEST_F(RemoteKillTest, ATrainerKilledAtItsOwnRequests) {
  if (StoreKind() == "s3") GTEST_SKIP() << "through a proxy, above";
  struct Kind {
    AtRequest::Act act;
    const char* name;
  };
  const int lives = StoreKind() == "file" ? Scaled(60) : ScaledWithServers(60);
  for (const Kind kind :
       {Kind{AtRequest::Act::kDies, "killed before a request"},
        Kind{AtRequest::Act::kSays, "killed in a request"},
        Kind{AtRequest::Act::kDiesBehind, "killed behind a request"}}) {
    int fired = 0, lost = 0, removed = 0;
    for (int life = 0; life < lives; ++life) {
      if (life % kLivesOfAStore == 0) Begin();
      {
        Trainer trainer(disk_, address_, "", Next(), /*keep=*/false,
                        {.act = kind.act,
                         .number = 1 + (life * 7) % (2 * kRequestsOfALife)});
        ASSERT_TRUE(trainer.HearUntilItCame(&told_)) << trainer.failed();
        trainer.End(&told_);
        EXPECT_EQ(trainer.failed(), "");
        ++fired;
      }
      lost += Lost(kind.name);
      if (life % 2 == 1) {
        NewDisk();
        ++removed;
      }
    }
    Tell(absl::StrCat(kind.name, " (", removed, " disks removed)"), lives,
         fired, lost);
  }
}

// At any moment.
TEST_F(RemoteKillTest, ATrainerKilledAtAnyMoment) {
  FaultRandom random(TrialSeed());
  const int lives = ScaledWithServers(60);
  int fired = 0, lost = 0, removed = 0;
  for (int life = 0; life < lives; ++life) {
    if (life % kLivesOfAStore == 0) Begin();
    {
      Trainer trainer(disk_, address_, "", Next());
      // So many lines, and then as long as it may take to the next.
      for (int lines = 2 + static_cast<int>(random.Below(8)); lines > 0;
           --lines) {
        ASSERT_TRUE(trainer.Hear(kLong, &told_)) << trainer.failed();
      }
      trainer.Hear(absl::Milliseconds(random.Below(10)), &told_);
      fired += kill(trainer.pid(), 0) == 0 && trainer.failed().empty();
      trainer.End(&told_);
      EXPECT_EQ(trainer.failed(), "");
    }
    lost += Lost("killed");
    if (life % 2 == 1) {
      NewDisk();
      ++removed;
    }
  }
  EXPECT_EQ(fired, lives);
  Tell(absl::StrCat("trainer killed (", removed, " disks removed)"), lives,
       fired, lost);
}

// servers.py starts what is killed again, and says which process it is.
class ServerKillTest : public RemoteKillTest {
 protected:
  void SetUp() override {
    RemoteKillTest::SetUp();
    if (StoreKind() == "file" || Environment("CKPTREE_TEST_PIDS").empty()) {
      GTEST_SKIP() << "no server that keeps what it was given";
    }
  }
  static pid_t PidOf(const std::string& server) {
    pid_t said = 0;
    std::ifstream(Environment("CKPTREE_TEST_PIDS") + "/" + server) >> said;
    return said;
  }
  // Kills it, and hears of three more steps; whether it was started again.
  bool KillAndGoOn(const std::string& server, Trainer& trainer) {
    const pid_t victim = PidOf(server);
    EXPECT_GT(victim, 1);
    if (victim <= 1 || kill(victim, SIGKILL) != 0) return false;
    // What was on its way may still be acknowledged; of three more, some were
    // asked for after that.
    for (int more = 0; more < 3; ++more) HearOfOneMore(server, trainer);
    // Where nobody needs it at once it may still be starting.
    const absl::Time until = absl::Now() + kLong;
    while (PidOf(server) == victim && absl::Now() < until) sched_yield();
    return PidOf(server) != victim;
  }
  void HearOfOneMore(const std::string& server, Trainer& trainer) {
    const std::size_t before = told_.acknowledged.size();
    while (told_.acknowledged.size() == before) {
      ASSERT_TRUE(trainer.Hear(absl::Minutes(3), &told_))
          << server << ": " << trainer.failed();
    }
  }

  void KillUnderATrainer(const std::string& server) {
    const int trials = ScaledWithServers(50);
    int fired = 0;
    Begin();
    // Segments leave its disk, too.
    Trainer trainer(disk_, address_, "", Next(), /*keep=*/true);
    for (int trial = 0; trial < trials && !HasFatalFailure(); ++trial) {
      HearOfOneMore(server, trainer);
      fired += KillAndGoOn(server, trainer);
    }
    trainer.End(&told_);
    EXPECT_EQ(trainer.failed(), "");
    EXPECT_GT(trainer.left(), 0);
    EXPECT_EQ(fired, trials);
    Tell(absl::StrCat(server, " killed and restarted"), trials, fired,
         Lost(server));
  }

  // At the n-th request of a trainer's life, an open's among them, while it is
  // sent.
  void KillAtARequest(const std::string& server) {
    const int trials = ScaledWithServers(50);
    int fired = 0, lost = 0;
    for (int trial = 0; trial < trials && !HasFatalFailure(); ++trial) {
      if (trial % kLivesOfAStore == 0) Begin();
      {
        Trainer trainer(disk_, address_, "", Next(), /*keep=*/false,
                        {.act = AtRequest::Act::kSays,
                         .number = 1 + (trial * 7) % (2 * kRequestsOfALife)});
        ASSERT_TRUE(trainer.HearUntilItCame(&told_)) << trainer.failed();
        fired += KillAndGoOn(server, trainer);
        trainer.End(&told_);
        EXPECT_EQ(trainer.failed(), "");
      }
      lost += Lost(absl::StrCat(server, " at a request, trial ", trial));
    }
    EXPECT_EQ(fired, trials);
    Tell(absl::StrCat(server, " killed at a request, and restarted"), trials,
         fired, lost);
  }
};

TEST_F(ServerKillTest, AGatewayKilledUnderATrainer) {
  if (StoreKind() != "s3") GTEST_SKIP() << "of S3 alone";
  KillUnderATrainer("radosgw");
}

TEST_F(ServerKillTest, AGatewayKilledAtARequest) {
  if (StoreKind() != "s3") GTEST_SKIP() << "of S3 alone";
  KillAtARequest("radosgw");
}

TEST_F(ServerKillTest, AMonitorKilledAtARequest) { KillAtARequest("mon"); }

TEST_F(ServerKillTest, ADaemonOfCephKilledAtARequest) { KillAtARequest("osd"); }

// Who has a connection goes on without a monitor, and asks the next one.
TEST_F(ServerKillTest, AMonitorKilledUnderATrainer) {
  KillUnderATrainer("mon");
}

// Ten seconds each: a test of its own, with the label `long`.
TEST_F(ServerKillTest, ADaemonOfCephKilledUnderATrainer) {
  KillUnderATrainer("osd");
}

}  // namespace
}  // namespace ckptree::testing

int main(int argc, char** argv) {
  if (const int code = ckptree::testing::TrainerMain(argc, argv); code >= 0) {
    return code;
  }
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
