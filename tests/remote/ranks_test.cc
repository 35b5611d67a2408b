// SPDX-License-Identifier: Apache-2.0

// Ranks that meet in a folder, of which rank 0 ships what all of them save, and
// ranks that meet in the remote, each with a directory of its own: what any of
// them was told is there is read by a machine that has nothing else, whichever
// of them is killed.

#include "ckptree/ranks.h"

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "ckptree/ckptree.h"
#include "core/ranks/group.h"
#include "gtest/gtest.h"
#include "tests/core/fixture.h"
#include "tests/fault/directory.h"
#include "tests/fault/fs.h"
#include "tests/fault/plan.h"
#include "tests/fault/random.h"
#include "tests/fault/runner.h"
#include "tests/objects/counting_store.h"
#include "tests/objects/fixture.h"
#include "tests/remote/fixture.h"

namespace ckptree::testing {
namespace {

namespace fs = std::filesystem;

constexpr int kWorld = 3;
constexpr std::int64_t kStepsOfALife = 4;
constexpr int kLivesOfAStore = 10;
// Where $CKPTREE_TEST_KILLS does not say: a life on servers takes seconds.
constexpr int kKills = 15;
constexpr int kKillsOnServers = 3;
constexpr int kCallsOfALife = 30;     // Of a rank: fewer than it makes.
constexpr int kRequestsOfALife = 60;  // Likewise.
constexpr int kMostMilliseconds = 300;

// Every third large enough for segments.
std::size_t RowBytes(std::int64_t step) {
  return step % 3 == 0 ? std::size_t{1200} << 10 : std::size_t{1} << 10;
}

Bytes RowsOf(int rank, std::int64_t step) {
  return RandomBytes(RowBytes(step), 1000 * step + rank);
}

SaveHandle Save(RankGroup& group, std::int64_t step, const Bytes& rows) {
  StepBuilder builder = group.Begin(step);
  const auto size = static_cast<std::int64_t>(rows.size());
  Tensor tensor = Uint8s(rows);
  tensor.start = {size * group.rank()};
  tensor.global_shape = {size * kWorld};
  builder.Put("w", tensor).PutInt("count", step);
  return std::move(builder).Commit();
}

// What is wrong with that step; empty: nothing.
std::string StepFault(const Store& store, std::int64_t step) {
  const absl::StatusOr<Step> read = store.OpenStep(step);
  if (!read.ok()) return std::string(read.status().ToString());
  Bytes wanted;
  for (int rank = 0; rank < kWorld; ++rank) {
    const Bytes rows = RowsOf(rank, step);
    wanted.insert(wanted.end(), rows.begin(), rows.end());
  }
  Bytes found(wanted.size());
  const absl::Status got = read->Read("w", std::span(found));
  if (!got.ok()) return std::string(got.ToString());
  if (found != wanted) return absl::StrCat("step ", step, " has other bytes");
  return read->Read<std::int64_t>("count").value() == step
             ? ""
             : absl::StrCat("step ", step, " has another count");
}

int WantedKills() {
  const char* const wanted = std::getenv("CKPTREE_TEST_KILLS");
  if (wanted != nullptr) return std::max(1, std::atoi(wanted));
  return StoreKind() == "file" ? kKills : kKillsOnServers;
}

// Which rank dies, and when: at a call of its file system, at a request to the
// object store, or some time after it has opened the group.
struct Death {
  int who = -1;
  std::uint64_t at_call = 0;  // 0: not so.
  int at_request = 0;         // 0: not so.
  int milliseconds = 0;

  bool by_time() const { return at_call == 0 && at_request == 0; }
};

class RemoteRanksTest : public ObjectStoreTest {
 protected:
  void SetUp() override { UseServers(); }

  std::string disk(int rank) const {
    return shared_ ? directory_.store()
                   : absl::StrCat(directory_.store(), rank);
  }
  void RemoveDisks() const {
    for (int rank = 0; rank < kWorld; ++rank) fs::remove_all(disk(rank));
  }

  RankOptions Options(int rank, int life, Durable durable) const {
    RankOptions options;
    options.rank = rank;
    options.world = kWorld;
    options.job = absl::StrCat("life-", life);
    options.shared_folder = shared_;
    // Each word is a request, or some. A server that shares its machine with
    // others may keep one for seconds.
    options.deadline = absl::Milliseconds(shared_                 ? 500
                                          : StoreKind() == "file" ? 1500
                                                                  : 4000);
    options.open_deadline = kLong;  // Nobody dies before all are there.
    options.store = RemoteOptions(address_);
    options.store.durable = durable;
    options.store.take_over = true;
    options.store.threads = 1;
    return options;
  }

  // Each rank saves the steps from `first` on, and says ASK, ACK and ERR.
  std::vector<TrialResult> Live(int life, std::int64_t first, Durable durable,
                                const Death& death) const {
    return RunChildren(
        kWorld,
        [&](int rank, const TrialPipe& pipe) {
          signal(SIGPIPE, SIG_IGN);
          std::optional<RequestCount> requests;
          std::atomic<int> left = 0;
          if (rank == death.who && death.at_request != 0) {
            requests.emplace();
            requests->SetHook([&left](const std::string&) {
              if (left > 0 && --left == 0) kill(getpid(), SIGKILL);
              return absl::OkStatus();
            });
          }
          std::shared_ptr<FaultFs> file_system;
          if (rank == death.who && death.at_call != 0) {
            file_system = std::make_shared<FaultFs>("", counts_.get());
          }
          absl::StatusOr<RankGroup> group = internal::RankGroupPeer::Open(
              disk(rank), Options(rank, life, durable), file_system);
          if (!group.ok()) {
            pipe.Say("OPEN " + std::string(group.status().ToString()));
            return;
          }
          if (file_system != nullptr) {
            file_system->Arm({FaultPlan{.mode = FaultPlan::Mode::kKill,
                                        .at = death.at_call}});
          }
          left = death.at_request;
          std::thread killer;
          if (rank == death.who && death.by_time()) {
            killer = std::thread([&death] {
              poll(nullptr, 0, death.milliseconds);
              kill(getpid(), SIGKILL);
            });
          }
          for (std::int64_t step = first;
               step < first + kStepsOfALife || killer.joinable(); ++step) {
            const Bytes rows = RowsOf(rank, step);
            pipe.Say(absl::StrCat("ASK ", step));
            const absl::Status saved =
                Save(*group, step, rows).WaitCommitted(kLong);
            pipe.Say(absl::StrCat(saved.ok() ? "ACK " : "ERR ", step, " ",
                                  saved.ok() ? "" : saved.ToString()));
            if (!saved.ok() && !killer.joinable()) break;
          }
          // What failed was told.
          group->Close().IgnoreError();
          pipe.Say("CLOSED");
          if (killer.joinable()) killer.join();
        },
        /*seconds=*/360);
  }

  // Read by its address: every step is whole, was asked for, and what was
  // acknowledged is there.
  TrialResult Judge(int life, const std::set<std::int64_t>& asked,
                    const std::set<std::int64_t>& acknowledged) const {
    return RunChild([&](const TrialPipe& pipe) {
      const std::string cache = absl::StrCat(directory_.path(), "/cache", life);
      setenv("XDG_CACHE_HOME", cache.c_str(), 1);
      const absl::StatusOr<Store> store =
          Store::Open(address_, ToRead(QuietOptions()));
      if (absl::IsNotFound(store.status()) && acknowledged.empty()) return;
      if (!store.ok()) {
        pipe.Say("WRONG " + std::string(store.status().ToString()));
        return;
      }
      std::set<std::int64_t> there;
      const std::vector<StepInfo> steps = store->Steps().value();
      for (const StepInfo& info : steps) {
        there.insert(info.step);
        if (!asked.contains(info.step)) {
          pipe.Say(absl::StrCat("WRONG step ", info.step, " from nowhere"));
        }
        const std::string wrong = StepFault(*store, info.step);
        if (!wrong.empty()) pipe.Say("WRONG " + wrong);
      }
      for (const std::int64_t step : acknowledged) {
        if (!there.contains(step)) {
          pipe.Say(absl::StrCat("WRONG step ", step, " is lost"));
        }
      }
      const absl::StatusOr<VerifyReport> report =
          store->Verify({.level = VerifyOptions::Level::kDeep});
      if (!report.ok()) pipe.Say("WRONG " + report.status().ToString());
      for (const Finding& finding : report->findings) {
        pipe.Say("WRONG " + finding.what);
      }
      fs::remove_all(cache);
    });
  }

  static void Keep(const std::vector<std::string>& said,
                   std::set<std::int64_t>* steps) {
    for (const std::string& text : said) steps->insert(std::stoll(text));
  }

  // A life in which all save all they are to; then all that was saved until
  // now, in `all`, is there.
  void LiveUnhurt(int life, std::int64_t first, Durable durable,
                  std::set<std::int64_t>* all) {
    for (const TrialResult& rank : Live(life, first, durable, {})) {
      EXPECT_EQ(rank.Said("ACK").size(), kStepsOfALife) << rank.Text();
      EXPECT_EQ(rank.Said("CLOSED").size(), 1) << rank.Text();
      Keep(rank.Said("ACK"), all);
    }
    const TrialResult judged = Judge(life, *all, *all);
    EXPECT_TRUE(judged.lines.empty() && !judged.broken()) << judged.Text();
  }

  // Lives in which a rank is killed, until WantedKills() of them were: each
  // rank as often as another.
  void KillOneAfterAnother();

  bool shared_ = true;  // A folder.
  TrialDirectory directory_;
  SharedFaultCounts counts_;
  std::string address_;
};

// What all of them save is there, and the next job goes on from there alone.
TEST_F(RemoteRanksTest, WhatAllSaveIsShippedByRankZero) {
  address_ = absl::StrCat(Address(), "/plain");
  std::set<std::int64_t> all;
  // The second goes on from the disk of the first, the third without it.
  for (int life = 1; life <= 3; ++life) {
    const Durable durable = life == 1 ? Durable::kLocal : Durable::kRemote;
    const std::int64_t first = 1 + (life - 1) * kStepsOfALife;
    LiveUnhurt(life, first, durable, &all);
    if (life == 2) RemoveDisks();
  }
  EXPECT_EQ(all.size(), static_cast<std::size_t>(3 * kStepsOfALife));
}

TEST_F(RemoteRanksTest, WhatAllSaveFromDirectoriesOfTheirOwn) {
  shared_ = false;
  address_ = absl::StrCat(Address(), "/apart");
  std::set<std::int64_t> all;
  for (int life = 1; life <= 2; ++life) {
    const std::int64_t first = 1 + (life - 1) * kStepsOfALife;
    LiveUnhurt(life, first, Durable::kRemote, &all);
    if (life == 1) RemoveDisks();
  }
  EXPECT_EQ(all.size(), static_cast<std::size_t>(2 * kStepsOfALife));
}

TEST_F(RemoteRanksTest, OneOfThemIsKilled) { KillOneAfterAnother(); }

TEST_F(RemoteRanksTest, OneWithADirectoryOfItsOwnIsKilled) {
  shared_ = false;
  KillOneAfterAnother();
}

void RemoteRanksTest::KillOneAfterAnother() {
  FaultRandom random(TrialSeed());
  const int wanted = WantedKills();
  std::set<std::int64_t> asked, acknowledged;
  int by_rank[kWorld] = {};
  int life = 0, fired = 0, removed = 0, wrong = 0;
  // A life may end before the call or the request at which it were to.
  for (; fired < wanted && life < 2 * wanted + kWorld; ++life) {
    if (life % kLivesOfAStore == 0) {
      address_ = absl::StrCat(Address(), "/", life);
      asked.clear();
      acknowledged.clear();
      RemoveDisks();
    }
    counts_->Reset();
    Death death;
    death.who = static_cast<int>(
        std::min_element(std::begin(by_rank), std::end(by_rank)) - by_rank);
    if (!shared_ && random.OneIn(2)) {
      death.at_request = 1 + random.Int(kRequestsOfALife);
    } else if (random.OneIn(2)) {
      death.at_call = 1 + random.Below(kCallsOfALife);
    } else {
      death.milliseconds = random.Int(kMostMilliseconds);
    }
    const std::int64_t first = asked.empty() ? 1 : *asked.rbegin() + 1;
    const std::vector<TrialResult> ranks =
        Live(life, first, Durable::kRemote, death);
    for (int rank = 0; rank < kWorld; ++rank) {
      const TrialResult& said = ranks[static_cast<std::size_t>(rank)];
      Keep(said.Said("ASK"), &asked);
      Keep(said.Said("ACK"), &acknowledged);
      const bool killed = said.killed && rank == death.who;
      fired += killed;
      by_rank[rank] += killed;
      EXPECT_FALSE(said.broken()) << rank << ": " << said.Text();
      EXPECT_EQ(said.killed, killed) << rank << ": " << said.Text();
      EXPECT_TRUE(said.Said("OPEN").empty()) << rank << ": " << said.Text();
    }
    const TrialResult judged = Judge(life, asked, acknowledged);
    wrong += !judged.lines.empty() || judged.broken();
    EXPECT_TRUE(judged.lines.empty() && !judged.broken())
        << "life " << life << ", rank " << death.who << ": " << judged.Text();
    if (random.OneIn(2)) {
      RemoveDisks();
      ++removed;
    }
  }
  absl::PrintF(
      "trial remote, %s, a rank of %d killed%s (%d disks removed): %d trials, "
      "%d fired, %d lost\n",
      StoreKind(), kWorld, shared_ ? "" : ", no folder shared", removed, life,
      fired, wrong);
  EXPECT_EQ(fired, wanted);
  for (const int count : by_rank) EXPECT_GE(count, wanted / kWorld);
}

}  // namespace
}  // namespace ckptree::testing
